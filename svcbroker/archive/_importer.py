"""
The importer: brings a chain from a stream, or from another data directory, into a store, with
every block verified; and the promotion of a copy of a chain, with which its replicas go on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import BinaryIO, Final, TypeAlias

from attrs import frozen

from ..chain import (
    CertificateInvalid,
    Genesis,
    Header,
    InvalidBlock,
    Malformed,
    Transaction,
    decodeBody,
)
from ..files import readFile
from ..proofs import (
    Checkpoint,
    CometCertificate,
    checkFinal,
    isEngineCertificate,
    storedCertificate,
)
from ..storage import Append, Snapshot, StorageError, Store, readTip, suspectLoss, syncFile
from ._eraser import Eraser
from ._export import (
    Begin,
    End,
    RangeUnknown,
    StreamBroken,
    StreamedBlock,
    StreamReader,
    exportChain,
)
from ._findings import Report, noReport
from ._layout import COPY_NAME, KEYS_NAME, STORE_NAME, KeyFile, readKeyFiles, writeKeyFiles
from ._replay import (
    BATCH_BLOCKS,
    BATCH_BYTES,
    Replay,
    StoredChain,
    checkEnd,
    decidedByEngine,
    loadChain,
    setRoundsAside,
)

_GROUP: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


class ImportRefused(Exception):
    """
    The stream is not of the chain that it should be appended to. The text is one line.
    """


@frozen(kw_only=True)
class Imported:
    """
    The result of an import.

    @ivar group: the group of the chain.
    @ivar tip: the chain's last block now.
    @ivar known: how many blocks of the stream the chain had already.
    @ivar added: how many were appended.
    @ivar missing: how many contents the stream lacked of events that nothing in the chain has
        erased so far.
    """

    group: str
    tip: Checkpoint
    known: int
    added: int
    missing: int = 0


def importChain(
    file: BinaryIO,
    dataDir: Path,
    *,
    group: str | None = None,
    report: Report = noReport,
) -> Imported:
    """
    Append the blocks of a stream to the chain of its group in a data directory, and begin that
    chain where there is none. Each block is checked as a replica checks it: the signatures of a
    quorum of the current validators, its parent, its execution. Blocks that the chain has already
    are compared.

    The caller holds the lock of the data directory. To continue an interrupted import, repeat it.

    @param file: the stream.
    @param group: the group that it must be of; C{None} for any.
    @param report: called with the number of blocks done, and of all blocks of the stream.
    @raise StreamBroken: a block of the stream does not hold, or the stream ends too early. The
        blocks before are kept.
    @raise ImportRefused: it is of another chain than the one in the data directory.
    @raise StorageError: the chain cannot be opened or written.
    """
    reader = StreamReader(file)
    begin = reader.begin()
    found = begin.genesis.group
    if _GROUP.fullmatch(found) is None:
        raise StreamBroken("the genesis names a group that there cannot be")
    if group not in (None, found):
        raise ImportRefused(f"the stream is the chain of group {found}, not of group {group}")
    store = _openStore(dataDir / found, begin.genesis)
    try:
        return _Import(store, begin, reader, report).run()
    finally:
        store.close()


def _openStore(directory: Path, genesis: Genesis) -> Store:
    path = directory / STORE_NAME
    if path.exists():
        # An import restores the end of a chain that has lost it.
        store = Store.open(path, mayLose=True)
        if store.genesis != genesis.encoded:
            store.close()
            raise ImportRefused(f"{path} is another chain: it has another genesis")
        return store
    directory.mkdir(mode=0o700, exist_ok=True)
    store = Store.create(path, chainId=genesis.chain, genesis=genesis.encoded)
    syncFile(directory.parent)
    return store


class _Import:
    def __init__(self, store: Store, begin: Begin, reader: StreamReader, report: Report) -> None:
        self._store = store
        self._begin = begin
        self._reader = reader
        self._report = report
        self._last = begin.first - 1
        self._lastHash = b""
        self._known = self._added = 0
        self._pending: list[Append] = []
        self._size = 0

    def run(self) -> Imported:
        try:
            chain = loadChain(self._store)
        except ValueError as error:
            raise StorageError(f"{self._store.path} is damaged ({error}): audit it") from None
        self._replay = Replay(chain.state, chain.head)
        self._verifier = BlockVerifier(self._replay, self._begin.genesis.group)
        if self._begin.first > self._head.height + 1:
            raise ImportRefused(
                f"the stream begins at block {self._begin.first}, and the chain here ends at block "
                f"{self._head.height}: export it from block {self._head.height + 1} on"
            )
        if self._store.reservation() == (0, 0):
            # In case the import is interrupted, and keys are put there afterwards.
            setRoundsAside(self._store, self._head.height)
        try:
            for record in self._reader.rest():
                if isinstance(record, End):
                    self._end(record)
                else:
                    self._block(record)
        except StreamBroken as error:
            self._flush()
            raise StreamBroken(f"{error}; {self._kept()}") from None
        finally:
            self._flush()
            if self._added:
                setRoundsAside(self._store, self._head.height)
        # Contents that the stream has of events that a later block of it has erased.
        Eraser(self._store).run()
        return Imported(
            group=self._begin.genesis.group,
            tip=Checkpoint.of(self._head),
            known=self._known,
            added=self._added,
            missing=sum(
                last - first + 1
                for _, first, last in self._replay.missing.without(self._store.erasures)
            ),
        )

    @property
    def _head(self) -> Header:
        return self._replay.head

    def _kept(self) -> str:
        return f"what came before is kept, the chain here ends at block {self._head.height}"

    def _block(self, block: StreamedBlock) -> None:
        height = self._last + 1
        try:
            header = Header.decode(block.header)
            if header.height != height:
                raise Malformed(f"it says that it is block {header.height}")
            if height > self._begin.last:
                raise Malformed("the stream said that it would end before")
            if height <= self._head.height:
                self._compare(height, block)
            else:
                self._append(header, block)
        except (Malformed, CertificateInvalid, InvalidBlock) as error:
            raise StreamBroken(f"block {height} does not hold: {error}") from None
        self._last, self._lastHash = height, header.hash
        self._report(height - self._begin.first + 1, self._begin.last - self._begin.first + 1)

    def _compare(self, height: int, block: StreamedBlock) -> None:
        row = self._store.block(height)
        if row is None or row.header != block.header:
            raise ImportRefused(
                f"block {height} of the stream is not the one that is here: these are two "
                "histories of one chain"
            )
        if not isSameBody(row.body, block.body):
            raise Malformed("its transactions are not those of its header")
        self._known += 1

    def _append(self, header: Header, block: StreamedBlock) -> None:
        if isEngineCertificate(block.certificate):
            raise ImportRefused("an engine decided this chain: a new node gets it from the others")
        self._pending.append(self._verifier.verify(header, block).append)
        self._size += len(block.body)
        self._added += 1
        if len(self._pending) >= BATCH_BLOCKS or self._size >= BATCH_BYTES:
            self._flush()

    def _end(self, end: End) -> None:
        if self._last != self._begin.last:
            raise StreamBroken(f"it ends after block {self._last}, before {self._begin.last}")
        if end.height != self._last or self._lastHash not in (b"", end.hash):
            raise StreamBroken("its end is not that of its last block")

    def _flush(self) -> None:
        pending: Sequence[Append] = self._pending
        if pending:
            self._store.extend(pending)
            self._pending, self._size = [], 0


def transferChain(
    source: Path,
    dataDir: Path,
    *,
    group: str,
    first: int = 1,
    last: int | None = None,
    report: Report = noReport,
) -> Imported:
    """
    Export a chain and import it at the same time. Each block is checked.

    @param source: the group's directory to export from; a broker may be running on it.
    @param dataDir: the data directory to import into; the caller holds its lock.
    @param first: the first height.
    @param last: the last height; C{None} for that of the latest block.
    @param report: as for L{importChain<svcbroker.archive.importChain>}.
    @raise RangeUnknown: the source does not have these blocks.
    @raise StreamBroken, ImportRefused, StorageError: as for export and import.
    """
    reading, writing = os.pipe()
    failures: list[Exception] = []

    def export() -> None:
        # The import may have failed before all was written, and says why.
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as file:
            try:
                exportChain(source, file, first=first, last=last)
            except (RangeUnknown, StorageError) as error:
                failures.append(error)

    exporting = Thread(target=export, name="export")
    exporting.start()
    try:
        with os.fdopen(reading, "rb") as file:
            return importChain(file, dataDir, group=group, report=report)
    except StreamBroken:
        exporting.join()
        for failure in failures:
            raise failure from None
        raise
    finally:
        exporting.join()


@frozen(kw_only=True)
class VerifiedBlock:
    """
    A block that was verified.

    @ivar transactions: its transactions; contents of publishes may be missing.
    @ivar append: the rows to store for it.
    @ivar isFinal: whether it has a certificate of its own.
    """

    header: Header
    transactions: Sequence[Transaction]
    append: Append
    isFinal: bool


class BlockVerifier:
    """
    Verifies the next blocks of a chain as its validators do: the certificate, the link to the block
    before, the execution. An import and a copy take only what it has verified.

    On an engine's chain only blocks with transactions need a certificate. It makes the blocks
    before it final, too.

    @ivar replay: the state after the last block.
    @ivar isFinal: whether the last block is final. A block that is not must not be stored before a
        later one is.
    """

    def __init__(self, replay: Replay, group: str) -> None:
        """
        @param group: the id of the group, as the genesis has it.
        """
        self.replay = replay
        self.isFinal = True
        self._group = group

    def verify(self, header: Header, block: StreamedBlock) -> VerifiedBlock:
        """
        Verify the next block.

        @param header: its header, decoded.
        @raise Malformed, CertificateInvalid, InvalidBlock: it does not hold. Nothing has changed.
        """
        certificate = storedCertificate(block.certificate)
        validators = self.replay.state.validators
        if certificate is not None:
            if not (self.isFinal or isinstance(certificate, CometCertificate)):
                raise CertificateInvalid("the block before it has no certificate")
            checkFinal(certificate, header, validators, self._group)
        elif header.nextValidators != validators.hash:
            raise CertificateInvalid("it changes the validators and has no certificate")
        transactions = decodeBody(block.body, mayBeErased=True)
        append = self.replay.execute(header, transactions, block.certificate, block.receipts)
        self.isFinal = certificate is not None
        return VerifiedBlock(
            header=header, transactions=transactions, append=append, isFinal=self.isFinal
        )


def isSameBody(one: bytes, other: bytes) -> bool:
    """Whether two bodies have the same transactions; contents may be missing in either."""
    if one == other:
        return True
    try:
        heads = [
            [each.head for each in decodeBody(body, mayBeErased=True)] for body in (one, other)
        ]
    except Malformed:
        return False
    return heads[0] == heads[1]


Reservation: TypeAlias = tuple[int, int]
"""A height, and a round of it."""


class PromotionRefused(Exception):
    """
    A copy cannot be promoted. The text is one line. Nothing has changed but what it says.
    """


@frozen(kw_only=True)
class Copy:
    """
    A copy of a chain.

    @ivar original: what it is a copy of, as its directory says.
    @ivar tip: its last block.
    @ivar timestamp: the time of that block, in milliseconds since the epoch.
    """

    original: str
    tip: Checkpoint
    timestamp: int


def readCopy(directory: Path) -> Copy:
    """
    Look at a copy.

    @param directory: the group's directory; the caller holds the lock of the data directory.
    @raise PromotionRefused: there is no copy that could be promoted.
    @raise StorageError: it cannot be opened.
    """
    try:
        original = readFile(directory / COPY_NAME).decode("utf-8").strip()
    except FileNotFoundError:
        raise PromotionRefused(f"{directory} has no copy of a chain") from None
    store, chain = _open(directory)
    store.close()
    return Copy(original=original, tip=Checkpoint.of(chain.head), timestamp=chain.head.timestamp)


def takeOver(directory: Path, original: Path) -> Reservation:
    """
    Bring the blocks of the original that the copy does not have into the copy. They are checked.

    @param directory: the group's directory of the copy; the caller holds the locks of both data
        directories.
    @param original: the group's directory of the original.
    @return: the last round that the original has reserved.
    @raise StreamBroken, ImportRefused, StorageError: as for an import.
    @raise PromotionRefused: the copy cannot be opened.
    """
    store, chain = _open(directory)
    store.close()
    with Snapshot.ofLedger(original / STORE_NAME) as snapshot:
        tip, reserved = snapshot.reader().tip(), snapshot.reader().reservation()
    height = 0 if tip is None else tip.height
    written = readTip(original / STORE_NAME)
    if written is not None and written.height > max(height, chain.head.height):
        raise PromotionRefused(
            f"{original} ends at block {height}, and block {written.height} had been stored: use "
            "--keys and --accept-loss"
        )
    # The last common block is compared.
    first = max(1, min(height, chain.head.height))
    transferChain(original, directory.parent, group=directory.name, first=first)
    return reserved if written is None else max(reserved, written.reservation)


def promote(
    directory: Path, keys: Path, *, reserved: Reservation = (0, 0), mayRemove: bool = False
) -> Checkpoint:
    """
    Put the keys of a chain's replicas into a copy. The embedded ledger then starts on it where its
    setting accept-loss names the last block, and gives all replicas new keys in the next one: so no
    key signs two blocks of one height and round, whatever the original has signed.

    It can be repeated where it was interrupted.

    @param directory: the group's directory; the caller holds the lock of the data directory.
    @param keys: a directory of key files.
    @param reserved: the last round that the original is known to have reserved.
    @param mayRemove: whether the keys are removed from there.
    @return: the last block.
    @raise PromotionRefused: keys are missing, or an engine decided the chain.
    @raise StorageError, OSError: a file cannot be read or written.
    """
    target = directory / KEYS_NAME
    found: Mapping[bytes, KeyFile] = {
        each.key: each
        for each in (*readKeyFiles(keys), *readKeyFiles(target))
        if each.key is not None
    }
    store, chain = _open(directory)
    try:
        validators = chain.state.validators.keys
        for index, key in enumerate(validators):
            if key not in found:
                raise PromotionRefused(
                    f"{keys} has no key of replica {index} ({key.hex()[:16]}...) as it is after "
                    f"block {chain.head.height}: give the keys that the original had last"
                )
        reservation = store.reservation()
    finally:
        store.close()
    suspectLoss(directory / STORE_NAME, chain.head.height, max(reservation, reserved))
    writeKeyFiles(target, validators, found)
    if mayRemove:
        for each in readKeyFiles(keys):
            each.path.unlink()
        syncFile(keys)
    # Last: from here on the embedded ledger may start.
    (directory / COPY_NAME).unlink(missing_ok=True)
    syncFile(directory)
    return Checkpoint.of(chain.head)


def _open(directory: Path) -> tuple[Store, StoredChain]:
    store = Store.open(directory / STORE_NAME, mayLose=True)
    try:
        chain = loadChain(store)
        checkEnd(store, chain)
        if decidedByEngine(store):
            raise PromotionRefused(
                "an engine decided this chain: it goes on with the other nodes of its network"
            )
        return store, chain
    except (Malformed, CertificateInvalid, ValueError) as error:
        store.close()
        raise PromotionRefused(f"{directory} is damaged ({error}): audit it") from None
    except BaseException:
        store.close()
        raise
