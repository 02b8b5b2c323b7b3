"""
A thread for a ledger's disk work, which runs brief work at once while the disk is fast.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

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
