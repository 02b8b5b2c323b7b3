"""
The disk: room against growth, its file system, and how long a sync takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from attrs import frozen

from ..daemon.memory import amountText
from ._findings import DAY, Finding, good, problem, span, warning

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
    What is known of the disk of the data directory.

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
    """Whether the disk has room, and is one to keep a ledger on."""
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
    move = "stop the broker, copy the data to a local disk (svcbroker backup), and give --data-dir"
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
