"""
C{--dialect weevent-1.1} with the Java client of WeEvent from Maven Central.

Maven Central has the client of 1.0 only. It differs from 1.1 in the body of MESSAGE, which the
program in C{weevent/} adapts. CONNECT, SUBSCRIBE, receipts, listeners, the reconnect, and all of
JSON-RPC, are the client's own.
"""

from __future__ import annotations

import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.needed import neededProgram
from tests.waiting import TIMEOUT

from .daemon import Daemon
from .maven import classPath

CLIENT = ("weevent", "com.webank.weevent:weevent-client")
"""Which client it is, for L{classPath}."""
LEDGER = "pbft:nodes=4"
DIALECT = "--dialect=weevent-1.1"


class WeEventClient:
    """
    The program that drives the client.

    @ivar events: topic, content and extensions of the events that it was sent, in their order.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        host, port = address
        command = [neededProgram("java"), "-cp", classPath(*CLIENT), "interop.Driver"]
        self.events: list[tuple[str, str, str]] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [*command, f"http://{host}:{port}/weevent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        self.answer()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self.process.stdout.close()
        self._lines.put(None)

    def _next(self) -> list[str]:
        line = self._lines.get(timeout=TIMEOUT)
        if line is None:
            raise AssertionError("the client has ended")
        word, *rest = line.split("\t")
        if word == "event":
            topic, _, content, extensions = rest
            self.events.append((topic, content, extensions))
        return [word, *rest]

    def answer(self) -> str:
        """The answer to the last command: its value, or C{refused} or C{failed} and why."""
        answer = self._next()
        while answer[0] == "event":
            answer = self._next()
        return answer[1] if answer[0] == "done" else " ".join(answer)

    def ask(self, *words: str) -> str:
        """Give a command, and wait for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write("\t".join(words) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def waitFor(self, count: int) -> list[tuple[str, str, str]]:
        """Wait until there are so many events; take all."""
        while len(self.events) < count:
            self._next()
        events, self.events = self.events, []
        return events

    def stop(self) -> None:
        """End the program."""
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()


class WeEventTests(SynchronousTestCase):
    """The client of another product, unchanged."""

    timeout = 600

    def setUp(self) -> None:
        classPath(*CLIENT)
        root = Path(tempfile.mkdtemp(prefix="svcbroker-interop-"))
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        self.dataDir = root / "data"
        self.daemon = self.start()
        self.client = WeEventClient(self.daemon.http)
        self.addCleanup(self.client.stop)

    def start(self, *arguments: str) -> Daemon:
        daemon = Daemon(self.dataDir, [DIALECT, *arguments], ledger=LEDGER)
        self.addCleanup(daemon.stop, signal.SIGKILL)
        return daemon

    def publish(self, topic: str, content: str, tag: str = "red") -> None:
        answer = self.client.ask("publish", topic, content, tag)
        self.assertTrue(answer.startswith("SUCCESS "), answer)

    def test_clientManagesTopics(self) -> None:
        ask = self.client.ask
        self.assertEqual(ask("exist", "com.weevent.test"), "false")
        for _ in range(2):
            self.assertEqual(ask("open", "com.weevent.test"), "true")
        self.assertEqual(ask("list"), "1")
        self.publish("com.weevent.test", "hello")
        self.assertEqual(ask("state", "com.weevent.test"), "1")
        for _ in range(2):
            self.assertEqual(ask("close", "com.weevent.test"), "true")
        self.assertEqual(ask("exist", "com.weevent.test"), "true")

    def test_clientReadsEvents(self) -> None:
        self.client.ask("open", "a")
        answer = self.client.ask("publish", "a", "hello", "red")
        eventId = answer.removeprefix("SUCCESS ")
        self.assertEqual(self.client.ask("getEvent", eventId), "hello {weevent-tag=red}")

    def test_clientIsToldOfErrors(self) -> None:
        """By its own exception."""
        self.assertEqual(self.client.ask("state", "nowhere"), "refused topic does not exist")
        self.assertIn("64 characters", self.client.ask("open", 65 * "t"))

    def test_clientSubscribes(self) -> None:
        """From the first event, to a topic and to a pattern, until it unsubscribes."""
        for topic in ("orders/new", "orders/old"):
            self.client.ask("open", topic)
        self.publish("orders/new", "1", "blue")
        subscriptionId = self.client.ask("subscribe", "orders/new", "OFFSET_FIRST")
        self.publish("orders/new", "2")
        self.assertEqual(
            self.client.waitFor(2),
            [("orders/new", "1", "{weevent-tag=blue}"), ("orders/new", "2", "{weevent-tag=red}")],
        )
        self.assertEqual(self.client.ask("unSubscribe", subscriptionId), "true")
        self.client.ask("subscribe", "orders/#", "OFFSET_LAST")
        self.publish("orders/new", "3")
        self.publish("orders/old", "4")
        found = [(topic, content) for topic, content, _ in self.client.waitFor(2)]
        self.assertEqual(found, [("orders/new", "3"), ("orders/old", "4")])

    def test_clientResumesAfterARestart(self) -> None:
        """It reconnects by itself, and gets each event once."""
        self.client.ask("open", "a")
        self.publish("a", "1")
        self.client.ask("subscribe", "a", "OFFSET_FIRST")
        self.client.waitFor(1)
        host, port = self.daemon.http
        self.daemon.stop(signal.SIGKILL)
        self.daemon = self.start(f"--http=tcp:{port}:interface={host}")
        for content in ("2", "3"):
            self.publish("a", content)
        found = [content for _, content, _ in self.client.waitFor(2)]
        self.assertEqual(found, ["2", "3"])
