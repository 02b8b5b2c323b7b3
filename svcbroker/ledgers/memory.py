"""
The reference ledger: a list of blocks in memory, one transaction a block, final at once.

Simple enough to be obviously right. It keeps nothing on disk and has no peers, so it is for
tests and for trying things out; every other ledger must be seen to behave like it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from attrs import define
from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from ..archive import isGroup, ledgerOf
from ..chain import (
    ErasedRange,
    Genesis,
    Header,
    Hold,
    HoldChange,
    MemoryKeys,
    Transaction,
    proposeBlock,
)
from ..errors import EventNotFound, HeightUnknown, LedgerUnavailable
from ..interfaces import (
    IBlockObserver,
    ICheckedLedger,
    IHoldLedger,
    ILedger,
    ISizedLedger,
    ITopicRuleLedger,
    LedgerContext,
    Submission,
)
from ..model import (
    Block,
    BlockRecord,
    Event,
    EventId,
    Health,
    HeldRange,
    HoldRecord,
    NodeRecord,
    NodeType,
    Page,
    Position,
    Receipt,
    ReleasedPage,
    Request,
    Statistics,
    Topic,
    TopicRule,
    TransactionRecord,
    filterMatches,
)
from ..net.descriptions import readValues
from ._description import TOPICS, TOPICS_READER
from ._storedledger import Observers, refuseOther
from ._views import (
    TransactionMaker,
    blockOf,
    blockRecordOf,
    brokerAddress,
    erasedError,
    eventIdsOf,
    heldRangesOf,
    holdsOf,
    receiptsOf,
    releasedRecord,
    transactionRecordOf,
)

T = TypeVar("T")

SUMMARY = "A list in memory. Nothing is kept when the broker stops. For tests and trials."
SETTINGS: Mapping[str, str] = {"topics": TOPICS}


def _page(items: Sequence[T], offset: int, limit: int) -> Page[T]:
    return Page(total=len(items), items=items[offset : offset + limit])


def configure(settings: Mapping[str, str]) -> Callable[[LedgerContext], ILedger]:
    """
    See L{ILedgerFactory.configure<svcbroker.interfaces.ILedgerFactory.configure>}.
    """
    values = readValues("the memory ledger", settings, {"topics": TOPICS_READER})
    return partial(MemoryLedger, **values)


def memory(settings: Mapping[str, str]) -> Mapping[str, int]:
    """
    See L{IBoundedLedgerFactory.memory<svcbroker.interfaces.IBoundedLedgerFactory.memory>}.
    """
    configure(settings)
    # All that it keeps is its chain.
    return {}


def _sizeOf(transaction: Transaction) -> int:
    """The bytes of a transaction in a block."""
    return len(transaction.head) + len(transaction.seal) + len(transaction.content)


@define
class _StoredBlock:
    """
    A block, of which contents may be erased.
    """

    header: Header
    transactions: list[Transaction]
    ids: Sequence[EventId | None]

    def read(self) -> Block:
        """The block as a follower reads it."""
        return blockOf(self.header, self.transactions, self.ids)


@implementer(ICheckedLedger, IHoldLedger, ISizedLedger, ITopicRuleLedger)
class MemoryLedger:
    """
    A chain with a single node, without consensus.

    @ivar chain: empty, because each start begins another chain.
    @ivar topicRule: see L{ITopicRuleLedger<svcbroker.interfaces.ITopicRuleLedger>}.
    """

    chain = b""

    def __init__(self, context: LedgerContext, topics: TopicRule = TopicRule.PUBLISHED) -> None:
        self.topicRule = topics
        self.group = context.group
        self._directory = context.directory
        self._now = context.now
        self._genesis = Genesis(
            group=context.group,
            created=int(context.now() * 1000),
            validators=(context.entropy(32),),
            topics=topics,
        )
        self._keys = MemoryKeys()
        self._state = self._genesis.state(self._keys)
        self._maker = TransactionMaker(
            self._genesis.chain, brokerAddress(self._genesis.chain), context.now, context.entropy
        )
        self._blocks: list[_StoredBlock] = []
        self._bytes: Counter[str] = Counter()
        self._released: list[tuple[HoldChange, HoldChange]] = []
        self._observers = Observers()
        self._isRunning = False

    def check(self) -> None:
        """See L{ICheckedLedger<svcbroker.interfaces.ICheckedLedger>}."""
        found = ledgerOf(self._directory) or ("pbft" if isGroup(self._directory) else "memory")
        refuseOther(self._directory, "memory", found)

    def start(self) -> Deferred[None]:
        try:
            self.check()
        except LedgerUnavailable as error:
            return fail(error)
        self._isRunning = True
        return succeed(None)

    def stop(self) -> Deferred[None]:
        self._isRunning = False
        return succeed(None)

    def submitMany(self, requests: Sequence[Request]) -> Submission:
        if not self._isRunning:
            return Submission.refused(len(requests), LedgerUnavailable("the ledger is stopped"))
        submission = Submission(len(requests))
        for number, request in enumerate(requests):
            submission.settle(number, self._execute(request))
        return submission

    def _execute(self, request: Request) -> Sequence[Receipt]:
        parent = self._blocks[-1].header if self._blocks else self._genesis.header()
        candidate = proposeBlock(
            self._state,
            parent,
            parent.view,
            int(self._now() * 1000),
            self._maker.makeMany([request]),
        )
        outcome = candidate.outcome
        self._keepReleased(outcome.holds)
        self._state.apply(outcome, candidate.history)
        height, receipts = candidate.header.height, outcome.receipts
        ids = eventIdsOf(height, candidate.transactions, receipts)
        block = _StoredBlock(candidate.header, list(candidate.transactions), ids)
        self._blocks.append(block)
        for event in block.read().events:
            self._bytes[event.topic] += _sizeOf(block.transactions[event.index])
        for erased in outcome.erased:
            self._erase(erased)
        self._observers.tell(block.read)
        return receiptsOf(height, candidate.transactions, receipts, ids, outcome.earlier)

    def _keepReleased(self, changes: Sequence[HoldChange]) -> None:
        """Keep the holds that a block of one transaction releases: the state has them no more."""
        for change in changes:
            self._released += [
                (each, change)
                for each in self._state.holds
                if not isinstance(change.content, Hold) and each.content.case == change.content.case
            ]

    def _erase(self, erased: ErasedRange) -> None:
        """Remove the content of some events."""
        topic = self._state.topicAt(erased.topic).name
        for block in self._blocks:
            for event in block.read().events:
                if event.topic == topic and erased.first <= event.eventId.sequence <= erased.last:
                    transaction = block.transactions[event.index]
                    stripped = transaction.withoutContent()
                    block.transactions[event.index] = stripped
                    self._bytes[topic] += _sizeOf(stripped) - _sizeOf(transaction)

    def topicState(self, name: str) -> Topic | None:
        if not self._isRunning:
            raise LedgerUnavailable("the ledger is stopped")
        return self._state.topic(name)

    @property
    def latestRelease(self) -> int:
        return self._state.holds.released

    def heldRanges(
        self, topic: str, ranges: Sequence[tuple[int, int]]
    ) -> Sequence[Iterator[HeldRange]]:
        return heldRangesOf(self._state, topic, ranges)

    def listHolds(
        self, offset: int, limit: int, *, case: str | None = None
    ) -> Deferred[Page[HoldRecord]]:
        return succeed(holdsOf(self._state, offset, limit, case))

    def listReleased(
        self, limit: int, *, before: tuple[int, int] | None = None, case: str | None = None
    ) -> Deferred[ReleasedPage]:
        found = [
            (hold, release)
            for hold, release in self._released
            if case in (None, hold.content.case)
            and (before is None or (hold.height, hold.position) < before)
        ]
        found.sort(key=lambda each: (each[0].height, each[0].position), reverse=True)
        items = [releasedRecord(self._state, *each, case) for each in found[:limit]]
        last = found[limit - 1][0] if len(found) > limit else None
        return succeed(
            ReleasedPage(items=items, next=None if last is None else (last.height, last.position))
        )

    def listTopics(self, offset: int, limit: int) -> Deferred[Page[Topic]]:
        return succeed(
            Page(total=self._state.openCount, items=self._state.openTopics(offset, limit))
        )

    def topicBytes(self, names: Sequence[str]) -> Deferred[Sequence[int | None]]:
        return succeed(
            [None if self._state.topic(name) is None else self._bytes[name] for name in names]
        )

    def getEvent(self, eventId: EventId) -> Deferred[Event]:
        return self._find(eventId).addCallback(self._checkErased)

    def locate(self, eventId: EventId) -> Deferred[Position]:
        return self._find(eventId).addCallback(lambda event: event.position)

    def _find(self, eventId: EventId) -> Deferred[Event]:
        if eventId.height > len(self._blocks):
            return fail(HeightUnknown())
        for event in self._blocks[eventId.height - 1].read().events:
            if event.eventId == eventId:
                return succeed(event)
        return fail(EventNotFound())

    def _checkErased(self, event: Event) -> Event:
        """
        @raise EventErased: its content was erased.
        """
        if event.isErased:
            index = self._state.topicIndex(event.topic)
            assert index is not None
            erased = self._keys.erasure(index, event.eventId.sequence)
            assert erased is not None
            block = self._blocks[erased.height - 1]
            raise erasedError(block.header, block.transactions[erased.position], erased)
        return event

    def mayHold(self, height: int, extension: str) -> Deferred[bool]:
        return self.readBlock(height).addCallback(
            lambda block: any(extension in event.extensions for event in block.events)
        )

    def readBlock(self, height: int) -> Deferred[Block]:
        if not 1 <= height <= len(self._blocks):
            return fail(HeightUnknown())
        return succeed(self._blocks[height - 1].read())

    def findBlocks(self, topics: Sequence[str], first: int, limit: int) -> Deferred[Sequence[int]]:
        wanted = set(topics)
        heights = [
            block.header.height
            for block in self._blocks
            if block.header.height >= first
            and any(event.topic in wanted for event in block.read().events)
        ]
        return succeed(heights[:limit])

    def countEvents(self, filters: Sequence[str], first: int) -> Deferred[int]:
        return succeed(
            sum(
                any(filterMatches(filter, event.topic) for filter in filters)
                for block in self._blocks
                if block.header.height >= first
                for event in block.read().events
            )
        )

    def addObserver(self, observer: IBlockObserver) -> None:
        self._observers.add(observer)

    def removeObserver(self, observer: IBlockObserver) -> None:
        self._observers.remove(observer)

    def getStatistics(self) -> Deferred[Statistics]:
        return succeed(
            Statistics(
                nodeCount=1,
                height=len(self._blocks),
                transactionCount=sum(len(block.transactions) for block in self._blocks),
            )
        )

    def listBlocks(
        self, offset: int, limit: int, *, height: int | None = None, hash: bytes | None = None
    ) -> Deferred[Page[BlockRecord]]:
        found = [
            blockRecordOf(block.header)
            for block in self._newestFirst(height)
            if hash in (None, block.header.hash)
        ]
        return succeed(_page(found, offset, limit))

    def listTransactions(
        self, offset: int, limit: int, *, height: int | None = None, hash: bytes | None = None
    ) -> Deferred[Page[TransactionRecord]]:
        found = [
            transactionRecordOf(block.header, transaction)
            for block in self._newestFirst(height)
            for transaction in reversed(block.transactions)
            if hash in (None, transaction.hash)
        ]
        return succeed(_page(found, offset, limit))

    def listNodes(
        self, offset: int, limit: int, *, name: str | None = None
    ) -> Deferred[Page[NodeRecord]]:
        node = NodeRecord(
            nodeId=self._genesis.validators[0],
            name=None,
            view=0,
            nodeType=NodeType.SEALER,
            height=len(self._blocks),
            isActive=self._isRunning,
        )
        return succeed(_page([node] if name is None else [], offset, limit))

    def getHealth(self) -> Deferred[Health]:
        if self._isRunning:
            return succeed(Health(isReady=True))
        return succeed(Health(isReady=False, reason="the ledger is stopped"))

    def _newestFirst(self, height: int | None) -> Iterator[_StoredBlock]:
        if height is None:
            return reversed(self._blocks)
        return iter(self._blocks[height - 1 : height] if height >= 1 else ())
