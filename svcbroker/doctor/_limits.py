"""
The limits of the process: files, sizes, memory, and the kernel's queues of connections.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from ..daemon.memory import MemoryTable, amountText
from ..daemon.ports import BACKLOG
from ..daemon.process import WANTED_FILES
from ._findings import Finding, good, problem, warning

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
    What is known of limits. C{None} stands for no limit, or an unknown one.

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
    """Whether the process may do what a broker has to."""
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
