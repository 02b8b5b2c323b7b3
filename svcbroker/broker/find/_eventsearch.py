"""
The call C{find}: events by their content, their author or an extension. The index says where to
look; every event is read, and compared with what is looked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from attrs import field, frozen
from twisted.internet.interfaces import IReactorTime

from ...access import Principal
from ...errors import EventErased, EventNotFound, HeightUnknown, ParameterInvalid, TopicNotFound
from ...interfaces import Action, ILedger
from ...model import Edge, Event, EventId, Moment, Offset, Position, filterMatches, isPattern
from ...net.addresses import ownerKey
from ...net.budgets import OutputBudget
from ...net.deferreds import asDeferred
from .._collaborators import ReadPage
from .._groups import Groups, checkTopicFilter
from ..subscriptions import MAX_SEARCH, EventPage, HistoryTurns, Subscriptions, checkLogIn
from ._eventindex import (
    MAX_HEIGHT,
    authorFingerprint,
    contentFingerprint,
    extensionFingerprint,
    placeOf,
    startOf,
)
from ._groupindex import GroupIndex

ROWS_AT_ONCE = 100
"""The number of events that are looked up in the index together."""


@frozen(kw_only=True)
class FindRequest:
    """
    A search for events. At least one of content, author and extensions is given.

    @ivar group: the id of the group.
    @ivar hash: the SHA-256 of the content; C{None} for any.
    @ivar author: the public key of the author; C{None} for any.
    @ivar extensions: extensions that they have, of which the index has rows.
    @ivar filter: a topic or a pattern; empty for all topics.
    @ivar offset: where the search begins.
    @ivar until: before which height or time it ends; C{None} for the end of the log.
    @ivar limit: the most events to give.
    @ivar remote: the address of the client.
    """

    group: str
    hash: bytes | None = None
    author: bytes | None = None
    extensions: Mapping[str, str] = field(factory=dict)
    filter: str = ""
    offset: Offset = Edge.FIRST
    until: Offset | None = None
    limit: int
    remote: str = ""

    def fingerprint(self) -> bytes:
        """The fingerprint of what is likely to be rarest."""
        if self.hash is not None:
            return contentFingerprint(self.hash)
        if self.extensions:
            return extensionFingerprint(*next(iter(self.extensions.items())))
        if self.author is not None:
            return authorFingerprint(self.author)
        raise ParameterInvalid("give hash, author, or an extension")

    def matches(self, event: Event) -> bool:
        """Whether an event is one of those that are looked for."""
        author = None if event.author is None else event.author.key
        return (
            (not self.filter or filterMatches(self.filter, event.topic))
            and (self.author is None or self.author == author)
            and self.extensions.items() <= event.extensions.items()
            and (self.hash is None or self.hash == sha256(event.content).digest())
        )


@frozen(kw_only=True)
class FoundPage:
    """
    Some events that were found.

    @ivar page: the events; its C{next} is where the search goes on.
    @ivar height: the height of the last block of which the index had rows.
    @ivar committed: the height of the last block of the log.
    """

    page: ReadPage
    height: int
    committed: int


class EventSearch:
    """
    Finds events in the groups that have an index.
    """

    def __init__(
        self,
        groups: Groups,
        indexes: Mapping[str, GroupIndex],
        subscriptions: Subscriptions | None = None,
        turns: HistoryTurns | None = None,
        output: OutputBudget | None = None,
        reactor: IReactorTime | None = None,
    ) -> None:
        """
        @param indexes: the indexes by the ids of their groups. Where there are none, nothing else
            is needed.
        @param subscriptions: find the places of times.
        @param turns: say when events may be read.
        @param output: bounds what is read for answers.
        """
        self._groups = groups
        self._indexes = indexes
        self._subscriptions = subscriptions
        self._turns = turns
        self._output = output
        self._reactor = reactor

    @asDeferred
    async def find(self, principal: Principal, request: FindRequest) -> FoundPage:
        """
        Find events that a principal may read, in the order of the log.

        @raise ParameterInvalid: nothing is looked for that the index has, or there is no index.
        @raise TopicNotFound: the topic was never opened.
        @raise NotAuthorized: the principal may read nothing that the pattern matches.
        @raise EventNotFound, HeightUnknown: the search begins or ends at no place in the log.
        @raise Overloaded: too much waits to be sent.
        @raise LedgerUnavailable: the index is being opened, or is damaged.
        """
        index, ledger = self._check(principal, request)
        assert self._output is not None
        await index.reach(index.committed)
        after = await self._placeOf(index, request.group, request.offset)
        before = startOf(MAX_HEIGHT)
        if request.until is not None:
            before = await self._placeOf(index, request.group, request.until)
        height = index.height
        unsent = self._output.unsent(ownerKey(principal.name, request.remote))
        unsent.check()
        page = EventPage(request.limit, unsent, hasTombstones=False)
        try:
            following = await self._search(principal, request, ledger, index, page, after, before)
            checkLogIn(principal)
            batches = page.readableBy(principal, request.group)
        finally:
            page.release()
        isAtEnd = following is None
        found = ReadPage(batches=batches, next=following or height + 1, isAtEnd=isAtEnd)
        return FoundPage(page=found, height=height, committed=index.committed)

    def _check(self, principal: Principal, request: FindRequest) -> tuple[GroupIndex, ILedger]:
        group, ledger = self._groups.find(principal, request.group)
        index = self._indexes.get(group)
        if index is None:
            raise ParameterInvalid("this broker keeps no index: its operator sets find")
        for name in request.extensions:
            if name not in index.names:
                known = ", ".join(index.names) or "none"
                raise ParameterInvalid(f"{name[:100]} is not in the index, which has: {known}")
        request.fingerprint()
        if request.filter:
            checkTopicFilter(ledger, request.filter)
            principal.requireAny(Action.SUBSCRIBE, group, request.filter)
            if not isPattern(request.filter) and ledger.topicState(request.filter) is None:
                raise TopicNotFound()
        return index, ledger

    async def _placeOf(self, index: GroupIndex, group: str, offset: Offset) -> bytes:
        """The place after which events are that come after an offset."""
        assert self._subscriptions is not None
        if isinstance(offset, EventId):
            if offset.height > index.committed:
                raise HeightUnknown()
            if offset.sequence > MAX_HEIGHT:
                raise EventNotFound()
            return placeOf(offset)
        if isinstance(offset, Moment):
            offset = await self._subscriptions.locate(group, offset)
        if isinstance(offset, Position):
            if offset.height > index.committed + 1:
                raise HeightUnknown("the offset names a block above the chain's height")
            return startOf(offset.height)
        return startOf(0 if offset is Edge.FIRST else index.committed + 1)

    async def _search(
        self,
        principal: Principal,
        request: FindRequest,
        ledger: ILedger,
        index: GroupIndex,
        page: EventPage,
        after: bytes,
        before: bytes,
    ) -> EventId | None:
        """
        Fill a page.

        @return: the last event that was looked at; C{None} where all were.
        """
        assert self._reactor is not None and self._turns is not None
        deadline = self._reactor.seconds() + MAX_SEARCH
        fingerprint, looked = request.fingerprint(), None
        await self._turns.turn()
        while True:
            rows = await index.find(fingerprint, after, before, ROWS_AT_ONCE)
            for eventId in rows:
                event = await _read(ledger, eventId)
                if (
                    event is not None
                    and request.matches(event)
                    and principal.may(Action.SUBSCRIBE, request.group, event.topic)
                ):
                    page.add([event], await _timeOf(ledger, eventId.height))
                    if page.isCut:
                        return looked
                looked = eventId
                if page.isFull or self._reactor.seconds() >= deadline:
                    return looked
                if self._turns.isOver:
                    await self._turns.turn()
            if len(rows) < ROWS_AT_ONCE:
                return None
            after = placeOf(rows[-1])


async def _read(ledger: ILedger, eventId: EventId) -> Event | None:
    """An event of which the index has a row; C{None} where that is wrong or erased by now."""
    try:
        return await ledger.getEvent(eventId)
    except (EventErased, EventNotFound, HeightUnknown):
        return None


async def _timeOf(ledger: ILedger, height: int) -> int:
    """The time of a block, in milliseconds since the epoch."""
    page = await ledger.listBlocks(0, 1, height=height)
    return page.items[0].timestamp
