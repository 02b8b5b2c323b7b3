"""
Retained messages, derived from the log.

The log says it all: the retained message of a topic is its last event with C{svc-retain}, unless
that one is empty. What is kept here is an index, with the height up to which it is true; it is
followed on from there after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from ...access import Principal
from ...broker import MetadataStore
from ...broker.subscriptions import LevelTree
from ...errors import Overloaded
from ...interfaces import Action, IBlockObserver, ILedger
from ...model import Block, EventId
from ...net.deferreds import asDeferred
from .messages import RETAIN

RETAINERS: Final = "mqtt-retainers/"
"""The kind of an account that has set a retained message, before the group's id. Its name is the
topic."""

UNCONFIRMED_FOR: Final = 30.0
"""The time for which a topic counts that has no retained message, in seconds: one may be on its way
to the log, or was removed."""

_SEARCH_EVERY: Final = 1.0
"""The time between two searches for topics of an account that need not count, in seconds."""


class Retainers:
    """
    Counts the retained messages that each account has set in a group, for accounts with the quota
    C{retained}. The log does not know accounts, so this is kept beside it; messages of the time
    before an account had the quota are not counted.
    """

    def __init__(
        self, group: str, has: Callable[[str], bool], store: MetadataStore, clock: IReactorTime
    ) -> None:
        """
        @param has: whether a topic has a retained message.
        """
        self._group = group
        self._has = has
        self._store = store
        self._seconds = clock.seconds
        self._kind = RETAINERS + group
        self._accounts: dict[str, str] = {}
        # The topics of each account, and when they were set last.
        self._topics: dict[str, dict[str, float]] = {}
        self._searched: dict[str, float] = {}

    def start(self) -> None:
        """Read what is kept."""
        for topic, account in self._store.items(self._kind):
            self._set(topic, account.decode("utf-8"))

    def add(self, principal: Principal, topic: str) -> None:
        """
        Count a retained message that an account is about to set. Called for each message that sets
        one.

        @raise QuotaExceeded: the account has set as many as it may.
        """
        isCounted = principal.usage.quotas.retained is not None
        if not isCounted and topic not in self._accounts:
            return
        if not principal.may(Action.PUBLISH, self._group, topic):
            return  # It is going to be refused.
        account = principal.name
        if not isCounted:
            self._remove(topic)
            return
        if self._accounts.get(topic) != account:
            principal.usage.checkRoom("retained", self._count(account, principal))
            self._remove(topic)
            self._store.put(self._kind, topic, account.encode("utf-8"))
        self._set(topic, account)

    def _count(self, account: str, principal: Principal) -> int:
        topics = self._topics.get(account, {})
        most, now = principal.usage.quotas.retained, self._seconds()
        isFull = most is not None and len(topics) >= most
        # A clock that was set back does not make it a long time.
        if isFull and not 0 <= now - self._searched.get(account, -_SEARCH_EVERY) < _SEARCH_EVERY:
            self._searched[account] = now
            for topic, setAt in tuple(topics.items()):
                if not (0 <= now - setAt < UNCONFIRMED_FOR or self._has(topic)):
                    self._remove(topic)
        return len(topics)

    def _set(self, topic: str, account: str) -> None:
        self._accounts[topic] = account
        self._topics.setdefault(account, {})[topic] = self._seconds()

    def _remove(self, topic: str) -> None:
        account = self._accounts.pop(topic, None)
        if account is not None:
            del self._topics[account][topic]
            self._store.remove(self._kind, topic)


_KEPT_EVERY: Final = 1000
_KEPT_EVENTS: Final = 50_000
"""After so many blocks, or so many events, it is kept how far the log was followed. A start after
a crash reads as much again before anybody is served: some quarter of a second."""

TOPIC_BYTES: Final = 600
"""The bytes of memory of a retained message beside its topic: two nodes, an id, its stored form."""

_BLOCKS_A_TURN: Final = 64

_MAX_EARLY: Final = 64
"""
The most new blocks that are kept in memory while the index reads the last ones before them. Without
them it would not catch up with a log that grows as fast as it is read, as while an engine replays
its blocks.
"""

RETAINED: Final = "mqtt-retained/"
"""The kind of a retained message on disk, before the group's id. Its name is the topic."""
FOLLOWED: Final = "mqtt-followed"
"""The kind of the height up to which a group's log was followed. Its name is the group's id."""


