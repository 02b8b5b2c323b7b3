"""
Checks of the machine: disk, limits and clock, and L{LocalMachine}, which reads them from the
kernel.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Final

from attrs import frozen

from ...daemon.memory import MemoryTable, groupLimits
from ...daemon.ports import BACKLOG
from ...daemon.process import WANTED_FILES
from ...net.bounds import amountText
from ...net.findings import DAY, Finding, date, good, problem, span, warning

_SYNCS: Final = 20
_BLOCK: Final = bytes(4096)
_LISTEN: Final = "0A"
_UNSYNCHRONISED: Final = 0x40  # STA_UNSYNC of adjtimex(2)
_ERROR: Final = 5  # TIME_ERROR: the clock is not synchronised
_MICROSECOND: Final = 1e-6


@frozen(kw_only=True)
class Mount:
    """
    The mount of a directory.

    @ivar type: the type of the file system.
    @ivar isReadOnly: whether it is mounted for reading only.
    """

    type: str
    isReadOnly: bool


@frozen(kw_only=True)
class LocalMachine:
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
        """The name of a process; empty where that cannot be seen."""
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
        """The number of files that a process has open; C{None} where that cannot be seen."""
        try:
            return sum(1 for _ in (self.proc / str(process) / "fd").iterdir())
        except OSError:
            return None

    def backlog(self) -> int | None:
        """The number of connections that the kernel lets wait at a port."""
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
        """The mount of a path; C{None} where that cannot be seen."""
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


def timeSyncs(directory: Path, clock: Callable[[], float] = time.perf_counter) -> Sequence[float]:
    """
    Return the seconds that each of some small writes with a sync takes, on an unnamed temporary
    file; nothing where none can be written there.
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


_DISK = "disk"

_FULL_SOON = 14 * DAY
"""Seconds before the disk is full at which it is time to warn."""

LITTLE = 512 * 1024 * 1024
"""Bytes below which a disk is short of room, however slowly it fills."""

SLOW_SYNC = 0.02
"""Seconds of a sync above which publishing is slow."""

_NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs"}
    | {"fuse.glusterfs", "fuse.s3fs", "lustre", "ocfs2", "gfs2"}
)
_VOLATILE = frozenset({"tmpfs", "ramfs"})
_NO_RIGHTS = frozenset({"vfat", "exfat", "msdos", "ntfs", "ntfs3", "fuseblk"})


@frozen(kw_only=True)
class DiskFacts:
    """
    Facts about the disk of the data directory.

    @ivar path: the data directory, or the next directory above it that exists.
    @ivar fileSystem: the type of its file system; empty where unknown.
    @ivar isReadOnly: whether the file system is mounted for reading only.
    @ivar free: bytes that are free to the daemon.
    @ivar freeFiles: how many more files it can have; C{None} where it tells none.
    @ivar growth: by how many bytes the chains grow in a day; 0.0 where they do not.
    @ivar syncs: how many seconds each of some syncs took; empty where none could be tried.
    """

    path: Path
    fileSystem: str = ""
    isReadOnly: bool = False
    free: int
    freeFiles: int | None = None
    growth: float = 0.0
    syncs: Sequence[float] = ()


def checkDisk(facts: DiskFacts) -> Iterator[Finding]:
    """Check whether the disk has room, and is one to keep a ledger on."""
    yield from _checkFileSystem(facts)
    yield _checkRoom(facts)
    if facts.freeFiles is not None and facts.freeFiles < 100:
        yield problem(
            _DISK,
            f"{facts.path} has {facts.freeFiles} free inodes",
            "no file can be made there",
            f"remove files from the file system of {facts.path}: df -i {facts.path}",
        )
    if facts.syncs:
        yield _checkSyncs(facts)


def _checkRoom(facts: DiskFacts) -> Finding:
    text = f"{amountText(facts.free)} are free"
    until = facts.free / facts.growth * DAY if facts.growth else float("inf")
    if facts.growth:
        text += f", the chains grow by {amountText(facts.growth)} a day"
        text += f": full in about {span(until)}" if until < 3650 * DAY else ""
    remedy = (
        "make room, move the data to a larger disk, or have old events erased (--retain): see "
        f"docs/sizing; what takes the room: du -xh {facts.path} | sort -h | tail"
    )
    meaning = "a full disk refuses every publish; nothing that was acknowledged is lost"
    if facts.free < LITTLE // 8 or until < DAY:
        return problem(_DISK, text, meaning, remedy)
    if facts.free < LITTLE or until < _FULL_SOON:
        return warning(_DISK, text, meaning, remedy)
    return good(_DISK, text)


