"""
Tests for asking witnesses over HTTP.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.broker.transparency import WitnessFailed
from svcbroker.carriers.witnesses import TIMEOUT, WitnessClient
from svcbroker.net.http import HttpError, Problem
from svcbroker.tlog import MAX_NOTE_SIZE


class FakeHttpClient:
    """
    Answers every request as a test says.

    @ivar asked: the method, the URL, the body and the time-out of each request.
    """

    def __init__(self, answer: Deferred[Any]) -> None:
        self.asked: list[Any] = []
        self._answer = answer

    def request(self, method: bytes, url: str, **given: Any) -> Deferred[Any]:
        self.asked.append((method, url, given["body"], given["timeout"]))
        return self._answer


class FakeAnswer:
    """
    An answer with a body of any size.
    """

    status = 409

    def __init__(self, body: bytes) -> None:
        self._body = body

    def read(self, limit: int) -> Deferred[bytes]:
        if len(self._body) > limit:
            return fail(HttpError(Problem.TOO_LARGE))
        return succeed(self._body)


class WitnessClientTests(SynchronousTestCase):
    """
    Tests for L{WitnessClient}.
    """

    def ask(self, answer: Deferred[Any], url: str = "https://w.example/log") -> Deferred[Any]:
        """Post a request."""
        http: Any = FakeHttpClient(answer)
        asked = WitnessClient(http).addCheckpoint(url, b"old 0")
        self.asked = http.asked
        return asked

    def test_requestIsPostedBelowTheUrl(self) -> None:
        """With or without a slash at the end of the URL, and within a bounded time."""
        for url in ("https://w.example/log", "https://w.example/log/"):
            found = self.successResultOf(self.ask(succeed(FakeAnswer(b"7")), url))
            self.assertEqual(found, (409, b"7"))
            expected = (b"POST", "https://w.example/log/add-checkpoint", b"old 0", TIMEOUT)
            self.assertEqual(self.asked, [expected])

    def test_failuresOfTheNetworkAreTold(self) -> None:
        """No connection, no answer in time, or more than any note has."""
        for answer, words in (
            (fail(HttpError(Problem.UNREACHABLE)), "cannot be reached"),
            (fail(HttpError(Problem.TIMEOUT)), "in time"),
            (succeed(FakeAnswer(bytes(MAX_NOTE_SIZE + 1))), "more than any answer has"),
        ):
            error = self.failureResultOf(self.ask(answer), WitnessFailed).value
            self.assertIn(words, str(error))
