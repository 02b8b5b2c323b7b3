"""
A thread of its own for each ledger's disk work.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool


class _DaemonThread(Thread):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs, daemon=True)


class _Pool(ThreadPool):
    # A write that hangs in a broken disk must not keep the process from ending.
    threadFactory = _DaemonThread


class LedgerThread:
    """
    Runs blocking calls one at a time, in the order in which they were given, in one thread.
    """

    def __init__(self, reactor: Any, name: str) -> None:
        self._reactor = reactor
        self._pool = _Pool(1, 1, name)
        self._pool.start()

    def run(self, f: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """
        Run C{f(*args)} in the thread; see
        L{LedgerContext<svcbroker.interfaces.LedgerContext>}.

        Before the reactor runs nothing else is to be done and nothing could tell the caller
        later, so the call is waited for. A ledger that cannot be opened is then known while
        twistd can still report it.
        """
        if self._reactor.running:
            return deferToThreadPool(self._reactor, self._pool, f, *args)
        results: SimpleQueue[tuple[bool, Any]] = SimpleQueue()
        self._pool.callInThreadWithCallback(
            lambda isGood, result: results.put((isGood, result)), f, *args
        )
        isGood, result = results.get()
        return succeed(result) if isGood else fail(result)

    def stop(self) -> None:
        """
        End the thread, after what was given to it. Called once, when nothing hangs.
        """
        self._pool.stop()
