"""
The process as twistd runs it: signals, exit status, garbage collection, open files; and Twisted's
epoll reactor without its logging context for each event, with a bound on the reads of a turn, and
with calls after them.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from types import TracebackType
from typing import Any, Final

from twisted.internet.error import ReactorNotRunning
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from .dependencies import StartError

_PRIVATE: Final = ("_selectables", "_poller", "_doReadOrWrite")

_log = Logger()

WRITABLE: Final = 4
"""The event of a connection that can be written alone: C{select.EPOLLOUT}, which not all systems
have."""

EVENTS_AT_ONCE: Final = 64
"""The number of connections that are read from and written to between two looks at the time."""

FEW_EVENTS: Final = 8
"""So few of them end a turn by the time alone: to ask for the processor time takes 3 µs."""

EVENTS_OF_A_ROUND: Final = 1024
"""The number of them that are looked at together after a turn that had no time for all."""

LONG: Final = 0.0005
"""A connection that took more seconds than this is passed over where there is not much time."""

READING_LONG: Final = 0.003
"""The processor time after which such connections wait for the next turn of the reactor while
others publish a few events, in seconds."""

READING: Final = 0.01
"""The processor time for which connections are read from and written to in one turn of the reactor,
in seconds. The longest single event comes on top: that a client has left may end a thousand
subscriptions."""


def pollWithoutContext(reactor: Any, worked: Callable[[], float] = time.thread_time) -> None:
    """
    Have Twisted's epoll reactor call what reads and writes directly, and give it C{callAfterReads},
    which L{EndOfTurn<svcbroker.net.turns.EndOfTurn>} uses. For
    L{WorkBudget<svcbroker.net.budgets.WorkBudget>} it has the number of its turns so far, C{turns},
    and C{isBehind}: whether these had no time to read from all connections; it asks C{isShared}, of
    which that is the owner, whether some publish a few events. Any other reactor stays as it is,
    and so does one of a Twisted that has other private attributes.

    Twisted makes a context of its old log for each read and each write, in which nothing here logs.
    This takes 2 µs: more than to receive a request, and to find its connection.

    @param reactor: the reactor, which may be running.
    @param worked: the processor time that its thread has used, in seconds.
    """
    if sys.platform == "linux":
        from twisted.internet.epollreactor import EPollReactor

        if type(reactor) is EPollReactor and all(hasattr(reactor, name) for name in _PRIVATE):
            polling = _Polling(reactor, worked)
            reactor.doIteration = polling.iterate  # type: ignore[method-assign]
            reactor.callAfterReads = polling.add  # type: ignore[attr-defined]
            reactor.turns = 0  # type: ignore[attr-defined]
            reactor.isBehind = False  # type: ignore[attr-defined]
            reactor.isShared = lambda: False  # type: ignore[attr-defined]


class _Polling:
    """
    The way a reactor waits for events.
    """

    def __init__(self, reactor: Any, worked: Callable[[], float]) -> None:
        """
        @param worked: the processor time that this thread has used, in seconds. To ask for it takes
            longer than to ask for the time.
        """
        self._reactor = reactor
        self._worked = worked
        self._calls: list[Callable[[], object]] = []
        # The connections that were handled while there was no time for all, and whether there was
        # none for those that do not take long either.
        self._served: set[int] = set()
        self._isBehind = False
        # Those that took long the last time; those of them that were passed over in this turn.
        self._long: set[int] = set()
        self._passed: set[int] = set()

    def add(self, call: Callable[[], object]) -> None:
        """
        Make a call when everything that can be read now was read, without waiting for more. One
        that is added between two turns, or by such a call, is made before the next turn reads.
        """
        self._calls.append(call)

    def iterate(self, timeout: float | None) -> None:
        """
        Wait for events, and handle them. See C{EPollReactor.doPoll}.

        @param timeout: how long to wait at the most, in seconds; C{None} for ever.
        """
        poll, seconds = self._reactor._poller.poll, self._reactor.seconds
        if self._calls:
            # Of timed calls and threads, which have read nothing. Most of them send answers, and
            # the clients' next requests are among what is read then. They may have added timed
            # calls that are due, which C{timeout} does not know of.
            self._makeCalls()
            timeout = 0
        count = EVENTS_OF_A_ROUND if self._served else EVENTS_AT_ONCE
        ready = poll(0 if self._calls else -1 if timeout is None else timeout, count)
        self._reactor.turns += 1
        self._begun = seconds()
        self._workedBefore = self._worked() if len(ready) > FEW_EVENTS else float("-inf")
        self._passed.clear()
        isRound = bool(self._served) and self._served.issuperset(number for number, _ in ready)
        if isRound:
            self._served.clear()
            self._isBehind = False
        ready = self._inOrder(ready)
        self._reactor.isBehind = self._isBehind
        while ready and self._handle(ready) and len(ready) == EVENTS_AT_ONCE:
            # The kernel gives those first that it has not given before.
            ready = poll(0, EVENTS_AT_ONCE)
            if self._passed.issuperset(number for number, _ in ready):
                break
        self._reactor.isBehind = self._isBehind and not isRound
        if self._calls:
            self._makeCalls()

    def _inOrder(self, ready: Sequence[tuple[int, int]]) -> Sequence[tuple[int, int]]:
        """
        Events in the order in which they are handled: those that there was no time for come first,
        but while others publish a few, those that take long come last.
        """
        served, long = self._served, self._long
        if self._reactor.isShared():
            return sorted(
                ready,
                key=lambda event: (event[0] in long or event[1] == WRITABLE, event[0] in served),
            )
        return sorted(ready, key=lambda event: event[0] in served) if served else ready

    def _makeCalls(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            try:
                call()
            except Exception:
                _log.failure("A call after reads failed")

    def _hasTime(self, now: float) -> bool:
        """Whether this turn may handle another event. A clock may be set back."""
        if self._begun <= now < self._begun + READING:
            return True
        left = self._workedBefore + READING - self._worked()
        # The processor was used by others meanwhile: not before so much more time it is used up.
        self._begun = now + left - READING
        return left > 0

    def _isTooLong(self, now: float) -> bool:
        """Whether this turn has no time for what takes long, since others publish a few events."""
        return (
            now - self._begun >= READING_LONG
            and self._reactor.isShared()
            and self._worked() - self._workedBefore >= READING_LONG
        )

    def _handle(self, ready: Sequence[tuple[int, int]]) -> bool:
        """
        Handle events.

        @return: whether there is time for more.
        """
        selectables, handle = self._reactor._selectables, self._reactor._doReadOrWrite
        seconds, long, since = self._reactor.seconds, self._long, self._begun
        until, hasLong = since + READING, False
        for number, event in ready:
            selectable = selectables.get(number)
            # Otherwise it was closed by what was called before.
            if selectable is None:
                continue
            if event == WRITABLE or number in long:
                # One of them is handled in any case.
                if hasLong and self._isTooLong(since):
                    self._passed.add(number)
                    continue
                hasLong = True
            try:
                handle(selectable, number, event)
            except Exception:
                _log.failure("A connection failed")
            now = seconds()
            if now - since > LONG:
                long.add(number)
            elif long:
                long.discard(number)
            if not since <= now < until:
                if not self._hasTime(now):
                    handled = ready[: ready.index((number, event)) + 1]
                    self._served.update(each for each, _ in handled if each not in self._passed)
                    self._isBehind = True
                    return False
                until = self._begun + READING
            since = now
        if self._passed:
            self._served.update(each for each, _ in ready if each not in self._passed)
        return True


YOUNG_OBJECTS: Final = 5_000
"""The number of new objects after which the garbage collector looks through them."""

YOUNG_COLLECTIONS: Final = 1
"""The number of such passes until those are looked through, too, that the last few have left. With
ten thousand objects and four passes, one took up to 12 ms instead of 6."""

COLLECT_AFTER: Final = 600.0
"""Seconds after which it looks through all objects as soon as there is nothing else to do: that
takes 50 ms or more where there are many sessions or retained messages."""

COLLECT_AT_LATEST: Final = 3600.0
"""Seconds after which it does so in any case."""

LOOK_EVERY: Final = 2.5
"""The time between two looks whether there is nothing else to do, in seconds."""

IDLE: Final = 0.02
"""The part of these seconds that the reactor may work for, to be idle."""

CALM: Final = 0.2
"""The same, for free memory to be given back, which takes 8 ms for 100 MiB."""

WORK: Final = 0.25
"""The seconds of work after which memory may be free that can be given back."""

_NEVER: Final = 1 << 30

SWITCH_EVERY: Final = 0.0005
"""The seconds after which a thread that computes leaves Python's lock to another that waits for it.
Where a disk is slow, blocks are stored in a thread, which asks for the lock at each statement: with
Python's own 5 ms a publish beside a busy reactor took 2 seconds."""

