"""
The ledger that is a copy of another broker's chain: its directory, its progress and its blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from struct import error as StructError
from typing import Any, Final, TypeVar

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from ...archive import (
    KEYS_NAME,
    STORE_NAME,
    BlockVerifier,
    NotCertified,
    Replay,
    StoredChain,
    StreamBroken,
    StreamReader,
    VerifiedBlock,
    checkEnd,
    ledgerOf,
    loadChain,
    markCopy,
    refusedName,
)
from ...chain import CertificateInvalid, Genesis, Malformed, VersionUnknown, decodeReceipts
from ...errors import LedgerUnavailable
from ...interfaces import (
    ICheckedLedger,
    IExportableLedger,
    IMeasuredLedger,
    INetworkLedger,
    IProvableLedger,
    LedgerContext,
    Submission,
)
from ...model import Health, LedgerMeasures, NodeRecord, NodeType, Page, Request, Statistics
from ...net.deferreds import asDeferred
from ...net.pem import CertificateError
from ...storage import StorageError, StorageFailed, Store, StoreReader, lookAt, syncFile, writeFile
from .._storedledger import StoredLedger, refuseOther
from .._views import blockOf, eventIdsOf
from ._original import (
    WAIT,
    CopyRefusal,
    CopyRefused,
    CopySettings,
    Original,
    OriginalAnswer,
    OriginalUnavailable,
    PartVerifier,
)

TOLD: Final = 10.0
"""Seconds after which a copy that is still behind logs again how far it is."""


@frozen(kw_only=True)
class CopyProgress:
    """
    The progress of a copy.

    @ivar height: the height of its last block.
    @ivar original: the height up to which the original could be copied when it last answered;
        C{None} where it has not answered since the start.
    @ivar reason: why nothing can be copied now; empty where nothing is known to prevent it.
    @ivar refused: why nothing more is copied; C{None} while copying goes on.
    """

    height: int
    original: int | None
    reason: str
    refused: CopyRefused | None

    @property
    def behind(self) -> int | None:
        """The number of blocks that it is behind the original's last answer."""
        return None if self.original is None else max(0, self.original - self.height)


class ProgressLog:
    """
    Logs how far a copy is: when it falls behind, every L{TOLD} seconds while it is behind, and when
    it has caught up.
    """

    _log = Logger()

    def __init__(self, group: str) -> None:
        self._group = group
        self._toldAt: float | None = None
        self._wasBehind = True
        self._reason = ""

    def tell(self, progress: CopyProgress, now: float) -> None:
        """
        Log the changes since the last line.

        @param now: the time, in seconds.
        """
        if progress.reason != self._reason:
            self._reason = progress.reason
            if self._reason:
                self._log.warn("group {group}: {reason}", group=self._group, reason=self._reason)
        if progress.reason:
            return
        if not progress.behind:
            if self._wasBehind:
                self._wasBehind = False
                self._log.info(
                    "group {group}: the copy is up to date, at block {height}",
                    group=self._group,
                    height=progress.height,
                )
        elif self._toldAt is None or not 0 <= now - self._toldAt < TOLD:
            self._toldAt, self._wasBehind = now, True
            self._log.info(
                "group {group}: the copy is at block {height}, {behind} blocks behind",
                group=self._group,
                height=progress.height,
                behind=progress.behind,
            )


@contextmanager
def explaining(place: object) -> Iterator[None]:
    """
    Turn what prevents a start into one line for the operator.

    @param place: what the line begins with, where the error does not name it.
    @raise LedgerUnavailable: in the place of any such error.
    """
    try:
        yield
    except (StorageError, CertificateError) as error:
        raise LedgerUnavailable(str(error)) from error
    except OSError as error:
        raise LedgerUnavailable(f"{error.filename or place}: {error.strerror}") from error
    except VersionUnknown as error:
        raise LedgerUnavailable(f"{place} has another format: {error}") from error
    except (StreamBroken, CertificateInvalid, ValueError, OverflowError, StructError) as error:
        raise LedgerUnavailable(f"{place}: {error}") from error


