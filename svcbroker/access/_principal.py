"""
Principals: the accounts in whose name clients act, and how much each uses of its quotas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Final, NoReturn, TypeVar

from attrs import frozen

from ..errors import NotAuthorized, QuotaExceeded
from ..interfaces import TOPIC_ACTIONS, Action, Identity, IGroupGrants, Quotas
from ..net.turns import MakeAll, makeAtOnce
from ._grants import EVERYTHING, Grants

T = TypeVar("T")

UNLIMITED: Final = Quotas()

BURST: Final = 1.0
"""The part of a rate that may be used at once, in seconds."""

INFLIGHT_DELAY: Final = 0.05
"""
The time that a publish waits before it is tried again, in seconds, while too many wait already.
"""


_MAX_REMEMBERED: Final = 1000
"""The number of answers about topics, and about groups, that a principal remembers."""

_ALL_TOPICS: Final = ("#", "$svc/#")
"""No pattern matches all topics."""

_VERBS: Final = {
    Action.ADMIN: "make admin queries",
    Action.METRICS: "read the metrics",
    Action.COPY: "copy the chain",
    Action.HOLD: "hold events or release them",
}
"""Actions in words for clients, where their names are no verbs."""

_SHOWN: Final = 100
"""The number of characters of a group's id that are shown."""

NO_GRANTS: Final = Grants(())


