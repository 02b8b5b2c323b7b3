"""
Trying again: which failures allow it, after what delay, and with which broker of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import getLogger
from typing import Final

from attrs import define

from ..errors import (
    BrokerError,
    LedgerUnavailable,
    NodeBehind,
    Overloaded,
    QuotaExceeded,
    TransactionTimeout,
)
from ._effects import Delay, Procedure
from ._errors import Unreachable

FIRST_DELAY: Final = 0.1
MAX_DELAY: Final = 10.0
"""The back-off doubles from the first to this, in seconds."""
_SHORTEST: Final = 0.01

_log: Final = getLogger("svcbroker.client")


def isRefused(error: BrokerError) -> bool:
    """Whether an error says that the request was not executed, and may be sent again later."""
    if isinstance(error, Unreachable):
        return not error.isSent and not error.isFinal
    return isinstance(error, Overloaded | NodeBehind)


def isUncertain(error: BrokerError) -> bool:
    """Whether an error leaves open whether the request was executed."""
    if isinstance(error, Unreachable):
        return error.isSent
    return isinstance(error, TransactionTimeout | LedgerUnavailable)


@define(eq=False)
class Brokers:
    """
    The brokers of one network. All calls of a client use the same one, until it fails.

    @ivar urls: their base URLs.
    @ivar now: the time in seconds, of a clock that never goes back.
    @ivar random: a number from 0 to 1.
    """

    urls: Sequence[str]
    now: Callable[[], float]
    random: Callable[[], float]
    _current: int = 0

    @property
    def current(self) -> str:
        """The one to use."""
        return self.urls[self._current]

    def failed(self, url: str) -> None:
        """Use the next one, if this is still the one to use."""
        if url == self.current:
            self._current = (self._current + 1) % len(self.urls)


class Attempts:
    """
    The attempts of one call.

    @ivar url: the broker of this attempt.
    """

    def __init__(self, brokers: Brokers, timeout: float | None) -> None:
        """
        @param timeout: how long they may take together, in seconds; C{None} for no limit.
        """
        self._brokers = brokers
        self._timeout = timeout
        self.url = brokers.current
        self.succeeded()

    def succeeded(self) -> None:
        """Start anew: an attempt of a call that goes on, such as a stream, was successful."""
        self._count = 0
        self._end = None if self._timeout is None else self._brokers.now() + self._timeout

    def progressed(self) -> None:
        """Begin the delays anew: an attempt has done a part, as with a quota that takes a part."""
        self._count = 0

    def limit(self, seconds: float) -> float:
        """How long a request of this attempt may take that may take so long by itself."""
        if self._end is None:
            return seconds
        return min(seconds, max(_SHORTEST, self._end - self._brokers.now()))

    def failed(self, error: BrokerError) -> Procedure[None]:
        """
        Prepare the next attempt: choose its broker, and wait. There is no delay before a broker is
        tried that was not tried yet.

        @param error: why the last attempt has failed.
        @raise BrokerError: that, if there is no time for another one, or another one is no use.
        """
        if isinstance(error, Unreachable) and error.isFinal:
            raise error
        brokers = self._brokers
        self._count += 1
        rounds, tried = divmod(self._count, len(brokers.urls))
        delay = 0.0
        if not tried:
            delay = min(MAX_DELAY, FIRST_DELAY * 2.0 ** min(rounds - 1, 16))
            # Many clients of one broker that restarts must not all come back at the same time.
            delay *= 0.5 + 0.5 * brokers.random()
            if isinstance(error, QuotaExceeded):
                delay = max(delay, error.retryAfter)
        if self._end is not None and brokers.now() + delay > self._end:
            raise error
        brokers.failed(self.url)
        failed, self.url = self.url, brokers.current
        _log.info("%s: %s; trying %s in %.1f seconds", failed, error.message, self.url, delay)
        if delay:
            yield Delay(delay)
