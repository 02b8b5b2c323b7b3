"""
STOMP over WebSocket with Spring's client at its defaults: it takes messages of 8,192 characters.
"""

from __future__ import annotations

import json
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.request
from base64 import b64encode
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.needed import neededProgram
from tests.waiting import TIMEOUT

from .daemon import Daemon
from .maven import classPath

CLIENT = ("spring", "org.springframework:spring-websocket")
"""Which client it is, for L{classPath}."""
EVENTS = 1000


class SpringClient:
    """The program that drives the client."""

    def __init__(self, address: tuple[str, int], topic: str, offset: str, ack: str) -> None:
        host, port = address
        command = [neededProgram("java"), "-cp", classPath(*CLIENT), "interop.Driver"]
        self._lines: queue.Queue[str] = queue.Queue()
        self.process = subprocess.Popen(
            [*command, f"ws://{host}:{port}/svcbroker/stomp", topic, offset, ack],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self.process.stdout.close()
        self._lines.put("the program has ended")

    def take(self, count: int) -> list[str]:
        """The next lines."""
        return [self._lines.get(timeout=TIMEOUT) for _ in range(count)]

    def stop(self) -> None:
        """End the program."""
        self.process.kill()
        self.process.wait()


class SpringTests(SynchronousTestCase):
    """C{WebSocketStompClient} over Tomcat's implementation of WebSocket."""

    timeout = 300

    def setUp(self) -> None:
        classPath(*CLIENT)
        root = Path(tempfile.mkdtemp(prefix="svcbroker-interop-"))
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        # Many events are in one block.
        self.daemon = Daemon(root / "data", ledger="pbft")
        self.addCleanup(self.daemon.stop, signal.SIGKILL)

    def call(self, method: str, *contents: str, **params: str) -> None:
        """Make a call of JSON-RPC, or for each content one."""
        each = [{"content": b64encode(content.encode()).decode()} for content in contents] or [{}]
        calls = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, **more}}
            for number, more in enumerate(each)
        ]
        host, port = self.daemon.http
        request = urllib.request.Request(
            f"http://{host}:{port}/svcbroker/jsonrpc",
            json.dumps(calls).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            for answer in json.load(response):
                self.assertIn("result", answer)

    def test_clientReadsHistoryAndBursts(self) -> None:
        contents = [f"{number:05}{'x' * (number % 100)}" for number in range(EVENTS)]
        for ack in ("auto", "client-individual"):
            topic = f"t/{ack}"
            self.call("open", topic=topic)
            self.call("publish", *contents, topic=topic)
            client = SpringClient(self.daemon.http, topic, "OFFSET_FIRST", ack)
            self.addCleanup(client.stop)
            self.assertEqual(client.take(1), ["ready"])
            wanted = [f"event\t{each}" for each in contents]
            self.assertEqual(client.take(EVENTS), wanted)
            self.call("publish", *contents, topic=topic)
            self.assertEqual(client.take(EVENTS), wanted)
            client.stop()
