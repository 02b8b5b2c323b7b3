"""
What is counted and measured of publishes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
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
from ..histogram import Histogram
from ..interfaces import ILedger
from ._values import Answer, SendResult, SendStatus

LATENCY_BOUNDS: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""The ranges of the latency to final, in seconds."""

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
CARRIERS: Final = ("http", "mqtt", "stomp", "webhook")
"""The carriers of L{PublishPolicy<svcbroker.broker.PublishPolicy>}."""

STATUSES: Final = tuple(dict.fromkeys((*_OF_RESULTS.values(), *_STATUSES.values(), "failed")))
"""What may become of a publish."""


class PublishMeter:
    """
    Counts publishes by what became of them, and measures how long they took.

    Hot path: a success costs one addition for each call of a carrier, and one observation.

    @ivar successes: events that are in the log, by carrier.
    @ivar others: all other events, by carrier and one of L{STATUSES}.
    @ivar latency: the time from a call until its events were in the log, by their ledger.
    """

    def __init__(self, ledgers: Iterable[ILedger]) -> None:
        self.successes: defaultdict[str, int] = defaultdict(int)
        self.others: Counter[tuple[str, str]] = Counter()
        self.latency = {ledger: Histogram(LATENCY_BOUNDS) for ledger in ledgers}

    def counts(self) -> Iterator[tuple[tuple[str, str], int]]:
        """All counts, those of 0 included: by carrier and one of L{STATUSES}."""
        for carrier in CARRIERS:
            for status in STATUSES:
                isSuccess = status == _OF_RESULTS[SendStatus.SUCCESS]
                key = (carrier, status)
                yield key, self.successes[carrier] if isSuccess else self.others[key]

    def fail(self, carrier: str, error: BaseException | None, count: int = 1) -> None:
        """Count events that are not in the log, as far as is known."""
        status = next((s for kind, s in _STATUSES.items() if isinstance(error, kind)), "failed")
        self.others[carrier, status] += count

    def answer(self, carrier: str, answer: Answer | None) -> bool:
        """
        Count an event by its answer.

        @param answer: C{None} where it is in the log.
        @return: whether it is in the log.
        """
        if isinstance(answer, SendResult):
            if answer.status is not SendStatus.SUCCESS:
                self.others[carrier, _OF_RESULTS[answer.status]] += 1
                return False
        elif answer is not None:
            self.fail(carrier, answer)
            return False
        self.successes[carrier] += 1
        return True
