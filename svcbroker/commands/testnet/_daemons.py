"""
The brokers of a test network as children of this process: started, watched, started again, and
ended in order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import ProcessExitedAlready, ProcessTerminated
from twisted.internet.interfaces import IDelayedCall, IProcessTransport
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure

from ...ledgers.cometbft.provisioning import ALONE

PATIENCE: Final = 45.0
"""Seconds that a broker may take to end, before it is killed."""

FIRST_DELAY: Final = 1.0
LAST_DELAY: Final = 30.0
"""Seconds before a broker that has ended is started again: at first, at most."""

_MAX_LINE = 4096


@frozen(kw_only=True)
class End:
    """
    How a broker has ended.

    @ivar how: with which status, or by which signal.
    @ivar lastWords: the last line of its standard error; where it has none and no signal ended
        it, of its log.
    """

    how: str
    lastWords: str

    def __str__(self) -> str:
        return self.how + (f": {self.lastWords}" if self.lastWords else "")


class BrokerProcess:
    """
    Keeps one broker running. It does not outlive this process, whatever becomes of that: on Linux,
    the system ends it.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        reactor: Any,
        ended: Callable[[End], object],
    ) -> None:
        """
        @param command: what starts it.
        @param log: the file that its output is appended to.
        @param reactor: starts processes and keeps time.
        @param ended: told when it has ended though nobody wanted it to, before it is started
            again.
        """
        self._command = list(command)
        self._log = log
        self._reactor = reactor
        self._tell = ended
        self._child: _Child | None = None
        self._isWanted = False
        self._ends = 0
        self._next: IDelayedCall | None = None
        self._kill: IDelayedCall | None = None
        self._stopped: list[Deferred[None]] = []

    @property
    def pid(self) -> int | None:
        """The number of its process, where there is one."""
        transport = None if self._child is None else self._child.transport
        return None if transport is None else transport.pid

    def start(self) -> None:
        """
        Start it.

        @raise OSError: its log cannot be written.
        """
        self._isWanted = True
        self._spawn()

    def isSteady(self) -> None:
        """It serves: should it end, that is the first time again."""
        self._ends = 0

    def stop(self) -> Deferred[None]:
        """
        End it, and do not start it again.

        @return: fires when there is no process any more.
        """
        self._isWanted = False
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._child is None:
            return succeed(None)
        stopped: Deferred[None] = Deferred()
        self._stopped.append(stopped)
        if self._kill is None:
            self._kill = self._reactor.callLater(PATIENCE, self._signal, "KILL")
            self._signal("TERM")
        return stopped

    def _spawn(self) -> None:
        self._next = None
        child = self._child = _Child(self)
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self._reactor.spawnProcess(
                child,
                sys.executable,
                [sys.executable, "-I", "-S", str(ALONE), *self._command],
                env=os.environ,
                path=str(self._log.parent),
                childFDs={0: nothing, 1: log, 2: "r"},
            )
        finally:
            os.close(nothing)
            os.close(log)

    def _signal(self, name: str) -> None:
        transport = None if self._child is None else self._child.transport
        if transport is None:
            return
        try:
            transport.signalProcess(name)
        except ProcessExitedAlready:
            # That it has ended is told when its output is read.
            return

    def said(self, data: bytes) -> None:
        """It has written to its standard error."""
        with self._log.open("ab") as file:
            file.write(data)

    def lastLine(self) -> str:
        """The last line of its log."""
        with self._log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MAX_LINE))
            return _lastLine(file.read())

    def ended(self, child: _Child, end: End) -> None:
        """There is no process any more."""
        if child is not self._child:
            return
        self._child = None
        if self._kill is not None and self._kill.active():
            self._kill.cancel()
        self._kill = None
        if self._isWanted:
            self._tell(end)
        if self._isWanted:
            delay = min(LAST_DELAY, FIRST_DELAY * 2.0 ** min(self._ends, 10))
            self._ends += 1
            self._next = self._reactor.callLater(delay, self._spawn)
        stopped, self._stopped = self._stopped, []
        for waiting in stopped:
            waiting.callback(None)


class _Child(ProcessProtocol):
    """
    One process.
    """

    transport: IProcessTransport | None

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._rest = b""

    def errReceived(self, data: bytes) -> None:
        """See C{IProcessProtocol}."""
        self._broker.said(data)
        self._rest = (self._rest + data)[-_MAX_LINE:]

    def processEnded(self, reason: Failure) -> None:
        """See C{IProcessProtocol}."""
        words = _lastLine(self._rest)
        if not words and getattr(reason.value, "signal", None) is None:
            words = self._broker.lastLine()
        self._broker.ended(self, End(how=_how(reason), lastWords=words))


def _lastLine(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").split("\n")
    words = [line.strip() for line in lines if line.strip()]
    return words[-1] if words else ""


def _how(reason: Failure) -> str:
    error = reason.value
    if not isinstance(error, ProcessTerminated):
        return "with status 0"
    if error.signal is not None:
        return f"by signal {error.signal}"
    return f"with status {error.exitCode}"
