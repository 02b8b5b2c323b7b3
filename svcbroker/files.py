"""
Files that people name: those that are read are regular ones, and those that are made are new.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable
from contextlib import suppress
from errno import EEXIST, EINVAL, EISDIR
from pathlib import Path
from typing import Any, BinaryIO, Final

_OPENED: Final = ("/dev/stdin", "/dev/fd/", "/proc/self/fd/", os.devnull)
"""
The beginnings of the names of what is open already, as a shell makes them for C{<(COMMAND)}, and of
nothing. Reading these waits for nobody but the writer that the shell has started.
"""

_KINDS: Final = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def specialKind(path: Path) -> str:
    """
    The kind of something that is neither a file nor a directory, for messages: to open it could
    mean to wait for ever, or set a machine in motion.

    @return: such as C{a FIFO}; empty for files, for directories, and where there is nothing.
    """
    try:
        return _specialKind(path.stat().st_mode)
    except OSError:
        return ""


def _specialKind(mode: int) -> str:
    return next((kind for isOfKind, kind in _KINDS if isOfKind(mode)), "")


def openFile(path: Path | str) -> BinaryIO:
    """
    Open a file for reading, without waiting for a writer of a FIFO.

    @raise OSError: it cannot be opened, or is no regular file; the text says what it is.
    """
    if str(path).startswith(_OPENED):
        return open(path, "rb")
    # A device does something when it is opened, and a socket cannot be.
    _checkMode(path, os.stat(path).st_mode)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        # It may be another one by now.
        _checkMode(path, os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def _checkMode(path: Path | str, mode: int) -> None:
    kind = _specialKind(mode)
    if kind:
        raise OSError(EINVAL, f"it is {kind}, not a file", str(path))
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(path))


def readFile(path: Path | str, most: int | None = None) -> bytes:
    """
    The content of a file that L{openFile} opens.

    @param most: the most bytes that the caller takes. Of a larger file one more is returned, by
        which the caller sees that.
    @raise OSError: as there, or it cannot be read.
    """
    with openFile(path) as file:
        return file.read(-1 if most is None else most + 1)


def parseToml(raw: bytes) -> dict[str, Any]:
    """
    Parse a file in TOML.

    @raise ValueError: it is none. The text goes after the name of the file.
    """
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error
    except (ValueError, RecursionError) as error:
        # Beside its own error (a ValueError) the parser lets out what Python says of numbers
        # with thousands of digits, and of brackets that are nested as deep.
        raise ValueError(f"is not TOML: {error}") from error


def newFile(path: Path | str, mode: int = 0o600) -> BinaryIO:
    """
    Make a file for writing. No link is followed, and nothing is overwritten.

    @param mode: its permissions, which the process's mask may lessen.
    @raise FileExistsError: there is something of its name.
    @raise OSError: it cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise FileExistsError(EEXIST, "it exists already", str(path)) from None
    return open(descriptor, "wb")


def writeNew(path: Path | str, data: bytes, mode: int = 0o600) -> None:
    """
    Write a new file, which is on stable storage when this returns. Where that fails there is none.

    @param mode: as for L{newFile}.
    @raise FileExistsError: there is something of its name.
    @raise OSError: it cannot be written.
    """
    with newFile(path, mode) as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            os.unlink(path)
            raise


def replaceFile(
    path: Path, data: bytes, check: Callable[[Path], object] = lambda made: None
) -> None:
    """
    Replace a file as a whole, with the mode and the owner that it had; a new one is its owner's
    alone.

    @param check: is given the file that takes its place, beside it; where it raises an error, the
        file stays as it was.
    @raise OSError: it cannot be written.
    """
    made = path.with_name(path.name + ".new")
    made.unlink(missing_ok=True)
    try:
        with newFile(made) as file:
            file.write(data)
            file.flush()
            if path.exists():
                status = path.stat()
                os.fchmod(file.fileno(), status.st_mode & 0o777)
                with suppress(PermissionError):
                    os.fchown(file.fileno(), status.st_uid, status.st_gid)
            os.fsync(file.fileno())
        check(made)
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)
