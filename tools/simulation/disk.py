"""
A disk of a simulated host, which can lose power at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import Any, TypeAlias

from attrs import define

from .clock import VirtualClock


class Moment(Enum):
    """The moment of a write at which the power fails."""

    BEFORE = "before"
    """Before it: nothing was written."""
    INSIDE = "inside"
    """During it: it was written, but not synced."""
    AFTER = "after"
    """After it: it is on stable storage, but the writer was not told."""


@define
class Slot:
    """
    A power failure at a later write.

    @ivar writes: how many writes succeed before it.
    """

    moment: Moment
    writes: int


Record: TypeAlias = Any
"""An immutable value. Its encoding does not matter here."""


class ArmedDisk:
    """A disk that can lose power at a write."""

    _armed: Slot | None = None

    def arm(self, slot: Slot | None) -> None:
        """Have the power fail at a later write, or C{None} to cancel that."""
        self._armed = slot

    def _strike(self) -> Moment | None:
        """The moment of this write at which the power fails; C{None} where it does not."""
        slot = self._armed
        if slot is None:
            return None
        if slot.writes:
            slot.writes -= 1
            return None
        self._armed = None
        return slot.moment


class Disk(ArmedDisk):
    """
    An append-only log. Synced records survive a crash. Of the records that were not synced, a crash
    keeps any prefix.

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
        # The number of crashes: syncs that were started before one have no effect.
        self._power = 0
        # The power has failed, but the host still runs: nothing more is written.
        self._isOut = False
        self._free = 0.0

    def read(self) -> Sequence[Record]:
        """All records."""
        return list(self._records)

    def write(self, record: Record, done: Callable[[], None]) -> bool:
        """
        Append a record and sync. Records are synced in order.

        @param done: called once the record is on stable storage, never before this has returned.
        @return: C{False} if the disk is full and nothing was written.
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

    def crash(self) -> None:
        """Lose power: some of the unsynced records are lost."""
        self._power += 1
        self._armed = None
        self._isOut = False
        self._free = 0.0
        unsynced = len(self._records) - self._synced
        kept = self._synced + self._random.randint(0, unsynced)
        del self._records[kept:]
        self._synced = kept

    def wipe(self) -> None:
        """Erase everything."""
        self._records.clear()
        self._synced = 0

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
