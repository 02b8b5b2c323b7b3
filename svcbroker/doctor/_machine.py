"""
Asking the machine: processes, sockets, mounts, limits, clocks and syncs. Nothing is changed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import resource
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from attrs import frozen

from ..daemon.memory import groupLimits

_SYNCS: Final = 20
_BLOCK: Final = bytes(4096)
_LISTEN: Final = "0A"
_UNSYNCHRONISED: Final = 0x40  # STA_UNSYNC of adjtimex(2)
_ERROR: Final = 5  # TIME_ERROR: the clock is not synchronised
_MICROSECOND: Final = 1e-6


@frozen(kw_only=True)
class Mount:
    """
    Where a directory is mounted.

    @ivar type: the type of the file system.
    @ivar isReadOnly: whether it is mounted for reading only.
    """

    type: str
    isReadOnly: bool


@frozen(kw_only=True)
class Machine:
    """
    This machine, as far as its kernel tells.

    @ivar proc: where the kernel's own file system is mounted.
    @ivar controlGroups: where that of control groups is.
    """

    proc: Path = Path("/proc")
    controlGroups: Path = Path("/sys/fs/cgroup")

    # Processes

    def lockHolder(self, path: Path) -> int | None:
        """
        The number of the process that holds the lock on a file; C{None} where none does, or
        where that cannot be seen. The lock itself is not touched.
        """
        try:
            status = path.stat()
        except OSError:
            return None
        device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
        for words in map(str.split, self._lines("locks")):
            if len(words) > 5 and words[1] == "FLOCK" and words[5] == device and words[4] != "-1":
                return int(words[4])
        return None

    def listener(self, host: str, port: int) -> int | None:
        """
        The number of the process that listens on a port; C{None} where none does, or where this
        user may not see which.

        @param host: the address that is listened on; empty for all.
        """
        nodes = {node for each, node in self._listening(port) if not host or each in ("", host)}
        if not nodes:
            return None
        for directory in self.proc.glob("[0-9]*/fd"):
            with suppress(OSError):
                for entry in directory.iterdir():
                    with suppress(OSError):
                        if os.readlink(entry).removeprefix("socket:[").rstrip("]") in nodes:
                            return int(directory.parent.name)
        return None

    def _listening(self, port: int) -> Iterator[tuple[str, str]]:
        """The address, empty for all, and the inode of each socket that listens on a port."""
        for table in ("net/tcp", "net/tcp6"):
            for words in map(str.split, self._lines(table)):
                if len(words) > 9 and words[3] == _LISTEN:
                    address, _, number = words[1].partition(":")
                    if int(number, 16) == port:
                        yield _hostOf(address), words[9]

    def programOf(self, process: int) -> str:
        """What a process is called; empty where that cannot be seen."""
        return next(iter(self._lines(f"{process}/comm")), "")

    def userOf(self, process: int | None) -> int:
        """The number of the user that a process runs as; of this one for C{None}."""
        if process is not None:
            with suppress(OSError):
                return (self.proc / str(process)).stat().st_uid
        return os.geteuid()

    # Limits

    def limits(self, process: int | None) -> dict[str, int | None]:
        """
        The hard limit of open files and the soft ones of file size and address space of a process,
        or of this one; C{None} for no limit.
        """
        if process is not None:
            found = dict(self._processLimits(process))
            if found:
                return found
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        size = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        space = resource.getrlimit(resource.RLIMIT_AS)[0]
        values = {"files": files, "fileSize": size, "addressSpace": space}
        return {
            name: None if value == resource.RLIM_INFINITY else value
            for name, value in values.items()
        }

    def _processLimits(self, process: int) -> Iterator[tuple[str, int | None]]:
        names = (
            ("Max open files", "files", 1),
            ("Max file size", "fileSize", 0),
            ("Max address space", "addressSpace", 0),
        )
        for line in self._lines(f"{process}/limits"):
            for label, name, column in names:
                if line.startswith(label):
                    text = line.removeprefix(label).split()[column]
                    yield name, None if text == "unlimited" else int(text)

    def openFiles(self, process: int) -> int | None:
        """How many files a process has open; C{None} where that cannot be seen."""
        try:
            return sum(1 for _ in (self.proc / str(process) / "fd").iterdir())
        except OSError:
            return None

    def backlog(self) -> int | None:
        """How many connections the kernel lets wait at a port."""
        return _number(self._text(self.proc / "sys/net/core/somaxconn"))

    def memory(self, process: int | None) -> tuple[int | None, int | None]:
        """
        The bytes of memory that the control groups of a process allow, and how many are in use
        that the kernel cannot give back; C{None} where there is no bound.
        """
        name = "self" if process is None else str(process)
        limits = groupLimits(self.proc / name, self.controlGroups)
        most, group = min(limits, default=(None, None))
        return most, None if group is None else self._anonymous(group)

    def _anonymous(self, group: Path) -> int | None:
        for words in map(str.split, self._text(group / "memory.stat").splitlines()):
            if words[:1] == ["anon"]:
                return int(words[1])
        return None

    # Disk

    def mountOf(self, path: Path) -> Mount | None:
        """Where a path is mounted; C{None} where that cannot be seen."""
        best: tuple[int, Mount] | None = None
        for line in self._lines("self/mountinfo"):
            before, _, after = line.partition(" - ")
            words, rest = before.split(), after.split()
            if len(words) < 6 or len(rest) < 3:
                continue
            point = Path(words[4].encode().decode("unicode_escape"))
            if path.is_relative_to(point) and (best is None or len(point.parts) >= best[0]):
                options = {*words[5].split(","), *rest[2].split(",")}
                best = len(point.parts), Mount(type=rest[0], isReadOnly="ro" in options)
        return None if best is None else best[1]

    def _lines(self, name: str) -> Sequence[str]:
        return self._text(self.proc / name).splitlines()

    def _text(self, path: Path) -> str:
        try:
            return path.read_text("utf-8", "replace")
        except OSError:
            return ""


def _hostOf(digits: str) -> str:
    """An address as the kernel's table of sockets has it; empty for all addresses."""
    raw = bytes.fromhex(digits)
    words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
    if not any(words):
        return ""
    return socket.inet_ntop(socket.AF_INET if len(words) == 4 else socket.AF_INET6, words)


