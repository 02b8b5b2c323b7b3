"""
The objects that the daemon is given from outside: the reactor, clocks, randomness, the process, and
threads for disk work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar

from attrs import Factory, field, frozen
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from ..net.budgets import Budgets
from .systemd import ServiceManager

T = TypeVar("T")

BRIEF = 0.002
"""Seconds that brief calls may take, on average over some, while the disk is in good health."""

AWAY = 100
"""
After a call that was not brief, calls go to the thread for this many times as long as it took. So a
slow disk takes only a few per cent of the reactor's time.
"""

_WEIGHT = 1 / 16  # of the last call, in the average


class _DaemonThread(Thread):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs, daemon=True)


class _Pool(ThreadPool):
    # A write that hangs in a broken disk must not keep the process from ending.
    threadFactory = _DaemonThread


class LedgerThread:
    """
    A thread for a ledger's disk work, which runs brief work at once while the disk is fast.

    Runs blocking calls one at a time, in the order in which they were given, in one thread; or
    some at a time, in several.
    """

    def __init__(self, reactor: Any, name: str, size: int = 1) -> None:
        """
        @param size: how many threads it has.
        """
        self._reactor = reactor
        self._pool = _Pool(1, size, name)
        self._pool.start()
        self._pending = 0
        self._average = 0.0
        self._awayUntil = reactor.seconds()

    def run(self, f: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """
        Run C{f(*args)} in the thread; see
        L{LedgerContext<svcbroker.interfaces.LedgerContext>}.

        Before the reactor runs nothing else is to be done and nothing could tell the caller
        later, so the call is waited for. A ledger that cannot be opened is then known while
        twistd can still report it.
        """
        if self._reactor.running:
            self._pending += 1
            return deferToThreadPool(self._reactor, self._pool, f, *args).addBoth(self._finished)
        results: SimpleQueue[tuple[bool, Any]] = SimpleQueue()
        self._pool.callInThreadWithCallback(
            lambda isGood, result: results.put((isGood, result)), f, *args
        )
        isGood, result = results.get()
        return succeed(result) if isGood else fail(result)

    def runBriefly(self, f: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """
        Run C{f(*args)} at once, or in the thread where the disk has been slow of late.

        A thread costs more than it gives while a sync takes 0.1 ms; and where the reactor is
        busy, and on another core, the thread gets Python's lock seldom
        (docs/decisions/cost-of-a-block.rst). But a disk that hangs must not hold up all else.
        """
        started = self._reactor.seconds()
        if self._pending or not self._reactor.running or started < self._awayUntil:
            return self.run(f, *args)
        try:
            done = succeed(f(*args))
        except Exception:
            done = fail()
        ended = self._reactor.seconds()
        self._average += (ended - started - self._average) * _WEIGHT
        if self._average > BRIEF:
            self._average = 0.0
            self._awayUntil = ended + AWAY * (ended - started)
        return done

    def _finished(self, result: T) -> T:
        self._pending -= 1
        return result

    def stop(self) -> None:
        """
        End the thread, after what was given to it. Called once, when nothing hangs.
        """
        self._pool.stop()


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
