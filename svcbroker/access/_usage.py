"""
How much an account uses of what its quotas allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import Final, TypeVar

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

    @ivar most: what may be used at once.
    """

    def __init__(self, rate: float, seconds: Callable[[], float]) -> None:
        """
        @param rate: what may be used a second.
        @param seconds: a clock.
        """
        self._rate = rate
        self._seconds = seconds
        self.most = max(1.0, rate * BURST)
        self._level = self.most
        self._filledAt = seconds()

    def _fill(self) -> float:
        now = self._seconds()
        # The reactor's clock is the wall clock, which may be set back.
        refill = max(0.0, now - self._filledAt) * self._rate
        self._level, self._filledAt = min(self.most, self._level + refill), now
        return self._level

    def delay(self, amount: float = 1.0) -> float:
        """The seconds until there is an amount to use; 0 where there is."""
        level = self._fill()
        return 0.0 if level >= amount else (amount - level) / self._rate

    def room(self, amounts: Iterable[int]) -> int:
        """The number of uses that may be made now, from the first on, each while there is 1."""
        level, room = self._fill(), 0
        for amount in amounts:
            if level < 1:
                break
            level -= amount
            room += 1
        return room

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

    def room(self, sizes: Sequence[int]) -> int:
        """The number of some events that may be published now, as L{spend} counts them."""
        return self._room(sizes)[0]

    def _room(self, sizes: Sequence[int]) -> tuple[int, str]:
        """The same, and the quota that has no room for the next event."""
        room, name = len(sizes), ""
        most = self.quotas.inflight
        if most is not None and most - self.used("inflight") < room:
            room, name = max(0, most - self.used("inflight")), "inflight"
        for rate, bucket in self._buckets.items():
            amounts = repeat(1, room) if rate == "publishes" else sizes[:room]
            found = bucket.room(amounts)
            if found < room:
                room, name = found, rate
        return room, name

    def spend(
        self, sizes: Sequence[int], *, isWhole: bool = False
    ) -> tuple[int, QuotaExceeded | None]:
        """
        Count events that are published, from the first on as far as there is room for each. Called
        by the broker, once for each call of a carrier. Where C{inflight} is limited, L{answered}
        gives them back.

        @param sizes: their content and extensions, in bytes. The last that a rate has room for may
            be of any size.
        @param isWhole: whether none is counted where there is no room for all.
        @return: how many were counted, and why the others must not be published.
        """
        room, name = self._room(sizes)
        isShort = room < len(sizes)
        if isWhole and isShort:
            room = 0
        if self.quotas.inflight is not None:
            self._counts["inflight"] = self.used("inflight") + room
        for rate, bucket in self._buckets.items():
            bucket.spend(room if rate == "publishes" else sum(sizes[:room]))
        return room, self._shortage(name, sizes[room:], isWhole) if isShort else None

    def spendOne(self, size: int) -> None:
        """
        Count an event that is published, as L{spend} does.

        @raise QuotaExceeded: it must not be published.
        """
        _, error = self.spend((size,))
        if error is not None:
            raise error

    def _shortage(self, name: str, sizes: Sequence[int], isWhole: bool) -> QuotaExceeded:
        """
        Make the error of events for which a quota has no room, with the time until as many of them
        have room as may be published at once. It is counted.
        """
        if name == "inflight":
            most = self.quotas.inflight
            isTooLarge = isWhole and most is not None and len(sizes) > most
            return self._exceed(
                name,
                f"at most {most} publishes of this account may wait for their answer",
                0.0 if isTooLarge else INFLIGHT_DELAY,
            )
        bucket, what = self._buckets[name], "events"
        amount: float = len(sizes)
        if name == "bytes":
            amount, what = sum(sizes[:-1]) + 1, "bytes"
        if isWhole and amount > bucket.most:
            return self._exceed(
                name, f"this account may publish at most {bucket.most:.0f} {what} at once"
            )
        delay = bucket.delay(min(amount, bucket.most))
        return self._exceed(
            name,
            f"this account has used up its {name} a second: try again in {delay:.3f} seconds",
            delay,
        )

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
            raise self._exceed(name, f"this account may have at most {most} {name}")

    def _exceed(self, name: str, message: str, retryAfter: float = 0.0) -> QuotaExceeded:
        if self._exceeded is not None:
            self._exceeded(name)
        return QuotaExceeded(message, retryAfter)

    def free(self, name: str, amount: int = 1) -> None:
        """Give back what L{take} counted."""
        self._counts[name] = max(0, self._counts.get(name, 0) - amount)

    def used(self, name: str) -> int:
        """How much of a quota is in use."""
        return self._counts.get(name, 0)
