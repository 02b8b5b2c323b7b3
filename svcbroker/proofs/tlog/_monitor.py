"""
Monitoring: following a log from outside, by its checkpoints and tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TypeAlias

from attrs import define, field, frozen

from ...chain import History, Malformed, checkGrowth, growthPath
from ._note import Note, SignatureRefused
from ._policy import Party, Policy
from ._tiles import HASH_SIZE, Tile, Tiles, neededTiles
from ._treehead import TreeHead

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
