"""
Restoring a chain from a snapshot that other nodes send in chunks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ...archive import Replay, loadChain
from ...chain import Header, InvalidBlock
from ...storage import TIP_SUFFIX, Append, Snapshot, StorageRefused, Store, syncFile
from ._snapshots import (
    FORMAT,
    OLD_FORMAT,
    Manifest,
    ProvedBlock,
    SnapshotInvalid,
    readChunk,
)
from .abci import messages
from .abci.messages import ApplyResult, OfferResult

UNFINISHED: Final = ".joining"
"""The ending of the name of a file whose chain is not complete yet."""

_BATCH_BLOCKS: Final = 256
_BATCH_BYTES: Final = 8 * 1024 * 1024


class RestoreFailed(Exception):
    """A proved snapshot that this version cannot continue. The text is one line."""


class Restoring:
    """
    One snapshot that is being restored.

    A crash leaves an incomplete file under another name, which the next attempt removes.

    @ivar received: the number of chunks in the store.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """
        @param path: where the store is made.
        @raise svcbroker.storage.StorageError: it cannot be.
        """
        remove(path)
        genesis = manifest.genesis
        self.received = 0
        self._manifest = manifest
        self._store = Store.create(path, chainId=genesis.chain, genesis=genesis.encoded)
        chain = loadChain(self._store)
        self._replay = Replay(chain.state, chain.head)

    @property
    def isWhole(self) -> bool:
        """Whether all chunks are stored."""
        return self.received == len(self._manifest.ends)

    def add(self, data: bytes) -> None:
        """
        Verify and store the next chunk.

        @raise SnapshotInvalid: it is not valid. Nothing has changed.
        @raise RestoreFailed: it is valid, but its blocks do not follow by this version's rules.
        @raise svcbroker.storage.StorageError: it cannot be stored.
        """
        head, validators = self._replay.head, self._replay.state.validators
        blocks = readChunk(data, self._manifest, self.received, head.hash, validators)
        pending: list[Append] = []
        size = 0
        for block in blocks:
            pending.append(self._execute(block))
            size += len(pending[-1].block.body)
            if len(pending) == _BATCH_BLOCKS or size > _BATCH_BYTES:
                self._store.extend(pending)
                pending, size = [], 0
        if pending:
            self._store.extend(pending)
        self.received += 1

    def _execute(self, block: ProvedBlock) -> Append:
        try:
            return self._replay.execute(
                block.header, block.transactions, block.certificate, block.receipts
            )
        except InvalidBlock as error:
            raise RestoreFailed(
                f"block {block.header.height} of the snapshot is proved, and does not follow by "
                f"the rules of this version: {error}"
            ) from None

    def countMissing(self) -> int:
        """
        How many contents are missing of events that nothing in the snapshot has erased.
        """
        missing = self._replay.missing.without(self._store.erasures)
        return sum(last - first + 1 for _, first, last in missing)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def remove(path: Path) -> None:
    """
    Remove a closed store, with the files that SQLite or a crash may have left beside it.
    """
    for ending in ("", "-wal", "-shm", TIP_SUFFIX, ".new", ".new-wal", ".new-shm", ".new-journal"):
        path.with_name(path.name + ending).unlink(missing_ok=True)


def checkHistory(unfinished: Path, head: Header) -> None:
    """
    Check that a restored chain continues the chain that is already here.

    @param unfinished: the restored chain's file, closed.
    @param head: the header of the last block here.
    @raise RestoreFailed: it does not.
    """
    if not head.height:
        return
    with Snapshot.ofLedger(unfinished) as reading:
        row = reading.reader().blockHead(head.height)
    if row is None or row.hash != head.hash:
        raise RestoreFailed(
            f"block {head.height} here is not that of the snapshot: these are two histories"
        )


def putInPlace(unfinished: Path, path: Path) -> None:
    """
    Move a restored chain into place, atomically and durably. Both files are closed.

    @raise svcbroker.storage.StorageRefused: the directory cannot be written.
    """
    try:
        syncFile(unfinished)
        # SQLite would apply the former file's log to the new one; the tip is that file's, too.
        for ending in ("-wal", "-shm", TIP_SUFFIX):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        os.replace(unfinished, path)
        unfinished.with_name(unfinished.name + TIP_SUFFIX).unlink(missing_ok=True)
        syncFile(path.parent)
    except OSError as error:
        raise StorageRefused(f"{path} cannot be put in place: {error.strerror}") from error


