"""
What is counted of publishes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from twisted.internet.defer import CancelledError

from ..errors import (
    BrokerError,
    LedgerUnavailable,
    NotAuthenticated,
    NotAuthorized,
    Overloaded,
    QuotaExceeded,
)
from ._values import Answer, SendStatus

# The first class that an error is of counts.
_STATUSES: Final[Mapping[type[Exception], str]] = {
    QuotaExceeded: "quota",
    Overloaded: "overloaded",
    NotAuthorized: "denied",
    NotAuthenticated: "denied",
    LedgerUnavailable: "unavailable",
    BrokerError: "refused",
    CancelledError: "cancelled",
}
_OF_RESULTS: Final = {
    SendStatus.SUCCESS: "success",
    SendStatus.TIMEOUT: "timeout",
    SendStatus.ERROR: "refused",
}
STATUSES: Final = tuple(dict.fromkeys((*_OF_RESULTS.values(), *_STATUSES.values(), "failed")))
"""What may become of a publish."""


class PublishMeter:
    """
    Counts publishes by what became of them. Hot path: a success costs one addition for each call of
    a carrier.

    @ivar successes: events that are in the log, by carrier.
    @ivar others: all other events, by carrier and one of L{STATUSES}.
    """

    def __init__(self) -> None:
        self.successes: Counter[str] = Counter()
        self.others: Counter[tuple[str, str]] = Counter()

    def counts(self, carrier: str) -> Iterator[tuple[tuple[str, str], int]]:
        """
        All counts of a carrier, those of 0 included: by it and one of L{STATUSES}.

        @param carrier: that of L{PublishPolicy<svcbroker.broker.PublishPolicy>}.
        """
        for status in STATUSES:
            isSuccess = status == _OF_RESULTS[SendStatus.SUCCESS]
            key = (carrier, status)
            yield key, self.successes[carrier] if isSuccess else self.others[key]

    def fail(self, carrier: str, error: BaseException | None, count: int = 1) -> None:
        """Count events that are not in the log, as far as is known."""
        status = next((s for kind, s in _STATUSES.items() if isinstance(error, kind)), "failed")
        self.others[carrier, status] += count

    def answer(self, carrier: str, answer: Answer | None) -> None:
        """
        Count an event by its answer.

        @param answer: C{None} where it is in the log.
        """
        if isinstance(answer, BrokerError):
            self.fail(carrier, answer)
        elif answer is None or answer.status is SendStatus.SUCCESS:
            self.successes[carrier] += 1
        else:
            self.others[carrier, _OF_RESULTS[answer.status]] += 1
