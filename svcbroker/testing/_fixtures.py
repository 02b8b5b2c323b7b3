"""
What a ledger under test lives on.
"""

from __future__ import annotations

import os
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


class LedgerFixture(Protocol):
    """
    Makes ledgers for L{makeLedgerTests}, and lets time pass for them.

    @ivar isDurable: whether a ledger that is made in the directory of a stopped one goes on
        where that one ended.
    """

    isDurable: bool

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
        self, make: Callable[[LedgerContext], ILedger], *, isDurable: bool, step: float = 0.01
    ) -> None:
        """
        @param make: what L{ILedgerFactory.configure} gave.
        @param step: how many seconds pass at a time.
        """
        self.isDurable = isDurable
        self.clock = Clock()
        self.clock.advance(_START)
        self._make = make
        self._step = step

    def makeLedger(self, directory: Path) -> ILedger:
        """See L{LedgerFixture}."""
        return self._make(_context(directory, self.clock, self.clock.seconds, maybeDeferred))

    def pass_(self) -> Deferred[None]:
        """See L{LedgerFixture}."""
        self.clock.advance(self._step)
        return succeed(None)


class ReactorFixture:
    """
    A ledger in real time, whose disk work is done in threads.
    """

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
