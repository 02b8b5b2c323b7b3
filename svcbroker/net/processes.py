"""
Child processes: started, watched, started again, and ended in order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import (
    IDelayedCall,
    IProcessTransport,
    IReactorProcess,
    IReactorTime,
)
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

_WRAPPER: Final = Path(__file__).with_name("_childwrapper.py")
_MAX_DOUBLINGS: Final = 30

_log = Logger()


class IProcessReactor(IReactorProcess, IReactorTime):
    """A reactor, as far as children need one: processes and time."""


@frozen(kw_only=True)
class ProcessLimits:
    """
    Bounds to starting and ending a process, in seconds.

    @ivar firstDelay: before it is started again, when it has ended once.
    @ivar maxDelay: to which the delay is doubled, each time that it ends.
    @ivar jitter: the part of the delay that chance may add.
    @ivar steady: the life after which an end counts as the first.
    @ivar endTimeout: from asking it to end to killing it.
    """

    firstDelay: float
    maxDelay: float
    jitter: float = 0.0
    steady: float = float("inf")
    endTimeout: float


@frozen
class ProcessEnd:
    """
    The end of a process.

    @ivar status: its exit status; C{None} where a signal ended it, or it was not started.
    @ivar signal: the signal that ended it.
    @ivar error: why it was not started; empty where it was.
    """

    status: int | None = None
    signal: int | None = None
    error: str = ""

    def __str__(self) -> str:
        if self.error:
            return f"before it started ({self.error})"
        return f"with status {self.status}" if self.signal is None else f"by signal {self.signal}"


class Supervisor:
    """
    Keeps a child process running.

    The child has a session of its own, so that a terminal's interrupt does not reach it. On
    Linux, it is ended when this process is killed.

    @ivar isWanted: whether it was started and not stopped.
    @ivar ends: how often it has ended by itself since it was started, or lived long enough.
    @ivar lastEnd: how it has ended last; C{None} before.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        clock: IReactorTime,
        limits: ProcessLimits,
        launch: Callable[[ProcessProtocol, str, Sequence[str]], object],
        output: Callable[[bytes, bool], object],
        ended: Callable[[ProcessEnd], object],
        changed: Callable[[], object] = lambda: None,
        random: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """
        @param name: what it is called in the log.
        @param command: the path of the program, and its arguments.
        @param launch: C{launch(protocol, program, arguments)} starts the process. C{OSError} and
            C{ValueError} count as its end.
        @param output: given what it writes, and whether that is on its standard error.
        @param ended: told that it has ended, before it is decided whether it is started again.
        @param changed: told when it was started, asked to end, or has ended.
        @param random: gives a number from 0 to 1.
        """
        self.isWanted = False
        self.ends = 0
        self.lastEnd: ProcessEnd | None = None
        self._name = name
        self._arguments = [sys.executable, "-I", "-S", str(_WRAPPER), *command]
        self._clock = clock
        self._limits = limits
        self._launch = launch
        self._output = output
        self._ended = ended
        self._changed = changed
        self._random = random
        self._child: _Child | None = None
        self._startedAt = 0.0
        self._next: IDelayedCall | None = None
        self._kill: IDelayedCall | None = None
        self._stopped: list[Deferred[None]] = []

    @property
    def isRunning(self) -> bool:
        """Whether there is a process."""
        return self._child is not None

    @property
    def isEnding(self) -> bool:
        """Whether the process was asked to end."""
        return self._kill is not None

    @property
    def startsIn(self) -> float | None:
        """In how many seconds it is started again; C{None} where it is not."""
        return (
            None if self._next is None else max(0.0, self._next.getTime() - self._clock.seconds())
        )

    @property
    def pid(self) -> int | None:
        """The number of the process; C{None} where there is none."""
        transport = None if self._child is None else self._child.transport
        return None if transport is None else transport.pid

    def start(self) -> None:
        """Start it, and start it again whenever it ends."""
        if not self.isWanted:
            self.isWanted = True
            self.ends = 0
            self._spawn()

    def settle(self) -> None:
        """It does its work: its next end counts as the first."""
        self.ends = 0

    def end(self) -> None:
        """Ask the process to end, and kill it where it does not. It is started again."""
        if self._child is not None and self._kill is None:
            self._kill = self._clock.callLater(self._limits.endTimeout, self._signal, "KILL")
            self._signal("TERM")
            self._changed()

    def stop(self) -> Deferred[None]:
        """
        End it, and do not start it again.

        @return: fires when there is no process any more.
        """
        self.isWanted = False
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._child is None:
            self._changed()
            return succeed(None)
        stopped: Deferred[None] = Deferred()
        self._stopped.append(stopped)
        self.end()
        return stopped

    def _spawn(self) -> None:
        self._next = None
        self._startedAt = self._clock.seconds()
        child = self._child = _Child(self)
        try:
            self._launch(child, sys.executable, self._arguments)
        except (OSError, ValueError) as error:
            _log.error("{name} does not start: {error}", name=self._name, error=str(error))
            self.processEnded(child, ProcessEnd(error=str(error) or type(error).__name__))
        else:
            self._changed()

    def _signal(self, name: str) -> None:
        if name == "KILL":
            _log.warn("{name} does not end, and is killed", name=self._name)
        transport = None if self._child is None else self._child.transport
        if transport is None:
            return
        try:
            transport.signalProcess(name)
        except ProcessExitedAlready:
            # Its end is told when its output is read.
            return

    def outputReceived(self, data: bytes, isError: bool) -> None:
        """The process has written something."""
        self._output(data, isError)

    def processEnded(self, child: _Child, end: ProcessEnd) -> None:
        """The process has ended."""
        if child is not self._child:
            return
        self.lastEnd = end
        self._ended(end)
        self._child = None
        if self._kill is not None:
            if self._kill.active():
                self._kill.cancel()
            self._kill = None
        if self.isWanted:
            self._next = self._clock.callLater(self._delay(), self._spawn)
        self._changed()
        stopped, self._stopped = self._stopped, []
        for waiting in stopped:
            waiting.callback(None)

    def _delay(self) -> float:
        """The time to wait before it is started again. Counts its end."""
        limits = self._limits
        if self._clock.seconds() - self._startedAt >= limits.steady:
            self.ends = 0
        doubled = limits.firstDelay * 2.0 ** min(self.ends, _MAX_DOUBLINGS)
        self.ends += 1
        return min(limits.maxDelay, doubled) * (1 + limits.jitter * self._random())


class _Child(ProcessProtocol):
    """
    One process.
    """

    transport: IProcessTransport | None

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def outReceived(self, data: bytes) -> None:
        """See C{IProcessProtocol}."""
        self._supervisor.outputReceived(data, False)

    def errReceived(self, data: bytes) -> None:
        """See C{IProcessProtocol}."""
        self._supervisor.outputReceived(data, True)

    def processEnded(self, reason: Failure) -> None:
        """See C{IProcessProtocol}."""
        error = reason.value
        end = ProcessEnd(status=0)
        if isinstance(error, ProcessTerminated):
            end = ProcessEnd(error.exitCode, error.signal)
        self._supervisor.processEnded(self, end)
