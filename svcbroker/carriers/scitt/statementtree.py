"""
The tree of the statements of a topic, which follows the log: the file is made of it, and the root
that was signed last is kept apart from the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from attrs import frozen
from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from ...broker import MetadataStore
from ...broker.subscriptions import HistoryTurns
from ...errors import BrokerError, LedgerUnavailable
from ...interfaces import IBlockObserver, IProvableLedger
from ...model import Block, EventId
from ...net.budgets import WorkBudget
from ...net.deferreds import asDeferred, cancelAll
from ...proofs.scitt import KEY_TOPIC, Entry, Registration
from ...storage import StorageDamaged, StorageError, TreeFile, TreeLeaf, TreePlace

SCITT: Final = "scitt"
"""The kind of the root that was signed last, in the metadata store. Its name is C{GROUP/TOPIC}."""

RETRY: Final = 5.0
"""Seconds after which it is tried again to go on with a log or a disk that has failed."""

MAX_LEAVES: Final = 512
"""The most leaves that are added to the file together."""

MAX_BYTES: Final = 2 * 1024 * 1024
"""The number of bytes of statements after which they are added to the file."""

_BLOCKS: Final = 64
_FEW: Final = 64
"""The number of leaves up to which they are added without a thread, where the disk is fast."""
_TELLING: Final = 0.01
"""Seconds for which those who wait are told in one turn of the reactor: most sign a receipt."""
_REMADE: Final = "the tree of the statements is made again: try again"


class SignedRoot(Struct, frozen=True):
    """
    The tree of which a root was signed, as it is kept.

    @ivar size: the number of its leaves.
    @ivar root: its root, in hex.
    """

    size: int
    root: str


class _Progress(Struct, frozen=True):
    """
    The log as far as the file has it.

    @ivar height: the last block with a leaf.
    @ivar documents: the events with the policy and the trust anchors in force.
    """

    height: int = 0
    documents: tuple[str, ...] = ()


@frozen
class TreeState:
    """A tree at some time: its size, and its root."""

    size: int
    root: bytes


@implementer(IBlockObserver)
class StatementTree:
    """
    The tree of one topic.

    A block costs nothing but a look at the topic unless it has an event of it. After a start, what
    the file does not have is read while there is time.

    @ivar registration: what the log says of policies and keys, as far as it was read.
    @ivar documents: the events with the policy and the trust anchors that are in force, by their
        content types.
    @ivar state: the tree that receipts are of.
    @ivar height: the block up to which the log was read; 0 while the tree is being made.
    @ivar isForked: whether the log does not have a tree that was signed: then nothing is signed.
    @ivar reason: why it could not go on when it was tried last; empty where it could.
    """

    _log = Logger()

    def __init__(
        self,
        ledger: IProvableLedger,
        topic: str,
        makeFile: Callable[[], TreeFile],
        store: MetadataStore | None,
        reactor: IReactorTime,
        run: Callable[..., Deferred[Any]],
        runBriefly: Callable[..., Deferred[Any]],
        work: WorkBudget,
    ) -> None:
        """
        @param makeFile: makes its file, once the ledger has started.
        @param store: keeps the root that was signed last; C{None} where none is signed.
        @param run: runs a function in the thread of the file.
        @param runBriefly: the same for what is done at once where the disk is fast.
        @param work: has the time in which the log is read.
        """
        self.registration = Registration()
        self.state = TreeState(0, b"")
        self.documents: dict[str, str] = {}
        self.height = 0
        self.isForked = False
        self.reason = ""
        self._ledger = ledger
        self._topic = topic
        self._makeFile = makeFile
        self._file: TreeFile | None = None
        self._isDamaged = False
        self._store = store
        self._name = f"{ledger.group}/{topic}"
        self._reactor = reactor
        self._turns = HistoryTurns(reactor, work)
        self._run = run
        self._runBriefly = runBriefly
        self._committed = 0
        self._seen = 0
        self._taken = 0
        self._leaves: list[TreeLeaf] = []
        self._bytes = 0
        self._waiting: dict[Deferred[None], int] = {}
        self._news: Deferred[None] = Deferred()
        self._running: Deferred[None] | None = None

    @asDeferred
    async def start(self) -> None:
        """Begin to follow the log. Nothing waits for it."""
        self._ledger.addObserver(self)
        height = (await self._ledger.getStatistics()).height
        self._committed = max(self._committed, height)
        self._running = self._follow()

    @asDeferred
    async def stop(self) -> None:
        """Close the file. The log has everything."""
        self._ledger.removeObserver(self)
        if self._running is not None:
            cancelAll([self._running])
        for waiting in [*self._waiting]:
            waiting.errback(LedgerUnavailable("the broker stops"))
        self._turns.stop()
        if self._file is not None:
            await self._run(self._file.close)

    def blockCommitted(self, block: Block) -> None:
        """See L{IBlockObserver}."""
        self._committed = block.height
        topic = self._ledger.topicState(self._topic)
        if topic is not None and topic.height > self._seen:
            self._seen = topic.height
            self._wake()

    def _wake(self) -> None:
        if not self._news.called:
            self._news.callback(None)

    @asDeferred
    async def reach(self, height: int) -> None:
        """
        Wait until the tree has everything up to a block that has an event of the topic; 1 for
        everything that there is.
        """
        if self.height < height:
            waiting: Deferred[None] = Deferred()
            self._waiting[waiting] = height
            try:
                await waiting
            finally:
                del self._waiting[waiting]

    @asDeferred
    async def has(self, name: bytes) -> bool:
        """Whether there is an entry of this hash."""
        return await self._ask(TreeFile.find, name) is not None

    @asDeferred
    async def place(self, name: bytes, size: int) -> TreePlace | None:
        """The place of the entry of a hash in the tree of a size; C{None} where it has none."""
        place: TreePlace | None = await self._ask(TreeFile.place, name, size)
        return place

    @asDeferred
    async def heightOf(self, number: int) -> int | None:
        """The block of the entry of a number, from 0; C{None} where there is none yet."""
        event = await self._ask(TreeFile.eventOf, number)
        try:
            return None if event is None else EventId.parse(event).height
        except BrokerError:
            self.damaged()
            raise LedgerUnavailable(_REMADE) from None

    @asDeferred
    async def growth(self, older: int, newer: int) -> Sequence[bytes]:
        """The consistency proof from one size to another."""
        path: Sequence[bytes] = await self._ask(TreeFile.growth, older, newer)
        return path

    @asDeferred
    async def nodes(self, level: int, first: int, count: int) -> Sequence[bytes]:
        """See L{TreeFile.nodes}."""
        found: Sequence[bytes] = await self._ask(TreeFile.nodes, level, first, count)
        return found

    @asDeferred
    async def rootAt(self, size: int) -> bytes:
        """The root that the tree had when it had a size."""
        root: bytes = await self._ask(TreeFile.rootAt, size)
        return root

    async def _ask(self, look: Callable[..., Any], *given: Any) -> Any:
        if self._file is None or not self.height:
            raise LedgerUnavailable("the tree of the statements is being made: try again")
        try:
            return await self._runBriefly(look, self._file, *given)
        except StorageError as error:
            self._tell(error)
            self.damaged()
            raise LedgerUnavailable(_REMADE) from None

    def damaged(self) -> None:
        """The file is not what was written: make it anew."""
        self.height, self._isDamaged = 0, True
        self._wake()

    def signed(self, state: TreeState) -> None:
        """Keep a root that is about to be signed."""
        known = self._signed()
        assert self._store is not None
        if known is None or state.size > known.size:
            record = SignedRoot(state.size, state.root.hex())
            self._store.put(SCITT, self._name, msgspec.json.encode(record))

    def _signed(self) -> SignedRoot | None:
        kept = None if self._store is None else self._store.get(SCITT, self._name)
        return None if kept is None else msgspec.json.decode(kept, type=SignedRoot)

    # The log

    @asDeferred
    async def _follow(self) -> None:
        while True:
            try:
                while True:
                    if self._file is None or self._isDamaged:
                        await self._open()
                    await self._catchUp()
                    await self._news
                    self._news = Deferred()
            except StorageDamaged as error:
                self._tell(error)
                self.damaged()
            except (BrokerError, StorageError, OSError) as error:
                self._tell(error)
                await deferLater(self._reactor, RETRY)

    async def _open(self) -> None:
        """Open the file, and go on where it ends."""
        file = self._file
        if file is None:
            file = self._makeFile()
            reason = await self._run(file.open)
        else:
            reason = "it was damaged"
            await self._run(file.clear)
        taken = msgspec.json.decode(file.state, type=_Progress) if file.state else _Progress()
        if taken.height > self._committed or not await self._hasSigned(file):
            reason = "the log does not have it"
            await self._run(file.clear)
            taken = _Progress()
        if reason:
            text = "the tree of {topic} is made again: {reason}"
            self._log.warn(text, topic=self._topic, reason=reason)
        self.registration, self.documents = Registration(), {}
        await self._readKeys(taken.height)
        for each in taken.documents:
            content = (await self._ledger.getEvent(EventId.parse(each))).content
            self._apply(self.registration.check(content, 0), each)
        self._leaves, self._bytes, self._taken = [], 0, taken.height
        self._file, self._isDamaged = file, False

    async def _hasSigned(self, file: TreeFile) -> bool:
        """Whether a file has the root that was signed last, unless it is not that large."""
        known = self._signed()
        if known is None or known.size > file.size:
            return True
        root: bytes = await self._run(file.rootAt, known.size)
        return root.hex() == known.root

    async def _readKeys(self, height: int) -> None:
        """Read the keys that were certified up to a block."""
        first = 1
        while heights := await self._ledger.findBlocks([KEY_TOPIC], first, _BLOCKS):
            for each in heights:
                if each > height:
                    return
                for event in (await self._ledger.readBlock(each)).events:
                    if event.topic == KEY_TOPIC:
                        self.registration.addKey(event.content)
            first = heights[-1] + 1

    async def _catchUp(self) -> None:
        """Add the entries of all blocks that are final."""
        isFirst = not self.height
        while not self._isDamaged:
            end = self._committed
            await self._turns.turn()
            heights = await self._ledger.findBlocks(
                [KEY_TOPIC, self._topic], self._taken + 1, _BLOCKS
            )
            for height in heights:
                if self._turns.isOver:
                    await self._turns.turn()
                await self._take(await self._ledger.readBlock(height))
                if len(self._leaves) >= MAX_LEAVES or self._bytes >= MAX_BYTES:
                    await self._flush()
            if len(heights) < _BLOCKS:
                await self._flush()
                if isFirst:
                    await self._checkSigned()
                await self._reached(max(1, end, self._taken))
                return

    async def _take(self, block: Block) -> None:
        """Take the entries of a block; what is no statement that is registered is left out."""
        for event in block.events:
            if event.topic == KEY_TOPIC:
                self.registration.addKey(event.content)
            if event.topic != self._topic:
                continue
            if event.isErased:
                raise LedgerUnavailable(
                    f"event {event.eventId} was erased, so the tree cannot be made of the log"
                )
            entry = self.registration.entryOf(event.content, block.timestamp)
            if entry is not None:
                self._leaves.append(TreeLeaf(entry.id, entry.leaf, str(event.eventId)))
                self._bytes += len(entry.leaf)
                self._apply(entry, str(event.eventId))
            if self._turns.isOver:
                await self._turns.turn()
        self._taken = block.height

    def _apply(self, entry: Entry, event: str) -> None:
        """Go on after an entry."""
        kind = self.registration.apply(entry)
        if kind is not None:
            self.documents[kind] = event

    async def _flush(self) -> None:
        """Add what was taken to the file."""
        assert self._file is not None
        if self._leaves:
            # A document comes before what was checked by it.
            taken = _Progress(self._taken, tuple(self.documents.values()))
            run = self._runBriefly if len(self._leaves) <= _FEW else self._run
            await run(self._file.add, self._leaves, msgspec.json.encode(taken))
            self._leaves, self._bytes = [], 0
        self.state = TreeState(self._file.size, self._file.root)

    async def _checkSigned(self) -> None:
        """Look whether the log has what was signed, once all of it was read."""
        assert self._file is not None
        known = self._signed()
        self.isForked = known is not None and (
            known.size > self._file.size or not await self._hasSigned(self._file)
        )
        if self.isForked:
            self._log.error(
                "the log does not have the tree of {topic} of which receipts were signed, so none "
                "is signed any more: was an older backup restored?",
                topic=self._topic,
            )

    async def _reached(self, height: int) -> None:
        """Tell those who wait for a block, each of whom may sign a receipt then."""
        if self._isDamaged:
            # Meanwhile: it is made again.
            return
        self.height, self.reason = height, ""
        deadline = self._reactor.seconds() + _TELLING
        for waiting, awaited in [*self._waiting.items()]:
            if awaited <= height and not waiting.called:
                waiting.callback(None)
                if self._reactor.seconds() > deadline:
                    await self._turns.turn()
                    deadline = self._reactor.seconds() + _TELLING

    def _tell(self, error: Exception) -> None:
        self.reason = getattr(error, "message", None) or str(error)
        self._log.error(
            "the tree of {topic} cannot go on, it is tried again: {reason}",
            topic=self._topic,
            reason=self.reason,
        )
