"""
The data directory: made when it is missing, private to its owner, and held by one daemon at a time.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from attrs import define, frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from ..archive import groupsIn
from ..model import Disk
from ..net.alarms import FRESH

LOCK_NAME = "lock"

METADATA = "notes.sqlite"
"""The file of the metadata store in the data directory."""


LEAST_ROOM: Final = 128 * 1024
"""Bytes for the lock, the operator's file, and the indexes of the write-ahead logs."""


class DataDirectoryError(Exception):
    """
    The data directory cannot be used. The text is one line for the operator.
    """


@define
class DataDirectoryLock:
    """
    The lock on a data directory. It ends with the process at the latest.
    """

    _descriptor: int

    def release(self) -> None:
        """Let another daemon have the directory. Called once."""
        os.close(self._descriptor)


def lockDataDirectory(path: Path) -> DataDirectoryLock:
    """
    Make the directory where it is missing, lock it, and take the rights to it and to all that is
    in it away from everybody but its owner.

    @raise DataDirectoryError: it cannot be made or written to, every user may write to it, or
        another daemon has it.
    """
    checkDataDirectory(path)
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritable(path, os.strerror(error.errno or 0)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise DataDirectoryError(f"data-dir: another svcbroker is using {path}") from error
    except OSError as error:
        os.close(descriptor)
        raise DataDirectoryError(
            f"data-dir: cannot lock {path}: {os.strerror(error.errno or 0)}"
        ) from error
    try:
        for each in _sharedIn(path):
            each.makePrivate()
    except OSError as error:
        os.close(descriptor)
        raise _unchangeable(str(path), os.strerror(error.errno or 0)) from error
    return DataDirectoryLock(descriptor)


def checkDataDirectory(path: Path) -> None:
    """
    Check that L{lockDataDirectory} could make a directory, or use it, unless another daemon has it.
    Nothing is changed.

    @raise DataDirectoryError: it could not.
    """
    place, words = path, "write to"
    if path.is_symlink() and not path.exists():
        raise DataDirectoryError(
            f"data-dir: {path} is a link to {os.readlink(path)}, where nothing is: give a directory"
        )
    while not os.path.lexists(place):
        place, words = place.parent, "make"
    if not place.is_dir():
        raise DataDirectoryError(
            f"data-dir: cannot {words} {path}: {place} is not a directory: give a directory"
        )
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        reason = "Read-only file system" if _isReadOnly(place) else "Permission denied"
        raise _unwritable(path, reason, words)
    _checkRoom(place)
    if place != path:
        return
    lock = path / LOCK_NAME
    if lock.exists() and (lock.is_dir() or not os.access(lock, os.R_OK | os.W_OK)):
        raise _unwritable(lock, "it is to be a file that the broker can write")
    if path.stat().st_mode & stat.S_IWOTH and (groupsIn(path) or (path / METADATA).exists()):
        raise DataDirectoryError(
            f"data-dir: every user of this machine may write to {path} (mode "
            f"{stat.S_IMODE(path.stat().st_mode):o}), and could have changed the chain and its "
            f"keys: look at what is in it, then: chmod -R go= {path}"
        )
    user = os.geteuid()
    foreign = (each for each in _sharedIn(path) if user not in (0, each.status.st_uid))
    for each in foreign:
        raise _unchangeable(each.path, os.strerror(errno.EPERM))


def _checkRoom(path: Path) -> None:
    free = measureDisk(path).free
    if free < LEAST_ROOM:
        raise DataDirectoryError(
            f"data-dir: {path} has no room, {free} bytes are free and a start takes {LEAST_ROOM}: "
            "make room, or have the directory on a larger disk"
        )


def _unwritable(path: Path, reason: str, words: str = "write to") -> DataDirectoryError:
    return DataDirectoryError(
        f"data-dir: cannot {words} {path}: {reason}: give a directory that the broker's user may "
        "write"
    )


def _unchangeable(path: str, reason: str) -> DataDirectoryError:
    return DataDirectoryError(
        f"data-dir: cannot change the mode of {path}: {reason}: it is to belong to the broker's "
        "user"
    )


def _isReadOnly(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


@frozen
class _Shared:
    """
    A file or directory to which others than its owner have rights.

    @ivar descriptor: that of its directory, or its own.
    @ivar name: in that directory; empty for itself.
    """

    path: str
    descriptor: int
    name: str
    status: os.stat_result

    def makePrivate(self) -> None:
        """Leave the rights of the owner only."""
        mode = self.status.st_mode & 0o700
        if self.name:
            os.chmod(self.name, mode, dir_fd=self.descriptor)
        else:
            os.fchmod(self.descriptor, mode)


def _sharedIn(path: Path) -> Iterator[_Shared]:
    """
    Everything in a directory to which others than its owner have rights, while the directory that
    each is in is open. Links in it are not followed.
    """
    for folder, _, files, descriptor in os.fwalk(path.resolve()):
        status = os.fstat(descriptor)
        if status.st_mode & 0o077:
            yield _Shared(folder, descriptor, "", status)
        for name in files:
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue  # a running daemon has removed it
            if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
                yield _Shared(os.path.join(folder, name), descriptor, name, status)


def measureDisk(path: Path) -> Disk:
    """Measure how full the disk of a directory is. This blocks."""
    found = os.statvfs(path)
    return Disk(free=found.f_bavail * found.f_frsize, size=found.f_blocks * found.f_frsize)


class DiskMeter:
    """
    The room on the disk of the data directory, measured once in
    L{FRESH<svcbroker.net.alarms.FRESH>} seconds at most: each
    measurement takes a thread, and Python's lock from a block that is being stored.
    """

    def __init__(
        self, path: Path, runInThread: Callable[..., Deferred[Disk]], clock: IReactorTime
    ) -> None:
        self._path = path
        self._runInThread = runInThread
        self._clock = clock
        self._disk: Disk | None = None
        self._measuredAt = 0.0
        self._waiting: list[Deferred[Disk | None]] = []

    def measure(self) -> Deferred[Disk | None]:
        """
        Answer what was measured last, or measure. Calls that come meanwhile share the answer.

        @raise OSError: the directory is gone.
        """
        # The reactor's clock may be set back.
        if self._disk and 0 <= self._clock.seconds() - self._measuredAt < FRESH:
            return succeed(self._disk)
        answer: Deferred[Disk | None] = Deferred()
        self._waiting.append(answer)
        if len(self._waiting) == 1:
            self._runInThread(measureDisk, self._path).addBoth(self._measured)
        return answer

    def _measured(self, found: Disk | Failure) -> None:
        waiting, self._waiting = self._waiting, []
        if isinstance(found, Disk):
            self._disk, self._measuredAt = found, self._clock.seconds()
        for answer in waiting:
            answer.callback(found)
