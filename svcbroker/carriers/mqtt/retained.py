"""
Retained messages, derived from the log.

The log says it all: the retained message of a topic is its last event with C{svc-retain}, unless
that one is empty. What is kept here is an index, with the height up to which it is true; it is
followed on from there after a restart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from ...broker import MetadataStore
from ...errors import Overloaded
from ...interfaces import IBlockObserver, ILedger
from ...model import Block, EventId
from .messages import RETAIN

_KEPT_EVERY: Final = 1000
_KEPT_EVENTS: Final = 50_000
"""After so many blocks, or so many events, it is kept how far the log was followed. A start after
a crash reads as much again before anybody is served: some quarter of a second."""

_BLOCKS_A_TURN: Final = 64
_HEIGHT: Final = "mqtt-followed"


@define(eq=False)
class _Level:
    """One level of the tree of topic names."""

    below: dict[str, _Level] = field(factory=dict)
    event: EventId | None = None


@implementer(IBlockObserver)
class RetainedIndex:
    """
    Which event is the retained message of each topic, for one group.

    @ivar ledger: the log of the group.
    @ivar height: the height of the last indexed block.
    """

    _log = Logger()

    def __init__(self, ledger: ILedger, store: MetadataStore, reactor: IReactorTime) -> None:
        self.height = 0
        self.ledger = ledger
        self._store = store
        self._reactor = reactor
        self._kind = f"mqtt-retained/{ledger.group}"
        self._root = _Level()
        self._count = 0
        self._keptHeight = 0
        self._unkept = 0

    def __len__(self) -> int:
        """How many topics have a retained message."""
        return self._count

    def start(self) -> Deferred[None]:
        """
        Read what is kept, and what the log has beyond it; then follow.
        """
        for topic, value in self._store.items(self._kind):
            self._set(topic, EventId.parse(value.decode("ascii")))
        kept = self._store.get(_HEIGHT, self.ledger.group)
        self.height = self._keptHeight = 0 if kept is None else msgspec.json.decode(kept, type=int)
        return Deferred.fromCoroutine(self._catchUp())

    async def _catchUp(self) -> None:
        if self.height > (await self.ledger.getStatistics()).height:
            self._log.warn(
                "the log of group {group} is older than what is kept of it: retained "
                "messages are looked for anew",
                group=self.ledger.group,
            )
            for topic, _ in self._store.items(self._kind):
                self._store.remove(self._kind, topic)
            self._root, self._count = _Level(), 0
            self.height = self._keptHeight = 0
        while self.height < (last := (await self.ledger.getStatistics()).height):
            while self.height < last:
                following = self.height + 1
                if await self.ledger.mayHold(following, RETAIN):
                    self._take(await self.ledger.readBlock(following))
                else:
                    self.height = following
                if self.height % _BLOCKS_A_TURN == 0:
                    await deferLater(self._reactor, 0)
        if self.height - self._keptHeight >= _KEPT_EVERY:
            self._keepHeight()
        # In the turn in which nothing was missing.
        self.ledger.addObserver(self)

    def stop(self) -> None:
        """Follow no more."""
        self.ledger.removeObserver(self)
        self._keepHeight()

    def blockCommitted(self, block: Block) -> None:
        """See L{IBlockObserver}."""
        if block.height > self.height:
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
        self._store.put(_HEIGHT, self.ledger.group, b"%d" % self.height)

    def has(self, topic: str) -> bool:
        """Whether a topic has a retained message."""
        level = self._root
        for name in topic.split("/"):
            if name not in level.below:
                return False
            level = level.below[name]
        return level.event is not None

    def checkRoom(self, topic: str, most: int) -> None:
        """
        Check that a topic can get a retained message.

        @param most: the most topics with one.
        @raise Overloaded: it has none, and there are too many.
        """
        if self._count >= most and not self.has(topic):
            raise Overloaded("there are too many retained messages")

    def match(self, topicFilter: str) -> Iterator[EventId]:
        """
        The retained messages of the topics that match a valid filter, one after the other. The
        index may change meanwhile; messages that are set during the iteration may be left out.
        """
        for level in _matching(self._root, topicFilter.split("/"), 0):
            if level.event is not None:
                yield level.event

    def _set(self, topic: str, eventId: EventId) -> None:
        level = self._root
        for name in topic.split("/"):
            level = level.below.setdefault(name, _Level())
        if level.event is None:
            self._count += 1
        level.event = eventId

    def _remove(self, topic: str) -> None:
        path = [self._root]
        names = topic.split("/")
        for name in names:
            below = path[-1].below.get(name)
            if below is None:
                return
            path.append(below)
        if path[-1].event is None:
            return
        self._count -= 1
        path[-1].event = None
        for parent, name, level in zip(path[-2::-1], names[::-1], path[:0:-1], strict=True):
            if level.event is not None or level.below:
                break
            del parent.below[name]


def _matching(level: _Level, wanted: list[str], depth: int) -> Iterator[_Level]:
    """
    The levels below one that match the rest of a filter. A topic name has at most 256
    characters, which bounds how deep this goes.
    """
    if depth == len(wanted):
        yield level
        return
    name = wanted[depth]
    if name == "#":
        yield from _everything(level, isRoot=depth == 0)
    elif name == "+":
        for each, below in tuple(level.below.items()):
            if depth or not each.startswith("$"):
                yield from _matching(below, wanted, depth + 1)
    elif name in level.below:
        yield from _matching(level.below[name], wanted, depth + 1)


def _everything(level: _Level, isRoot: bool) -> Iterator[_Level]:
    """A level and all below it; # matches its parent too. At the root nothing with a $."""
    waiting = [level]
    while waiting:
        each = waiting.pop()
        yield each
        for name, below in reversed(each.below.items()):
            # [MQTT-4.7.2-1] [MQTT5-4.7.2-1]
            if not (isRoot and each is level and name.startswith("$")):
                waiting.append(below)
