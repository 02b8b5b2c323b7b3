"""
How much an account uses of what its quotas allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from ..errors import QuotaExceeded
from ..interfaces import Quotas

T = TypeVar("T")

UNLIMITED: Final = Quotas()

BURST: Final = 1.0
"""How much of a rate may be used at once, in seconds."""

INFLIGHT_DELAY: Final = 0.05
"""How long a publish waits before it is tried again, in seconds, where too many wait already."""


class TokenBucket:
    """
    A rate limit. It holds what may be used at once and is refilled at the rate; one use may
    overdraw it, so that nothing is too large ever to pass.
    """

    def __init__(self, rate: float, seconds: Callable[[], float]) -> None:
        """
        @param rate: what may be used a second.
        @param seconds: a clock.
        """
        self._rate = rate
        self._seconds = seconds
        self._most = max(1.0, rate * BURST)
        self._level = self._most
        self._filledAt = seconds()

    def delay(self) -> float:
        """How long there is less than 1 to use, in seconds; 0 where there is more."""
        now = self._seconds()
        # The reactor's clock is the wall clock, which may be set back.
        refill = max(0.0, now - self._filledAt) * self._rate
        self._level, self._filledAt = min(self._most, self._level + refill), now
        return 0.0 if self._level >= 1 else (1 - self._level) / self._rate

    def spend(self, amount: float) -> None:
        """Use some of it."""
        self._level -= amount


class Usage:
    """
    What an account uses, over all of its connections.

    @ivar quotas: what it may use.
    @ivar limitsPublishes: whether publishes have to be counted.
    """

    def __init__(
        self,
        quotas: Quotas,
        seconds: Callable[[], float],
        exceeded: Callable[[str], object] | None = None,
    ) -> None:
        """
        @param seconds: a clock.
        @param exceeded: called with the name of a quota when something was refused by it.
        """
        self._seconds = seconds
        self._exceeded = exceeded
        self._counts: dict[str, int] = {}
        self.quotas = UNLIMITED
        self.limitsPublishes = False
        self._buckets: dict[str, TokenBucket] = {}
        self.limit(quotas)

    def limit(self, quotas: Quotas) -> None:
        """Apply quotas from now on; what is in use stays in use."""
        old, self.quotas = self.quotas, quotas
        for name, rate in (("publishes", quotas.publishes), ("bytes", quotas.bytes)):
            if rate is None:
                self._buckets.pop(name, None)
            elif name not in self._buckets or rate != getattr(old, name):
                self._buckets[name] = TokenBucket(rate, self._seconds)
        self.limitsPublishes = bool(self._buckets) or quotas.inflight is not None

    def delay(self) -> float:
        """How long the account must not publish, in seconds; 0 where it may."""
        delay = max((bucket.delay() for bucket in self._buckets.values()), default=0.0)
        most = self.quotas.inflight
        isFull = most is not None and self.used("inflight") >= most
        return max(delay, INFLIGHT_DELAY) if isFull else delay

    def spend(self, publishes: int, size: int) -> None:
        """
        Count events that are published. Called by the broker, once for each call of a carrier.
        Where C{inflight} is limited, L{answered} gives them back. As for the
        rates, a call that finds room is taken as a whole.

        @param size: their content and extensions, in bytes.
        @raise QuotaExceeded: the account has used up its rate, or too many of its publishes wait
            for their answer. Nothing was counted.
        """
        for name, bucket in self._buckets.items():
            delay = bucket.delay()
            if delay > 0:
                self._refuse(
                    name,
                    f"this account has used up its {name} a second: "
                    f"try again in {delay:.3f} seconds",
                    delay,
                )
        most = self.quotas.inflight
        if most is not None:
            used = self.used("inflight")
            if used >= most:
                self._refuse(
                    "inflight",
                    f"at most {most} publishes of this account may wait for their answer",
                    INFLIGHT_DELAY,
                )
            self._counts["inflight"] = used + publishes
        for name, bucket in self._buckets.items():
            bucket.spend(publishes if name == "publishes" else size)

    def answered(self, result: T, publishes: int) -> T:
        """Give back publishes that have waited for their answer: a callback that passes it on."""
        self.free("inflight", publishes)
        return result

    def take(self, name: str, amount: int = 1) -> None:
        """
        Count something that is in use until it is given back by L{free}.

        @param name: the name of a quota: C{connections}, C{subscriptions} and so on.
        @raise QuotaExceeded: the account has used up this quota. Nothing was counted.
        """
        used = self._counts.get(name, 0)
        self.checkRoom(name, used, amount)
        self._counts[name] = used + amount

    def checkRoom(self, name: str, used: int, amount: int = 1) -> None:
        """
        Check that an account may have more of what is counted elsewhere.

        @param name: the name of a quota.
        @param used: how much of it is in use.
        @raise QuotaExceeded: the account has used up this quota.
        """
        most: int | None = getattr(self.quotas, name)
        if most is not None and used + amount > most:
            self._refuse(name, f"this account may have at most {most} {name}")

    def _refuse(self, name: str, message: str, retryAfter: float = 0.0) -> NoReturn:
        if self._exceeded is not None:
            self._exceeded(name)
        raise QuotaExceeded(message, retryAfter)

    def free(self, name: str, amount: int = 1) -> None:
        """Give back what L{take} counted."""
        self._counts[name] = max(0, self._counts.get(name, 0) - amount)

    def used(self, name: str) -> int:
        """How much of a quota is in use."""
        return self._counts.get(name, 0)
