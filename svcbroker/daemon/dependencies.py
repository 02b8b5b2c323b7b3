"""
The objects that the daemon is given from outside: the reactor, clocks, randomness, the process.

A module of its own: the start, the service and their tests give or take these.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from attrs import Factory, field, frozen

from ..net.budgets import Budgets
from .systemd import ServiceManager
from .threads import LedgerThread


class StartError(Exception):
    """
    The daemon cannot start. The text is one line for the operator.
    """


class IProcess(Protocol):
    """
    The effects of the service on the process that it runs in.
    """

    def handleSignals(self, reload: Callable[[], object]) -> None:
        """
        From now on, have SIGTERM and SIGINT stop the service in order, and SIGHUP call C{reload}.
        """

    def started(self, announce: Callable[[], None]) -> None:
        """The service has started. Calls C{announce} once the reactor runs."""

    def refuse(self, message: str) -> None:
        """Print a L{StartError} that is about to be raised as one line."""

    def fail(self, message: str) -> None:
        """Print one line for the operator, and end the process with exit status 1."""


def readSteady() -> float:
    """See L{Dependencies}. On Linux it counts while the machine sleeps, too."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@frozen(kw_only=True)
class Dependencies:
    """
    The objects that the daemon is given from outside: the reactor, clocks, randomness, the process.

    @ivar reactor: the reactor.
    @ivar now: the wall clock, seconds since the epoch.
    @ivar steady: a clock that nobody sets, in seconds, which goes on while the machine sleeps. The
        reactor's clock is the wall clock.
    @ivar entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @ivar random: a number from 0 to 1, for delays; it may be guessed.
    @ivar process: the process.
    @ivar manager: what has started the process, and watches it.
    @ivar budgets: what all connections share.
    @ivar makeThread: makes a thread for blocking work, given the reactor, a name, and where one
        does not do, how many threads.
    """

    reactor: Any
    now: Callable[[], float]
    entropy: Callable[[int], bytes]
    random: Callable[[], float]
    process: IProcess
    manager: ServiceManager
    makeThread: Callable[..., LedgerThread] = field(default=LedgerThread)
    steady: Callable[[], float] = field(default=readSteady)
    budgets: Budgets = field(
        default=Factory(lambda self: Budgets.of(self.reactor), takes_self=True)
    )
