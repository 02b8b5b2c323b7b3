"""
The positions at which durable subscriptions resume: how they are kept, when those expire that
nobody uses any more, and which position an offset stands for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from itertools import islice
from sys import intern
from typing import Final, NamedTuple, Protocol

import msgspec
from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from ...access import Principal
from ...errors import EventNotFound, HeightUnknown, Overloaded
from ...interfaces import Action, ILedger, topicOfEvent
from ...model import DurableRecord, Edge, EventId, InterfaceType, Moment, Offset, Owner, Position
from ...net.addresses import storedKey
from ...net.budgets import ENTRY_BYTES, MAX_SESSION_BYTES, ByteBudget
from ._follower import Follower

POSITIONS: Final = "position"
"""The kind of these entries in the metadata store."""
SECONDS_A_DAY: Final = 86400

_DAYS: Final = "position-days"
_FILTERS: Final = "position-filters"

MAX_POSITIONS: Final = 100_000
"""The most positions of durable subscriptions, of live ones and of others."""

MAX_OWN_POSITIONS: Final = 10_000
"""The most positions of one owner, by default. One client cannot take all of them."""

INTERVAL: Final = 3600.0
"""Seconds before the first sweep, in which clients come back after a start, and between sweeps."""

PIECE: Final = 500
"""The number of positions that a turn of the reactor looks at: some milliseconds."""


@frozen
class StoredPosition:
    """
    The place where a subscription resumes.

    @ivar position: everything up to it is done.
    @ivar acknowledged: events beyond it that are done too.
    """

    position: Position
    acknowledged: tuple[Position, ...] = ()


class KeptPosition(msgspec.Struct, array_like=True, frozen=True):
    """
    A position as it stands on disk.

    @ivar used: the day, counted from 1970-01-01, on which it changed last or its subscription was
        live last; 0 if it was written before days were.
    @ivar owner: who made it: the name of an account, or where there are none, the address of the
        client, as L{svcbroker.net.addresses.ownerOf} gives it; empty if it was written before
        owners were.
    @ivar account: the account that it belongs to; empty where it was made without credentials.
    """

    group: str
    position: Position
    acknowledged: tuple[Position, ...]
    used: int = 0
    owner: str = ""
    account: str = ""

    def record(self, subscriptionId: str, now: float | None) -> DurableRecord:
        """
        It as operators see it.

        @param now: the time in seconds since the epoch, where it is live; C{None} otherwise.
        """
        usedAt = self.used * SECONDS_A_DAY if now is None else now
        return DurableRecord(
            id=subscriptionId,
            interfaceType=OWN_INTERFACE,
            group=self.group,
            owner=self.owner,
            isLive=now is not None,
            subscriptions=1,
            usedAt=int(usedAt * 1000),
            position=self.position,
        )


class KeptFilters(msgspec.Struct, array_like=True, frozen=True):
    """The filters that a subscription had when it was live last."""

    group: str
    filters: tuple[str, ...]


class ServedDays(NamedTuple):
    """The days, counted from 1970-01-01, on which a group was served without a break."""

    first: int
    last: int


class _Index(NamedTuple):
    """The part of each position that is kept in memory."""

    group: str
    owner: str
    account: str


OWN_INTERFACE: Final = InterfaceType.STOMP
"""The interface of the durable subscriptions that no other feature owns."""

OWN_KIND: Final = OWN_INTERFACE.value.lower()
"""Their kind in metrics."""

_REMEDY: Final = (
    "unsubscribe from some, or delete them (deleteDurableSubscription, or of all owners svcbroker "
    "admin subscription list, delete)"
)

_decoder: Final = msgspec.json.Decoder(KeptPosition)

decodePosition: Final = _decoder.decode
"""Read an entry of L{POSITIONS}. Raises C{msgspec.MsgspecError}."""

_filtersDecoder: Final = msgspec.json.Decoder(KeptFilters)
_daysDecoder: Final = msgspec.json.Decoder(ServedDays)


class IEntries(Protocol):
    """Entries by kind and name: the L{MetadataStore<svcbroker.broker.MetadataStore>}."""

    def get(self, kind: str, name: str) -> bytes | None: ...
    def put(self, kind: str, name: str, value: bytes) -> None: ...
    def remove(self, kind: str, name: str) -> None: ...
    def names(self, kind: str) -> Sequence[str]: ...
    def flush(self) -> Deferred[None]: ...


def positionGroup(kind: str, name: str, value: bytes) -> str:
    """See L{GroupOf<svcbroker.broker.GroupOf>}."""
    if kind == _DAYS:
        return name
    decoder = _filtersDecoder if kind == _FILTERS else _decoder
    group: str = decoder.decode(value).group
    return group


class KeptPositions:
    """
    Keeps positions through restarts. Called by L{Subscriptions
    <svcbroker.broker.subscriptions.Subscriptions>} in the reactor thread.
    """

    def __init__(self, entries: IEntries, budget: ByteBudget | None = None) -> None:
        """
        @param budget: counts the bytes of filters with those of live subscriptions, which are
            refused where there is no room; C{None} makes one of its own.
        """
        self._entries = entries
        self._budget = ByteBudget(MAX_SESSION_BYTES) if budget is None else budget
        self._index: dict[str, _Index] = {}
        # An account may be named as an address is.
        self._counts: Counter[Owner] = Counter()
        for subscriptionId in entries.names(POSITIONS):
            kept = self.find(subscriptionId)
            assert kept is not None
            self._add(subscriptionId, kept.group, kept.owner, kept.account)
        for subscriptionId in entries.names(_FILTERS):
            # The position was removed while the broker was stopped.
            if subscriptionId not in self._index:
                entries.remove(_FILTERS, subscriptionId)
            else:
                self._countFilters(subscriptionId, 1)

    def find(self, subscriptionId: str, owner: Owner | None = None) -> KeptPosition | None:
        """
        The position that is kept under an id; C{None} where none is.

        @param owner: finds only what this one has made; C{None} for all.
        """
        value = self._entries.get(POSITIONS, subscriptionId)
        kept = None if value is None else _decoder.decode(value)
        isFound = kept is not None and owner in (None, Owner(kept.owner, kept.account))
        return kept if isFound else None

    def accountOf(self, subscriptionId: str) -> str:
        """The account that a position belongs to; empty where it is no account's, or not kept."""
        index = self._index.get(subscriptionId)
        return "" if index is None else index.account

    def get(self, subscriptionId: str, group: str) -> StoredPosition | None:
        """The position kept under an id in a group; C{None} where there is none."""
        kept = self.find(subscriptionId)
        if kept is None or kept.group != group:
            return None
        return StoredPosition(kept.position, kept.acknowledged)

    def make(
        self,
        subscriptionId: str,
        group: str,
        position: StoredPosition,
        *,
        owner: str,
        account: str = "",
        day: int,
    ) -> None:
        """
        Keep a position under an id from now on, also if another group had one under it.

        @param account: the account that it belongs to.
        @param day: today, counted from 1970-01-01.
        """
        self.remove(subscriptionId)
        self._add(subscriptionId, group, owner, account)
        self.move(subscriptionId, position, day=day)

    def move(self, subscriptionId: str, position: StoredPosition, *, day: int) -> None:
        """
        Replace a position that is kept. It may reach the disk a little later; a crash before that
        loses the change, and events are delivered again. Without a position it changes nothing.

        @param day: today, counted from 1970-01-01.
        """
        index = self._index.get(subscriptionId)
        if index is not None:
            kept = KeptPosition(
                index.group,
                position.position,
                position.acknowledged,
                day,
                index.owner,
                index.account,
            )
            value = msgspec.json.encode(kept)
            self._entries.put(POSITIONS, subscriptionId, value)

    def remove(self, subscriptionId: str) -> None:
        """Forget a position. Removing one that is not kept changes nothing."""
        index = self._index.get(subscriptionId)
        if index is not None:
            self._countFilters(subscriptionId, -1)
            del self._index[subscriptionId]
            owner = Owner(index.owner, index.account)
            self._counts[owner] -= 1
            if not self._counts[owner]:
                del self._counts[owner]
            self._entries.remove(POSITIONS, subscriptionId)
            self._entries.remove(_FILTERS, subscriptionId)

    def keepFilters(self, subscriptionId: str, group: str, filters: Sequence[str]) -> None:
        """Keep what a subscription subscribes to, until its position is removed."""
        value = msgspec.json.encode(KeptFilters(group, tuple(filters)))
        if value != self._entries.get(_FILTERS, subscriptionId):
            self._countFilters(subscriptionId, -1)
            self._entries.put(_FILTERS, subscriptionId, value)
            self._countFilters(subscriptionId, 1)

    def _countFilters(self, subscriptionId: str, sign: int) -> None:
        index, value = self._index.get(subscriptionId), self._entries.get(_FILTERS, subscriptionId)
        if index is not None and value is not None:
            owner = storedKey(index.account, index.owner)
            self._budget.add(owner, sign * (ENTRY_BYTES + len(value)))

    def filtersOf(self, subscriptionId: str) -> Sequence[str]:
        """The filters that L{keepFilters} has kept; empty where it has kept none."""
        value = self._entries.get(_FILTERS, subscriptionId)
        return () if value is None else _filtersDecoder.decode(value).filters

    def has(self, subscriptionId: str) -> bool:
        """Whether a position is kept under an id."""
        return subscriptionId in self._index

    def _add(self, subscriptionId: str, group: str, owner: str, account: str) -> None:
        # There are far fewer groups and owners than positions.
        self._index[subscriptionId] = _Index(intern(group), intern(owner), intern(account))
        self._counts[Owner(owner, account)] += 1

    def flush(self) -> Deferred[None]:
        """Fires when everything until now is on stable storage."""
        return self._entries.flush()

    def count(self) -> int:
        """The number of positions that are kept."""
        return len(self._index)

    def countOf(self, owner: Owner, without: Container[str] = ()) -> int:
        """
        The number of positions that an owner has made.

        @param without: ids that do not count. With them it takes time for each position there is.
        """
        if not without:
            return self._counts[owner]
        return sum(1 for each in self.ids(owner=owner) if each not in without)

    def checkRoom(self, owner: Owner, most: int) -> None:
        """
        Check that a further position can be made.

        @param most: how many the owner may have made.
        @raise Overloaded: it cannot.
        """
        if self.countOf(owner) >= most:
            raise Overloaded(
                f"{owner.name} has made {most} durable subscriptions, as many as one client may "
                f"(--max-positions): {_REMEDY}"
            )
        if self.count() >= MAX_POSITIONS:
            raise Overloaded(
                f"the broker keeps {MAX_POSITIONS} durable subscriptions, as many as it can: "
                f"{_REMEDY}"
            )

    def ids(self, group: str | None = None, owner: Owner | None = None) -> Sequence[str]:
        """The ids of all positions, or of those of a group or an owner, in no particular order."""
        if group is None and owner is None:
            return tuple(self._index)
        # There may be a hundred thousand, so nothing is made for each.
        name, account = ("", "") if owner is None else (owner.name, owner.account)
        return [
            each
            for each, index in self._index.items()
            if (group is None or index.group == group)
            and (owner is None or (index.owner == name and index.account == account))
        ]

    def servedDays(self, group: str) -> ServedDays | None:
        """The days of a group that L{serve} has stored last."""
        value = self._entries.get(_DAYS, group)
        return None if value is None else _daysDecoder.decode(value)

    def serve(self, group: str, days: ServedDays) -> None:
        """Store on which days a group was served."""
        self._entries.put(_DAYS, group, msgspec.json.encode(days))


