"""
The transparency log of a group as files, for any static web server (c2sp.org/tlog-tiles).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias

from ..chain import History, Malformed, checkGrowth, growthPath, merkleRoot
from ..files import readFile
from ..proofs.tlog import (
    TILE_HEIGHT,
    TILE_WIDTH,
    Note,
    Tile,
    Tiles,
    TreeHead,
    decodeEntries,
    encodeEntries,
    encodeTile,
    hashEntries,
    neededTiles,
    parseTilePath,
    splitTile,
    tilesBetween,
)
from ..storage import Snapshot, writeFile
from ._layout import METADATA_NAME, groupDirectory
from ._prover import Prover, readChain

CHECKPOINT: Final = "checkpoint"
"""The file of the checkpoint."""


LogSource: TypeAlias = Callable[[str], bytes]
"""Reads a file of a log by its path below the URL of the log."""


class LogUnreadable(Exception):
    """A log that cannot be read. The text says why."""


class LogRefused(Exception):
    """A log that contradicts itself, or what was written of it before. The text says why."""


@contextmanager
def storedLog(dataDir: Path, group: str) -> Iterator[LogSource]:
    """
    The log of a group in a data directory, also while a broker runs on it. Its checkpoint is the
    one that the broker has signed last.

    @raise LogUnreadable: the broker has signed none.
    @raise StorageError: a file cannot be read.
    """
    with Snapshot.ofMetadata(dataDir / METADATA_NAME) as snapshot:
        rows = list(
            snapshot.rows(
                "SELECT value FROM note WHERE kind = 'log' AND name = ?", f"{group}/checkpoint"
            )
        )
    if not rows:
        raise LogUnreadable(f"{dataDir}: no checkpoint of group {group} was ever asked for")
    [[checkpoint]] = rows
    with readChain(groupDirectory(dataDir, group)) as prover:

        def read(path: str) -> bytes:
            return checkpoint if path == CHECKPOINT else _readTile(prover, path)

        yield read


def _readTile(prover: Prover, path: str) -> bytes:
    tile, isEntries = parseTilePath(path.removeprefix("tile/"))
    hashes = prover.history(TILE_HEIGHT * tile.level, tile.first, tile.width)
    if len(hashes) < tile.width:
        raise LogUnreadable(f"the chain is shorter than its checkpoint: there is no {path}")
    return encodeEntries(hashes) if isEntries else encodeTile(tile, hashes)


def exportLog(read: LogSource, directory: Path) -> tuple[TreeHead, int]:
    """
    Write a log as files: all of it, or those that an earlier export lacks. Files are complete as
    soon as they have their names, and the checkpoint comes last, so a web server may serve the
    directory the whole time.

    Every hash is checked against the root in the checkpoint before it is written, and that the log
    has grown from the checkpoint that was written before. Signatures are not checked.

    @return: what the checkpoint says, and how many files were written.
    @raise LogRefused: the log is not consistent. What contradicts its checkpoint, or the one
        before, was not written.
    @raise LogUnreadable, StorageError: it cannot be read.
    @raise OSError: a file cannot be written.
    """
    note = read(CHECKPOINT)
    path = directory / CHECKPOINT
    kept = readFile(path) if path.exists() else None
    try:
        head = TreeHead.parse(Note.decode(note).text)
        before = None if kept is None else TreeHead.parse(Note.decode(kept).text)
    except Malformed as error:
        raise LogRefused(f"a checkpoint is malformed: {error}") from None
    older, size = 0 if before is None else before.size, head.size
    files = _Files(directory, read, size)
    try:
        needed = neededTiles(size, *([older - 1] if 0 < older <= size else ()))
        tiles = Tiles({tile: files.find(tile) for tile in needed}).source
        if History.load(size, tiles).root != head.root:
            raise LogRefused(f"the tiles have not the root of the checkpoint of size {size}")
        if before is not None:
            growth = growthPath(older, size, tiles)
            checkGrowth(older, before.root, size, head.root, growth)
    except Malformed as error:
        raise LogRefused(
            f"the log of size {size} has not grown from the one of size {older} that is in "
            f"{directory}: {error}"
        ) from None
    # From the top: each tile is checked against the one above it.
    for tile in reversed(list(tilesBetween(older, size))):
        files.write(tile)
    if note != kept:
        files.put(CHECKPOINT, note)
    files.removePartial(older)
    return head, files.count


class _Files:
    """
    The files of a log of a size.

    @ivar count: how many were written.
    """

    def __init__(self, directory: Path, read: LogSource, size: int) -> None:
        self.count = 0
        self._directory = directory
        self._read = read
        self._size = size
        # Those of the right edge, from which the root was computed, and one of a path.
        self._found: dict[Tile, bytes] = {}

    def find(self, tile: Tile) -> bytes:
        """A tile that is needed to check the checkpoint."""
        path = f"tile/{tile.path}"
        target = self._directory / path
        data = readFile(target) if target.exists() else self._read(path)
        self._found[tile] = data
        return data

    def write(self, tile: Tile) -> None:
        """
        Write a tile, and its entries, unless that was done before.

        @raise LogRefused: it has not the hash that the tile above it says, or its entries have not
            its hashes.
        """
        path = f"tile/{tile.path}"
        if (self._directory / path).exists():
            return
        data = self._found.get(tile) or self._read(path)
        try:
            if tile.width == TILE_WIDTH and merkleRoot(splitTile(tile, data)) != self._hash(tile):
                raise LogRefused(f"{path} has not the hash that the tile above it says")
            if not tile.level:
                entries = self._read(f"tile/{tile.entriesPath}")
                if hashEntries(decodeEntries(entries)) != data:
                    raise LogRefused(f"{path} has not the hashes of its entries")
                self.put(f"tile/{tile.entriesPath}", entries)
        except Malformed as error:
            raise LogRefused(str(error)) from None
        self.put(path, data)

    def _hash(self, tile: Tile) -> bytes:
        """The hash of a full tile, from the tile above it, which was written before."""
        count = self._size >> TILE_HEIGHT * (tile.level + 1)
        index = tile.index // TILE_WIDTH
        above = Tile(tile.level + 1, index, min(TILE_WIDTH, count - index * TILE_WIDTH))
        data = readFile(self._directory / "tile" / above.path)
        return splitTile(above, data)[tile.index % TILE_WIDTH]

    def put(self, path: str, data: bytes) -> None:
        """Write a file, so that it is there as a whole or not at all, also after a crash."""
        target = self._directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        writeFile(target, data)
        self.count += 1

    def removePartial(self, older: int) -> None:
        """Remove the partial tiles in whose place there is a full one now."""
        for tile in tilesBetween(older, self._size):
            if tile.width == TILE_WIDTH:
                paths = [tile.path] if tile.level else [tile.path, tile.entriesPath]
                for path in paths:
                    with suppress(FileNotFoundError):
                        shutil.rmtree(self._directory / "tile" / f"{path}.p")