def _number(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdigit() else None


def userName(number: int) -> str:
    """The name of a user; its number where it has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def tryBind(host: str, port: int) -> int:
    """
    Whether an address can be bound: 0, or the C{errno}. The socket does not listen, so a daemon
    that starts at the same moment is not in its way.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind((host, port))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def tryConnect(path: str) -> int:
    """Whether a UNIX socket can be listened on: 0, or C{EADDRINUSE} where a process does."""
    try:
        with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe:
            probe.settimeout(1.0)
            probe.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        return 0
    except OSError as error:
        return error.errno or errno.EIO
    return errno.EADDRINUSE


def timeSyncs(directory: Path, clock: Callable[[], float] = time.perf_counter) -> Sequence[float]:
    """
    How many seconds each of some small writes with a sync takes, on a file without a name that
    vanishes afterwards; nothing where none can be written there.
    """
    try:
        descriptor = _openUnnamed(directory)
    except OSError:
        return ()
    times = []
    try:
        for _ in range(_SYNCS):
            begun = clock()
            os.write(descriptor, _BLOCK)
            os.fsync(descriptor)
            times.append(clock() - begun)
    except OSError:
        return ()
    finally:
        os.close(descriptor)
    return times


def _openUnnamed(directory: Path) -> int:
    if hasattr(os, "O_TMPFILE"):
        with suppress(OSError):
            return os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    # A file system without such files: one with a name, for a moment.
    descriptor, name = tempfile.mkstemp(prefix=".svcbroker-doctor-", dir=directory)
    os.unlink(name)
    return descriptor


class _Timex(ctypes.Structure):
    """C{struct timex}, up to the fields that are read; the rest only has its size."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    ]


def readSynchronisation() -> tuple[bool | None, float]:
    """
    Whether the kernel's clock is kept in step, and by how many seconds it may be wrong; C{None}
    where the kernel does not tell.
    """
    timex = _Timex()
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    except (OSError, AttributeError):
        return None, 0.0
    if state < 0:
        return None, 0.0
    isSynchronised = state != _ERROR and not timex.status & _UNSYNCHRONISED
    return isSynchronised, timex.maxerror * _MICROSECOND


def isReadable(path: Path) -> bool:
    """Whether every user of this machine may read a file."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False
