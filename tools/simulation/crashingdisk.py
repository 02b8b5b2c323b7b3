"""
The embedded ledger's disk: real files, left after a crash as a real disk would leave them.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from svcbroker.storage import StorageFailed, Store

from .clock import VirtualClock
from .disk import Moment, Slot

SECTOR = 512
"""How many bytes a disk writes atomically."""
DATABASE = "ledger.sqlite"
LOG = "ledger.sqlite-wal"
TIP = "ledger.sqlite-tip"


@define
class _Call:
    """A call that the ledger wants made."""

    result: Deferred[Any]
    call: Callable[..., Any]
    arguments: tuple[Any, ...]


class CrashingDisk:
    """
    Makes the ledger's disk calls one after the other on a clock, and fails or loses power on
    request.

    @ivar directory: the directory of the files. Each crash replaces it by another one.
    @ivar latency: seconds that a call takes.
    @ivar failsUncertainly: C{None} while writes succeed. Otherwise they fail, and it says whether
        they may have left a trace.
    @ivar stored: called with a block's height once the block is on stable storage.
    @ivar crashed: called after a power failure during a write.
    @ivar gaveUp: called when a block was not stored and will not be.
    """

    def __init__(self, clock: VirtualClock, random: Random, root: Path) -> None:
        """
        @param root: an empty directory.
        """
        self.latency = 0.002
        self.failsUncertainly: bool | None = None
        self.stored: Callable[[int], None] = lambda height: None
        self.crashed: Callable[[], None] = lambda: None
        self.gaveUp: Callable[[], None] = lambda: None
        self._clock = clock
        self._random = random
        self._root = root
        self._images = 0
        self._waiting: deque[_Call] = deque()
        self._isBusy = False
        self._armed: Slot | None = None
        self._power = 0
        # The last write of uncertain outcome: after a crash it may be on the disk.
        self._uncertain: _Call | None = None
        self.directory = self._newDirectory()

    def __call__(self, call: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """The ledger's C{runInThread}."""
        result: Deferred[Any] = Deferred()
        self._waiting.append(_Call(result, call, arguments))
        self._begin()
        return result

    @property
    def isFull(self) -> bool:
        """Whether writes fail without leaving a trace."""
        return self.failsUncertainly is False

    @isFull.setter
    def isFull(self, isFull: bool) -> None:
        self.failsUncertainly = False if isFull else None

    def arm(self, slot: Slot | None) -> None:
        """Have the power fail at a later write, or C{None} to cancel that."""
        self._armed = slot

    def crash(self) -> None:
        """
        Lose power between two writes. The files are copied as they are; a write of uncertain
        outcome may or may not have reached the disk.
        """
        uncertain = self._uncertain
        self._leave()
        self._copy()
        if uncertain is not None and self._random.random() < 0.5:
            store = Store.open(self.directory / DATABASE)
            store.append(*uncertain.arguments)
            store.close()

    def _begin(self) -> None:
        if not self._isBusy and self._waiting:
            self._isBusy = True
            self._clock.callLater(self.latency, self._make, self._power)

    def _make(self, power: int) -> None:
        if power != self._power:
            return
        self._isBusy = False
        call = self._waiting.popleft()
        isWrite = call.call.__name__ in ("append", "setAside")
        moment = self._strike() if isWrite else None
        if moment is not None and self.failsUncertainly is None:
            self._crashAt(moment, call)
            return
        if isWrite and self.failsUncertainly is not None:
            isBlock = call.call.__name__ == "append"
            if isBlock:
                # When the store reports a certain failure, it has removed the write's trace.
                self._uncertain = call if self.failsUncertainly else None
            if isBlock and not self.failsUncertainly:
                self.gaveUp()
            error = StorageFailed("the simulated disk failed", isUncertain=self.failsUncertainly)
            call.result.errback(Failure(error))
        else:
            self._do(call)
        self._begin()

    def _do(self, call: _Call) -> None:
        try:
            result = call.call(*call.arguments)
        except Exception:
            call.result.errback(Failure())
            return
        if call.call.__name__ == "append":
            self._uncertain = None
            self.stored(call.arguments[0].block.height)
        call.result.callback(result)

    # Power failures.

    def _strike(self) -> Moment | None:
        slot = self._armed
        if slot is None:
            return None
        if slot.writes:
            slot.writes -= 1
            return None
        self._armed = None
        return slot.moment

    def _crashAt(self, moment: Moment, call: _Call) -> None:
        before, tip = self._bytes(), self._tip()
        if moment is not Moment.BEFORE:
            call.call(*call.arguments)
        after = self._bytes()
        self._leave()
        self._copy()
        if moment is Moment.INSIDE:
            self._tear(before, after)
            # Power fails before the tip file is written, which follows the commit.
            (self.directory / TIP).write_bytes(tip)
        self.crashed()

    def _bytes(self) -> tuple[bytes, bytes]:
        log = self.directory / LOG
        return (self.directory / DATABASE).read_bytes(), log.read_bytes() if log.exists() else b""

    def _tip(self) -> bytes:
        return (self.directory / TIP).read_bytes()

    def _tear(self, before: tuple[bytes, bytes], after: tuple[bytes, bytes]) -> None:
        """
        Leave some sectors of a commit in the WAL; or, if the commit also ran a checkpoint, some
        sectors of the database.
        """
        if before[0] != after[0] and self._random.random() < 0.5:
            database, log = self._mix(before[0], after[0]), after[1]
        else:
            database, log = before[0], self._mix(before[1], after[1])
            # SQLite syncs the header of a restarted log before it writes frames.
            log = after[1][:SECTOR] + log[SECTOR:] if log[:32] != after[1][:32] else log
        (self.directory / DATABASE).write_bytes(database)
        (self.directory / LOG).write_bytes(log)

    def _mix(self, old: bytes, new: bytes) -> bytes:
        length = self._random.choice((len(new), self._random.randint(0, len(new))))
        length = max(length, min(len(old), len(new)))
        share = self._random.choice((0.0, self._random.random(), 1.0))
        mixed = bytearray(old[:length].ljust(length, b"\0"))
        for start in range(0, length, SECTOR):
            sector = slice(start, min(start + SECTOR, length))
            if old[sector] != new[sector] and self._random.random() < share:
                mixed[sector] = new[sector]
        return bytes(mixed)

    def _leave(self) -> None:
        """Drop all pending calls without a result."""
        self._power += 1
        self._armed = None
        self._uncertain = None
        self._isBusy = False
        self._waiting.clear()

    def _copy(self) -> None:
        """Continue in a copy of the files, so that the abandoned ledger cannot touch them."""
        left = self.directory
        self.directory = self._newDirectory()
        if left.exists():
            shutil.copytree(left, self.directory)
            with suppress(FileNotFoundError):  # SQLite creates it
                (self.directory / "ledger.sqlite-shm").unlink()

    def _newDirectory(self) -> Path:
        self._images += 1
        return self._root / f"image{self._images}" / "1"
