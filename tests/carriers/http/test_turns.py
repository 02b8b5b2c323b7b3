"""
Requests that take long are answered over several turns of the reactor.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http import connection as connectionModule
from svcbroker.carriers.http.connection import LEFT_AFTER, LOOK_EVERY
from svcbroker.net.budgets import READS_A_TURN

from .support import BASE, Answer, Connection, requestBytes
from .twosites import FastClient, KleinClient

UNKNOWN = requestBytes("GET", "/x")
FOREIGN = requestBytes("GET", f"{BASE}/rest/list", headers={"Origin": "http://evil"})
EXIST = requestBytes("GET", f"{BASE}/rest/exist?topic=t")
PUBLISH = requestBytes("GET", f"{BASE}/rest/publish?topic=t&content=x")
COUNT = 500
TICK = READS_A_TURN / 100
"""The time between two looks at the clock."""
MOST = 101
"""So many requests fit into a turn at the most."""


def batch(method: str, count: int, **params: str) -> bytes:
    """A batch of JSON-RPC."""
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return requestBytes("POST", f"{BASE}/jsonrpc", json.dumps([call] * count).encode())


class TurnTests(SynchronousTestCase):
    """
    Connections to a site with the fast path, where each look at the clock takes time.
    """

    hasFastPath = True

    def setUp(self) -> None:
        self.client = FastClient() if self.hasFastPath else KleinClient()
        self.clock: Any = self.client.fixture.clock
        self.client.rest("open?topic=t")
        self.clock.advance(1)
        self.client.fixture.broker.budgets.work.seconds = self.tick
        self.now = 0.0
        self.connection = self.client.connect()

    def tick(self) -> float:
        self.now += TICK
        return self.now

    def turn(self) -> None:
        """Make the calls that are due, but not those that they make."""
        for call in self.due():
            run, args, keywords = call.func, call.args, call.kw
            call.cancel()
            run(*args, **keywords)

    def due(self) -> list[Any]:
        """The calls of the next turn."""
        return [
            each for each in self.clock.getDelayedCalls() if each.getTime() <= self.clock.seconds()
        ]

    def answersOfTurns(self, connection: Connection, most: int = MOST) -> list[Answer]:
        """The answers of all turns, each of which has a bound."""
        found: list[Answer] = []
        while True:
            answers = connection.answers()
            self.assertLessEqual(len(answers), most)
            found += answers
            if not answers:
                return found
            self.turn()

    def test_requestsOfOneReadAreAnsweredInTurns(self) -> None:
        for request, status in ((UNKNOWN, 404), (FOREIGN, 403), (EXIST, 200)):
            connection = self.client.connect()
            connection.send(request * COUNT)
            answers = self.answersOfTurns(connection)
            self.assertEqual([each.status for each in answers], [status] * COUNT)
            connection.disconnect()

    def test_connectionsShareATurn(self) -> None:
        connections = [self.client.connect() for _ in range(20)]
        for each in connections:
            each.send(EXIST * 20)
        count = 0
        while count < 20 * 20:
            answered = sum(len(each.answers()) for each in connections)
            self.assertTrue(0 < answered <= MOST, answered)
            count += answered
            self.turn()

    def test_entriesOfABatchAreAnsweredInTurns(self) -> None:
        turns = 0
        self.connection.send(batch("exist", COUNT, topic="t"))
        while not (answers := self.connection.answers()):
            self.turn()
            turns += 1
        self.assertGreaterEqual(turns, COUNT // MOST)
        self.assertEqual(len(answers[0].json()), COUNT)

    def test_aLeavingClientEndsItsBatch(self) -> None:
        self.connection.send(batch("exist", COUNT, topic="t"))
        self.turn()
        self.connection.disconnect()
        self.turn()
        self.assertEqual(self.due(), [])

    def test_whoAsksForLittleComesFirst(self) -> None:
        greedy = [self.client.connect() for _ in range(5)]
        for each in greedy:
            each.send(EXIST * COUNT)
        for _ in range(3):
            self.turn()
        for each in greedy:
            each.answers()
        self.connection.send(EXIST)
        self.turn()
        self.assertEqual(len(self.connection.answers()), 1)
        self.assertGreater(sum(len(each.answers()) for each in greedy), 0)

    def test_publishesComeBeforeReads(self) -> None:
        self.connection.send(EXIST * COUNT)
        publisher = self.client.connect()
        publisher.send(PUBLISH)
        self.turn()
        self.clock.advance(0)
        self.assertEqual(len(publisher.answers()), 1)

    def test_theBeginningOfARequestTakesNoTime(self) -> None:
        """Not while its rest is waited for, behind an answer that was waited for, too."""
        work, ledger = self.client.fixture.broker.budgets.work, self.client.fixture.ledger
        work.seconds = self.clock.seconds
        for request in (PUBLISH, PUBLISH.replace(b"Host", b"Expect: x\r\nHost")):
            connection = self.client.connect()
            ledger.isHolding = True
            connection.send(request + EXIST[:5])
            ledger.isHolding = False
            ledger.release()
            self.clock.advance(30)
            connection.send(EXIST[5:])
            self.assertEqual([each.status for each in connection.answers()], [200, 200])
            other = self.client.connect()
            other.send(EXIST)
            self.assertEqual(len(other.answers()), 1)

    def test_readingStopsUntilTheNextTurn(self) -> None:
        for request in (UNKNOWN, EXIST):
            connection = self.client.connect()
            connection.send(request * 300)
            self.assertEqual(connection.transport.producerState, "paused")
            while connection.answers():
                self.turn()
            self.assertEqual(connection.transport.producerState, "producing")
            connection.disconnect()

    def test_aClientThatReadsItsAnswersDoesNotEndTheTurn(self) -> None:
        self.connection.send(UNKNOWN * 300)
        self.assertTrue(self.connection.answers())
        for _ in range(3):
            self.connection.channel.pauseProducing()
            self.connection.channel.resumeProducing()
        self.assertEqual(self.connection.answers(), [])
        self.turn()
        self.assertTrue(self.connection.answers())

    def test_aClientThatDoesNotReadItsAnswersIsNotReadFrom(self) -> None:
        self.connection.send(UNKNOWN * 300)
        self.connection.answers()
        self.connection.channel.pauseProducing()
        self.turn()
        self.assertEqual(self.connection.answers(), [])
        self.connection.channel.resumeProducing()
        self.assertTrue(self.connection.answers())

    def test_requestsBehindAnswersThatWereReadWaitForATurn(self) -> None:
        """A client that reads its answers at last has no more time than others."""
        self.connection.send(UNKNOWN * 300)
        self.connection.answers()
        self.connection.channel.pauseProducing()
        self.turn()
        self.client.connect().send(EXIST * COUNT)
        self.connection.channel.resumeProducing()
        self.assertEqual(self.connection.answers(), [])
        self.turn()
        self.assertTrue(self.connection.answers())

    def test_mixedRequestsAreAnsweredInOrder(self) -> None:
        self.connection.send((EXIST * 100 + UNKNOWN * 100) * 4)
        statuses = [each.status for each in self.answersOfTurns(self.connection, 2 * MOST)]
        self.assertEqual(statuses, ([200] * 100 + [404] * 100) * 4)

    def test_requestsOfSeveralReadsKeepTheirOrder(self) -> None:
        data = (UNKNOWN + EXIST) * 200
        for start in range(0, len(data), 1000):
            self.connection.send(data[start : start + 1000])
        statuses = [each.status for each in self.answersOfTurns(self.connection, COUNT)]
        self.assertEqual(statuses, [404, 200] * 200)

    def test_aClientThatLeavesIsForgotten(self) -> None:
        self.connection.send(UNKNOWN * 300)
        self.connection.disconnect()
        self.turn()
        self.assertEqual(self.due(), [])

    def test_aClientThatLeavesWhileItIsNotReadFromIsForgotten(self) -> None:
        """
        A call goes on while the client is there, and some time where it sends nothing more. What it
        has published is in the log.
        """
        lost: list[object] = []
        ended: list[object] = []
        self.patch(connectionModule, "isLost", lost.__contains__)
        self.patch(connectionModule, "hasEnded", ended.__contains__)
        ledger = self.client.fixture.ledger
        ledger.isHolding = True
        for request in (PUBLISH, batch("publish", 2, topic="t", content="eHg=")):
            for found, looks in ((lost, 1), (ended, LEFT_AFTER + 1)):
                connection = self.client.connect()
                connection.send(request)
                connection.send(EXIST * COUNT)
                self.assertEqual(connection.transport.producerState, "paused")
                found.append(connection.transport)
                self.clock.pump([LOOK_EVERY] * (looks - 1))
                self.assertEqual((connection.isOpen, connection.answers()), (True, []))
                self.clock.pump([LOOK_EVERY] * 2)
                self.assertFalse(connection.isOpen)
        self.connection.send(PUBLISH)
        self.connection.send(EXIST * COUNT)
        self.clock.pump([LOOK_EVERY] * 2 * LEFT_AFTER)
        self.assertTrue(self.connection.isOpen)
        ledger.release()
        self.assertEqual(self.client.rest("state?topic=t")["sequenceNumber"], 7)

    def test_clientsThatLeaveTogetherAreFoundInTurns(self) -> None:
        """A look takes as many turns as it needs, a few connections each."""
        lost: list[object] = []
        self.patch(connectionModule, "isLost", lost.__contains__)
        self.client.fixture.ledger.isHolding = True
        for name in ("LOOKED_AT", "CLOSED_AT_ONCE"):
            self.patch(connectionModule, name, 2)
            connections = [self.client.connect() for _ in range(5)]
            for connection in connections:
                connection.send(PUBLISH)
                connection.send(EXIST * COUNT)
                lost.append(connection.transport)
            self.clock.advance(0)  # each publish has begun, for which one turn may be too short
            site = self.client.site
            assert site._looking is not None
            site._looking.cancel()
            site._look()
            left = [each.isOpen for each in connections].count(True)
            self.assertIn(left, range(3, 6))
            self.clock.advance(0)
            self.assertEqual([each.isOpen for each in connections].count(True), 0)

    def test_nothingIsLookedAtWithoutConnections(self) -> None:
        for channel in tuple(self.client.site.channels):
            channel.connectionLost(Failure(ConnectionDone()))
        self.assertIsNone(self.client.site._looking)


class TurnTestsWithoutFastPath(TurnTests):
    """
    The same on a site without the fast path.
    """

    hasFastPath = False

    def test_publishesComeBeforeReads(self) -> None:
        self.connection.send(EXIST * COUNT)
        publisher = self.client.connect()
        publisher.send(PUBLISH)
        for _ in range(3):
            self.turn()
        self.clock.advance(0)
        self.assertEqual(len(publisher.answers()), 1)
