"""
The memory that the process may use, the budgets that are made of it, and the table of all bounds:
those of the daemon itself, and those that access, ledgers and features declare.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Final

from attrs import frozen
from twisted.logger import Logger

from ..access import accessBounds
from ..carriers.http.feature import largestBody
from ..ledgers.measures import ledgerBounds
from ..net.bounds import (
    CONNECTIONS,
    INPUT,
    NAMES,
    RETAINED,
    SUBSCRIPTIONS,
    WINDOWS,
    Bound,
    Sizing,
    amountText,
    mergeBounds,
    within,
)
from ..net.budgets import (
    MAX_INPUT,
    MAX_NAMES,
    MAX_OUTPUT,
    MAX_RETAINED,
    MAX_SESSION_BYTES,
    MAX_STRANGERS,
    MAX_WINDOWS,
    STRANGER_BYTES,
    TLS_WEIGHT,
)
from .config import Config
from .features import FEATURES
from .plan import Plan
from .ports import PortPlan
from .process import expectedFiles

SHARE: Final = 8
"""One byte in so many of the memory may be in each of the budgets, by default."""

LARGEST_BODIES: Final = 4
"""So many of the largest requests there may be have room in the budget of input, whatever the
memory is."""

PROCESS_BYTES: Final = 70 * 1024 * 1024
"""The memory of the process before its first client, in bytes."""

CONNECTION_BYTES: Final = 10 * 1024
"""The memory of a connection with what it usually has under way, in bytes."""

_UNLIMITED: Final = "max"
_UNLIMITED_V1: Final = 1 << 62

_log = Logger()


def usableMemory() -> int:
    """
    The bytes of memory that this process may use: the least of what the machine has, what its
    control groups allow, and its own limits.
    """
    limits = [machineMemory()]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(
        limits + [most for most, _ in groupLimits(Path("/proc/self"), Path("/sys/fs/cgroup"))]
    )


def machineMemory() -> int:
    """The bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def groupLimits(process: Path, groups: Path) -> Iterator[tuple[int, Path]]:
    """
    The bytes of memory that the control groups of a process allow, and the folder of each: of the
    group itself and of each one above it.

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
                    yield int(text), path
            if path == groups:
                break
    with suppress(OSError, ValueError):
        path = groups / "memory"
        most = int((path / "memory.limit_in_bytes").read_text("ascii"))
        if most < _UNLIMITED_V1:
            yield most, path


@frozen(kw_only=True)
class BudgetSizes:
    """
    The most bytes of each kind for all connections together; see L{svcbroker.net.budgets}.

    @ivar retained: the most bytes of the indexes of retained messages of all groups.
    """

    output: int
    input: int
    windows: int
    retained: int
    subscriptions: int
    names: int

    @classmethod
    def of(cls, config: Config, memory: int) -> BudgetSizes:
        """
        The budgets of a daemon.

        @param memory: what the process may use, in bytes.
        """
        share = memory // SHARE
        return cls(
            output=config.maxUnsent or min(MAX_OUTPUT, share),
            input=max(min(MAX_INPUT, share), LARGEST_BODIES * largestBody(config.maxContent)),
            windows=min(MAX_WINDOWS, share),
            retained=min(MAX_RETAINED, share),
            subscriptions=min(MAX_SESSION_BYTES, share),
            names=min(MAX_NAMES, share),
        )


@frozen(kw_only=True)
class MemoryTable:
    """
    All bounds of a configuration.

    @ivar bounds: each of them.
    @ivar memory: what the process may use, in bytes.
    """

    bounds: Sequence[Bound]
    memory: int

    @property
    def total(self) -> int:
        """The sum of all bounds, in bytes."""
        return sum(each.bytes for each in self.bounds if not each.each)

    @property
    def isOver(self) -> bool:
        """Whether that is more than the process may use."""
        return self.total > self.memory

    def announce(self) -> None:
        """Log where the sum is more than the process may use. Called once, at the start."""
        if self.isOver:
            _log.warn("{advice}", advice=self.advice)

    @property
    def advice(self) -> str:
        """The advice where the bounds add up to too much, in a line."""
        largest = max((each for each in self.bounds if not each.each), key=lambda each: each.bytes)
        return (
            f"what may be in memory adds up to {amountText(self.total)}, and the process may use "
            f"{amountText(self.memory)}; the largest bound is {largest.name}, "
            f"{amountText(largest.bytes)} ({largest.how}): lower it, or allow more memory"
        )

    def lines(self) -> Iterator[str]:
        """The table, for people."""
        for each in self.bounds:
            of = f" {each.each}" if each.each else ""
            yield f"  {amountText(each.bytes):>10}{of}  {each.name}: {each.how}"


def planMemory(config: Config, plan: Plan, memory: int) -> MemoryTable:
    """
    The table of a daemon with this plan, in this process.

    @param memory: what the process may use, in bytes.
    """
    table = plan.access.table
    costs = () if table is None else table.costs
    return boundsOf(config, plan.ports, costs, memory, expectedFiles())


def boundsOf(
    config: Config, ports: Sequence[PortPlan], costs: Sequence[str], memory: int, files: int
) -> MemoryTable:
    """
    The table of everything that grows with what clients send, or with what is stored.

    @param ports: where is listened.
    @param costs: what verifying the passwords costs, see
        L{AccountTable<svcbroker.access.AccountTable>}.
    @param memory: what the process may use, in bytes.
    @param files: how many files it may have open.
    """
    sizing = Sizing(groups=len(config.groups), maxContent=config.maxContent)
    descriptions = {each.id: each.ledger or config.ledger for each in config.groups}
    bounds = chain(
        _budgetBounds(BudgetSizes.of(config, memory)),
        _connectionBounds(ports, files),
        accessBounds(costs),
        ledgerBounds(descriptions),
        *(each.bounds(config.of(each.settings), sizing) for each in FEATURES),
    )
    return MemoryTable(bounds=tuple(mergeBounds(bounds)), memory=memory)


def _budgetBounds(sizes: BudgetSizes) -> Iterator[Bound]:
    """The process, and the budgets that all connections share."""
    share = f"or 1/{SHARE} of the memory where that is less"
    yield Bound(
        name="the process", bytes=PROCESS_BYTES, how="code and libraries, before the first client"
    )
    yield Bound(
        name="unread output",
        bytes=sizes.output,
        how=f"max-unsent; by default {amountText(MAX_OUTPUT)}, {share}",
        holders=within("svcbroker.net.budgets.OutputBudget", "_owners", "_counted", "_blocked"),
    )
    yield Bound(
        name=INPUT,
        bytes=sizes.input,
        how=f"{amountText(MAX_INPUT)}, {share}; at least {LARGEST_BODIES} of the largest requests "
        "(max-content)",
        holders=["svcbroker.net.budgets.ByteBudget._owners"],
    )
    for name, size, most, what in (
        (WINDOWS, sizes.windows, MAX_WINDOWS, "deliveries not acknowledged"),
        (RETAINED, sizes.retained, MAX_RETAINED, "the indexes of all groups"),
        (SUBSCRIPTIONS, sizes.subscriptions, MAX_SESSION_BYTES, "all of them"),
        (NAMES, sizes.names, MAX_NAMES, "topics, topic aliases, headers with credentials"),
    ):
        yield Bound(name=name, bytes=size, how=f"{what}: {amountText(most)}, {share}")


def _connectionBounds(ports: Sequence[PortPlan], files: int) -> Iterator[Bound]:
    hasTls = any(port.tls is not None for port in ports)
    size = CONNECTION_BYTES + (STRANGER_BYTES * (TLS_WEIGHT - 1) if hasTls else 0)
    yield Bound(
        name=CONNECTIONS,
        bytes=files * size,
        how=f"{files:,} open files (LimitNOFILE), each with {amountText(size)} for what a client "
        "usually has under way" + (" and TLS" if hasTls else ""),
        holders=(
            "svcbroker.net.budgets.WorkBudget.queues",
            "svcbroker.net.budgets.DueWork._entries",
            *within("svcbroker.daemon.process._Polling", "_long", "_passed", "_served"),
            *within("svcbroker.net.turns.Slots", "_busy", "_queues", "_ready"),
        ),
    )
    yield Bound(
        name="connections before their log-in",
        bytes=MAX_STRANGERS * STRANGER_BYTES,
        how=f"{MAX_STRANGERS:,} of {amountText(STRANGER_BYTES)} beside that; one of TLS counts as "
        f"{TLS_WEIGHT}",
        holders=within("svcbroker.net.budgets.Strangers", "_all", "_lanes", "_weights"),
    )
