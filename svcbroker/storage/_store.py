"""
The store: making, opening, appending, syncing and closing it; with the connection that writes, and
the thread that folds the write-ahead log.

SQLite folds its log as part of a commit, which then takes some 2 ms longer. Here a thread copies
the pages of the log into the file, on a connection of its own. Where all of them are copied, the
next commit begins the log again; where commits came in between, the thread copies their pages, too.
Nothing depends on it: from a longer log, SQLite copies what is left as part of a commit.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Final, Self, TypeVar

from ..chain import ErasedRange
from ..probes import probe
from ._erasure import (
    COMPACTED_AT_ONCE,
    MARGIN,
    PAGES_AT_ONCE,
    ErasableBlock,
    StrippedBlock,
    compactedHeight,
    compactRows,
    countFreePages,
    eraseBlocks,
    findBare,
    forgetCopies,
    giveBackPages,
    hasCopies,
    hasErasable,
)
from ._errors import (
    StorageDamaged,
    StorageError,
    StorageFailed,
    StorageLost,
    StorageRefused,
    primaryCode,
    translated,
)
from ._files import (
    LOG_LIMIT,
    PAGE_SIZE,
    Connect,
    companions,
    makeFile,
    openReading,
    openWriting,
    refusal,
)
from ._reader import ChainReader
from ._rows import PRINT_SIZE, SEGMENT, SEGMENT_SIZE, Append, checkedPrints, insertBlock
from ._schema import removeBackups, schemaSteps
from ._snapshot import Snapshot
from ._tip import Tip, TipFile, findLoss, logLoss, readTip, suspectedLoss

PAGES_BETWEEN: Final = 1000
"""The number of pages of log after which it is folded."""

BLOCK_PAGES: Final = 8
"""About how many pages a block adds to the log, besides those of its body."""

ATTEMPTS: Final = 5
"""The number of times that pages are copied which came while others were copied."""


T = TypeVar("T")


class StoreReader(ChainReader):
    """
    A reader of a whole store, which has checked that its ends fit together.

    @ivar chainId: what L{Store.create} was given.
    @ivar genesis: what L{Store.create} was given.
    @ivar loss: which part of the chain is missing, in one line; empty where none is. Not empty only
        in a store that was opened with C{mayLose}.
    """

    loss = ""

    def __init__(self, path: Path, reading: sqlite3.Connection) -> None:
        """
        Private: call L{Store.open} or L{lookAt}.

        @raise StorageDamaged: they do not.
        """
        super().__init__(path, reading)
        self._height = 0
        self._hash = b""
        self._total = 0
        self._reserved = (0, 0)
        self._hasErased = False
        # The fingerprints of the last segment, where that is not full.
        self._tail = b""
        self._load()

    @property
    def height(self) -> int:
        """The height of the last block, 0 where there is none."""
        return self._height

    def _load(self) -> None:
        rows = self._rows("SELECT chain_id, genesis FROM chain")
        if not rows:
            raise self._damage("it does not name its chain")
        self.chainId: bytes = rows[0][0]
        self.genesis: bytes = rows[0][1]
        self._reserved = self.reservation()
        tip = self.tip()
        if tip is not None:
            self._height, self._hash, self._total = tip.height, tip.hash, tip.transactionTotal
        lowest = self._rows("SELECT MIN(height) FROM head")[0][0]
        if lowest != (None if tip is None else 1):
            raise self._damage("blocks are missing")
        if self._rows("SELECT MAX(height) FROM body")[0][0] != (self._height or None):
            raise self._damage("the latest block has no body")
        rows = self._rows("SELECT segment, prints FROM fingerprint ORDER BY segment DESC LIMIT 1")
        segment, prints = rows[0] if rows else (0, b"")
        if segment * SEGMENT_SIZE + len(prints) != self._total * PRINT_SIZE:
            raise self._damage(f"{self._total} transactions do not have as many fingerprints")
        self._tail = prints if self._total % SEGMENT else b""
        self._hasErased = bool(self._rows("SELECT 1 FROM erased LIMIT 1"))


@contextmanager
def lookAt(path: Path, *, mayLose: bool = False) -> Iterator[StoreReader]:
    """
    Read a store as it is, for as long as the context lasts, and refuse it where L{Store.open} would
    refuse it. Nothing is changed, and a broker may be writing.

    @param mayLose: as for L{Store.open}.
    @raise StorageLost: the end of the chain is missing.
    @raise StorageRefused, StorageDamaged: it cannot be opened.
    """
    tip, loss = readTip(path), logLoss(path)
    with Snapshot.ofLedger(path, mayBeOlder=True) as snapshot, snapshot.moment():
        snapshot.checkWhole()
        store = snapshot.read(StoreReader)
        store.loss = loss or findLoss(store, tip or Tip(0, b"", (0, 0)))
        if store.loss and not mayLose:
            raise StorageLost(store.loss, store.height)
        yield store


class Store(StoreReader):
    """
    One chain in one SQLite file.

    A ledger calls it. L{append}, L{certify}, L{reserve} and L{close} are the writing half: one
    thread at a time calls them, and that may be another one than the reader's. What they stored
    is on stable storage when they return, as far as the disk tells the truth.

    @ivar written: reads by the connection that writes, for the thread that appends.
    """

    def __init__(
        self,
        path: Path,
        writing: sqlite3.Connection,
        reading: sqlite3.Connection,
        folding: FoldThread,
        tip: Tip | None,
        loss: str,
    ) -> None:
        """
        Private: call L{create} or L{open}.
        """
        super().__init__(path, reading)
        self.written = ChainReader(path, writing)
        self._writing = writing
        self._folding = folding
        self._transactions = Transactions(path, writing, folding)
        # Up to here blocks are known to have no contents.
        self._bareHeight = 0
        self._tipFile = TipFile(path)
        missing = findLoss(self, tip or Tip(0, b"", (0, 0)))
        self.loss = loss or missing
        # The tip to catch up with; the tip file keeps it until then.
        self._missing = tip if missing else None
        self._isAccepted = False

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        chainId: bytes,
        genesis: bytes,
        connect: Connect = sqlite3.connect,
        steps: Sequence[str] | None = None,
    ) -> Self:
        """
        Make a store for a new chain, and open it. The file appears whole or not at all.

        @param path: where; its directory exists.
        @param chainId: what names the chain; kept as it is.
        @param genesis: what the chain begins from; kept as it is. It is no block: the first
            block that is appended has height 1.
        @param connect: the way to SQLite.
        @param steps: the schema; by default the one that comes with the package.
        @raise StorageRefused: there is something already, or the directory cannot be written.
        """
        steps = schemaSteps() if steps is None else steps
        makeFile(path, chainId=chainId, genesis=genesis, steps=steps, connect=connect)
        return cls.open(path, connect=connect, steps=steps)

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        connect: Connect = sqlite3.connect,
        steps: Sequence[str] | None = None,
        logLimit: int = LOG_LIMIT,
        mayLose: bool = False,
    ) -> Self:
        """
        Open a store that is there.

        What a crash left in the write-ahead log is folded into the file. A file of an older
        schema is upgraded, after a copy of it was put beside it. The cost does not grow with
        the chain, so blocks are not read: damage inside one shows when it is read, and the
        ledger verifies the tip. The write-ahead log and the tip file show whether stored blocks
        are missing at the end.

        @param path: where.
        @param connect: the way to SQLite.
        @param steps: the schema; by default the one that comes with the package.
        @param logLimit: how many bytes of write-ahead log are kept on disk after another
            program, which held a snapshot open, has made it grow.
        @param mayLose: whether to open a store of which the end is missing, and to set L{loss}.
            The tip file then stays as it is until the blocks have come back, or until
            L{acceptLoss}.
        @raise StorageLost: the end of the chain is missing. Where the write-ahead log shows it,
            nothing was changed.
        @raise StorageRefused: it is absent, foreign, damaged, of a newer schema, in use, or
            cannot be written.
        """
        steps = schemaSteps() if steps is None else steps
        tip = readTip(path)
        loss = logLoss(path)
        if loss and not mayLose:
            with Snapshot.ofLedger(path) as snapshot:
                left = snapshot.reader().tip()
            raise StorageLost(loss, 0 if left is None else left.height)
        writing = openWriting(path, steps=steps, connect=connect, logLimit=logLimit)
        try:
            reading = openReading(path, connect=connect)
            try:
                folding = FoldThread(lambda: openReading(path, connect=connect))
                store = cls(path, writing, reading, folding, tip, loss)
                if store.loss and not mayLose:
                    raise StorageLost(store.loss, store._height)
                return store
            except BaseException:
                reading.close()
                raise
        except StorageRefused:
            writing.close()
            raise
        except StorageError as error:
            writing.close()
            raise StorageRefused(str(error)) from error
        except sqlite3.Error as error:
            writing.close()
            raise refusal(error, path) from error
        except BaseException:
            writing.close()
            raise

    def append(self, append: Append) -> None:
        """
        Store a block and all that it changes: everything or nothing.

        @raise ValueError: it does not follow the tip, or breaks a rule of the rows. Nothing
            was stored.
        @raise StorageFailed: the disk is full or failed; see there. Reads go on, and the same
            append may be tried again.
        @raise StorageDamaged: the file cannot be appended to any more.
        """
        self.extend((append,))

    def extend(self, appends: Sequence[Append]) -> None:
        """
        Store several blocks, all of them or none, with one sync.

        @raise ValueError: as for L{append}.
        @raise StorageFailed: as for L{append}.
        @raise StorageDamaged: as for L{append}.
        """
        height, total, tail = self._height, self._total, self._tail
        planned: list[tuple[Append, int, bytes]] = []
        for append in appends:
            prints = checkedPrints(append, height, total, tail)
            planned.append((append, total // SEGMENT, prints))
            height, total = append.block.height, append.block.transactionTotal
            tail = prints[len(prints) - len(prints) % SEGMENT_SIZE :]
            if append.erased:
                self._hasErased = True

        def insert() -> None:
            for each in planned:
                insertBlock(self._writing, *each)

        self._folding.beforeBlocks()
        self._transactions.run(insert)
        self._folding.afterBlocks(len(appends), sum([len(each.block.body) for each in appends]))
        self._height, self._total, self._tail = height, total, tail
        if appends:
            self._hash = appends[-1].block.hash
        if self._missing is not None:
            self._catchUp(self._missing, appends)
        self._writeTip()

    def certify(self, certificates: Mapping[int, bytes]) -> None:
        """
        Add what makes blocks final, where that came later than they. What a block has already
        stays.

        @param certificates: by height.
        @raise StorageFailed: as for L{append}.
        @raise StorageDamaged: as for L{append}.
        """
        self._transactions.run(
            lambda: self._writing.executemany(
                "UPDATE head SET certificate = ? WHERE height = ? AND certificate = x''",
                [(certificate, height) for height, certificate in certificates.items()],
            )
        )

    def reserve(self, height: int, round: int) -> None:
        """
        Remember a consensus round before anything is signed in it.

        @raise ValueError: it lies before the one that was reserved last.
        @raise StorageFailed: as for L{append}.
        @raise StorageDamaged: as for L{append}.
        """
        if (height, round) < self._reserved:
            raise ValueError(f"{(height, round)} lies before {self._reserved}")
        self._transactions.run(
            lambda: self._writing.execute(
                "UPDATE reservation SET height = ?, round = ?, again = ?",
                (height, round, f"{height}:{round}"),
            )
        )
        self._reserved = (height, round)
        self._writeTip()

    def acceptLoss(self, rounds: int) -> None:
        """
        Continue from what is left of the chain. The tip file keeps the lost tip until the next
        block is stored, so that a start that is cut off in between is refused again.

        @param rounds: how many rounds of the next height to leave out: the replicas may have
            signed in them before the loss.
        @raise StorageFailed: as for L{append}.
        @raise StorageDamaged: as for L{append}.
        """
        lost, following = self._missing, self._height + 1
        if lost is None or lost.height < following:
            # Nothing says which block it was, or only reserved rounds are missing.
            lost = suspectedLoss(self._height, lost.reservation if lost else (0, 0))
            self._tipFile.write(lost)
        round = max(self._reserved[1], lost.reservation[1]) + rounds
        self._missing, self._isAccepted = lost, True
        self._reserved = (0, 0)
        self.reserve(following, round)

    def foldLog(self) -> None:
        """
        Fold the write-ahead log in. On a full disk it stays beside the file.

        @raise StorageFailed: the disk failed.
        @raise StorageDamaged: the file is damaged.
        """
        try:
            self._transactions.foldLog()
        except sqlite3.Error as error:
            if primaryCode(error) != sqlite3.SQLITE_FULL:
                raise translated(error, self.path) from error

    def eraseSome(self, strip: Callable[[ErasableBlock], StrippedBlock | None]) -> bool:
        """
        Remove erased contents from the bodies of some blocks. What is done is not done again after
        a crash.

        @param strip: makes a block without these contents; C{None} where it has none of them.
        @return: whether there may be more.
        @raise StorageFailed: as for L{append}.
        @raise StorageDamaged: as for L{append}; or the block is damaged, or what is to be removed
            is not what was erased. Nothing of it was removed.
        """
        if not self._read(lambda: hasErasable(self._writing)):
            return False

        self._transactions.run(
            lambda: eraseBlocks(self._writing, self._height, strip, self._damage)
        )
        return True

    def endErasing(self) -> bool:
        """
        Remove the copies that the file, its write-ahead log and the copies made before upgrades may
        have of contents that L{eraseSome} has removed.

        @return: C{False} where another process reads the file: try again later.
        @raise StorageFailed: as for L{append}.
        @raise StorageDamaged: as for L{append}.
        """
        if not self._read(lambda: hasCopies(self._writing)):
            return True
        try:
            if not self._transactions.foldLog():
                return False
            removeBackups(self.path)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        except OSError as error:
            raise StorageFailed(f"{error.filename} cannot be removed: {error.strerror}") from error
        self._transactions.run(lambda: forgetCopies(self._writing))
        return True

    def compactSome(self, isBare: Callable[[bytes], bool]) -> bool:
        """
        Write some rows of blocks without contents close together: blocks up to the first one that
        has some.

        @param isBare: whether a body has no content that could be erased.
        @return: whether there may be more.
        @raise StorageFailed: as for L{append}.
        @raise StorageDamaged: as for L{append}.
        """
        done = self._read(lambda: compactedHeight(self._writing))
        end = min(done + COMPACTED_AT_ONCE + MARGIN, self._height)
        known = max(done, self._bareHeight)
        self._bareHeight, hasMore = self._read(lambda: findBare(self._writing, known, end, isBare))
        last = min(done + COMPACTED_AT_ONCE, self._bareHeight - MARGIN)
        if last > done:
            self._transactions.run(lambda: compactRows(self._writing, done + 1, last))
            return True
        return hasMore

    def vacuum(self) -> bool:
        """
        Give some free pages back to the file system, which L{eraseSome} has left. A file that was
        made by an old release keeps its free pages, for blocks to come.

        @return: whether there may be more.
        @raise StorageFailed: as for L{append}.
        @raise StorageDamaged: as for L{append}.
        """
        free, canShrink = self._read(lambda: countFreePages(self._writing))
        if not free or not canShrink:
            return False

        self._transactions.run(lambda: giveBackPages(self._writing, free))
        return free > PAGES_AT_ONCE

    def erasures(self, topicIndex: int, first: int, last: int) -> Sequence[ErasedRange]:
        # Asked for each event that is read, and most chains have none.
        return super().erasures(topicIndex, first, last) if self._hasErased else ()

    def size(self) -> int:
        """
        Bytes on disk, the write-ahead log included.
        """
        size = 0
        for file in (self.path, *companions(self.path)):
            with suppress(FileNotFoundError):
                size += file.stat().st_size
        return size

    def close(self) -> None:
        """
        Close the file. Nothing else may be called afterwards, nor while it runs.

        Folds the write-ahead log in, which leaves a single file. Where the disk does not let
        it, the log stays beside the file and the next L{open} folds it in.
        """
        self._folding.close()
        self._reading.close()
        self._writing.close()
        self._tipFile.close()

    def _read(self, read: Callable[[], T]) -> T:
        """Read by the writing connection."""
        try:
            return read()
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def _catchUp(self, missing: Tip, appends: Sequence[Append]) -> None:
        """Look whether what was missing has come back."""
        if self._isAccepted or any(
            (each.block.height, each.block.hash) == (missing.height, missing.hash)
            for each in appends
        ):
            self._missing, self.loss = None, ""

    def _writeTip(self) -> None:
        if self._missing is None:
            self._tipFile.write(Tip(self._height, self._hash, self._reserved))


class FoldThread:
    """
    Folds the write-ahead log of one store.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """
        @param connect: opens the connection. Called in the thread, at the first fold.
        """
        self._connect = connect
        self._connection: sqlite3.Connection | None = None
        self._thread: Thread | None = None
        self._pages = 0

    def beforeBlocks(self) -> None:
        """
        Wait where a fold takes so long that the next one is due, so that the log stays
        bounded: SQLite copies what is left at the next commit. Called before blocks are stored,
        in the thread that writes.
        """
        if self._pages >= PAGES_BETWEEN:
            self.wait()

    def afterBlocks(self, count: int, size: int) -> None:
        """
        Begin a fold where one is due. Called after blocks were stored, in the thread that
        writes.

        @param size: how many bytes their bodies have.
        """
        self._pages += BLOCK_PAGES * count + size // PAGE_SIZE
        if self._pages >= PAGES_BETWEEN and (self._thread is None or not self._thread.is_alive()):
            self._pages = 0
            # A disk that hangs must not keep the process from ending.
            self._thread = Thread(target=self._run, name="fold", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until the log is not being folded. Called in the thread that writes."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        """Wait until the log is not being folded, and close the connection."""
        self.wait()
        if self._connection is not None:
            self._connection.close()

    def _run(self) -> None:
        try:
            if self._connection is None:
                self._connection = self._connect()
            before = 0
            for _ in range(ATTEMPTS):
                # Of the log as it was when the fold began.
                folded = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
                _, pages, _ = folded.fetchone()
                if pages == before:
                    break
                before = pages
        except (sqlite3.Error, StorageError):
            pass  # The disk is full or failing: what was not copied stays in the log.


class Transactions:
    """
    Runs transactions on the writing connection of a store.

    @ivar connection: the connection.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, folding: FoldThread) -> None:
        """
        @param path: the store's file.
        """
        self.connection = connection
        self._path = path
        self._folding = folding
        # A string, since it is looked at before each transaction.
        self._wal = str(companions(path)[0])
        self._walInode = os.stat(self._wal).st_ino
        self._isUncertain = False

    def run(self, work: Callable[[], object]) -> None:
        """
        Do C{work} in a transaction that is synced when this returns.

        @raise ValueError: rows contradict what is stored. Nothing was stored.
        @raise StorageFailed: the disk is full or failed.
        @raise StorageDamaged: the file cannot be written to any more.
        """
        self._checkLog()
        if self._isUncertain:
            probe("storage: transaction after an uncertain one")
            self._removeTrace()
        self._rollBack()
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            work()
        except sqlite3.IntegrityError as error:
            self._rollBack()
            raise ValueError(f"rows contradict what is stored: {error}") from error
        except sqlite3.Error as error:
            self._rollBack()
            raise translated(error, self._path) from error
        except BaseException:
            self._rollBack()
            raise
        try:
            self.connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._afterFailedCommit(error) from error

    def _afterFailedCommit(self, error: sqlite3.Error) -> Exception:
        """
        Come to a clean state after a failed COMMIT.

        Where there was no room, the log lacks at least the end of the transaction, so it never
        happened. After any other failure, such as one of fsync, all of it may be in the log: SQLite
        has forgotten it, but would take it up again when it recovers the log after a crash.
        So the log is cut off behind what was synced before. If the disk does not do that
        either, nothing more is appended until it does.
        """
        self._rollBack()
        self._isUncertain = primaryCode(error) != sqlite3.SQLITE_FULL
        if not self._isUncertain:
            probe("storage: no room at a commit")
        else:
            probe("storage: uncertain commit")
            with suppress(StorageError):  # it is told by isUncertain, and tried again
                self._removeTrace()
        failure = translated(error, self._path)
        if isinstance(failure, StorageFailed):
            failure.isUncertain = self._isUncertain
        return failure

    def foldLog(self) -> bool:
        """
        Fold the write-ahead log in, and truncate it.

        @return: C{False} where another process is reading, so that it stays.
        @raise sqlite3.Error: the disk is full or failed, or the file is damaged.
        """
        self._folding.wait()
        row = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not row[0]

    def _removeTrace(self) -> None:
        """
        Fold in what was stored and cut the log off.
        """
        self._rollBack()
        try:
            isBusy = not self.foldLog()
        except sqlite3.Error as error:
            probe("storage: trace of a commit not removed")
            failure = translated(error, self._path)
            if isinstance(failure, StorageFailed):
                failure.isUncertain = True
            raise failure from error
        if isBusy:
            raise StorageFailed(
                f"{self._path} is held by another process: stop that one", isUncertain=True
            )
        probe("storage: trace of a commit removed")
        self._isUncertain = False

    def _rollBack(self) -> None:
        # SQLite has often rolled back by itself. What it cannot do now is tried again before the
        # next transaction.
        if self.connection.in_transaction:
            with suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")

    def _checkLog(self) -> None:
        """
        See that the write-ahead log is still the file that SQLite appends to.
        """
        try:
            inode = os.stat(self._wal).st_ino
        except OSError as error:
            raise self._vanished() from error
        if inode != self._walInode:
            raise self._vanished()

    def _vanished(self) -> StorageDamaged:
        # Appending would go on, into a file without a name, and be gone after a restart.
        return StorageDamaged(
            f"{self._wal} was removed while in use: stop the broker, copy what is left and "
            "restore a backup"
        )
