"""
Clients of other makes that follow topics over HTTP: curl, and the EventSource of a browser.

Each test is skipped where its client is not installed.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from twisted.web.server import Site

from tests.functional.daemon import TIMEOUT, Daemon, DaemonTestCase, reactor
from tests.functional.test_durability import Publishers
from tests.needed import neededProgram

from .test_tls_clients import PageSite

KILLS = int(os.environ.get("SVCBROKER_TEST_KILLS", "10"))
"""How often the daemon is killed. C{nox -s kills} does it fifty times every night."""
END = "the last event"
PAGE = (Path(__file__).parent / "follow.html").read_bytes()


class Curl(ProcessProtocol):
    """
    C{curl -N}, which is started again with the last id that it has got.

    @ivar ids: the ids of the events.
    @ivar ended: fires when the process has ended.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._unread = b""
        self._place = ""
        self.ids: list[str] = []
        self.hasLast: Deferred[None] = Deferred()
        self.ended: Deferred[None] = Deferred()

    def start(self, url: str) -> None:
        """Follow from the last id on."""
        self._unread = b""
        self.ended = Deferred()
        header = ("-H", f"Last-Event-ID: {self._place}") if self._place else ()
        arguments = [self._program, "-sN", *header, url]
        self.process = reactor.spawnProcess(self, self._program, arguments, env={})

    def outReceived(self, data: bytes) -> None:
        *blocks, self._unread = (self._unread + data).split(b"\n\n")
        for block in blocks:
            lines = block.decode().split("\n")
            fields = dict(line.split(": ", 1) for line in lines if ": " in line)
            self._place = fields.get("id", self._place)
            if fields.get("event") == "event":
                self.ids.append(self._place)
                if '"svc-last"' in fields["data"]:
                    self.hasLast.callback(None)

    def processEnded(self, reason: Failure) -> None:
        self.ended.callback(None)


class FollowTests(DaemonTestCase):
    timeout = 3 * TIMEOUT

    def setUp(self) -> None:
        super().setUp()
        self.http = "tcp:0:interface=127.0.0.1"
        self.answered: dict[str, str] = {}

    async def begin(self, *arguments: str) -> Daemon:
        """Start the daemon, each time on the same port."""
        daemon = await self.start(*arguments, ledger="pbft:nodes=1", http=self.http)
        port = daemon.base.split(":")[2].split("/")[0]
        self.http = f"tcp:{port}:interface=127.0.0.1"
        return daemon

    def lives(self) -> Iterator[int]:
        """How many events are published before each kill."""
        random = Random(14)
        return (random.randrange(1, 30) for _ in range(KILLS))

    async def kill(self, daemon: Daemon, wanted: int) -> None:
        """Publish so many events, and then kill the daemon under more publishes."""
        publishers = Publishers(daemon, wanted)
        running = publishers.run(4)
        await DeferredList(
            [running, publishers.enough], fireOnOneCallback=True, fireOnOneErrback=True
        )
        await daemon.stop(signal.SIGKILL)
        await running
        self.answered.update(publishers.answered)

    async def open(self, daemon: Daemon) -> None:
        for name in ("topic/0", "topic/1"):
            await daemon.call("/rest/open", topic=name)

    async def finish(self, daemon: Daemon) -> list[str]:
        """Publish the last event; the ids of all events, in their order."""
        last: dict[str, Any] = {"topic": "topic/0", "content": END, "svc-last": "1"}
        await daemon.call("/rest/publish", **last)
        reader = Curl(neededProgram("curl"))
        reader.start(f"{daemon.base}/rest/follow?topic=topic/%2B&from=OFFSET_FIRST")
        await reader.hasLast.addTimeout(TIMEOUT, reactor)
        reader.process.signalProcess("KILL")
        await reader.ended
        return reader.ids

    def check(self, got: list[str], log: list[str]) -> None:
        """Each event of the log was got once and in its order, and those that were answered."""
        self.assertEqual(got, log)
        self.assertEqual(self.answered.keys() - set(log), set())
        self.assertGreater(len(log), KILLS)

    async def test_curlAndBrowserResumeThroughKills(self) -> None:
        """Both follow from before there is an event, through the same kills."""
        curl = Curl(neededProgram("curl"))
        site = PageSite(PAGE)
        port = reactor.listenTCP(0, Site(site), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        origin = f"http://127.0.0.1:{port.getHost().port}"
        daemon = await self.begin(f"--cors-origin={origin}")
        await self.open(daemon)
        url = f"{daemon.base}/rest/follow?topic=topic/%2B&from=OFFSET_FIRST"
        browser = self.browse(f"{origin}/?{quote(url, safe='')}")
        for wanted in self.lives():
            curl.start(url)
            await self.kill(daemon, wanted)
            await curl.ended
            daemon = await self.begin(f"--cors-origin={origin}")
        curl.start(url)
        log = await self.finish(daemon)
        await curl.hasLast.addTimeout(TIMEOUT, reactor)
        curl.process.signalProcess("KILL")
        await curl.ended
        found = await site.found.addTimeout(TIMEOUT, reactor)
        browser.signalProcess("KILL")
        self.check(curl.ids, log)
        self.check(found.decode().split(), log)

    def browse(self, url: str) -> Any:
        """Open a page in a browser, which is closed at the end of the test."""
        program = neededProgram("chromium")
        browser, ended = ProcessProtocol(), Deferred[None]()
        browser.processEnded = lambda reason: ended.callback(None)  # type: ignore[method-assign]
        process = reactor.spawnProcess(
            browser,
            program,
            [
                *(program, "--headless", "--no-sandbox", "--disable-dev-shm-usage"),
                *(f"--user-data-dir={self.root / 'profile'}", url),
            ],
            env=self.environment,
        )

        def close() -> Deferred[None]:
            with contextlib.suppress(ProcessExitedAlready):
                process.signalProcess("KILL")
            return ended

        self.addCleanup(close)
        return process