def hasCopy(directory: Path) -> bool:
    """
    Whether there is a copy in a directory already.

    @raise LedgerUnavailable: a chain with keys is in it.
    """
    keys = directory / KEYS_NAME
    if any(keys.glob("*")):
        raise LedgerUnavailable(
            f"{keys} has keys, so the chain beside it is no copy: where it is to become one, move "
            "the keys away for good (docs/replication.rst)"
        )
    refuseOther(directory, "copy", ledgerOf(directory) or "copy")
    return (directory / STORE_NAME).exists()


def createCopy(directory: Path, settings: CopySettings, stream: bytes) -> Genesis:
    """
    Create a copy without blocks.

    @param stream: an export, whose genesis is taken.
    @raise StreamBroken, Malformed, StorageError, OSError: it cannot be created.
    """
    genesis = StreamReader(BytesIO(stream)).begin().genesis
    _checkGenesis(genesis, settings)
    directory.mkdir(mode=0o700, exist_ok=True)
    # Before the store: the embedded ledger must not take it for a chain of its own.
    markCopy(directory, settings.url)
    path = directory / STORE_NAME
    Store.create(path, chainId=genesis.chain, genesis=genesis.encoded).close()
    syncFile(directory.parent)
    return genesis


def openCopy(directory: Path, settings: CopySettings) -> tuple[Store, StoredChain]:
    """
    Open a copy. One whose end is lost is opened, too: the original has it.

    @raise Malformed, CertificateInvalid, StorageError, OSError: it cannot be opened.
    """
    markCopy(directory, settings.url)
    store = Store.open(directory / STORE_NAME, mayLose=True)
    try:
        return store, checkCopy(store, settings)
    except BaseException:
        store.close()
        raise


def checkCopy(store: StoreReader, settings: CopySettings) -> StoredChain:
    """
    Load a copy, and check that it is the one that the settings name.

    @raise Malformed, CertificateInvalid, StorageError: it is not, or it is damaged.
    """
    chain = loadChain(store)
    _checkGenesis(chain.genesis, settings)
    checkEnd(store, chain)
    wanted = settings.checkpoint
    if wanted is not None and wanted.height <= chain.head.height:
        [found] = store.blockHashes(wanted.height, 1) or [chain.genesis.header().hash]
        if found != wanted.hash:
            raise Malformed(f"block {wanted.height} is not the one of the checkpoint")
    return chain


def _checkGenesis(genesis: Genesis, settings: CopySettings) -> None:
    # Its group is not compared: a network's genesis has the name of the network instead.
    if settings.genesis not in (None, genesis.chain):
        raise Malformed(f"the chain has another genesis: {genesis.chain.hex()}")


T = TypeVar("T")

SLICE: Final = 0.02
"""Seconds of verifying after which blocks are stored, and the reactor gets its turn."""

FIRST_PAUSE: Final = 0.5
LAST_PAUSE: Final = 15.0
"""Seconds before the original is asked again after a failure: the first time, and at most."""

DISK_PAUSE: Final = 1.0
"""Seconds between two attempts to write to a failing disk."""


