"""
The data directory: made when it is missing, private to its owner, and held by one daemon at a time.
"""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

from attrs import define

from ..model import Disk

LOCK_NAME = "lock"

METADATA = "notes.sqlite"
"""The file of the metadata store in the data directory."""


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

    @raise DataDirectoryError: it cannot be made or written to, or another daemon has it.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataDirectoryError(
            f"data-dir: cannot write to {path}: {os.strerror(error.errno or 0)}"
        ) from error
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
        _makePrivate(path)
    except OSError as error:
        os.close(descriptor)
        raise DataDirectoryError(
            f"data-dir: cannot change the mode of {error.filename}: {os.strerror(error.errno or 0)}"
        ) from error
    return DataDirectoryLock(descriptor)


def _makePrivate(path: Path) -> None:
    """Leave the rights of the owner only; links are neither followed nor changed."""
    for _, _, files, descriptor in os.fwalk(path):
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & 0o077:
            os.fchmod(descriptor, mode & 0o700)
        for name in files:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
                os.chmod(name, stat.S_IMODE(status.st_mode) & 0o700, dir_fd=descriptor)


def measureDisk(path: Path) -> Disk:
    """Measure how full the disk of a directory is. This blocks."""
    found = os.statvfs(path)
    return Disk(free=found.f_bavail * found.f_frsize, size=found.f_blocks * found.f_frsize)
