"""
Publishes that come one by one, submitted together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.python.failure import Failure

from ..errors import BrokerError, LedgerUnavailable
from ..interfaces import IBulkLedger, Submission
from ..model import PublishEvent
from ._values import SendResult, answerOf
from ._waiters import Waiters


class Gathering:
    """
    What is published to one ledger in one turn of the reactor.

    Many clients that each wait for an answer send their requests at about the same time. To submit
    these together, and to wait for them together, takes a third less than one after the other.

    @ivar open: the topics that were published to in this turn.
    """

    def __init__(self, ledger: IBulkLedger, clock: IReactorTime, waiters: Waiters) -> None:
        self.open: set[str] = set()
        self._ledger = ledger
        self._clock = clock
        self._waiters = waiters
        self._requests: list[PublishEvent] = []
        self._answers: list[Deferred[SendResult]] = []
        self._call: IDelayedCall | None = None

    def publish(self, request: PublishEvent) -> Deferred[SendResult]:
        """
        Publish an event, at the end of this turn of the reactor.

        @return: fires like L{Broker.publish<svcbroker.broker.Broker.publish>}. Cancelling it takes
            nothing back.
        """
        answer: Deferred[SendResult] = Deferred()
        self._requests.append(request)
        self._answers.append(answer)
        if self._call is None:
            self._call = self._clock.callLater(0, self._submit)
        return answer

    def flush(self) -> None:
        """
        Submit what was published until now, since something comes that is to be executed later.
        """
        if self._call is not None:
            self._call.cancel()
            self._submit()

    def stop(self) -> None:
        """
        Let go of the clock. Called once, after the ledger has stopped: what was not submitted will
        not be.
        """
        if self._call is not None:
            self._call.cancel()
            self._call = None
            error = LedgerUnavailable("the ledger is stopping")
            _settle(self._requests, self._answers, [error] * len(self._requests))

    def _submit(self) -> None:
        self._call = None
        requests, self._requests = self._requests, []
        answers, self._answers = self._answers, []
        self.open.clear()
        submission = self._ledger.submitMany(requests)
        # Where the time is over first, what is not known by then says so.
        self._waiters.wait(submission.done).addBoth(_settleAll, submission, requests, answers)


def _settleAll(
    result: object,
    submission: Submission,
    requests: Sequence[PublishEvent],
    answers: Sequence[Deferred[SendResult]],
) -> None:
    _settle(requests, answers, submission.outcomes)


def _settle(
    requests: Sequence[PublishEvent],
    answers: Sequence[Deferred[SendResult]],
    outcomes: Sequence[Any],
) -> None:
    for request, answer, outcome in zip(requests, answers, outcomes, strict=True):
        if answer.called:
            continue  # it was cancelled
        given = answerOf(outcome, request.topic)
        if isinstance(given, BrokerError):
            answer.errback(Failure(given))
        else:
            answer.callback(given)
