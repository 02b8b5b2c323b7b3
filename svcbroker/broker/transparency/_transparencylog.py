"""
The transparency log of a group, made of its chain: its checkpoints and those that a quorum of
witnesses has cosigned, its key, and the event by which the chain certifies the key.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec
from attrs import evolve, frozen
from msgspec import Struct
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ...chain import History, Malformed, growthPath, historyPath
from ...errors import HeightUnknown, LedgerUnavailable
from ...interfaces import IProvableLedger
from ...model import EventId
from ...net.deferreds import asDeferred
from ...net.turns import Lock
from ...proofs.tlog import (
    TILE_HEIGHT,
    LogKey,
    Note,
    NoteSignature,
    Policy,
    Tile,
    Tiles,
    TreeHead,
    encodeEntries,
    encodeTile,
    neededTiles,
)
from .._metadatastore import MetadataStore
from .._proving import KeyCertification

LOG: Final = "log"
"""The kind of what is kept of a log. Its names are C{GROUP/WHAT}."""

LOG_TOPIC: Final = "$svc/log"
"""The topic of the records that certify keys. Clients cannot publish to it."""

COSIGNED: Final = f"{LOG}-cosigned"
"""The kind of a kept checkpoint. Its name is C{GROUP/SIZE}."""


FORKED: Final = f"{LOG}-forked"
"""The kind of a checkpoint that is not of the chain as it is now: evidence that it was changed."""

MAX_AGE: Final = 1.0
"""The age, in seconds, at which the newest checkpoint is followed by another one."""

MAX_PENDING: Final = 8
"""The number of checkpoints that wait for more witnesses at the same time. It bounds what witnesses
that take long can make the broker remember."""


THINNING_PERIOD: Final = 600.0
"""Every how many seconds old checkpoints are thinned."""

_PURPOSE: Final = "log key"

_HOUR: Final = 3600.0


_DAY: Final = 24 * _HOUR


_SPACING: Final = ((_HOUR, 0.0), (_DAY, 60.0), (31 * _DAY, _HOUR), (float("inf"), _DAY))
"""Of checkpoints up to this age, one is kept in so many seconds. That bounds how many there are: an
hour has the shortest interval of the job, and a day one a minute."""


def logGroup(kind: str, name: str, value: bytes) -> str:
    """The group of an entry of the metadata store."""
    return name.partition("/")[0]


@frozen
class LogCheckpoint:
    """
    A checkpoint of a log.

    @ivar head: what it says.
    @ivar note: with its signatures.
    """

    head: TreeHead
    note: Note

    @classmethod
    def decode(cls, data: bytes) -> LogCheckpoint:
        """
        Read a checkpoint.

        @raise Malformed: it is none.
        """
        note = Note.decode(data)
        return cls(TreeHead.parse(note.text), note)


LineSource: TypeAlias = Callable[[], Deferred[Sequence[str]]]
"""
Gives extension lines for a checkpoint: of what is in the blocks that there are when it fires. It
does not fail.
"""


class CheckpointLines:
    """
    The extension lines that features have the logs of groups sign in their checkpoints.
    """

    def __init__(self) -> None:
        self._sources: dict[str, list[LineSource]] = {}

    def add(self, group: str, source: LineSource) -> None:
        """Have the log of a group sign the lines of a source."""
        self._sources.setdefault(group, []).append(source)

    @asDeferred
    async def of(self, group: str) -> Sequence[str]:
        """The lines for the next checkpoint of a group."""
        return [line for source in self._sources.get(group, ()) for line in await source()]


class TransparencyLog:
    """
    The log of a group. Everything is read from the ledger when it is asked for: at most 256 hashes
    for a tile, and for a checkpoint or a path one or two tiles of each level.

    Its Deferreds may fail with L{LedgerUnavailable<svcbroker.errors.LedgerUnavailable>}.

    @ivar group: the id of the group.
    """

    def __init__(
        self,
        ledger: IProvableLedger,
        store: MetadataStore,
        seconds: Callable[[], float],
        origin: str = "",
        cosigned: CosignedCheckpoints | None = None,
        lines: CheckpointLines | None = None,
    ) -> None:
        """
        @param store: keeps the served checkpoint, for C{svcbroker admin log export}.
        @param seconds: a monotonic clock.
        @param origin: the origin of the log; empty for C{svcbroker/} and the chain's id.
        @param cosigned: the checkpoints that witnesses have cosigned, where there are witnesses.
        @param lines: what checkpoints say besides.
        """
        self.group = ledger.group
        self._ledger = ledger
        self._store = store
        self._seconds = seconds
        self._certification = LogCertification(ledger, store, origin)
        self._cosigned = cosigned
        self._lines = lines or CheckpointLines()
        self._signed: LogCheckpoint | None = None
        self._signedAt = 0.0
        # Witnesses are asked for the same growth at the same time.
        self._growth: tuple[int, int, Sequence[bytes]] | None = None

    def certified(self) -> Deferred[Certification]:
        """The key that signs the log, certified by the chain."""
        return self._certification.certified()

    @asDeferred
    async def size(self) -> int:
        """The number of entries that the log has now."""
        # Not the statistics, for which some ledgers ask an engine.
        page = await self._ledger.listBlocks(0, 1)
        return page.items[0].height + 1 if page.items else 1

    @asDeferred
    async def serve(self) -> LogCheckpoint:
        """
        The checkpoint for everybody: the newest one that a quorum of witnesses has cosigned; before
        the first one, or without witnesses, the newest one that the log has signed.
        """
        newest = None if self._cosigned is None else self._cosigned.newest
        return await self.sign() if newest is None else newest

    @asDeferred
    async def serveFor(self, index: int) -> LogCheckpoint:
        """
        The checkpoint for the proof of an entry: the earliest one that a quorum has cosigned, since
        its time is the nearest to that of the entry; before it, the newest one of the log.

        @raise HeightUnknown: there is no such entry yet.
        """
        earliest = None if self._cosigned is None else self._cosigned.after(index)
        return await self.sign(index) if earliest is None else earliest

    @asDeferred
    async def sign(self, above: int = -1) -> LogCheckpoint:
        """
        The newest checkpoint, signed by the log alone. It may be L{MAX_AGE} old.

        @param above: the index of an entry that it has to have.
        @raise HeightUnknown: there is no such entry yet.
        """
        signed, now = self._signed, self._seconds()
        # A clock that was set back does not make it a long time.
        isNew = 0 <= now - self._signedAt < MAX_AGE
        if signed is None or signed.head.size <= above or not isNew:
            key = (await self.certified()).key
            # Before the size, so that the blocks have all that the lines are of.
            lines = tuple(await self._lines.of(self.group))
            size = await self.size()
            if signed is None or size > signed.head.size:
                head = evolve(await self.head(key.verifier.name, size), extensions=lines)
                signed = LogCheckpoint(head, Note(head.text, (key.sign(head.text),)))
                if self._signed is None or size > self._signed.head.size:
                    self._signed = signed
                    if self._cosigned is None or self._cosigned.newest is None:
                        self._store.put(LOG, f"{self.group}/checkpoint", signed.note.encode())
            self._signedAt = now
        if signed.head.size <= above:
            raise HeightUnknown()
        return signed

    @asDeferred
    async def head(self, origin: str, size: int) -> TreeHead:
        """The tree head of a size, without further lines. The chain has so many headers."""
        tiles = await self._tiles(size)
        return TreeHead(origin, size, History.load(size, tiles.source).root)

    @asDeferred
    async def path(self, index: int, size: int) -> Sequence[bytes]:
        """The siblings that prove an entry in the log of a size."""
        tiles = await self._tiles(size, index)
        return historyPath(index, size, tiles.source)

    @asDeferred
    async def growth(self, older: int, newer: int) -> Sequence[bytes]:
        """The consistency proof from one size to another."""
        if self._growth is None or self._growth[:2] != (older, newer):
            tiles = await self._tiles(newer, *([older - 1] if older else ()))
            self._growth = older, newer, growthPath(older, newer, tiles.source)
        return self._growth[2]

    @asDeferred
    async def tile(self, tile: Tile) -> bytes | None:
        """The hashes of a tile; C{None} where the log has not all of them."""
        hashes = await self._ledger.readHistory(TILE_HEIGHT * tile.level, tile.first, tile.width)
        if len(hashes) < tile.width:
            return None
        return encodeTile(tile, hashes)

    @asDeferred
    async def entries(self, tile: Tile) -> bytes | None:
        """The entries of a tile of level 0; C{None} where the log has not all of them."""
        hashes = await self._ledger.readHistory(0, tile.first, tile.width)
        return None if len(hashes) < tile.width else encodeEntries(hashes)

    async def _tiles(self, size: int, *indexes: int) -> Tiles:
        found = {}
        for tile in neededTiles(size, *indexes):
            data = await self.tile(tile)
            if data is None:
                raise LedgerUnavailable("the chain's history is incomplete")
            found[tile] = data
        return Tiles(found)


class LogKeyRecord(Struct, frozen=True):
    """
    The content of an event that certifies a key, as JSON.

    @ivar origin: the origin of the log.
    @ivar key: the public key: a vkey of C{c2sp.org/signed-note}.
    """

    origin: str
    key: str


class _KeptKey(Struct, frozen=True):
    """A certification as it is kept: the vkey, and the id of the event."""

    key: str
    eventId: str


@frozen
class Certification:
    """
    A key that the chain certifies.

    @ivar eventId: the event whose content is the L{LogKeyRecord}.
    """

    key: LogKey
    eventId: EventId


class LogCertification:
    """
    Finds the key of a log, and has the chain certify it before it is used.

    The key follows from the ledger's private key. When that has changed, the next caller gets a new
    key, for which another record is published.
    """

    _log = Logger()

    def __init__(self, ledger: IProvableLedger, store: MetadataStore, origin: str) -> None:
        """
        @param origin: the origin of the log; empty for C{svcbroker/} and the chain's id.
        """
        self._ledger = ledger
        self._store = store
        self._origin = origin
        self._chain = KeyCertification(ledger, LOG_TOPIC)
        self._seed = b""
        self._current: Certification | None = None
        self._lock = Lock()

    @property
    def origin(self) -> str:
        """
        The origin of the log.

        @raise LedgerUnavailable: the ledger has no chain yet.
        """
        if self._origin:
            return self._origin
        if not self._ledger.chain:
            raise LedgerUnavailable("the chain has not begun")
        return f"svcbroker/{self._ledger.chain.hex()}"

    @asDeferred
    async def certified(self) -> Certification:
        """
        The current key, once the chain certifies it. A caller that stops waiting does so by
        L{TimeoutQueue<svcbroker.broker.TimeoutQueue>}, which does not cancel this.

        @raise LedgerUnavailable: the ledger has no key now, or did not take the record. The next
            call tries again.
        """
        async with self._lock:
            return await self._certify()

    async def _certify(self) -> Certification:
        seed = self._ledger.deriveKey(_PURPOSE)
        if self._current is None or seed != self._seed:
            key = LogKey(self.origin, seed)
            record = LogKeyRecord(origin=self.origin, key=key.verifier.text)
            eventId = await self._find(record)
            if eventId is None:
                eventId = await self._publish(record)
            self._seed, self._current = seed, Certification(key, eventId)
        return self._current

    async def _find(self, record: LogKeyRecord) -> EventId | None:
        """The event that has certified a key before, as far as it is kept or is the last one."""
        name = f"{self._ledger.group}/key"
        kept = self._store.get(LOG, name)
        if kept is not None:
            known = msgspec.json.decode(kept, type=_KeptKey)
            eventId = EventId.parse(known.eventId)
            if known.key == record.key and await self._chain.isRecord(
                eventId, msgspec.json.encode(record)
            ):
                return eventId
        last = await self._chain.findLast(msgspec.json.encode(record))
        if last is not None:
            self._keep(record, last)
        return last

    async def _publish(self, record: LogKeyRecord) -> EventId:
        """
        Publish a record.

        @raise BrokerError: the ledger did not take it.
        """
        eventId = await self._chain.publish(msgspec.json.encode(record))
        self._log.info(
            "group {group}: the chain certifies the key of its transparency log: {key}, event "
            "{eventId}",
            group=self._ledger.group,
            key=record.key,
            eventId=eventId,
        )
        self._keep(record, eventId)
        return eventId

    def _keep(self, record: LogKeyRecord, eventId: EventId) -> None:
        kept = msgspec.json.encode(_KeptKey(key=record.key, eventId=str(eventId)))
        self._store.put(LOG, f"{self._ledger.group}/key", kept)


class CosignedCheckpoints:
    """
    The checkpoints of a group's log that a quorum has cosigned, kept in the metadata store. The
    earliest one that has an event tells best by when the event was there, so old ones are thinned,
    but not removed.

    @ivar policy: whose cosignatures count.
    """

    _log = Logger()

    def __init__(self, group: str, policy: Policy, store: MetadataStore) -> None:
        self.policy = policy
        self._group = group
        self._store = store
        # Without the cosignatures that make the quorum.
        self._pending: dict[int, Note] = {}
        self._sizes: list[int] = []
        self._newest: LogCheckpoint | None = None
        self._thinnedAt = float("-inf")
        for name in store.names(COSIGNED):
            owner, _, size = name.rpartition("/")
            if owner == group:
                self._sizes.append(int(size))
        self._sizes.sort()

    @property
    def newest(self) -> LogCheckpoint | None:
        """The newest checkpoint; C{None} before the first quorum."""
        if self._newest is None:
            self._newest = next(self._accepted(reversed(self._sizes)), None)
        return self._newest

    def after(self, index: int) -> LogCheckpoint | None:
        """The earliest checkpoint that has an entry; C{None} where there is none yet."""
        return next(self._accepted(iter(self._sizes[bisect_right(self._sizes, index) :])), None)

    def setAside(self, size: int) -> None:
        """A checkpoint is not of the chain as it is now. It is kept, and not served."""
        name = self._name(size)
        self._store.put(FORKED, name, self._store.get(COSIGNED, name) or b"")
        self._store.remove(COSIGNED, name)
        self._sizes.remove(size)
        self._newest = None

    def propose(self, checkpoint: LogCheckpoint) -> None:
        """Collect cosignatures of a checkpoint. The oldest of those that wait may be given up."""
        self._pending.setdefault(checkpoint.head.size, checkpoint.note)
        while len(self._pending) > MAX_PENDING:
            del self._pending[min(self._pending)]

    def add(self, size: int, cosignature: NoteSignature, now: float) -> bool:
        """
        Add a cosignature, which is verified.

        @param now: the wall clock: seconds since the epoch.
        @return: whether its checkpoint has a quorum.
        """
        note = self._pending.get(size)
        if note is None:
            return False
        note = self._pending[size] = note.signedBy(cosignature)
        if not self._isQuorum(note):
            return False
        if size not in self._sizes:
            insort(self._sizes, size)
        self._store.put(COSIGNED, self._name(size), b"%d\n%b" % (now, note.encode()))
        if self._newest is None or size >= self._newest.head.size:
            self._newest = LogCheckpoint.decode(note.encode())
            self._store.put(LOG, f"{self._group}/checkpoint", note.encode())
        if not 0 <= now - self._thinnedAt < THINNING_PERIOD:
            self._thinnedAt = now
            self._thin(now)
        return True

    def _thin(self, now: float) -> None:
        kept: set[tuple[float, int]] = set()
        for size in self._sizes[:-1]:
            value = self._store.get(COSIGNED, self._name(size)) or b""
            time = float(value.partition(b"\n")[0])
            spacing = next(each for age, each in _SPACING if now - time <= age)
            place = (spacing, int(time // spacing) if spacing else size)
            if place in kept:
                self._sizes.remove(size)
                self._store.remove(COSIGNED, self._name(size))
            kept.add(place)

    def _accepted(self, sizes: Iterator[int]) -> Iterator[LogCheckpoint]:
        """Those kept checkpoints that have a quorum by the policy, which may have changed."""
        for size in sizes:
            value = self._store.get(COSIGNED, self._name(size)) or b""
            try:
                found = LogCheckpoint.decode(value.partition(b"\n")[2])
            except Malformed as error:
                self._log.error(
                    "the cosigned checkpoint {name} is damaged: {error}",
                    name=self._name(size),
                    error=str(error),
                )
                continue
            if self._isQuorum(found.note):
                yield found

    def _isQuorum(self, note: Note) -> bool:
        """Whether the cosignatures of a note, which are verified, are enough."""
        made = {(each.name, each.keyId) for each in note.signatures}
        witnesses = self.policy.witnesses.items()
        return self.policy.isQuorum(
            {name for name, party in witnesses if (party.key.name, party.key.id) in made}
        )

    def _name(self, size: int) -> str:
        return f"{self._group}/{size}"
