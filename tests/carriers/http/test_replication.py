"""
C{replication}: blocks for copies.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Access
from svcbroker.archive import StreamedBlock, StreamReader, _export
from svcbroker.broker import Copies
from svcbroker.carriers.http import replication
from svcbroker.carriers.http.replication import HEIGHT_HEADER, Replication
from svcbroker.interfaces import LedgerContext, submit
from svcbroker.ledgers import pbft
from svcbroker.model import OpenTopic
from svcbroker.testing import FaultyDisk
from tests.access.support import account
from tests.broker.support import makeFixture

from .accounts import Accounts, basic
from .support import BASE, Answer, Client, Connection, requestBytes

HEIGHT = HEIGHT_HEADER.decode().lower()


class ReplicationTests(SynchronousTestCase):
    """
    Tests for L{Replication}.
    """

    def setUp(self) -> None:
        self.fixture = makeFixture()
        self.clock = self.fixture.clock
        self.ledger = pbft.configure({"nodes": "1"})(
            LedgerContext(
                group="1",
                directory=Path(self.mktemp()),
                reactor=self.clock,
                now=self.clock.seconds,
                entropy=os.urandom,
                runInThread=FaultyDisk(),
                maxContent=1024,
            )
        )
        self.successResultOf(self.ledger.start())
        self.addCleanup(lambda: self.successResultOf(self.ledger.stop()))
        self.fixture = makeFixture(ledgers={"1": self.ledger})
        self.copies = Copies(self.fixture.broker.groups, self.clock, self.runInThread)
        self.replication = Replication(BASE, self.copies)
        self.client = self.makeClient()
        for name in ("a", "b", "c"):
            self.open(name)

    def makeClient(self, *accounts: Any) -> Client:
        """A client of a site with the route."""
        access = None
        if accounts:
            access = Access([Accounts(*accounts)], self.clock, self.clock.seconds)
        return Client(None, (self.replication.route,), self.fixture, access)

    def runInThread(self, f: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """Runs blocking reads."""
        return succeed(None).addCallback(lambda _: f(*args))

    def open(self, name: str) -> None:
        """Add a block."""
        answer = submit(self.ledger, OpenTopic(topic=name))
        self.clock.pump([0.01] * 3)
        self.successResultOf(answer)

    def read(self, query: str, **headers: str) -> Answer:
        """What is answered at once."""
        return self.client.ask("GET", f"{BASE}/replication/{query}", headers=headers)

    def wait(self, query: str) -> Connection:
        """A request that is not answered yet."""
        connection = self.client.connect()
        connection.send(requestBytes("GET", f"{BASE}/replication/{query}"))
        self.assertEqual(connection.answers(), [])
        return connection

    def heights(self, answer: Answer) -> list[int]:
        """The heights of the blocks in an answer."""
        self.assertEqual(answer.status, 200, answer)
        reader = StreamReader(BytesIO(answer.body))
        begin = reader.begin()
        blocks = [each for each in reader.rest() if isinstance(each, StreamedBlock)]
        self.assertEqual(len(blocks), begin.last - begin.first + 1)
        return list(range(begin.first, begin.last + 1))

    def test_blocksAreExported(self) -> None:
        """An answer is an export of the next blocks, and tells the height of the chain."""
        answer = self.read("1?from=2")
        self.assertEqual(self.heights(answer), [2, 3])
        self.assertEqual(answer.headers[HEIGHT], "3")
        self.assertEqual(answer.headers["content-type"], "application/octet-stream")
        self.assertEqual(self.heights(self.read("1")), [1, 2, 3])

    def test_partsCountAsOutput(self) -> None:
        """A part that was read while others were is not answered where too much is unread."""
        output = self.fixture.broker.budgets.output
        unread = output.unsent("")
        read = self.runInThread

        def readWhileOthersAre(f: Callable[..., Any], *args: Any) -> Deferred[Any]:
            unread.hold(output.total)
            return read(f, *args)

        self.copies._runInThread = readWhileOthersAre
        self.assertEqual(self.read("1").status, 503)
        unread.close()

    def test_answersAreBounded(self) -> None:
        """A long chain comes in parts."""
        self.patch(_export, "PART_BYTES", 1)
        answer = self.read("1?from=1")
        self.assertEqual(self.heights(answer), [1])
        self.assertEqual(answer.headers[HEIGHT], "3")

    def test_nextBlockIsWaitedFor(self) -> None:
        """Where there is no further block the answer comes with the next one."""
        waiting = self.wait("1?from=4&wait=20")
        self.clock.advance(10)
        self.assertEqual(waiting.answers(), [])
        self.open("d")
        [answer] = waiting.answers()
        self.assertEqual(self.heights(answer), [4])

    def test_waitEnds(self) -> None:
        """After the wait an answer without blocks comes; without one at once."""
        self.assertEqual(self.heights(self.read("1?from=4")), [])
        waiting = self.wait("1?from=4&wait=20")
        self.clock.advance(20)
        [answer] = waiting.answers()
        self.assertEqual(self.heights(answer), [])

    def test_clientThatLeavesIsForgotten(self) -> None:
        """A client that leaves while it waits gives its place back."""
        self.patch(replication, "MAX_COPIES", 4)
        self.replication = Replication(BASE, self.copies)
        self.client = self.makeClient()
        for _ in range(5):
            self.wait("1?from=4&wait=60").disconnect()
        waiting = self.wait("1?from=4&wait=60")
        answer = self.read("1?from=1")
        self.assertIn("as many as one address may have", answer.json()["message"])
        self.assertIn("retry-after", answer.headers)
        self.clock.advance(60)
        self.assertEqual(len(waiting.answers()), 1)

    def test_stoppingBrokerAnswersThoseWhoWait(self) -> None:
        """When the broker stops, copies that wait are answered."""
        waiting = self.wait("1?from=4&wait=60")
        self.successResultOf(self.replication.drain())
        [answer] = waiting.answers()
        self.assertEqual(answer.status, 503)
        self.assertEqual(answer.json()["message"], "the broker is stopping")

    def test_badRequestsAreRefused(self) -> None:
        """What cannot be answered has a status of its own."""
        for query, status in (
            ("1?from=0", 400),
            ("1?from=x", 400),
            ("1?from=1&wait=61", 400),
            ("1?from=5", 416),
            ("1?from=9223372036854775807", 416),
            ("3?from=1", 404),
            ("2?from=1", 400),
        ):
            answer = self.read(query)
            self.assertEqual(answer.status, status, (query, answer))
            self.assertEqual(answer.headers.get(HEIGHT), "3" if status == 416 else None)

    def test_accountsNeedAGrant(self) -> None:
        """Where there are accounts, those that may copy or operate a group read its blocks."""
        self.client = self.makeClient(
            account("ann", "operate 1"),
            account("bob", "operate 2", "copy 2", "subscribe 1 #", "admin 1"),
            account("cy", "copy 1"),
        )
        self.assertEqual(self.read("1").status, 401)
        self.assertEqual(self.read("1", **basic("bob")).status, 403)
        for name in ("ann", "cy"):
            self.assertEqual(self.heights(self.read("1", **basic(name))), [1, 2, 3])