WANTED_FILES: Final = 65_536
"""The limit that is asked for where the hard limit is no lower; a connection takes one file."""


def raiseFileLimit(
    get: Callable[[int], tuple[int, int]] = resource.getrlimit,
    set: Callable[[int, tuple[int, int]], None] = resource.setrlimit,
) -> int:
    """
    Have as many files open as the operator's hard limit allows, up to L{WANTED_FILES}. Most
    systems give a process 1,024 until it asks. A limit that is higher stays.

    @param get: asks for the limits: C{resource.getrlimit}.
    @param set: sets them: C{resource.setrlimit}.
    @return: the limit from now on, or C{resource.RLIM_INFINITY}.
    """
    soft, hard = get(resource.RLIMIT_NOFILE)
    wanted = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft
    set(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def expectedFiles() -> int:
    """
    The number of files that may be open after L{raiseFileLimit}; L{WANTED_FILES} without a limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY in (soft, hard):
        return WANTED_FILES
    return max(soft, min(hard, WANTED_FILES))


@cache
def _libc() -> ctypes.CDLL:
    """The C library. Each look at it leaves a cycle."""
    return ctypes.CDLL(None)


def _trim() -> None:
    """Give memory that is free back to the system, where the C library can."""
    with suppress(AttributeError):
        _libc().malloc_trim(0)


class MemoryUpkeep:
    """
    The garbage collections of all objects while the reactor is idle, and the return of free memory
    to the system while it has little to do. Nearly everything is freed by its last reference; what
    is left are cycles of libraries. The C library keeps for later what thousands of requests have
    taken together.
    """

    def __init__(
        self,
        reactor: IReactorTime,
        worked: Callable[[], float] = time.thread_time,
        collect: Callable[[], object] = gc.collect,
        trim: Callable[[], object] = _trim,
    ) -> None:
        """
        @param worked: the processor time that this thread has used, in seconds.
        @param trim: gives free memory back. Called after each time of work.
        """
        self._reactor = reactor
        self._worked = worked
        self._collect = collect
        self._trim = trim
        self._wasIdle = True
        # The work since memory was given back.
        self._sinceTrim = 0.0

    def start(self) -> None:
        """Begin to look. It goes on until the reactor stops."""
        self._collectedAt = self._reactor.seconds()
        self._before = self._worked()
        self._reactor.callLater(LOOK_EVERY, self._look)

    def _look(self) -> None:
        worked = self._worked() - self._before
        self._sinceTrim += worked
        age = self._reactor.seconds() - self._collectedAt
        isIdle = worked < IDLE * LOOK_EVERY
        isCalm = worked < CALM * LOOK_EVERY and self._sinceTrim >= WORK
        if age >= COLLECT_AT_LATEST or (age >= COLLECT_AFTER and isIdle):
            self._collect()
            self._collectedAt = self._reactor.seconds()
        if isCalm or (isIdle and not self._wasIdle):
            self._trim()
            self._sinceTrim = 0.0
        self._wasIdle = isIdle
        self._before = self._worked()
        self._reactor.callLater(LOOK_EVERY, self._look)


def collectYoungOnly() -> None:
    """
    Have the garbage collector skip the objects made by now, which live as long as the process, and
    those that have become old.

    Later ones live as long as a publish takes, thousands at a time. Collecting at Python's default
    threshold takes a tenth of the processor time and finds nothing.
    """
    # Among the older ones hardly any is garbage, and a look at them takes 45 ms.
    gc.collect(1)
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, _NEVER)


class TwistdProcess:
    """
    The process that twistd runs the service in.
    """

    _log = Logger()

    def __init__(self, reactor: Any) -> None:
        # Before anything is made for the reactor, which may look what it can do.
        pollWithoutContext(reactor)
        self._reactor = reactor
        self._hasFailed = False

    def handleSignals(self, reload: Callable[[], object]) -> None:
        """
        Stop the reactor on SIGTERM and SIGINT: from now on, and again after reactor.run has
        installed handlers of its own. twistd ends a process that was stopped by one of those
        with the signal again, so that it could not exit with 0.

        @param reload: called on SIGHUP, unless the terminal of the process was closed: that stops
            the reactor, too, except under nohup. Neither twistd nor the reactor handles SIGHUP.
        """
        endsWithTerminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _hasTerminal()

        def hungUp(number: int, frame: object) -> None:
            isClosed = endsWithTerminal and not _hasTerminal()
            self._reactor.callFromThread(self._stop if isClosed else reload)

        signal.signal(signal.SIGHUP, hungUp)
        self._installHandlers()
        self._reactor.callWhenRunning(self._installHandlers)

    def _installHandlers(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._signalled)

    def _signalled(self, number: int, frame: object) -> None:
        self._reactor.callFromThread(self._stop)

    def _stop(self) -> None:
        try:
            self._reactor.stop()
        except ReactorNotRunning:
            # It is stopping already.
            return

    def started(self, announce: Callable[[], None]) -> None:
        """See L{svcbroker.daemon.dependencies.IProcess.started}."""
        collectYoungOnly()
        sys.setswitchinterval(SWITCH_EVERY)
        MemoryUpkeep(self._reactor).start()
        # A turn after the start, when the signal handlers are ours again: a supervisor may send
        # a signal as soon as it has read the announcement.
        self._reactor.callWhenRunning(self._reactor.callLater, 0, announce)

    def refuse(self, message: str) -> None:
        """See L{svcbroker.daemon.dependencies.IProcess.refuse}."""
        self._log.critical("Cannot start: {message}", message=message)
        sys.excepthook = _tellInOneLine

    def fail(self, message: str) -> None:
        """See L{svcbroker.daemon.dependencies.IProcess.fail}."""
        self._log.critical("{message}", message=message)
        if not self._hasFailed:
            self._hasFailed = True
            _tell(message)
            # The status of a process that ran its reactor is not ours to give otherwise.
            atexit.register(_exitBadly)
            self._stop()


def _hasTerminal() -> bool:
    """Whether the process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _tell(message: str) -> None:
    # sys.stderr belongs to the log by now.
    if sys.__stderr__ is not None:
        sys.__stderr__.write(f"svcbroker: {message}\n")
        sys.__stderr__.flush()


def _tellInOneLine(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if isinstance(error, StartError):
        _tell(str(error))
    else:
        sys.__excepthook__(kind, error, traceback)


def _exitBadly() -> None:
    for stream in (sys.stdout, sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(1)
