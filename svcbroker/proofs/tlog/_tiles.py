"""
Tiles: the hashes of a log in pieces of 256, which never change once they are full
(c2sp.org/tlog-tiles); and monitoring: following a log from outside, by its checkpoints and tiles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Final, TypeAlias

from attrs import define, field, frozen

from ...chain import History, Malformed, NodeSource, checkGrowth, growthPath, leafHash
from ._note import Note, SignatureRefused
from ._policy import Party, Policy
from ._treehead import TreeHead

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


Fetch: TypeAlias = Callable[[str], bytes]
"""
C{fetch(path)} gives what is at a path below the URL of a log, or of a witness. It raises
L{FetchFailed}.
"""


class FetchFailed(Exception):
    """Something cannot be fetched. The text says what and why."""


class LogContradiction(Exception):
    """
    A log that is not what it was, or not what its witnesses have seen. The text says how.

    @ivar checkpoints: the signed checkpoints that contradict each other, or the one that
        contradicts the log's tiles.
    """

    def __init__(self, message: str, *checkpoints: Note) -> None:
        super().__init__(message)
        self.checkpoints = checkpoints


@frozen(kw_only=True)
class WitnessReport:
    """
    The report of a witness about a log.

    @ivar name: its name in the policy.
    @ivar size: the size that it has cosigned last; C{None} where that is not known.
    @ivar time: when, in seconds since the epoch.
    @ivar error: why that is not known; empty otherwise.
    """

    name: str
    size: int | None = None
    time: int = 0
    error: str = ""


@frozen(kw_only=True)
class LogReport:
    """
    The findings of one round.

    @ivar head: what the log's checkpoint says.
    @ivar complaints: what is not good, and no contradiction: too few cosignatures, a witness that
        cannot be asked, a log that shows an earlier size.
    @ivar witnesses: those of the policy that have a URL.
    """

    head: TreeHead
    complaints: Sequence[str]
    witnesses: Sequence[WitnessReport]


@define(eq=False)
class LogMonitor:
    """
    Follows a log.

    @ivar policy: the log's keys, its witnesses and their quorum.
    @ivar fetch: fetches from the log.
    @ivar fetchFrom: fetches from a witness.
    @ivar known: the largest checkpoint that was verified; C{None} in the first round. It is kept by
        the caller between runs.
    """

    policy: Policy
    fetch: Fetch
    fetchFrom: Callable[[Party], Fetch]
    known: Note | None = None
    _complaints: list[str] = field(factory=list, init=False)
    _fetched: dict[Tile, bytes] = field(factory=dict, init=False)

    def check(self) -> LogReport:
        """
        Check the log once.

        @raise FetchFailed: the log cannot be fetched. Nothing is wrong with it by that alone.
        @raise LogContradiction: it is not what it was, or what was seen of it.
        """
        self._complaints, self._fetched = [], {}
        note, head = self._read(self.fetch("checkpoint"))
        try:
            self.policy.check(note)
        except SignatureRefused as error:
            self._complaints.append(str(error))
        self._checkRoot(note, head)
        if self.known is not None:
            known = TreeHead.parse(self.known.text)
            if known.origin != head.origin:
                raise LogContradiction(f"the log was {known.origin}", self.known, note)
            self._checkSame(self.known, known, note, head, "what it was")
            if known.size > head.size:
                self._complaints.append(
                    f"the log shows size {head.size}, and had {known.size} before"
                )
        witnesses = [
            self._ask(witness, note, head)
            for witness in self.policy.witnesses.values()
            if witness.url
        ]
        if self.known is None or TreeHead.parse(self.known.text).size <= head.size:
            self.known = note
        return LogReport(head=head, complaints=tuple(self._complaints), witnesses=witnesses)

    def _read(self, data: bytes) -> tuple[Note, TreeHead]:
        """The checkpoint of the log."""
        try:
            note = Note.decode(data)
            head = TreeHead.parse(note.text)
            if self._logSignatures(note, head):
                return note, head
        except (Malformed, SignatureRefused) as error:
            raise LogContradiction(
                f"the log has no checkpoint that it has signed: {error}"
            ) from None
        raise LogContradiction("the log's checkpoint is signed by none of its keys", note)

    def _logSignatures(self, note: Note, head: TreeHead) -> Sequence[object]:
        """
        The signatures of the log's keys.

        @raise SignatureRefused: one of them is not valid.
        """
        return note.verified(each.key for each in self.policy.logs if each.key.name == head.origin)

    def _tiles(self, size: int, *indexes: int) -> Tiles:
        needed = neededTiles(size, *indexes)
        for tile in needed:
            if tile not in self._fetched:
                self._fetched[tile] = self._fetchTile(tile)
        return Tiles({tile: self._fetched[tile] for tile in needed})

    def _fetchTile(self, tile: Tile) -> bytes:
        try:
            return self.fetch(f"tile/{tile.path}")
        except FetchFailed:
            # A partial tile may be gone once the full one is there.
            full = Tile(tile.level, tile.index)
            if tile == full:
                raise
            return self.fetch(f"tile/{full.path}")[: HASH_SIZE * tile.width]

    def _checkRoot(self, note: Note, head: TreeHead) -> None:
        """Check that the tiles make the root that was signed."""
        try:
            root = History.load(head.size, self._tiles(head.size).source).root
        except Malformed as error:
            raise LogContradiction(f"the log's tiles are none: {error}", note) from None
        if root != head.root:
            raise LogContradiction(
                f"the tiles of size {head.size} do not make the root that the log has signed", note
            )

    def _checkSame(
        self, one: Note, first: TreeHead, other: Note, second: TreeHead, what: str
    ) -> None:
        """Check that two checkpoints are of one history, whichever is larger."""
        older, newer = sorted((first, second), key=lambda head: head.size)
        try:
            path: Sequence[bytes] = ()
            if 0 < older.size < newer.size:
                source = self._tiles(newer.size, older.size - 1).source
                path = growthPath(older.size, newer.size, source)
            checkGrowth(older.size, older.root, newer.size, newer.root, path)
        except Malformed as error:
            raise LogContradiction(
                f"the log of size {second.size} is not {what} at size {first.size}: {error}",
                one,
                other,
            ) from None

    def _ask(self, witness: Party, note: Note, head: TreeHead) -> WitnessReport:
        """Ask a witness for its latest size of the log, and whether it is this log."""
        path = f"{sha256(head.origin.encode()).hexdigest()}/checkpoint"
        try:
            seen = Note.decode(self.fetchFrom(witness)(path))
            cosigned = seen.verified([witness.key])
            if not cosigned:
                raise FetchFailed("it answers a checkpoint that it has not cosigned")
            seenHead = TreeHead.parse(seen.text)
            if seenHead.origin != head.origin or not self._logSignatures(seen, seenHead):
                raise FetchFailed("it answers a checkpoint that this log has not signed")
        except (FetchFailed, SignatureRefused, Malformed) as error:
            self._complaints.append(f"witness {witness.name}: {error}")
            return WitnessReport(name=witness.name, error=str(error))
        self._checkSame(seen, seenHead, note, head, f"what witness {witness.name} has seen")
        if seenHead.size > head.size:
            self._complaints.append(
                f"the log shows size {head.size}, and witness {witness.name} has seen "
                f"{seenHead.size}"
            )
        time = max(witness.key.timeOf(signature) for _, signature in cosigned)
        return WitnessReport(name=witness.name, size=seenHead.size, time=time)
