"""
The embedded ledger's disk: real files, left after a crash as a real disk would leave them.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from attrs import define
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from svcbroker.storage import StorageFailed

from .clock import VirtualClock
from .disk import ArmedDisk, Moment
from .lossyfiles import Image, LossyFiles

DATABASE = "ledger.sqlite"
TIP = "ledger.sqlite-tip"
TIPS_KEPT = 4
"""Of how many contents of the tip file, which is never synced, one is left by a power failure."""


@define
class _Call:
    """A call that the ledger wants made."""

    result: Deferred[Any]
    call: Callable[..., Any]
    arguments: tuple[Any, ...]


class CrashingDisk(ArmedDisk):
    """
    Makes the ledger's disk calls one after the other on a clock, and fails or loses power on
    request. The files are L{LossyFiles}, which have to be installed.

    @ivar files: the files.
    @ivar directory: the directory of the files. Each crash replaces it by another one.
    @ivar latency: seconds that a call takes.
    @ivar stored: called with a block's height once the block is on stable storage.
    @ivar crashed: called after a power failure during a write.
    @ivar gaveUp: called when a block was not stored and will not be.
    """

    def __init__(self, clock: VirtualClock, random: Random, root: Path) -> None:
        """
        @param root: an empty directory.
        """
        self.files = LossyFiles(root)
        self.latency = 0.002
        self.stored: Callable[[int], None] = lambda height: None
        self.crashed: Callable[[], None] = lambda: None
        self.gaveUp: Callable[[], None] = lambda: None
        self._clock = clock
        self._random = random
        self._root = root
        self._images = 0
        self._waiting: deque[_Call] = deque()
        self._isBusy = False
        self._power = 0
        self._tips: deque[bytes | None] = deque(maxlen=TIPS_KEPT)
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
        return self.files.isFull

    @isFull.setter
    def isFull(self, isFull: bool) -> None:
        self.files.isFull = isFull

    def crash(self) -> None:
        """Kill the process between two writes, or cut its power."""
        self._continue(self.files.image(), self._tip())

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
        if moment is None:
            self._do(call)
            self._begin()
        else:
            self._crashAt(moment, call)

    def _do(self, call: _Call) -> None:
        isBlock = call.call.__name__ == "append"
        self._tips.append(self._tip())
        try:
            result = call.call(*call.arguments)
        except Exception as error:
            # Where it is uncertain, a crash may bring the block back, so it is stored again.
            if isBlock and isinstance(error, StorageFailed) and not error.isUncertain:
                self.gaveUp()
            call.result.errback(Failure())
            return
        if isBlock:
            self.stored(call.arguments[0].block.height)
        call.result.callback(result)

    # Power failures.

    def _crashAt(self, moment: Moment, call: _Call) -> None:
        image, tip = self.files.image(), self._tip()
        self._tips.append(tip)
        if moment is not Moment.BEFORE:
            inside = self._makeAndLook(call)
            isInside = moment is Moment.INSIDE
            image, tip = inside if isInside else (self.files.image(), self._tip())
        self._continue(image, tip)
        self.crashed()

    def _makeAndLook(self, call: _Call) -> tuple[Image, bytes | None]:
        """Make a call, and give the files as they were before one of its writes and syncs."""
        chosen, count = (self.files.image(), self._tip()), 0

        def changed() -> None:
            nonlocal chosen, count
            count += 1
            if self._random.random() * count < 1.0:
                chosen = self.files.image(), self._tip()

        self.files.changed = changed
        try:
            call.call(*call.arguments)
        except StorageFailed:
            pass  # the disk is full or failing, too
        finally:
            self.files.changed = lambda: None
        return chosen

    def _tip(self) -> bytes | None:
        tip = self.directory / TIP
        return tip.read_bytes() if tip.exists() else None

    def _continue(self, image: Image, tip: bytes | None) -> None:
        """
        Drop all pending calls without a result, and continue in other files: what the crash left,
        so that the abandoned ledger cannot touch them.
        """
        self._power += 1
        self._armed = None
        self._isBusy = False
        self._waiting.clear()
        left, self.directory = self.directory, self._newDirectory()
        if not left.exists():
            return
        hasPower = self._random.random() < 0.3  # only the process was killed
        recorded = {path.name for path in image} | {TIP, f"{DATABASE}-shm"}
        shutil.copytree(left, self.directory, ignore=lambda _, names: recorded & {*names})
        for path in sorted(image):
            if path.parent == left.absolute() and path.suffix != ".new":
                state = image[path]
                content = bytes(state.content()) if hasPower else state.left(self._random)
                if content is not None:
                    (self.directory / path.name).write_bytes(content)
        content = tip if hasPower else self._random.choice([tip, tip, *self._tips])
        if content is not None:
            (self.directory / TIP).write_bytes(content)
        self._tips.clear()

    def _newDirectory(self) -> Path:
        self._images += 1
        return self._root / f"image{self._images}" / "1"
