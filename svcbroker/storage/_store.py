"""
The store: how it is made, opened, appended to and closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeVar

from ..chain import ErasedRange
from ._checkpoints import CheckpointThread
from ._erasing import (
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
    StorageError,
    StorageFailed,
    StorageLost,
    StorageRefused,
    primaryCode,
    translated,
)
from ._files import LOG_LIMIT, Connect, companions, makeFile, openReading, openWriting, refusal
from ._fingerprints import PRINT_SIZE, SEGMENT
from ._inserting import SEGMENT_SIZE, checkedPrints, insertBlock
from ._reader import ChainReader
from ._rows import Append
from ._schema import removeBackups, schemaSteps
from ._snapshot import Snapshot
from ._tip import Tip, TipFile, findLoss, logLoss, readTip, suspectedLoss
from ._transactions import Transactions

T = TypeVar("T")


class Store(ChainReader):
    """
    One chain in one SQLite file.

    A ledger calls it. L{append}, L{certify}, L{reserve} and L{close} are the writing half: one
    thread at a time calls them, and that may be another one than the reader's. What they stored
    is on stable storage when they return, as far as the disk tells the truth.

    @ivar chainId: what L{create} was given.
    @ivar genesis: what L{create} was given.
    @ivar written: reads by the connection that writes, for the thread that appends.
    @ivar loss: which part of the chain is missing, in one line; empty where none is. Not empty only
        in a store that was opened with C{mayLose}.
    """

    def __init__(
        self,
        path: Path,
        writing: sqlite3.Connection,
        reading: sqlite3.Connection,
        checkpoints: CheckpointThread,
        tip: Tip | None,
        loss: str,
    ) -> None:
        """
        Private: call L{create} or L{open}.
        """
        super().__init__(path, reading)
        self.written = ChainReader(path, writing)
        self._writing = writing
        self._checkpoints = checkpoints
        self._transactions = Transactions(path, writing, checkpoints)
        self._height = 0
        self._hash = b""
        self._total = 0
        self._reserved = (0, 0)
        # Up to here blocks are known to have no contents.
        self._bareHeight = 0
        self._hasErased = False
        self._tipFile = TipFile(path)
        # The fingerprints of the last segment, where that is not full.
        self._tail = b""
        self._load()
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
                checkpoints = CheckpointThread(lambda: openReading(path, connect=connect))
                store = cls(path, writing, reading, checkpoints, tip, loss)
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

        self._checkpoints.beforeBlocks()
        self._transactions.run(insert)
        self._checkpoints.afterBlocks(len(appends), sum([len(each.block.body) for each in appends]))
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

    @property
    def height(self) -> int:
        """The height of the last block, 0 where there is none."""
        return self._height

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
        self._checkpoints.close()
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