class SnapshotTaker(Protocol):
    """The application that continues a restored chain."""

    @property
    def height(self) -> int:
        """The height of the last block here, 0 where there is none."""

    async def begin(self, unfinished: Path) -> None:
        """
        Continue the chain.

        @param unfinished: its file, closed.
        """


class Restorer:
    """
    Answers the engine's snapshot calls while the node joins.

    @ivar progress: a counter that grows with every offer and chunk.
    """

    _log = Logger()

    def __init__(
        self,
        path: Path,
        runInThread: Callable[..., Deferred[Any]],
        taker: SnapshotTaker,
    ) -> None:
        """
        @param path: where the chain is to be.
        @param runInThread: runs blocking disk work, one call after the other.
        """
        self.progress = 0
        self._path = path.with_name(path.name + UNFINISHED)
        self._runInThread = runInThread
        self._taker = taker
        self._manifest: Manifest | None = None
        self._restoring: Restoring | None = None

    async def offer(self, request: messages.OfferSnapshotRequest) -> OfferResult:
        """
        Decide whether to restore a snapshot.

        @raise svcbroker.storage.StorageError: no store can be made.
        """
        await self._drop()
        self.progress += 1
        offered = request.snapshot
        if offered is None or offered.format not in (OLD_FORMAT, FORMAT):
            return OfferResult.REJECT_FORMAT
        try:
            manifest = Manifest.decode(offered.metadata)
            if manifest.header.hash != request.appHash or offered.hash != request.appHash:
                raise SnapshotInvalid("its last block is not the one that the engine has verified")
            if (manifest.header.height, len(manifest.ends)) != (offered.height, offered.chunks):
                raise SnapshotInvalid("its manifest is that of another one")
            if offered.height < self._taker.height:
                raise SnapshotInvalid(
                    f"the chain here goes up to block {self._taker.height}: to begin with less, "
                    "move its file away"
                )
        except SnapshotInvalid as error:
            self._log.warn(
                "the snapshot of block {height} is invalid: {error}",
                height=offered.height,
                error=str(error),
            )
            return OfferResult.REJECT
        self._log.info(
            "restores the snapshot of block {height}, in {count} chunks",
            height=offered.height,
            count=offered.chunks,
        )
        self._restoring = await self._runInThread(Restoring, self._path, manifest)
        self._manifest = manifest
        return OfferResult.ACCEPT

    async def apply(
        self, request: messages.ApplySnapshotChunkRequest
    ) -> messages.ApplySnapshotChunkResponse:
        """
        Take a chunk.

        @raise RestoreFailed: this version cannot continue the snapshot.
        @raise svcbroker.storage.StorageError: it cannot be stored.
        """
        restoring, manifest = self._restoring, self._manifest
        if restoring is None or manifest is None or request.index != restoring.received:
            return messages.ApplySnapshotChunkResponse(result=ApplyResult.REJECT_SNAPSHOT)
        try:
            await self._runInThread(restoring.add, request.chunk)
        except SnapshotInvalid as error:
            self._log.warn(
                "chunk {index} of the snapshot, from {sender}, is invalid: {error}",
                index=request.index,
                sender=request.sender,
                error=str(error),
            )
            return messages.ApplySnapshotChunkResponse(
                result=ApplyResult.RETRY,
                refetchChunks=(request.index,),
                rejectSenders=(request.sender,) if request.sender else (),
            )
        self.progress += 1
        if restoring.isWhole:
            missing = await self._runInThread(restoring.countMissing)
            if missing:
                self._log.warn(
                    "the snapshot of block {height} lacks the contents of {count} events that "
                    "nothing has erased",
                    height=manifest.header.height,
                    count=missing,
                )
                await self._drop()
                return messages.ApplySnapshotChunkResponse(result=ApplyResult.REJECT_SNAPSHOT)
            self._restoring = None
            await self._runInThread(restoring.close)
            await self._taker.begin(self._path)
            self._log.info("has the chain up to block {height}", height=manifest.header.height)
        return messages.ApplySnapshotChunkResponse(result=ApplyResult.ACCEPT)

    async def _drop(self) -> None:
        restoring, self._restoring = self._restoring, None
        if restoring is not None:
            await self._runInThread(restoring.close)

    def close(self) -> None:
        """Remove an incomplete chain. No call is under way."""
        restoring, self._restoring = self._restoring, None
        if restoring is not None:
            restoring.close()
        remove(self._path)
