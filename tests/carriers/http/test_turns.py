"""
Requests that a client sends in one piece are answered over several turns of the reactor.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.http.fastpath import MAX_ANSWERED
from svcbroker.carriers.http.server import MAX_IN_TURN

from .support import BASE, Answer, requestBytes
from .twosites import FastClient, KleinClient

UNKNOWN = requestBytes("GET", "/x")
FOREIGN = requestBytes("GET", f"{BASE}/rest/list", headers={"Origin": "http://evil"})
EXIST = requestBytes("GET", f"{BASE}/rest/exist?topic=t")
COUNT = 2000


class TurnTests(SynchronousTestCase):
    """
    One connection to a site with the fast path.
    """

    hasFastPath = True

    def setUp(self) -> None:
        self.client = FastClient() if self.hasFastPath else KleinClient()
        self.clock = self.client.fixture.clock
        self.connection = self.client.connect()

    def turn(self) -> None:
        """Make the calls that are due, but not those that they make."""
        clock: Any = self.clock
        for call in [each for each in clock.getDelayedCalls() if each.getTime() <= clock.seconds()]:
            run, args, keywords = call.func, call.args, call.kw
            call.cancel()
            run(*args, **keywords)

    def answersOfTurns(self, most: int) -> list[Answer]:
        """The answers of all turns, each of which has a bound."""
        found: list[Answer] = []
        while True:
            answers = self.connection.answers()
            self.assertLessEqual(len(answers), most)
            found += answers
            if not answers:
                return found
            self.turn()

    def test_requestsOfOneReadAreAnsweredInTurns(self) -> None:
        most = MAX_ANSWERED if self.hasFastPath else MAX_IN_TURN
        for request, status, limit in (
            (UNKNOWN, 404, MAX_IN_TURN),
            (FOREIGN, 403, MAX_IN_TURN),
            (EXIST, 200, most),
        ):
            self.connection = self.client.connect()
            self.connection.send(request * COUNT)
            answers = self.answersOfTurns(limit)
            self.assertEqual([each.status for each in answers], [status] * COUNT)
            self.connection.disconnect()

    def test_readingStopsUntilTheNextTurn(self) -> None:
        for request in (UNKNOWN, EXIST):
            connection = self.connection = self.client.connect()
            connection.send(request * 300)
            self.assertEqual(connection.transport.producerState, "paused")
            while connection.answers():
                self.turn()
            self.assertEqual(connection.transport.producerState, "producing")
            connection.disconnect()

    def test_aClientThatReadsItsAnswersDoesNotEndTheTurn(self) -> None:
        self.connection.send(UNKNOWN * 200)
        self.assertEqual(len(self.connection.answers()), MAX_IN_TURN)
        for _ in range(3):
            self.connection.channel.pauseProducing()
            self.connection.channel.resumeProducing()
        self.assertEqual(self.connection.answers(), [])
        self.turn()
        self.assertEqual(len(self.connection.answers()), MAX_IN_TURN)

    def test_aClientThatDoesNotReadItsAnswersIsNotReadFrom(self) -> None:
        self.connection.send(UNKNOWN * 200)
        self.connection.answers()
        self.connection.channel.pauseProducing()
        self.turn()
        self.assertEqual(self.connection.answers(), [])
        self.connection.channel.resumeProducing()
        self.assertEqual(len(self.connection.answers()), MAX_IN_TURN)

    def test_mixedRequestsAreAnsweredInOrder(self) -> None:
        self.connection.send((EXIST * 100 + UNKNOWN * 100) * 4)
        statuses = [each.status for each in self.answersOfTurns(MAX_ANSWERED + MAX_IN_TURN)]
        self.assertEqual(statuses, ([200] * 100 + [404] * 100) * 4)

    def test_requestsOfSeveralReadsKeepTheirOrder(self) -> None:
        data = (UNKNOWN + EXIST) * 200
        for start in range(0, len(data), 1000):
            self.connection.send(data[start : start + 1000])
        statuses = [each.status for each in self.answersOfTurns(COUNT)]
        self.assertEqual(statuses, [404, 200] * 200)

    def test_aClientThatLeavesIsForgotten(self) -> None:
        self.connection.send(UNKNOWN * 200)
        self.connection.disconnect()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class TurnTestsWithoutFastPath(TurnTests):
    """
    The same on a site without the fast path.
    """

    hasFastPath = False