def _checkFileSystem(facts: DiskFacts) -> Iterator[Finding]:
    what = f"{facts.path} is on {facts.fileSystem}"
    move = "stop the broker, svcbroker chain backup the data to a local disk, and give --data-dir"
    if facts.isReadOnly:
        yield problem(
            _DISK,
            f"{facts.path} is on a file system that is mounted for reading only",
            "the broker cannot start; a kernel mounts a failing disk so",
            f"look at: dmesg | tail; then: mount -o remount,rw $(findmnt -nT {facts.path} -o "
            "TARGET)",
        )
    if facts.fileSystem in _NETWORK:
        yield problem(
            _DISK,
            f"{what}, over a network",
            "SQLite's log needs shared memory and locks that network file systems do not give: "
            "two brokers may write one chain, and a sync may not be one",
            move,
        )
    elif facts.fileSystem in _VOLATILE:
        yield problem(
            _DISK, f"{what}, in memory", "every event is lost when the machine restarts", move
        )
    elif facts.fileSystem == "overlay":
        yield warning(
            _DISK,
            f"{what}: the writable layer of a container",
            "every event is lost when the container is removed",
            "give the data directory a volume",
        )
    elif facts.fileSystem in _NO_RIGHTS:
        yield problem(
            _DISK, f"{what}, which has no rights", "every user of this machine reads keys", move
        )
    elif facts.fileSystem:
        yield good(_DISK, what)


def _checkSyncs(facts: DiskFacts) -> Finding:
    middle, longest = median(facts.syncs), max(facts.syncs)
    text = f"a sync takes {middle * 1000:.2f} ms, {longest * 1000:.2f} ms at most"
    if middle > SLOW_SYNC:
        return warning(
            _DISK,
            text,
            "each block waits for one: a lone publish takes longer than that",
            "use a local SSD; on a virtual machine, ask for one whose cache is safe in a power "
            "failure",
        )
    return good(_DISK, text)


_LIMITS = "limits"

FEW_FILES = 4096
"""Open files below which a busy broker may run out."""

LITTLE_MEMORY = 256 * 1024 * 1024
"""Bytes of memory below which a broker with some thousand connections does not fit."""

_NEARLY_FULL = 0.9
"""The part of the allowed memory above which the kernel is close to killing the daemon."""

_IN_UNIT = "in systemd's unit ([Service]), then: systemctl daemon-reload, and restart the broker"


@frozen(kw_only=True)
class LimitFacts:
    """
    Facts about limits. C{None} stands for no limit, or an unknown one.

    @ivar isDaemon: whether they are those of the running daemon, and not of this command.
    @ivar files: how many files may be open: the hard limit, which the daemon raises its own to.
    @ivar openFiles: how many are open.
    @ivar fileSize: the largest file, in bytes.
    @ivar addressSpace: the most memory that may be mapped, in bytes.
    @ivar backlog: how many connections the kernel lets wait at a port.
    @ivar memory: bytes of memory that the control group allows.
    @ivar memoryUsed: bytes that it uses.
    @ivar bounds: how much each kind may take, and what the process may use in all.
    """

    isDaemon: bool
    files: int | None = None
    openFiles: int | None = None
    fileSize: int | None = None
    addressSpace: int | None = None
    backlog: int | None = None
    memory: int | None = None
    memoryUsed: int | None = None
    bounds: MemoryTable | None = None


def checkLimits(facts: LimitFacts) -> Iterator[Finding]:
    """Check whether the process may do what a broker has to."""
    whose = "the daemon" if facts.isDaemon else "what is started from here"
    found = list(_findLimits(facts, whose))
    if found:
        yield from found
        return
    files = "any number of" if facts.files is None else f"{min(facts.files, WANTED_FILES):,}"
    memory = "" if facts.memory is None else f", {amountText(facts.memory)} of memory"
    most = "" if facts.bounds is None else f"; it takes at most {amountText(facts.bounds.total)}"
    yield good(_LIMITS, f"{whose} may have {files} open files{memory}{most}")


