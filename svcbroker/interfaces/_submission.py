"""
Requests on their way into a ledger.
"""

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from ..errors import BrokerError
from ..model import Receipt


class Submission:
    """
    Requests that were submitted in one call, and the outcome of each as far as it is known.

    @ivar outcomes: in the order of the requests: the receipt, or the error why the request was not
        executed; C{None} while neither is known.
    @ivar done: fires with the submission when every outcome is known; the ledger never fails it.
        It belongs to the caller, who may cancel it, or fire it at a time-out. This does not
        affect the requests, and outcomes are still added here.
    """

    __slots__ = ("_left", "done", "outcomes")

    def __init__(self, count: int) -> None:
        """
        @param count: how many requests there are, 1 or more.
        """
        self.outcomes: list[Receipt | BrokerError | None] = [None] * count
        self.done: Deferred[Submission] = Deferred()
        self._left = count

    @classmethod
    def refused(cls, count: int, error: BrokerError) -> Submission:
        """
        A submission of which no request was accepted.

        @param error: the outcome of each.
        """
        submission = cls(count)
        submission.settle(0, [error] * count)
        return submission

    def settle(self, start: int, outcomes: Sequence[Receipt | BrokerError]) -> None:
        """
        Add the outcomes of consecutive requests. The ledger calls it, once for each request.

        @param start: the index of the first of these requests.
        """
        count = len(outcomes)
        self.outcomes[start : start + count] = outcomes
        self._left -= count
        if not self._left and not self.done.called:
            self.done.callback(self)

    def only(self) -> Deferred[Receipt]:
        """
        The receipt of a submission of one request.

        @return: fires with the receipt, or fails with the error why it was not executed.
            Cancelling it does not affect the request.
        """
        receipt: Deferred[Receipt] = Deferred()
        self.done.addCallback(_settleOnly, receipt)
        return receipt


def _settleOnly(submission: Submission, receipt: Deferred[Receipt]) -> None:
    [outcome] = submission.outcomes
    if receipt.called:
        return  # It was cancelled.
    if isinstance(outcome, Receipt):
        receipt.callback(outcome)
    else:
        receipt.errback(Failure(outcome))