@implementer(IBlockObserver)
class RetainedIndex:
    """
    The index of the retained messages of all topics, for one group.

    @ivar ledger: the log of the group.
    @ivar height: the height of the last indexed block.
    @ivar size: the memory that the index takes, in bytes: the length of each topic and
        L{TOPIC_BYTES}.
    """

    _log = Logger()

    def __init__(self, ledger: ILedger, store: MetadataStore, reactor: IReactorTime) -> None:
        self.height = 0
        self.ledger = ledger
        self._store = store
        self._reactor = reactor
        self._kind = RETAINED + ledger.group
        self.size = 0
        self._events: LevelTree[EventId] = LevelTree()
        self._count = 0
        self._keptHeight = 0
        self._unkept = 0
        self._retainers = Retainers(ledger.group, self.has, store, reactor)
        # The blocks that were committed during the catch-up; C{None} outside of it.
        self._early: list[Block] | None = None

    def __len__(self) -> int:
        """The number of topics that have a retained message."""
        return self._count

    def start(self) -> Deferred[None]:
        """
        Read what is kept, and what the log has beyond it; then follow.
        """
        for topic, value in self._store.items(self._kind):
            self._set(topic, EventId.parse(value.decode("ascii")))
        self._retainers.start()
        kept = self._store.get(FOLLOWED, self.ledger.group)
        self.height = self._keptHeight = 0 if kept is None else msgspec.json.decode(kept, type=int)
        return self._catchUp()

    @asDeferred
    async def _catchUp(self) -> None:
        if self.height > (await self.ledger.getStatistics()).height:
            self._log.warn(
                "the log of group {group} is older than what is kept of it: retained "
                "messages are looked for anew",
                group=self.ledger.group,
            )
            for topic, _ in self._store.items(self._kind):
                self._store.remove(self._kind, topic)
            self._events, self._count, self.size = LevelTree(), 0, 0
            self.height = self._keptHeight = 0
        early = self._early = []
        while self.height < (last := (await self.ledger.getStatistics()).height):
            if last - self.height <= _MAX_EARLY:
                self.ledger.addObserver(self)
            while self.height < last and not self._isNext(early):
                following = self.height + 1
                if await self.ledger.mayHold(following, RETAIN):
                    self._take(await self.ledger.readBlock(following))
                else:
                    self.height = following
                if self.height % _BLOCKS_A_TURN == 0:
                    await deferLater(self._reactor, 0)
            if self._isNext(early):
                break
        if self.height - self._keptHeight >= _KEPT_EVERY:
            self._keepHeight()
        # In the turn in which nothing was missing.
        self._early = None
        self.ledger.addObserver(self)
        for block in early:
            self.blockCommitted(block)

    def _isNext(self, early: Sequence[Block]) -> bool:
        """Whether the blocks in memory go on where the index ends."""
        return bool(early) and early[0].height <= self.height + 1

    def stop(self) -> None:
        """Follow no more."""
        self.ledger.removeObserver(self)
        self._keepHeight()

    def blockCommitted(self, block: Block) -> None:
        """See L{IBlockObserver}."""
        if self._early is not None:
            self._early.append(block)
            if len(self._early) > _MAX_EARLY:
                self._early.clear()
                self.ledger.removeObserver(self)
        elif block.height > self.height:
            self._take(block)

    def _take(self, block: Block) -> None:
        self.height = block.height
        hasChanged = False
        for event in block.events:
            if RETAIN in event.extensions:
                hasChanged = True
                # [MQTT-3.3.1-5] [MQTT-3.3.1-10] [MQTT-3.3.1-11] [MQTT5-3.3.1-5] [MQTT5-3.3.1-6]
                # [MQTT5-3.3.1-7]: an empty one removes it. [MQTT5-3.3.1-8]: others change nothing.
                if event.content:
                    self._set(event.topic, event.eventId)
                    self._store.put(self._kind, event.topic, str(event.eventId).encode("ascii"))
                else:
                    self._remove(event.topic)
                    self._store.remove(self._kind, event.topic)
        self._unkept += len(block.events)
        if (
            hasChanged
            or self._unkept >= _KEPT_EVENTS
            or self.height - self._keptHeight >= _KEPT_EVERY
        ):
            self._keepHeight()

    def _keepHeight(self) -> None:
        # Written together with the changes before it, or after them.
        self._keptHeight, self._unkept = self.height, 0
        self._store.put(FOLLOWED, self.ledger.group, b"%d" % self.height)

    def has(self, topic: str) -> bool:
        """Whether a topic has a retained message."""
        return self._events.get(topic) is not None

    def checkRoom(self, principal: Principal, topic: str, most: int) -> None:
        """
        Check that a topic can get a retained message, and count it for the account that sets it.

        @param most: the most bytes of the index.
        @raise QuotaExceeded: the account has set as many as it may.
        @raise Overloaded: it has none, and the index is full.
        """
        if self.size + len(topic) + TOPIC_BYTES > most and not self.has(topic):
            # How many there are, publishers must not learn.
            raise Overloaded("there is no room for another retained message")
        self._retainers.add(principal, topic)

    def match(self, topicFilter: str) -> Iterator[EventId | None]:
        """
        The retained messages of the topics that match a valid filter, one after the other;
        sometimes C{None}, so that a long search can be interrupted. The index may change
        meanwhile; messages that are set during the iteration may be left out.
        """
        return self._events.matched(topicFilter)

    def _set(self, topic: str, eventId: EventId) -> None:
        if not self.has(topic):
            self._count += 1
            self.size += len(topic) + TOPIC_BYTES
        self._events.set(topic, eventId)

    def _remove(self, topic: str) -> None:
        if self.has(topic):
            self._count -= 1
            self.size -= len(topic) + TOPIC_BYTES
            self._events.remove(topic)
