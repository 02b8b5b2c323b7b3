"""
The memory that the process may use, and the bounds that are made of it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..net.budgets import MAX_OUTPUT

OUTPUT_SHARE: Final = 8
"""One byte in so many of the memory may wait to be sent, by default."""

_UNLIMITED: Final = "max"


def usableMemory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """
    The bytes of memory that this process may use: the least of what the machine has, what its
    control groups allow, and its own limits.

    @param proc: where the kernel's own file system is mounted.
    @param groups: where that of control groups is.
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits + list(groupLimits(proc / "self", groups)))


def groupLimits(process: Path, groups: Path) -> Iterator[int]:
    """
    The bytes of memory that the control groups of a process allow, of the group itself and of each
    one above it.

    @param process: its folder in the kernel's own file system.
    @param groups: where the file system of control groups is mounted.
    """
    with suppress(OSError):
        lines = (process / "cgroup").read_text("utf-8").splitlines()
        name = next((line[3:] for line in lines if line.startswith("0::")), "/").strip("/")
        # In a container the group's own files are at the root.
        for path in (groups / name, *(groups / name).parents):
            with suppress(OSError, ValueError):
                text = (path / "memory.max").read_text("ascii").strip()
                if text != _UNLIMITED:
                    yield int(text)
            if path == groups:
                break
    with suppress(OSError, ValueError):
        yield int((groups / "memory" / "memory.limit_in_bytes").read_text("ascii"))


def outputFor(memory: int) -> int:
    """How many bytes may wait to be sent by default, where a process may use so much memory."""
    return min(MAX_OUTPUT, memory // OUTPUT_SHARE)
