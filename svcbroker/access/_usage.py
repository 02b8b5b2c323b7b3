"""
How much an account uses of what its quotas allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import asdict

from ..errors import QuotaExceeded
from ..interfaces import Quotas

UNLIMITED: Final = Quotas()

BURST: Final = 1.0
"""How much of a rate may be used at once, in seconds."""


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
        self._level = min(self._most, self._level + (now - self._filledAt) * self._rate)
        self._filledAt = now
        return 0.0 if self._level >= 1 else (1 - self._level) / self._rate

    def spend(self, amount: float) -> None:
        """Use some of it."""
        self._level -= amount


class Usage:
    """
    What an account uses, over all of its connections.
    """

    def __init__(self, quotas: Quotas, seconds: Callable[[], float]) -> None:
        """
        @param seconds: a clock.
        """
        self._seconds = seconds
        self._counts: dict[str, int] = {}
        self.quotas = UNLIMITED
        self.hasRates = False
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
        self.hasRates = bool(self._buckets)

    def delay(self) -> float:
        """How long the account must not publish, in seconds; 0 where it may."""
        return max((bucket.delay() for bucket in self._buckets.values()), default=0.0)

    def spend(self, publishes: int, size: int) -> None:
        """
        Count events that are published. Called by the broker, once for each call of a carrier.

        @param size: their content and extensions, in bytes.
        @raise QuotaExceeded: the account has used up its rate. Nothing was counted.
        """
        for name, bucket in self._buckets.items():
            delay = bucket.delay()
            if delay > 0:
                raise QuotaExceeded(
                    f"this account has used up its {name} a second: "
                    f"try again in {delay:.3f} seconds",
                    delay,
                )
        for name, bucket in self._buckets.items():
            bucket.spend(publishes if name == "publishes" else size)

    def take(self, name: str, amount: int = 1) -> None:
        """
        Count something that is in use until it is given back by L{free}.

        @param name: the name of a quota: C{connections}, C{subscriptions} and so on.
        @raise QuotaExceeded: the account has used up this quota. Nothing was counted.
        """
        used = self._counts.get(name, 0) + amount
        most: int | None = getattr(self.quotas, name)
        if most is not None and used > most:
            raise QuotaExceeded(f"this account may have at most {most} {name}")
        self._counts[name] = used

    def free(self, name: str, amount: int = 1) -> None:
        """Give back what L{take} counted."""
        self._counts[name] = max(0, self._counts.get(name, 0) - amount)

    def used(self, name: str) -> int:
        """How much of a quota is in use."""
        return self._counts.get(name, 0)

    @property
    def isUnlimited(self) -> bool:
        """Whether no quota applies."""
        return not any(value is not None for value in asdict(self.quotas).values())
