"""
The reading of pages of events, for clients that ask for them; and their places while they wait for
events, or for blocks that other nodes have and this one does not have yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from ...access import Principal
from ...errors import BrokerError, NodeBehind, NotAuthenticated, QuotaExceeded, TopicNotFound
from ...interfaces import Action, Batch, ISubscriber
from ...model import (
    TAG,
    Event,
    EventId,
    InterfaceType,
    Offset,
    Position,
    SubscribeRequest,
    filterMatches,
    isPattern,
)
from ...net.addresses import ownerKey
from ...net.budgets import OutputBudget, Unsent, WorkBudget
from ...net.deferreds import asDeferred
from ...net.turns import Slots
from .._collaborators import ReadPage, ReadRequest
from ._follower import BLOCKS_A_STEP, Follower, HeightsBelow, checkIndex
from ._logsubscription import LogSubscription
from ._positions import StoredPosition, locateOffset

MAX_PAGE: Final = 4 * 1024 * 1024
"""The most bytes of the events of a page as JSON. One event alone may be larger."""

MAX_SEARCH: Final = 2.0
"""The seconds for which events are searched for in the past. Then the page ends where the search
has come to, so that a pattern that matches little of a long log does not hold a request."""

MAX_WAITING: Final = 10_000
"""The most calls that wait for events at the same time; one account or address has a share."""

_RECORD: Final = 256
"""The most bytes of an event as JSON apart from its topic, content and extensions."""

_ESCAPED: Final = 6
"""The most bytes of a character in JSON text."""

_PAIR: Final = 6
"""The bytes between the names and values of JSON objects."""

SHARE: Final = 4
"""One account, or one address of clients without one, may have one place in so many."""


class Places:
    """
    A bound on what clients hold open at the same time, in all and for each of them: an account, or
    without accounts, an address as L{ownerOf} counts addresses.
    """

    def __init__(self, total: int, what: str) -> None:
        """
        @param total: how many places there are.
        @param what: what takes them, in the plural.
        """
        self._total, self._own, self._what = total, max(1, total // SHARE), what
        self._slots = Slots(total, self._own)

    def take(self, principal: Principal, remote: str) -> str:
        """
        Take a place.

        @param remote: the client's address, as L{peerText<svcbroker.net.addresses.peerText>} gives
            it.
        @return: whose place it is, for L{release}.
        @raise QuotaExceeded: there is none.
        """
        owner = ownerKey(principal.name, remote)
        if self._slots.take(owner):
            return owner
        if self._slots.busy >= self._total:
            raise QuotaExceeded(f"all {self._total} places for {self._what} are taken: try again")
        kind = owner.partition(" ")[0]
        raise QuotaExceeded(
            f"{owner} has {self._own} {self._what}, as many as one {kind} may have: try again"
        )

    def release(self, owner: str) -> None:
        """Give a place back."""
        self._slots.release(owner)


WAIT: Final = 10.0
"""The seconds that a call waits for a block that this node does not have yet."""

MAX_CALLS: Final = 1000
"""The most calls that wait for a block at the same time; one account or address has a share."""


class HeightWaits:
    """
    Calls that wait until this node has a block.
    """

    def __init__(self, reactor: IReactorTime, work: WorkBudget) -> None:
        """
        @param work: the time in which calls that wait are refused when the broker stops.
        """
        self._reactor = reactor
        self._work = work
        self._places = Places(MAX_CALLS, "calls that wait for a block")
        self._waiting: dict[Deferred[None], None] = {}
        self._isDrained = False

    async def reachOffset(
        self, follower: Follower, principal: Principal, offset: Offset, remote: str
    ) -> None:
        """Wait as L{reach} does until an offset can be located."""
        if isinstance(offset, EventId):
            await self.reach(follower, principal, offset.height, remote)
        elif isinstance(offset, Position):
            # Before the chain's next block is a place, too.
            await self.reach(follower, principal, offset.height - 1, remote)

    async def reach(
        self, follower: Follower, principal: Principal, height: int, remote: str
    ) -> None:
        """
        Wait until this node has the block of a height. A ledger that only this node has is not
        waited for: nobody else can have told of a block above its height.

        @param remote: the client's address; only so many of its calls may wait.
        @raise NodeBehind: it does not have the block in L{WAIT} seconds, or is about to stop.
        @raise QuotaExceeded: too many calls wait, in all or of this client.
        """
        if height <= follower.committed or not follower.isOfNetwork:
            return
        if self._isDrained:
            raise NodeBehind()
        place = self._places.take(principal, remote)
        reached = follower.awaitHeight(height)
        self._waiting[reached] = None
        reached.addTimeout(WAIT, self._reactor)
        try:
            await reached
        except TimeoutError:
            raise NodeBehind(
                f"this node has blocks up to {follower.committed}, and {height} was not there "
                f"within {WAIT:g} seconds: try again, or ask another node"
            ) from None
        finally:
            del self._waiting[reached]
            self._places.release(place)
            follower.forgetHeight(height, reached)
        # Many may have waited for one block.
        await follower.turns.turn()

    def drain(self) -> Deferred[None]:
        """Refuse all calls that wait, and those that would wait from now on."""
        self._isDrained = True
        return self._work.makeAll(
            partial(each.errback, NodeBehind()) for each in tuple(self._waiting) if not each.called
        )


def checkLogIn(principal: Principal) -> None:
    """
    Check that a principal may still act, after something that took its time.

    @raise NotAuthenticated: its log-in has ended.
    """
    if principal.isRevoked:
        raise NotAuthenticated("the log-in has ended")


class EventPage:
    """
    A page of events that is being read. Its events count in the budget of what waits to be sent, at
    their size as JSON: where that is used up, the page ends with its first event.

    @ivar batches: its events, in the order in which they were asked for.
    @ivar count: how many they are.
    @ivar leftOut: how many erased events were left out.
    @ivar last: the id of the last event that is in it or was left out; C{None} before the first.
    @ivar isFull: whether no further event belongs to it.
    @ivar isCut: whether it has some events of a block, and no room for others.
    """

    def __init__(self, limit: int, unsent: Unsent, *, hasTombstones: bool) -> None:
        """
        @param unsent: counts its events.
        @param hasTombstones: whether erased events are in it; otherwise they are left out.
        """
        self._limit = limit
        self._hasTombstones = hasTombstones
        self._unsent = unsent
        self._size = 0
        self.batches: list[Batch] = []
        self.count = 0
        self.leftOut = 0
        self.last: EventId | None = None
        self.isFull = False
        self.isCut = False

    def add(self, events: Sequence[Event], timestamp: int) -> None:
        """
        Add the next events, of one block, as many as there is room for.

        @param timestamp: the block's time.
        """
        added: list[Event] = []
        for event in events:
            if event.isErased and not self._hasTombstones:
                self.leftOut += 1
                self.last = event.eventId
                continue
            size = _sizeOf(event)
            count = self.count + len(added)
            if count == self._limit or (
                count and (self._size + size > MAX_PAGE or size > self._unsent.room)
            ):
                self.isFull = self.isCut = True
                break
            self._size += size
            self._unsent.hold(size)
            added.append(event)
            self.last = event.eventId
        if added:
            self.batches.append(Batch(added, timestamp))
            self.count += len(added)
            self.isFull = self.isFull or self.count == self._limit

    def readableBy(self, principal: Principal, group: str) -> Sequence[Batch]:
        """The part of it that a principal may read now: its grants may have changed since."""
        if principal.isEverything:
            return self.batches
        readable = []
        for batch in self.batches:
            events = [e for e in batch.events if principal.may(Action.SUBSCRIBE, group, e.topic)]
            if events:
                readable.append(Batch(events, batch.timestamp))
        return readable

    def release(self) -> None:
        """It was answered or given up."""
        self._unsent.close()


def _sizeOf(event: Event) -> int:
    """The most bytes that an event takes as JSON."""
    size = _RECORD + _ESCAPED * len(event.topic) + (len(event.content) + 2) // 3 * 4
    for key, value in event.extensions.items():
        size += _PAIR + _ESCAPED * (len(key) + len(value))
    return size


@implementer(ISubscriber)
class _ForwardRead:
    """
    A page in the order of the log: what a subscription delivers until the page is full, the end of
    the log is reached, or the time is over.

    @ivar done: fires when the page can be answered.
    @ivar subscription: where the events come from.
    """

    def __init__(self, page: EventPage, follower: Follower, *, isWaiting: bool) -> None:
        """
        @param isWaiting: whether to wait for an event where there is none.
        """
        self.done: Deferred[None] = Deferred()
        self.subscription: LogSubscription | None = None
        self._page = page
        self._follower = follower
        # Events that were final when the page was asked for belong to it.
        self._end = follower.committed
        self._isWaiting = isWaiting
        self._isLate = False
        self._error: BrokerError | None = None

    @property
    def isAtEnd(self) -> bool:
        """Whether everything was read up to the end of the log."""
        subscription = self.subscription
        isLive = subscription is not None and subscription.isLive
        return isLive and not self._page.isFull and self._follower.height >= self._end

    def deliver(self, batch: Batch) -> None:
        """See L{ISubscriber.deliver}."""
        assert self.subscription is not None
        self._page.add(batch.events, batch.timestamp)
        if self._page.isFull:
            self.subscription.pause()
        self.check()

    def subscriptionEnded(self, error: BrokerError) -> None:
        """See L{ISubscriber.subscriptionEnded}."""
        self._error = error
        self._page.isFull = True
        self.check()

    def endSearch(self) -> None:
        """The time to search the past is over."""
        self._isLate = True
        self.check()

    def endWait(self) -> None:
        """The time to wait for an event is over."""
        self._isWaiting = False
        self.check()

    def check(self) -> None:
        """Look whether the page can be answered."""
        if self.done.called:
            return
        page = self._page
        isSearched = self._isLate or self.isAtEnd
        if page.isFull or (isSearched and (page.count or not self._isWaiting)):
            self.done.callback(None)

    def answer(self, principal: Principal, request: ReadRequest) -> ReadPage:
        """
        The page as it is now.

        @raise NotAuthenticated: the account is gone.
        @raise BrokerError: the log cannot be read, and nothing was read before.
        """
        page, subscription = self._page, self.subscription
        if self._error is not None and (
            isinstance(self._error, NotAuthenticated) or not page.count
        ):
            raise self._error
        assert subscription is not None
        isAtEnd, position = self.isAtEnd, subscription.position
        following: EventId | int
        if not page.isCut and position.index < 0:
            following = position.height
        elif page.last is not None:
            following = page.last
        else:
            # Nothing was read after the event where reading was to begin.
            assert isinstance(request.offset, EventId)
            following = request.offset
        batches = page.readableBy(principal, request.group)
        return ReadPage(batches=batches, next=following, isAtEnd=isAtEnd, leftOut=page.leftOut)


class EventReading:
    """
    Reads pages of events. Nothing of a page is kept once it was answered.
    """

    def __init__(
        self,
        followers: Mapping[str, Follower],
        reactor: IReactorTime,
        now: Callable[[], float],
        checkFilter: Callable[[Principal, str, str], None],
        output: OutputBudget,
        heights: HeightWaits,
        work: WorkBudget,
    ) -> None:
        """
        @param followers: the groups' followers, by the ids of the groups.
        @param now: the wall clock: seconds since the epoch.
        @param checkFilter: raises an error where a principal may not have a filter in a group.
        @param output: bounds the pages that are being read.
        @param heights: waits for blocks that other nodes have.
        @param work: has the turns in which calls that wait end.
        """
        self._followers = followers
        self._reactor = reactor
        self._now = now
        self._checkFilter = checkFilter
        self._output = output
        self._heights = heights
        self._work = work
        self._waiting: dict[_ForwardRead, None] = {}
        self._places = Places(MAX_WAITING, "calls of events that wait")
        self._isDrained = False

    @asDeferred
    async def read(self, principal: Principal, request: ReadRequest) -> ReadPage:
        """See L{ISubscriptionDirectory.readEvents<svcbroker.broker.ISubscriptionDirectory>}."""
        follower = self._followers[request.group]
        self._checkFilter(principal, request.group, request.filter)
        await self._heights.reachOffset(follower, principal, request.offset, request.remote)
        if not isPattern(request.filter) and follower.ledger.topicState(request.filter) is None:
            raise TopicNotFound()
        unsent = self._output.unsent(ownerKey(principal.name, request.remote))
        unsent.check()
        page = EventPage(request.limit, unsent, hasTombstones=request.hasTombstones)
        try:
            if request.isReverse:
                return await self._readBackward(principal, request, follower, page)
            return await self._readForward(principal, request, follower, page)
        finally:
            page.release()

    def drain(self) -> Deferred[None]:
        """Answer all who wait for events now, and have nobody wait from now on."""
        self._isDrained = True
        return self._work.makeAll(read.endWait for read in tuple(self._waiting))

    async def _readForward(
        self, principal: Principal, request: ReadRequest, follower: Follower, page: EventPage
    ) -> ReadPage:
        isWaiting = request.wait > 0 and not self._isDrained
        place = self._places.take(principal, request.remote) if isWaiting else None
        read = _ForwardRead(page, follower, isWaiting=isWaiting)
        calls = [self._reactor.callLater(MAX_SEARCH, read.endSearch)]
        if isWaiting:
            self._waiting[read] = None
            calls.append(self._reactor.callLater(request.wait, read.endWait))
        try:
            start = await locateOffset(follower, principal, request.offset)
            # Blocks that were final before belong to the past, not to what comes.
            committed = follower.committed
            while follower.height < committed and not self._isDrained:
                await follower.turns.turn()
            checkLogIn(principal)
            read.subscription = self._subscribe(principal, request, follower, start, read)
            read.subscription.resume()
            read.check()
            await read.done
            # Events come to all who wait in the same turn; answering each takes time.
            await follower.turns.turn()
            return read.answer(principal, request)
        finally:
            for call in calls:
                if call.active():
                    call.cancel()
            if place is not None:
                del self._waiting[read]
                self._places.release(place)
            if read.subscription is not None:
                read.subscription.close()
                # It has the reader as its subscriber.
                read.subscription = None

    def _subscribe(
        self,
        principal: Principal,
        request: ReadRequest,
        follower: Follower,
        start: Position,
        read: _ForwardRead,
    ) -> LogSubscription:
        """A subscription that is neither listed nor kept, nor counts for a quota."""
        return LogSubscription(
            subscriptionId="of a page",
            principal=principal,
            request=SubscribeRequest(
                interfaceType=InterfaceType.RESTFUL,
                group=request.group,
                filters=(request.filter,),
                tag=request.tag,
                # The page leaves them out, and counts them.
                hasTombstones=True,
            ),
            subscriber=read,
            follower=follower,
            now=self._now,
            start=StoredPosition(start),
            closed=_ignore,
            moved=_ignore,
            store=_ignore,
            checkFilter=self._checkFilter,
            wentLive=read.check,
        )

    async def _readBackward(
        self, principal: Principal, request: ReadRequest, follower: Follower, page: EventPage
    ) -> ReadPage:
        deadline = self._reactor.seconds() + MAX_SEARCH
        filter, tag, group, turns = request.filter, request.tag, request.group, follower.turns
        topics = None if isPattern(filter) else (filter,)
        # Events before this position are still to be read.
        before = await locateOffset(follower, principal, request.offset)
        if isinstance(request.offset, Position):
            before = Position(min(before.height, follower.committed) + 1, -1)
        heights = HeightsBelow(follower.ledger, filter)
        isAtEnd = False
        while not (page.isFull or isAtEnd) and self._reactor.seconds() < deadline:
            await turns.turn()
            checkLogIn(principal)
            for _ in range(BLOCKS_A_STEP):
                height = await heights.next(before)
                if height is None:
                    isAtEnd = True
                    break
                block = await follower.readBlock(height)
                checkIndex(follower, block, topics)
                events = [
                    event
                    for event in reversed(block.events)
                    if event.position < before
                    and filterMatches(filter, event.topic)
                    and (tag is None or event.extensions.get(TAG) == tag)
                    and (
                        principal.isEverything
                        or principal.may(Action.SUBSCRIBE, group, event.topic)
                    )
                ]
                heights.note(len(block.events), bool(events))
                page.add(events, block.timestamp)
                if page.isCut:
                    break
                before = Position(height, -1)
                if page.isFull or turns.isOver:
                    break
        following: EventId | int
        if page.isCut:
            assert page.last is not None
            following = page.last
        elif isAtEnd:
            following = 0
        elif before.index < 0:
            following = before.height - 1
        else:
            assert isinstance(request.offset, EventId)
            following = request.offset
        batches = page.readableBy(principal, group)
        return ReadPage(batches=batches, next=following, isAtEnd=isAtEnd, leftOut=page.leftOut)


def _ignore(*arguments: object) -> None:
    """Of a subscription that is not kept nothing is stored."""