class Principal:
    """
    An account that acts: its name, its grants now, and its use of quotas.

    All connections of an account that have logged in by the same credential share one principal,
    and so do its webhooks; where its grants depend on the MQTT client id, those of one client id. A
    principal stays the same object when its account's grants change, so what it may do is always
    asked of it again.

    @ivar name: the account's name; empty for clients without credentials.
    @ivar clientId: the MQTT client id, where grants depend on it.
    @ivar usage: what the account uses.
    @ivar isEverything: whether it may do everything, so that nothing is kept from it.
    @ivar isRevoked: whether the account is gone. Then it may do nothing.
    @ivar generation: changes whenever what it may do changes.
    """

    def __init__(
        self,
        identity: Identity,
        usage: Usage,
        clientId: str = "",
        refused: Callable[[Principal, Action | None, str, str], object] | None = None,
    ) -> None:
        """
        @param refused: called when something was not granted, with the action, the group and the
            topic; with C{None} where nothing is granted in the group, whether there is one or not.
        """
        self.name = identity.name
        self.clientId = clientId
        self.usage = usage
        self.isRevoked = False
        self.generation = 0
        self._onRefused = refused
        self._endings: dict[Callable[[], object], None] = {}
        self._set(identity)

    def __repr__(self) -> str:
        return f"<Principal {self.name or 'anonymous'}>"

    # What it may do

    def may(self, action: Action, group: str, topic: str = "") -> bool:
        """
        Whether an action is granted.

        @param group: the id of a group.
        @param topic: the topic; empty for actions on a whole group.
        """
        if self.isEverything:
            return True
        # C{name} is a property that takes as long as all the rest.
        answers = self._answers[action._name_]
        answer = answers.get((group, topic))
        if answer is None:
            if len(answers) >= _MAX_REMEMBERED:
                answers.clear()
            decision = self._grants.decide(action, group, topic, self.clientId)
            answer = answers[(group, topic)] = decision.isGranted
        return answer

    def require(self, action: Action, group: str, topic: str = "") -> None:
        """
        Require a grant.

        @raise NotAuthorized: it is not granted.
        """
        if not self.may(action, group, topic):
            self.refuse(action, group, topic)

    def requireAny(self, action: Action, group: str | None, filter: str = "#") -> None:
        """
        Require a grant for at least one topic that a filter may match.

        @param group: the id of a group; C{None} for any group.
        @raise NotAuthorized: it is not granted.
        """
        if not self.mayAny(action, group, filter):
            self.refuse(action, group or "", filter)

    def refuse(self, action: Action, group: str, topic: str = "") -> NoReturn:
        """
        Tell a client that something is not granted.

        @raise NotAuthorized: always.
        """
        self.recordRefusal(action, group, topic)
        what = f"{_VERBS.get(action, action.value)} {topic}".rstrip()
        where = f" in group {group}" if group else ""
        raise NotAuthorized(f"this account may not {what}{where}")

    def recordRefusal(self, action: Action, group: str, topic: str = "") -> None:
        """Record that something is not granted, where the client is not told."""
        if self._onRefused is not None:
            self._onRefused(self, action, group, topic)

    def mayAny(self, action: Action, group: str | None, filter: str = "#") -> bool:
        """
        Whether an action is granted for some topic that a filter may match.

        @param group: the id of a group; C{None} for any group.
        """
        if self.isEverything:
            return True
        return bool(self._grants.mayAny(action, group, filter, self.clientId))

    def sees(self, group: str, topic: str) -> bool:
        """Whether it may know that there is a topic: it may do something with it."""
        return self.isEverything or any(self.may(each, group, topic) for each in TOPIC_ACTIONS)

    def visibility(self, group: str) -> Callable[[str], bool]:
        """A function that answers for many topics of a group what L{sees} does, as of now."""
        grants = self._grants
        if isinstance(grants, Grants):
            return grants.visibility(group, self.clientId)
        return partial(self.sees, group)

    def seesGroup(self, group: str) -> bool:
        """Whether it may know that there is a group: it may do something in it."""
        if self.isEverything:
            return True
        answer = self._groups.get(group)
        if answer is None:
            if len(self._groups) >= _MAX_REMEMBERED:
                self._groups.clear()
            answer = self._groups[group] = self._seesGroup(group)
        return answer

    def _seesGroup(self, group: str) -> bool:
        grants = self._grants
        if IGroupGrants.providedBy(grants):
            return bool(grants.seesGroup(group, self.clientId))
        return any(self.mayAny(each, group, filter) for each in Action for filter in _ALL_TOPICS)

    def requireGroup(self, group: str) -> None:
        """
        Refuse a group in which nothing is granted, in the same way whether there is one or not.

        @raise NotAuthorized: nothing is granted in it.
        """
        if not self.seesGroup(group):
            if self._onRefused is not None:
                self._onRefused(self, None, "", "")
            raise NotAuthorized(f"this account may do nothing in group {group[:_SHOWN]}")

    # Its life

    def onEnd(self, ended: Callable[[], object]) -> Callable[[], None]:
        """
        Have something called when the account is removed or its log-in ends: a connection closes,
        a webhook stops.

        @return: takes that back.
        """
        self._endings[ended] = None
        kept = [ended]

        def forget() -> None:
            # Who has it called keeps this function: without the list they would be a cycle.
            if kept:
                self._endings.pop(kept.pop(), None)

        return forget

    def update(self, identity: Identity) -> None:
        """The account's grants have changed."""
        self._set(identity)
        self.generation += 1

    def revoke(self, makeAll: MakeAll = makeAtOnce) -> None:
        """
        The account is gone: nothing is granted any more, and its connections end.

        @param makeAll: makes the calls that end them.
        """
        self.isRevoked = True
        self._set(Identity(name=self.name, grants=NO_GRANTS))
        self.generation += 1
        # The end of one may be that of others.
        endings = self._endings
        makeAll(ended for ended in tuple(endings) if endings.pop(ended, ended) is None)

    def _set(self, identity: Identity) -> None:
        self.identity = identity
        self._grants = identity.grants
        self.isEverything: bool = identity.grants.isEverything
        self._answers: dict[str, dict[tuple[str, str], bool]] = {each.name: {} for each in Action}
        self._groups: dict[str, bool] = {}


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
    The uses of an account, over all of its connections.

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
        """Replace the quotas. What is in use already stays in use."""
        old, self.quotas = self.quotas, quotas
        for name, rate in (("publishes", quotas.publishes), ("bytes", quotas.bytes)):
            if rate is None:
                self._buckets.pop(name, None)
            elif name not in self._buckets or rate != getattr(old, name):
                self._buckets[name] = TokenBucket(rate, self._seconds)
        self.limitsPublishes = bool(self._buckets) or quotas.inflight is not None

    def delay(self) -> float:
        """The time for which the account must not publish, in seconds; 0 where it may."""
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
        Check a quota whose use is counted elsewhere.

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
        """The part of a quota that is in use."""
        return self._counts.get(name, 0)


@frozen(eq=False)
class Admission:
    """
    A connection that has logged in. It counts as a connection of its account.

    @ivar principal: in whose name it acts.
    """

    principal: Principal
    _forget: Callable[[], None]

    def release(self) -> None:
        """The connection is closed. Called once."""
        self._forget()
        self.principal.usage.free("connections")


def _frozenClock() -> float:
    return 0.0


class _Anybody(Principal):
    """The principal of clients without an account. It never ends, so it stores no users."""

    def onEnd(self, ended: Callable[[], object]) -> Callable[[], None]:
        """See L{Principal.onEnd}."""
        return _keepNothing


def _keepNothing() -> None:
    pass


ANYBODY: Final[Principal] = _Anybody(
    Identity(name="", grants=EVERYTHING), Usage(UNLIMITED, _frozenClock)
)
"""Acts for every client where there are no accounts: it may do everything."""