def _findLimits(facts: LimitFacts, whose: str) -> Iterator[Finding]:
    if facts.files is not None:
        text = f"{whose} may have {facts.files:,} open files"
        remedy = f"LimitNOFILE={WANTED_FILES} {_IN_UNIT}"
        meaning = "each connection takes one; further clients are not accepted"
        if facts.openFiles is not None and facts.openFiles > _NEARLY_FULL * facts.files:
            text += f", and has {facts.openFiles:,}"
            yield problem(_LIMITS, text, meaning, remedy)
        elif facts.files < FEW_FILES:
            yield warning(_LIMITS, text, meaning, remedy)
    if facts.fileSize is not None:
        yield problem(
            _LIMITS,
            f"{whose} may write files of {amountText(facts.fileSize)} at most",
            "the ledger reaches that size, and then refuses every publish",
            f"LimitFSIZE=infinity {_IN_UNIT}",
        )
    if facts.addressSpace is not None:
        yield warning(
            _LIMITS,
            f"{whose} may map {amountText(facts.addressSpace)} of memory",
            "an allocation that fails ends the daemon at an unforeseen place",
            f"LimitAS=infinity {_IN_UNIT}; bound memory by MemoryMax= instead",
        )
    if facts.backlog is not None and facts.backlog < BACKLOG:
        yield warning(
            _LIMITS,
            f"the kernel lets {facts.backlog} connections wait at a port, and the broker asks for "
            f"{BACKLOG}",
            "when many clients connect together, some try again a second later",
            f"sysctl -w net.core.somaxconn={4 * BACKLOG}, and the same in /etc/sysctl.d",
        )
    if facts.memory is not None:
        text = f"the control group allows {amountText(facts.memory)} of memory"
        remedy = f"MemoryMax= {_IN_UNIT}; of a container, its memory limit: see docs/sizing"
        if facts.memoryUsed is not None and facts.memoryUsed > _NEARLY_FULL * facts.memory:
            yield problem(
                _LIMITS,
                f"{text}, and uses {amountText(facts.memoryUsed)}",
                "the kernel kills the daemon when that is used up",
                remedy,
            )
        elif facts.memory < LITTLE_MEMORY:
            yield warning(
                _LIMITS, text, "a broker takes some 110 MiB before its first client", remedy
            )
    if facts.bounds is not None and facts.bounds.isOver:
        yield warning(
            _LIMITS,
            facts.bounds.advice,
            "the kernel may kill the daemon while many clients use much of what they may",
            "svcbroker run --check shows all bounds, and what sets them; see docs/sizing",
        )


_CLOCK = "clock"

TOLERANCE = 5.0
"""Seconds that two clocks may differ before it is worth a warning."""

_EARLIEST = 1_700_000_000.0  # November 2023: before any release of the broker


@frozen(kw_only=True)
class ClockFacts:
    """
    Facts about the clock. All times are seconds since the epoch.

    @ivar now: what it says.
    @ivar lastBlocks: the time of each group's last block.
    @ivar lastChange: the newest modification time of a file in the data directory.
    @ivar isSynchronised: whether the kernel says that it is kept in step; C{None} where unknown.
    @ivar maxError: how many seconds it may be wrong by, as the kernel says.
    """

    now: float
    lastBlocks: Mapping[str, float] = {}
    lastChange: float | None = None
    isSynchronised: bool | None = None
    maxError: float = 0.0


_SYNCHRONISE = "timedatectl set-ntp true (or install chrony), then look at: timedatectl status"


def checkClock(facts: ClockFacts) -> Iterator[Finding]:
    """Check whether the clock can be trusted. Blocks, tokens and certificates depend on it."""
    isGood = True
    if facts.now < _EARLIEST:
        isGood = False
        yield problem(
            _CLOCK,
            f"it says {date(facts.now)}",
            "events get this time, and certificates are not valid yet",
            _SYNCHRONISE,
        )
    for group, written in facts.lastBlocks.items():
        if written - facts.now > TOLERANCE:
            isGood = False
            yield problem(
                _CLOCK,
                f"the last block of group {group} is of {date(written)}, "
                f"{span(written - facts.now)} ahead of the clock",
                "the clock was ahead before, or is behind now; new blocks get that time until the "
                "clock has reached it, and retention waits as long",
                _SYNCHRONISE,
            )
    if facts.lastChange is not None and facts.lastChange - facts.now > TOLERANCE:
        isGood = False
        yield warning(
            _CLOCK,
            f"a file in the data directory was written at {date(facts.lastChange)}, "
            f"{span(facts.lastChange - facts.now)} ahead of the clock",
            "the clock was set back, or the file system has a clock of its own",
            _SYNCHRONISE,
        )
    if facts.isSynchronised is False:
        isGood = False
        yield warning(
            _CLOCK,
            "the kernel says that nothing keeps it in step",
            "it drifts by seconds a week",
            _SYNCHRONISE,
        )
    if isGood:
        state = (
            f"kept in step, {facts.maxError:.1g} seconds at most from true time"
            if facts.isSynchronised
            else "it agrees with what it was compared with; the kernel does not say whether it is "
            "kept in step"
        )
        yield good(_CLOCK, state)