@implementer(ICheckedLedger, INetworkLedger, IProvableLedger, IExportableLedger, IMeasuredLedger)
class CopyLedger(StoredLedger):
    """
    A group's log, copied from another broker. What it stores it has verified: certificates, links
    and the execution of each block.

    It executes nothing: publishing, opening and closing are refused.
    """

    takesRequests = False

    def __init__(
        self,
        context: LedgerContext,
        settings: CopySettings,
        connect: Callable[[Any, str, CopySettings], Original] = Original.connect,
        report: Callable[[CopyProgress], object] = lambda progress: None,
    ) -> None:
        """
        @param connect: makes the client of the original; tests pass their own.
        @param report: told of each answer and each failure.
        """
        super().__init__(context)
        self._context = context
        self._settings = settings
        self._connect = connect
        self._report = report
        self._store: Store | None = None
        self._pending: list[VerifiedBlock] = []
        self._readers: list[Deferred[None]] = []
        self._height = 0
        self._missing = self._missingUntil = 0
        self._isWhole = False
        self._wholeHeight = 0
        self._original: int | None = None
        self._answered = context.reactor.seconds()
        self._lastError = ""
        self._refused: CopyRefused | None = None
        self._progressLog = ProgressLog(context.group)
        self._waiting: Deferred[Any] | None = None
        self._following: Deferred[None] = succeed(None)
        self._isStopping = False

    # Start and stop.

    def check(self) -> None:
        """See L{ICheckedLedger<svcbroker.interfaces.ICheckedLedger>}."""
        directory, settings = self._context.directory, self._settings
        with explaining(settings.url):
            self._connect(self._context.reactor, self.group, settings)
        if hasCopy(directory):
            with explaining(directory), lookAt(directory / STORE_NAME, mayLose=True) as store:
                checkCopy(store, settings)

    @asDeferred
    async def start(self) -> None:
        """
        See L{ILedger<svcbroker.interfaces.ILedger.start>}. Where there is no copy yet, the original
        must answer.
        """
        directory, settings = self._context.directory, self._settings
        with explaining(settings.url):
            self._source = self._connect(self._context.reactor, self.group, settings)
        if not hasCopy(directory):
            try:
                answer = await self._source.read(1, 0)
            except OriginalUnavailable as error:
                raise LedgerUnavailable(f"{settings.url} {error}") from None
            with explaining(settings.url):
                genesis = createCopy(directory, settings, answer.stream)
            # Nothing is in it that this run has not executed.
            self._isWhole = True
            self._log.info(
                "group {group}: copies the chain {chain} of {url}",
                group=self.group,
                chain=genesis.chain.hex(),
                url=settings.url,
            )
        with explaining(directory):
            self._store, chain = openCopy(directory, settings)
        self._load(chain, self._store)
        self._erasing.wake()
        self._following = self._follow()

    def _load(self, chain: StoredChain, store: Store) -> None:
        self._openReads(chain.genesis, chain.state, store)
        verifier = BlockVerifier(Replay(chain.state, chain.head), chain.genesis.group)
        self._parts = PartVerifier(chain.genesis, store, verifier, self._settings.checkpoint)
        self._height = chain.head.height

    @asDeferred
    async def stop(self) -> None:
        self._isStopping = True
        if self._waiting is not None:
            self._waiting.cancel()
        await self._following
        await self._stopErasing()
        store, self._store = self._store, None
        if store is not None:
            await self._runInThread(store.close)
        self._release()
        await self._source.close()

    # Copying.

    @asDeferred
    async def _follow(self) -> None:
        """Copy until the ledger stops, or until something is refused."""
        pause, seconds = FIRST_PAUSE, self._context.reactor.seconds
        # The last block that both have is compared first.
        common: int | None = self._height
        while not self._isStopping:
            try:
                asked = seconds()
                first = self._height + 1 if common is None else max(1, common)
                answer = await self._wait(self._source.read(first, WAIT if common is None else 0))
                self._original, self._answered = answer.height, seconds()
                if answer.stream:
                    await self._copy(first, answer)
                if answer.height < self._height:
                    if common is not None and 0 < answer.height < common:
                        common = answer.height
                        continue
                    raise OriginalUnavailable(
                        f"ends at block {answer.height}, before the copy, which has {self._height}"
                    )
                self._tell("")
                # An original that neither gives a block nor waits for one is not asked at once.
                isIdle = common is None and self._height < first and seconds() < asked + FIRST_PAUSE
                pause, common = FIRST_PAUSE, None
                if isIdle and not await self._rest(pause):
                    break
                continue
            except CancelledError:
                break
            except CopyRefused as error:
                await self._refuse(error, answer.stream)
                break
            except (OriginalUnavailable, StreamBroken) as error:
                common = self._height
                self._tell(f"{self._settings.url} {error}")
            except (StorageError, ValueError) as error:
                # Damage: what is good can still be read, and the state is to be that of the store.
                self._pending = []
                with suppress(StorageError, ValueError):
                    self._reload()
                self._release()
                self._tell(str(error))
                break
            if not await self._rest(pause):
                break
            pause = min(LAST_PAUSE, pause * 2)

    async def _wait(self, waiting: Deferred[T]) -> T:
        """Wait for something that L{stop} cancels."""
        self._waiting = waiting
        try:
            return await waiting
        finally:
            self._waiting = None

    async def _rest(self, seconds: float) -> bool:
        """
        Wait.

        @return: whether the ledger goes on.
        """
        try:
            await self._wait(deferLater(self._context.reactor, seconds))
        except CancelledError:
            return False
        return not self._isStopping

    async def _copy(self, first: int, answer: OriginalAnswer) -> None:
        """
        Verify and store the blocks of an answer.

        @param first: the height that it has to begin with.
        @raise CopyRefused: one must not be copied. Those before it are stored.
        @raise StreamBroken: the answer is no export.
        @raise CancelledError: the ledger is stopping.
        """
        seconds = self._context.reactor.seconds
        started = seconds()
        verifier = self._parts.verifier
        try:
            for block in self._parts.blocks(first, answer.stream):
                self._pending.append(block)
                if seconds() - started > SLICE:
                    if verifier.isFinal:
                        await self._flush()
                    if not await self._rest(0):
                        raise CancelledError()
                    started = seconds()
        finally:
            while self._pending and not self._pending[-1].isFinal:
                self._pending.pop()
            await self._flush()
            if not verifier.isFinal:
                self._reload()
        self._checkMissing(answer)
        self._noteWhole()

    async def _flush(self) -> None:
        """
        Store the pending blocks, and tell the observers of them. While the disk fails it is tried
        again.
        """
        blocks, store = self._pending, self._store
        if not blocks or store is None:
            return
        appends = [block.append for block in blocks]
        while True:
            try:
                await self._context.runBriefly(store.extend, appends)
                break
            except StorageFailed as error:
                self._tell(f"the disk of the copy is full or failing: {error}")
                if not await self._rest(DISK_PAUSE):
                    raise CancelledError() from None
        self._pending = []
        self._height = blocks[-1].header.height
        self._release()
        if any(block.append.erased for block in blocks):
            self._erasing.wake()
        for block in blocks:
            receipts = decodeReceipts(block.append.block.receipts)
            ids = eventIdsOf(block.header.height, block.transactions, receipts)
            self._observers.tell(
                lambda block=block, ids=ids: blockOf(  # type: ignore[misc]
                    block.header, block.transactions, ids
                )
            )

    def _reload(self) -> None:
        """Load the state of the last stored block: blocks after it were not final."""
        if self._parts.verifier.replay.missing.count:
            self._isWhole = False
        if self._store is not None:
            self._load(loadChain(self._store), self._store)
            self._erasing.wake()
        self._release()

    def _checkMissing(self, answer: OriginalAnswer) -> None:
        """
        Check that contents which the original did not send are erased by a block that it had.

        @raise CopyRefused: some are not.
        """
        replay = self._parts.verifier.replay
        if not replay.missing.count or self._store is None:
            return
        if replay.missing.count > self._missing:
            self._missing, self._missingUntil = replay.missing.count, answer.tip
        if self._height >= self._missingUntil:
            missing = replay.missing.without(self._store.erasures)
            count = sum(last - first + 1 for _, first, last in missing)
            if count:
                text = f"it withholds the contents of {count} events, and no block erases them"
                raise CopyRefused(CopyRefusal.BLOCK, self._height, text)
            replay.forgetMissing()
            self._missing = 0

    def wasAudited(self) -> None:
        """
        All blocks that were here when this copy started were executed again, and nothing of them is
        missing.
        """
        self._isWhole = True
        self._noteWhole()

    def _noteWhole(self) -> None:
        if self._isWhole and not self._parts.verifier.replay.missing.count:
            self._wholeHeight = self._height

    @property
    def isUnknown(self) -> bool:
        """Whether it takes an audit to know what of the blocks is whole: see L{wholeHeight}."""
        return not (self._isWhole or self._parts.verifier.replay.missing.count)

    @property
    def wholeHeight(self) -> int:
        """
        The height up to which all blocks are known to be executed, and no contents are missing but
        of erased events. A copy that was there before this start forgets what is missing, so it
        says 0 until L{wasAudited} is called.
        """
        return self._wholeHeight

    async def _refuse(self, error: CopyRefused, evidence: bytes) -> None:
        """Copy nothing more, and keep what was refused."""
        path = self._context.directory / refusedName(error.height)
        try:
            await self._runInThread(writeFile, path, evidence, 0o600)
            kept = f"; it is kept in {path}"
        except OSError as failure:
            kept = f"; it could not be kept: {failure.strerror}"
        self._refused = error
        self._tell(f"nothing more is copied from {self._settings.url}: {error}{kept}")

    @asDeferred
    async def finishErasing(self) -> None:
        """
        Fires when no content of an event that a copied block has erased is left in the files of the
        copy, or when the ledger stops.

        @raise svcbroker.storage.StorageError: contents cannot be removed.
        """
        while not self._isStopping and not self._erasing.isDone:
            # There is another one where the copy was loaded again.
            await self._erasing.whenDone()

    # How far it is.

    @property
    def progress(self) -> CopyProgress:
        """The progress of the copy."""
        return CopyProgress(
            height=self._height,
            original=self._original,
            reason=self._lastError,
            refused=self._refused,
        )

    def _tell(self, reason: str) -> None:
        """
        Log and report how far the copy is.

        @param reason: why nothing can be copied now; empty where nothing prevents it.
        """
        self._lastError = reason
        self._progressLog.tell(self.progress, self._context.reactor.seconds())
        self._report(self.progress)

    # Reads.

    def _read(self, read: Callable[[], T]) -> Deferred[T]:
        return super()._read(lambda: _certified(read))

    def _delay(self) -> Deferred[None] | None:
        """
        Pending blocks are stored first: until then the state is ahead of the store. On a disk in
        good health nothing is pending when a read comes.
        """
        if not self._pending:
            return None
        waiting: Deferred[None] = Deferred()
        self._readers.append(waiting)
        return waiting

    def _release(self) -> None:
        readers, self._readers = self._readers, []
        for each in readers:
            each.callback(None)

    def _privateKey(self) -> bytes:
        raise LedgerUnavailable("a copy has no private key")

    def _checkOpen(self) -> None:
        if self._store is None:
            raise LedgerUnavailable("the ledger is stopped")

    def getStatistics(self) -> Deferred[Statistics]:
        nodes = len(self._state.validators.keys)
        return self._read(lambda: self._reader.getStatistics(nodes))

    def measure(self) -> LedgerMeasures:
        silence = self._context.reactor.seconds() - self._answered
        return LedgerMeasures(
            waiting=0,
            waitingBytes=0,
            oldest=0.0,
            behind=self.progress.behind,
            silence=silence,
            refused=str(self._refused or ""),
            height=self._height,
            age=silence,
        )

    def listNodes(
        self, offset: int, limit: int, *, name: str | None = None
    ) -> Deferred[Page[NodeRecord]]:
        """
        See L{ILedger<svcbroker.interfaces.ILedger.listNodes>}. The validators of the chain, as the
        last copied block shows them; they are active while the original answers.
        """
        head = self._parts.verifier.replay.head
        nodes = [
            NodeRecord(
                nodeId=key,
                name=None,
                view=head.view,
                nodeType=NodeType.SEALER,
                height=self._height,
                isActive=self._original is not None and not self._lastError,
            )
            for key in self._state.validators.keys
            if name is None
        ]
        return succeed(Page(total=len(nodes), items=nodes[offset : offset + limit]))

    def getHealth(self) -> Deferred[Health]:
        """
        See L{ILedger<svcbroker.interfaces.ILedger.getHealth>}. A copy is ready while it has all
        that the original had when it last answered.
        """
        reason = self._lastError
        if self._store is None:
            reason = "the ledger is stopped"
        elif not reason and self._original is None:
            reason = f"{self._settings.url} has not answered yet"
        elif not reason and self.progress.behind:
            reason = f"the copy is {self.progress.behind} blocks behind"
        return succeed(Health(isReady=not reason, reason=reason))

    def submitMany(self, requests: Sequence[Request]) -> Submission:
        reason = (
            "the ledger is stopped"
            if self._store is None
            else f"this broker has a copy, which takes nothing: use {self._settings.url}"
        )
        return Submission.refused(len(requests), LedgerUnavailable(reason))


def _certified(read: Callable[[], T]) -> T:
    try:
        return read()
    except NotCertified as error:
        raise LedgerUnavailable(f"{error}, so the copy cannot prove this block") from None