class _MemoryEntries:
    """Entries in memory only."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], bytes] = {}

    def get(self, kind: str, name: str) -> bytes | None:
        return self._values.get((kind, name))

    def put(self, kind: str, name: str, value: bytes) -> None:
        self._values[kind, name] = value

    def remove(self, kind: str, name: str) -> None:
        self._values.pop((kind, name), None)

    def names(self, kind: str) -> Sequence[str]:
        return [name for each, name in self._values if each == kind]

    def flush(self) -> Deferred[None]:
        return succeed(None)


class MemoryPositions(KeptPositions):
    """Keeps positions in memory only."""

    def __init__(self) -> None:
        super().__init__(_MemoryEntries())


def dayOf(seconds: float) -> int:
    """The day of a time since the epoch, counted from 1970-01-01."""
    return int(seconds // SECONDS_A_DAY)


class PositionExpiry:
    """
    Removes positions that were not used for some days.

    Days on which the broker did not serve the chain do not count against a position: after a break
    of more than a day, all days are counted from its end.
    """

    _log = Logger()

    def __init__(
        self,
        positions: KeptPositions,
        groups: Collection[str],
        reactor: IReactorTime,
        now: Callable[[], float],
        days: int,
        use: Callable[[str, bool], bool],
    ) -> None:
        """
        @param groups: the groups that are served; positions of others stay.
        @param now: the wall clock: seconds since the epoch.
        @param days: how many days a position is kept that is not used; 0 for ever.
        @param use: C{use(subscriptionId, isDue)} tells whether a position is in use and stays; if
            so and C{isDue}, it stores that it was used today.
        """
        self._positions = positions
        self._groups = groups
        self._reactor = reactor
        self._now = now
        self._days = days
        self._use = use
        self._served: dict[str, ServedDays] = {}
        self._call: IDelayedCall | None = None
        self._removed = 0

    def start(self) -> None:
        """Begin to count days, and sweep each L{INTERVAL}, unless positions are kept for ever."""
        if self._days:
            self._serve()
            self._call = self._reactor.callLater(INTERVAL, self._sweep)

    def stop(self) -> None:
        """Sweep no more."""
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _serve(self) -> None:
        today = dayOf(self._now())
        for group in self._groups:
            days = self._positions.servedDays(group)
            isBroken = days is None or today - days.last > 1
            first = today if isBroken or days is None else days.first
            self._served[group] = ServedDays(first, today)
            self._positions.serve(group, self._served[group])

    def _sweep(self) -> None:
        self._serve()
        self._removed = 0
        self._sweepOn(iter(self._positions.ids()))

    def _sweepOn(self, ids: Iterator[str]) -> None:
        """Look at the next positions, a piece a turn of the reactor."""
        today = dayOf(self._now())
        piece = tuple(islice(ids, PIECE))
        for subscriptionId in piece:
            self._check(subscriptionId, today)
        if piece:
            self._call = self._reactor.callLater(0, self._sweepOn, ids)
            return
        if self._removed:
            self._log.info(
                "{count} positions of durable subscriptions are removed: they were not used for "
                "{days} days",
                count=self._removed,
                days=self._days,
            )
        self._call = self._reactor.callLater(INTERVAL, self._sweep)

    def _check(self, subscriptionId: str, today: int) -> None:
        kept = self._positions.find(subscriptionId)
        if kept is None or kept.group not in self._served:
            return
        if self._use(subscriptionId, kept.used < today):
            return
        unused = today - max(kept.used, self._served[kept.group].first)
        if unused > self._days:
            self._positions.remove(subscriptionId)
            self._removed += 1


async def locateOffset(follower: Follower, principal: Principal, offset: Offset) -> Position:
    """
    The position after which events begin that are read from an offset on.

    @param principal: who reads.
    @raise EventNotFound: the offset is the id of no event that the principal may read.
    @raise HeightUnknown: the offset is a block above the chain's next one.
    """
    ledger, following = follower.ledger, follower.committed + 1
    if offset is Edge.FIRST:
        return Position(1, -1)
    if isinstance(offset, Position):
        if offset.height > following:
            raise HeightUnknown("the offset names a block above the chain's height")
        return offset
    if isinstance(offset, Moment):
        return Position(await _firstNotBefore(ledger, offset, following), -1)
    if not isinstance(offset, EventId):
        return Position(following, -1)
    try:
        if not principal.isEverything:
            topic = await topicOfEvent(ledger, offset)
            if not principal.may(Action.SUBSCRIBE, ledger.group, topic):
                raise EventNotFound()
        return await ledger.locate(offset)
    except HeightUnknown:
        raise EventNotFound() from None


async def _firstNotBefore(ledger: ILedger, moment: Moment, following: int) -> int:
    """
    The height of the first block whose time is not before a moment. The times of a chain's blocks
    never fall, so a binary search finds it: 10 million blocks take 24 reads.

    Blocks that the ledger does not have (any more) count as older: they are the first ones of
    their chain.

    @param following: the height of the chain's next block, which is found where all are older.
    """
    low, high = 1, following
    while low < high:
        middle = (low + high) // 2
        page = await ledger.listBlocks(0, 1, height=middle)
        if page.items and page.items[0].timestamp >= moment.milliseconds:
            high = middle
        else:
            low = middle + 1
    return low
