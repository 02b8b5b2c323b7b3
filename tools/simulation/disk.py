"""
A disk that can be pulled out at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import Any, TypeAlias

from attrs import define

from .clock import VirtualClock


class Moment(Enum):
    """When, in the course of a write, the power fails."""

    BEFORE = "before"
    """Nothing of it was written."""
    INSIDE = "inside"
    """It was written, but not synced."""
    AFTER = "after"
    """It is on stable storage, but who wrote it was not told."""


@define
class Slot:
    """
    A crash that waits for its write.

    @ivar writes: how many writes go well before.
    """

    moment: Moment
    writes: int


Record: TypeAlias = Any
"""A value that is never changed; what it looks like in bytes does not matter here."""


class Disk:
    """
    A log that is only appended to. What was written is safe once it has been synced. Of what was
    not, a crash leaves any beginning: the record after it is torn, which its checksum would show,
    and those behind that are lost.

    @ivar latency: seconds that a sync takes.
    @ivar isFull: whether writes fail.
    @ivar crashed: called when the power fails.
    """

    def __init__(self, clock: VirtualClock, random: Random) -> None:
        self.latency = 0.0
        self.isFull = False
        self.crashed: Callable[[], None] = lambda: None
        self._clock = clock
        self._random = random
        self._records: list[Record] = []
        self._synced = 0
        self._armed: Slot | None = None
        # Syncs that were begun before a crash are of no avail after it.
        self._power = 0
        # The power has failed, and nobody has noticed yet: nothing more is written.
        self._isOut = False
        self._free = 0.0

    def read(self) -> Sequence[Record]:
        """Everything that is there."""
        return list(self._records)

    def write(self, record: Record, done: Callable[[], None]) -> bool:
        """
        Append a record and sync. Records are synced in their order.

        @param done: called once it is on stable storage, and not before this has returned.
        @return: C{False} where the disk is full; then nothing has happened.
        """
        if self.isFull:
            return False
        if self._isOut:
            return True
        moment = self._strike()
        if moment is Moment.BEFORE:
            self._isOut = True
            self._clock.callLater(0, self._crash, self._power)
            return True
        self._records.append(record)
        place = len(self._records)
        self._free = max(self._clock.seconds(), self._free) + self.latency
        self._clock.callLater(
            self._free - self._clock.seconds(), self._sync, place, done, moment, self._power
        )
        return True

    def arm(self, slot: Slot | None) -> None:
        """Have the power fail at a write to come; C{None}: have it not."""
        self._armed = slot

    def crash(self) -> None:
        """The power fails: some of what was not synced is gone."""
        self._power += 1
        self._armed = None
        self._isOut = False
        self._free = 0.0
        unsynced = len(self._records) - self._synced
        kept = self._synced + self._random.randint(0, unsynced)
        del self._records[kept:]
        self._synced = kept

    def wipe(self) -> None:
        """Everything on it is gone."""
        self._records.clear()
        self._synced = 0

    def _strike(self) -> Moment | None:
        slot = self._armed
        if slot is None:
            return None
        if slot.writes:
            slot.writes -= 1
            return None
        self._armed = None
        return slot.moment

    def _sync(
        self, place: int, done: Callable[[], None], moment: Moment | None, power: int
    ) -> None:
        if power != self._power:
            return
        if moment is Moment.INSIDE:
            self.crashed()
            return
        self._synced = max(self._synced, place)
        if moment is Moment.AFTER:
            self.crashed()
        else:
            done()

    def _crash(self, power: int) -> None:
        if power == self._power:
            self.crashed()
