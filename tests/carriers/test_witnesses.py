"""
Tests for asking witnesses over HTTP.
"""

from __future__ import annotations

from typing import Any

from treq.testing import RequestTraversalAgent
from twisted.internet.defer import Deferred, fail
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.iweb import IAgent
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET
from zope.interface import implementer

from svcbroker.broker.transparency._cosigning import WitnessFailed
from svcbroker.broker.transparency.feature import TIMEOUT, WitnessClient
from svcbroker.net.http import HttpClient
from svcbroker.proofs.tlog import MAX_NOTE_SIZE


class FakeWitness(Resource):
    """
    Answers every request as a test says.

    @ivar asked: the method, the URL's path and the body of each request.
    """

    isLeaf = True

    def __init__(self, answer: bytes | int) -> None:
        super().__init__()
        self.asked: list[Any] = []
        self._answer = answer

    def render(self, request: Any) -> bytes | int:
        self.asked.append((request.method, request.uri, request.content.read()))
        request.setResponseCode(409)
        return self._answer


@implementer(IAgent)
class RefusingAgent:
    """An agent that reaches nothing."""

    def request(self, *args: Any, **kwargs: Any) -> Deferred[Any]:
        return fail(ConnectionRefusedError())


class WitnessClientTests(SynchronousTestCase):
    """
    Tests for L{WitnessClient}.
    """

    def setUp(self) -> None:
        self.clock = Clock()

    def ask(self, agent: IAgent, url: str = "https://w.example/log") -> Deferred[Any]:
        """Post a request."""
        client = HttpClient(agent, self.clock)
        return WitnessClient(client).addCheckpoint(url, b"old 0")

    def reason(self, asked: Deferred[Any]) -> str:
        """Why there is no answer."""
        return str(self.failureResultOf(asked, WitnessFailed).value)

    def test_requestIsPostedBelowTheUrl(self) -> None:
        """With or without a slash at the end of the URL."""
        for url in ("https://w.example/log", "https://w.example/log/"):
            witness = FakeWitness(b"7")
            found = self.successResultOf(self.ask(RequestTraversalAgent(witness), url))
            self.assertEqual(found, (409, b"7"))
            self.assertEqual(witness.asked, [(b"POST", b"/log/add-checkpoint", b"old 0")])

    def test_failuresOfTheNetworkAreTold(self) -> None:
        """No connection, no answer in time, or more than any note has."""
        self.assertIn("cannot be reached", self.reason(self.ask(RefusingAgent())))
        asked = self.ask(RequestTraversalAgent(FakeWitness(NOT_DONE_YET)))
        self.clock.advance(TIMEOUT)
        self.assertIn("in time", self.reason(asked))
        large = RequestTraversalAgent(FakeWitness(bytes(MAX_NOTE_SIZE + 1)))
        self.assertIn(f"more than {MAX_NOTE_SIZE} bytes", self.reason(self.ask(large)))
