"""
Removing the contents of erased events while a ledger runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..archive import Eraser, Erasing
from ..storage import StorageFailed

REST: Final = 2.0
"""
The rest after a step, in units of the time that it took: the disk is for blocks then.
"""

RETRY: Final = 5.0
"""Seconds after which a step is made again that the disk or another process has prevented."""


class ErasingJob:
    """
    Makes the steps of an L{Eraser<svcbroker.archive.Eraser>} in the thread that writes blocks,
    between them. A ledger wakes it once it has started, for what a crash has left, and after each
    block with an erasure.

    @ivar isDone: whether no content of an erased event is left in a file of the chain. Readers do
        not get it from the block of the erasure on.
    """

    _log = Logger()

    def __init__(
        self,
        eraser: Eraser,
        reactor: IReactorTime,
        runInThread: Callable[..., Deferred[Any]],
        removed: Callable[[Collection[str]], object],
    ) -> None:
        """
        @param runInThread: runs blocking disk work, one call after the other.
        @param removed: told of the topics whose contents a step has removed.
        """
        self.isDone = False
        self._eraser = eraser
        self._reactor = reactor
        self._runInThread = runInThread
        self._removed = removed
        self._call: IDelayedCall | None = None
        self._isStepping = self._isWoken = self._isStopped = False
        self._hasRemoved = self._hasWarned = False
        self._waiters: list[Deferred[None]] = []
        self._failure: Failure | None = None

    def wake(self) -> None:
        """Look for something to do."""
        self.isDone, self._failure = False, None
        if self._isStepping:
            self._isWoken = True
        elif not self._isStopped:
            self._schedule(0)

    def stop(self) -> None:
        """
        Make no further step. One that is being made ends before anything else runs in the thread.
        What is left is done after the next start.
        """
        self._isStopped = True
        self._cancel()
        self._end(None)

    def whenDone(self) -> Deferred[None]:
        """
        Fires when no content of an erased event is left in a file of the chain, or when the job is
        stopped. Fails with L{StorageError<svcbroker.storage.StorageError>} where the contents
        cannot be removed; the job then goes on as without it.
        """
        if self._failure is not None:
            return fail(self._failure)
        if self.isDone or self._isStopped:
            return succeed(None)
        done: Deferred[None] = Deferred(self._waiters.remove)
        self._waiters.append(done)
        return done

    def _end(self, result: Failure | None) -> None:
        waiters, self._waiters = self._waiters, []
        for each in waiters:
            each.callback(result)

    def _schedule(self, delay: float) -> None:
        self._cancel()
        self._call = self._reactor.callLater(delay, self._step)

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _step(self) -> None:
        self._call = None
        self._isStepping, self._isWoken = True, False
        started = self._reactor.seconds()
        step = self._runInThread(self._eraser.step)
        step.addCallbacks(self._stepped, self._failed, callbackArgs=(started,))
        step.addErrback(lambda failure: self._log.failure("erasing contents", failure))

    def _stepped(self, progress: Erasing, started: float) -> None:
        self._isStepping = False
        self._removed(self._eraser.takeStripped())
        if progress is Erasing.WAITING:
            self._retry("another process is reading the ledger")
        elif progress is Erasing.MORE or self._isWoken:
            self._hasRemoved = self._hasRemoved or progress is Erasing.MORE
            self._hasWarned = False
            if not self._isStopped:
                self._schedule(REST * max(0.0, self._reactor.seconds() - started))
        else:
            self.isDone = True
            if self._hasRemoved:
                self._hasRemoved = False
                self._log.info("the contents of erased events are removed from all files")
            self._end(None)

    def _failed(self, failure: Failure) -> None:
        self._isStepping = False
        if failure.check(StorageFailed):
            self._retry(failure.getErrorMessage())
        else:
            # A damaged block does not mend by itself.
            self._log.failure("the contents of erased events cannot be removed", failure)
            self._failure = failure
        self._end(failure)

    def _retry(self, reason: str) -> None:
        if not self._hasWarned:
            self._hasWarned = True
            self._log.warn(
                "the contents of erased events cannot be removed now, it is tried again: {reason}",
                reason=reason,
            )
        if not self._isStopped:
            self._schedule(RETRY)
