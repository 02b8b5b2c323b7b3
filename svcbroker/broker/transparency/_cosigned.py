"""
The checkpoints of a log that a quorum of witnesses has cosigned.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Final

from twisted.logger import Logger

from ...chain import Malformed
from ...tlog import Note, NoteSignature, Policy
from .._metadata import MetadataStore
from ._certification import LOG
from ._checkpoint import LogCheckpoint

COSIGNED: Final = f"{LOG}-cosigned"
"""The kind of a kept checkpoint. Its name is C{GROUP/SIZE}."""
FORKED: Final = f"{LOG}-forked"
"""The kind of a checkpoint that is not of the chain as it is now: evidence that it was changed."""

MAX_PENDING: Final = 8
"""How many checkpoints wait for more witnesses at the same time. It bounds what witnesses that take
long can make the broker remember."""

THINNING_PERIOD: Final = 600.0
"""Every how many seconds old checkpoints are thinned."""

_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
_SPACING: Final = ((_HOUR, 0.0), (_DAY, 60.0), (31 * _DAY, _HOUR), (float("inf"), _DAY))
"""Of checkpoints up to this age, one is kept in so many seconds. That bounds how many there are: an
hour has the shortest interval of the job, and a day one a minute."""


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
