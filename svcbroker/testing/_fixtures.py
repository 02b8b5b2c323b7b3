"""
What a ledger under test lives on.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock, deferLater
from twisted.internet.threads import deferToThread

from ..interfaces import ILedger, LedgerContext

T = TypeVar("T")

MAX_CONTENT = 1024 * 1024
_START = 1_700_000_000.0


class FaultyDisk:
    """
    C{runInThread} of a L{LedgerContext<svcbroker.interfaces.LedgerContext>}: makes every call at
    once, unless a test holds the disk or has it fail.

    @ivar isHeld: whether calls wait for L{release}.
    @ivar error: what calls fail with, without being made, while it is set.
    """

    def __init__(self) -> None:
        self.isHeld = False
        self.error: Exception | None = None
        self._held: deque[tuple[Deferred[Any], Callable[[], Any]]] = deque()

    def __call__(self, call: Callable[..., T], *args: Any) -> Deferred[T]:
        result: Deferred[T] = Deferred()
        self._held.append((result, lambda: call(*args)))
        if not self.isHeld:
            self.release()
        return result

    def release(self) -> None:
        """Make the calls that wait, and those that follow from them."""
        self.isHeld = False
        while self._held:
            result, call = self._held.popleft()
            if self.error is not None:
                result.errback(self.error)
            else:
                maybeDeferred(call).chainDeferred(result)

    def crash(self) -> None:
        """Forget the calls that wait. Their caller never hears of them."""
        self._held.clear()
        self.isHeld = False


class LedgerFixture(Protocol):
    """
    Makes ledgers for L{makeLedgerTests}, and lets time pass for them.

    @ivar isDurable: whether a ledger that is made in the directory of a stopped one goes on
        where that one ended.
    @ivar disk: C{runInThread} and C{runBriefly} of the ledgers; C{None} where a test cannot hold
        the disk. Then what the contract says of disks is not tested.
    @ivar bound: how many bytes of content are certainly more than waits in a ledger; C{None} where
        that is too much for a test.
    """

    isDurable: bool
    disk: FaultyDisk | None
    bound: int | None

    def makeLedger(self, directory: Path) -> ILedger:
        """
        A ledger that is not started.

        @param directory: the ledger's own, which does not exist the first time.
        """

    def pass_(self) -> Deferred[None]:
        """
        Let a little time pass: some milliseconds, real or not.
        """


class ClockFixture:
    """
    A ledger on a C{Clock}, whose disk work is done at once: nothing is left to chance.

    @ivar clock: the clock.
    """

    def __init__(
        self,
        make: Callable[[LedgerContext], ILedger],
        *,
        isDurable: bool,
        step: float = 0.01,
        bound: int | None = None,
    ) -> None:
        """
        @param make: what L{ILedgerFactory.configure} gave.
        @param step: how many seconds pass at a time.
        @param bound: see L{LedgerFixture}.
        """
        self.isDurable = isDurable
        self._disk = FaultyDisk()
        self.disk = self._disk if isDurable else None
        self.bound = bound
        self.clock = Clock()
        self.clock.advance(_START)
        self._make = make
        self._step = step

    def makeLedger(self, directory: Path) -> ILedger:
        """See L{LedgerFixture}."""
        return self._make(_context(directory, self.clock, self.clock.seconds, self._disk))

    def pass_(self) -> Deferred[None]:
        """See L{LedgerFixture}."""
        self.clock.advance(self._step)
        return succeed(None)


class ReactorFixture:
    """
    A ledger in real time, whose disk work is done in threads.
    """

    disk: FaultyDisk | None = None
    bound: int | None = None

    def __init__(
        self,
        make: Callable[[LedgerContext], ILedger],
        reactor: IReactorTime,
        *,
        isDurable: bool,
        now: Callable[[], float],
    ) -> None:
        """
        @param make: what L{ILedgerFactory.configure} gave.
        @param now: the wall clock: seconds since the epoch.
        """
        self.isDurable = isDurable
        self._make = make
        self._reactor = reactor
        self._now = now

    def makeLedger(self, directory: Path) -> ILedger:
        """See L{LedgerFixture}."""
        return self._make(_context(directory, self._reactor, self._now, _InOrder()))

    def pass_(self) -> Deferred[None]:
        """See L{LedgerFixture}."""
        return deferLater(self._reactor, 0.005)


class _InOrder:
    """Runs one call after the other, each in some thread."""

    def __init__(self) -> None:
        self._last: Deferred[Any] = succeed(None)

    def __call__(self, call: Callable[..., T], *args: Any) -> Deferred[T]:
        result: Deferred[T] = Deferred()
        self._last.addCallback(lambda _: deferToThread(call, *args))
        self._last.addCallbacks(result.callback, result.errback)
        return result


def _context(
    directory: Path,
    reactor: IReactorTime,
    now: Callable[[], float],
    runInThread: Callable[..., Deferred[Any]],
) -> LedgerContext:
    return LedgerContext(
        group="1",
        directory=directory,
        reactor=reactor,
        now=now,
        entropy=os.urandom,
        runInThread=runInThread,
        maxContent=MAX_CONTENT,
    )
