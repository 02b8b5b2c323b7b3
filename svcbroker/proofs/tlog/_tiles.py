"""
Tiles: the hashes of a log in pieces of 256, which never change once they are full
(c2sp.org/tlog-tiles).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final

from attrs import frozen

from ...chain import Malformed, NodeSource, leafHash

TILE_HEIGHT: Final = 8
"""The number of levels of the tree in a tile. A chain keeps the nodes of the same levels."""
TILE_WIDTH: Final = 1 << TILE_HEIGHT
HASH_SIZE: Final = sha256().digest_size
MAX_LEVEL: Final = 7
"""No log has tiles of a higher level: it would have more than 2^64 entries."""
ENTRIES: Final = "entries"
"""The word in a path in place of the level, for entries."""

_PATH: Final = re.compile(
    r"(entries|[0-7])/((?:x[0-9]{3}/){0,5}[0-9]{3})(?:\.p/([1-9][0-9]{0,2}))?"
)


@frozen
class Tile:
    """
    A tile: the place of its hashes in the tree.

    @ivar level: its level, from 0: it has nodes of the level 8 times this of the tree.
    @ivar index: its place in its level, from 0.
    @ivar width: how many hashes it has, 1 to 256.
    """

    level: int
    index: int
    width: int = TILE_WIDTH

    @property
    def path(self) -> str:
        """The path below C{tile/}."""
        return f"{self.level}/{_indexPath(self.index)}{_suffix(self.width)}"

    @property
    def entriesPath(self) -> str:
        """The path of the entries whose hashes a tile of level 0 has."""
        return f"{ENTRIES}/{_indexPath(self.index)}{_suffix(self.width)}"

    @property
    def first(self) -> int:
        """The position of its first hash in its level."""
        return self.index * TILE_WIDTH

    def isIn(self, size: int) -> bool:
        """Whether a log of this size has it."""
        return self.first + self.width <= size >> TILE_HEIGHT * self.level


def _indexPath(index: int) -> str:
    parts = [f"{index % 1000:03}"]
    while index := index // 1000:
        parts.append(f"x{index % 1000:03}")
    return "/".join(reversed(parts))


def _suffix(width: int) -> str:
    return "" if width == TILE_WIDTH else f".p/{width}"


def parseTilePath(path: str) -> tuple[Tile, bool]:
    """
    Read the path of a tile, as it is below C{tile/}.

    @return: the tile, and whether its entries are meant.
    @raise Malformed: it is the path of nothing.
    """
    match = _PATH.fullmatch(path)
    if match is None:
        raise Malformed(f"{path[:80]!r} is not the path of a tile")
    index = int(match[2].replace("x", "").replace("/", ""))
    width = TILE_WIDTH if match[3] is None else int(match[3])
    if width >= TILE_WIDTH and match[3] is not None:
        raise Malformed(f"a partial tile has 1 to {TILE_WIDTH - 1} hashes")
    isEntries = match[1] == ENTRIES
    tile = Tile(0 if isEntries else int(match[1]), index, width)
    if path != (tile.entriesPath if isEntries else tile.path):
        raise Malformed(f"{path[:80]!r} is not the only path of its tile")
    return tile, isEntries


def tilesBetween(older: int, newer: int) -> Iterable[Tile]:
    """
    All tiles that a log has at a size and has not at a smaller one, each as wide as it is then.
    """
    for level in range(MAX_LEVEL + 1):
        before, after = older >> TILE_HEIGHT * level, newer >> TILE_HEIGHT * level
        if before == after:
            return
        for index in range(before // TILE_WIDTH, -(-after // TILE_WIDTH)):
            yield Tile(level, index, min(TILE_WIDTH, after - index * TILE_WIDTH))


def neededTiles(size: int, *indexes: int) -> Sequence[Tile]:
    """
    The tiles from which the root, the path of entries, and the growth from smaller sizes follow.

    @param size: the size of the log.
    @param indexes: the entries whose paths are wanted. For the growth from a smaller size that is
        its last entry.
    """
    needed: dict[Tile, None] = {}
    for level in range(MAX_LEVEL + 1):
        count = size >> TILE_HEIGHT * level
        if not count:
            break
        # The right edge, where it is not full, and the way of each entry.
        places = {each >> TILE_HEIGHT * (level + 1) for each in indexes}
        if count % TILE_WIDTH or count == TILE_WIDTH:
            places.add((count - 1) // TILE_WIDTH)
        for index in sorted(places):
            width = min(TILE_WIDTH, count - index * TILE_WIDTH)
            if width > 0:
                needed[Tile(level, index, width)] = None
    return list(needed)


class Tiles:
    """
    Hashes of a log from its tiles.

    Hashes of tiles are what somebody has said. What is made from them is to be compared with a
    root that is trusted.
    """

    def __init__(self, tiles: Mapping[Tile, bytes]) -> None:
        """
        @param tiles: the hashes of each tile, one after the other.
        @raise Malformed: a tile is longer or shorter than its width.
        """
        self._hashes: dict[tuple[int, int], Sequence[bytes]] = {}
        for tile, data in tiles.items():
            self._hashes[tile.level, tile.index] = splitTile(tile, data)

    @property
    def source(self) -> NodeSource:
        """The source that L{historyPath<svcbroker.chain.historyPath>} and its like read."""
        return self._read

    def _read(self, level: int, first: int, count: int) -> Sequence[bytes]:
        # Ranges that are asked for are below one node, so they are in one tile.
        hashes = self._hashes.get((level // TILE_HEIGHT, first // TILE_WIDTH), ())
        start = first % TILE_WIDTH
        return hashes[start : start + count]


def splitTile(tile: Tile, data: bytes) -> Sequence[bytes]:
    """
    The hashes of a tile.

    @raise Malformed: the data is longer or shorter than the tile.
    """
    if len(data) != tile.width * HASH_SIZE:
        raise Malformed(f"tile {tile.path} has {len(data)} bytes, not {tile.width * HASH_SIZE}")
    return [data[start : start + HASH_SIZE] for start in range(0, len(data), HASH_SIZE)]


def encodeEntries(entries: Iterable[bytes]) -> bytes:
    """A bundle of entries: each with its length before it."""
    return b"".join(len(each).to_bytes(2, "big") + each for each in entries)


def decodeEntries(data: bytes) -> Sequence[bytes]:
    """
    The entries of a bundle.

    @raise Malformed: it is none.
    """
    entries, position = [], 0
    while position < len(data):
        start = position + 2
        position = start + int.from_bytes(data[position:start], "big")
        if start > len(data) or position > len(data):
            raise Malformed("the bundle of entries ends early")
        entries.append(data[start:position])
    return entries


def encodeTile(tile: Tile, hashes: Sequence[bytes]) -> bytes:
    """
    The hashes of a tile.

    @param hashes: as many as its width: nodes of the tree, or entries where the level is 0.
    """
    return b"".join(hashes) if tile.level else hashEntries(hashes)


def hashEntries(entries: Iterable[bytes]) -> bytes:
    """The tile of level 0 of some entries."""
    return b"".join(map(leafHash, entries))
