"""
The engine as a child of this process: started, watched, started again, and ended in order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
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
from twisted.logger import Logger, LogLevel
from twisted.python.failure import Failure

from ._enginelog import LineSplitter, LogLine, readLine
from .abci import removeSocket

CONNECTIONS: Final = 4
"""Connections that an engine has with its application: consensus, mempool, query, snapshots."""

ALONE: Final = Path(__file__).with_name("_alone.py")
"""Runs a command that must not outlive this process, C{python -I -S ALONE COMMAND...}."""

_log = Logger()


class EngineState(Enum):
    """What an engine is doing."""

    STOPPED = "stopped"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    WAITING = "waiting"


class IEngineReactor(IReactorProcess, IReactorTime):
    """What is needed of the reactor: processes and time."""


@frozen(kw_only=True)
class EngineLimits:
    """
    Bounds to starting and ending, in seconds.

    @ivar firstDelay: before it is started again, when it has ended once.
    @ivar maxDelay: to which the delay is doubled, each time that it ends.
    @ivar jitter: the part of the delay that chance may add.
    @ivar steady: the life after which an end counts as the first.
    @ivar patience: for an end, before it is killed.
    """

    firstDelay: float = 0.5
    maxDelay: float = 30.0
    jitter: float = 0.2
    steady: float = 60.0
    patience: float = 10.0


class Engine:
    """
    Keeps an engine running.

    It is running where its process lives and all its connections with the application are there:
    L{connectionsChanged} is to be told of them. An engine that has lost one ends by itself; one
    that does not is ended.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        reactor: IEngineReactor,
        entropy: Callable[[], float],
        limits: EngineLimits | None = None,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        sockets: Sequence[Path] = (),
        changed: Callable[[EngineState], object] = lambda state: None,
    ) -> None:
        """
        @param command: the path of the program, and its arguments.
        @param entropy: gives numbers from 0 to 1.
        @param environment: of the child; nothing where that is not said.
        @param directory: that the child works in.
        @param sockets: that it listens on. It does not start while those are there which it left
            when it was killed, so they are removed before.
        @param changed: told the state when it is another one.
        """
        self._command = list(command)
        self._reactor = reactor
        self._entropy = entropy
        self._limits = EngineLimits() if limits is None else limits
        self._environment = dict(environment or {})
        self._directory = directory
        self._sockets = list(sockets)
        self._changed = changed
        self._told = EngineState.STOPPED
        self._child: _Child | None = None
        self._startedAt = 0.0
        self._connections = 0
        self._wasConnected = False
        self._isWanted = False
        self._ends = 0
        self._lastEnd = ""
        self._next: IDelayedCall | None = None
        self._kill: IDelayedCall | None = None
        self._watch: IDelayedCall | None = None
        self._stopped: list[Deferred[None]] = []

    @property
    def state(self) -> EngineState:
        """What it is doing."""
        if self._child is None:
            return EngineState.STOPPED if self._next is None else EngineState.WAITING
        if self._kill is not None:
            return EngineState.ENDING
        isConnected = self._connections >= CONNECTIONS
        return EngineState.RUNNING if isConnected else EngineState.STARTING

    @property
    def reason(self) -> str:
        """Why it is not running, in words for an operator; empty where it is."""
        state = self.state
        if state is EngineState.RUNNING:
            return ""
        if state is EngineState.STOPPED:
            return "the engine is stopped"
        if state is EngineState.ENDING:
            return "the engine is ending"
        often = "once" if self._ends == 1 else f"{self._ends} times"
        ended = f"the engine has ended {often}, at last {self._lastEnd}" if self._ends else ""
        if self._next is not None:
            left = max(0.0, self._next.getTime() - self._reactor.seconds())
            return f"{ended}; next start in {left:.1f} s"
        if self._wasConnected:
            return "the engine has lost the application"
        return f"{ended}; it is starting" if ended else "the engine is starting"

    @property
    def pid(self) -> int | None:
        """The number of its process, where there is one."""
        transport = None if self._child is None else self._child.transport
        return None if transport is None else transport.pid

    def start(self) -> None:
        """
        Start it, and start it again whenever it ends. The application should be listening.
        """
        if not self._isWanted:
            self._isWanted = True
            self._ends = 0
            self._spawn()

    def stop(self) -> Deferred[None]:
        """
        End it, in order if it can.

        @return: fires when there is no process any more.
        """
        self._isWanted = False
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._child is None:
            self._tell()
            return succeed(None)
        stopped: Deferred[None] = Deferred()
        self._stopped.append(stopped)
        self._end()
        return stopped

    def connectionsChanged(self, count: int) -> None:
        """
        The application has more connections than before, or less.
        """
        self._connections = count
        if count >= CONNECTIONS:
            self._wasConnected = True
            self._unwatch()
        elif self._wasConnected and self._child is not None and self._watch is None:
            # It sees that too, and ends by itself.
            self._watch = self._reactor.callLater(self._limits.patience, self._lost)
        self._tell()

    def restart(self, why: str) -> None:
        """
        End it because it is of no use; it is started again as if it had ended by itself.
        """
        if self._child is not None and self._kill is None:
            _log.error("The engine is ended: {why}", why=why)
            self._end()

    def _lost(self) -> None:
        self._watch = None
        self.restart("it has lost the application, and did not end by itself")

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _spawn(self) -> None:
        self._next = None
        self._wasConnected = False
        self._startedAt = self._reactor.seconds()
        child = self._child = _Child(self)
        program = sys.executable
        try:
            for path in self._sockets:
                removeSocket(path)
            self._reactor.spawnProcess(
                child,
                program,
                [program, "-I", "-S", str(ALONE), *self._command],
                env=self._environment,
                path=None if self._directory is None else str(self._directory),
            )
        except (OSError, ValueError) as error:
            # No process, no descriptors: as if it had ended at once.
            _log.error("The engine does not start: {error}", error=str(error))
            self.ended(child, "before it started")
        self._tell()

    def _end(self) -> None:
        """Ask it to end, and do not wait for ever."""
        if self._kill is None:
            self._kill = self._reactor.callLater(self._limits.patience, self._signal, "KILL")
            self._signal("TERM")
            self._tell()

    def _tell(self) -> None:
        state = self.state
        if state is not self._told:
            self._told = state
            self._changed(state)

    def _signal(self, name: str) -> None:
        if name == "KILL":
            _log.warn("The engine does not end, and is killed")
        transport = None if self._child is None else self._child.transport
        if transport is None:
            return
        try:
            transport.signalProcess(name)
        except ProcessExitedAlready:
            # That it has ended is told when its output is read.
            return

    def ended(self, child: _Child, how: str) -> None:
        """There is no process any more."""
        if child is not self._child:
            return
        self._child = None
        self._unwatch()
        if self._kill is not None:
            if self._kill.active():
                self._kill.cancel()
            self._kill = None
        if not self._isWanted:
            self._tell()
            stopped, self._stopped = self._stopped, []
            for waiting in stopped:
                waiting.callback(None)
            return
        limits = self._limits
        if self._reactor.seconds() - self._startedAt >= limits.steady:
            self._ends = 0
        # No further than where the delay has long been at its bound.
        doubled = limits.firstDelay * 2 ** min(self._ends, 30)
        self._ends += 1
        self._lastEnd = how
        delay = min(limits.maxDelay, doubled) * (1 + limits.jitter * self._entropy())
        self._next = self._reactor.callLater(delay, self._spawn)
        _log.error("{reason}", reason=self.reason)
        self._tell()

    def line(self, line: LogLine) -> None:
        """The engine has said something."""
        # One that is told to end finds its own connections closed, and calls that errors.
        isEnding = self._kill is not None and line.level in ("warn", "error")
        level = "info" if isEnding and not line.isFatal else line.level
        _log.emit(LogLevel.levelWithName(level), "{text}", text=line.text, module=line.module)
        if line.isFatal:
            # It lives on, and decides nothing any more.
            self.restart("it has given up consensus")


class _Child(ProcessProtocol):
    """
    One process.
    """

    transport: IProcessTransport | None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._output = LineSplitter()
        self._errors = LineSplitter()

    def connectionMade(self) -> None:
        """See C{IProcessProtocol}."""
        assert self.transport is not None
        self.transport.closeStdin()

    def outReceived(self, data: bytes) -> None:
        """See C{IProcessProtocol}."""
        self._say(self._output.feed(data))

    def errReceived(self, data: bytes) -> None:
        """See C{IProcessProtocol}."""
        self._say(self._errors.feed(data), isError=True)

    def processEnded(self, reason: Failure) -> None:
        """See C{IProcessProtocol}."""
        self._say(self._output.rest())
        self._say(self._errors.rest(), isError=True)
        self._engine.ended(self, _howItEnded(reason))

    def _say(self, lines: Sequence[str], isError: bool = False) -> None:
        for text in lines:
            self._engine.line(readLine(text, isError=isError))


def _howItEnded(reason: Failure) -> str:
    error = reason.value
    if not isinstance(error, ProcessTerminated):
        return "with status 0"
    if error.signal is not None:
        return f"by signal {error.signal}"
    return f"with status {error.exitCode}"
