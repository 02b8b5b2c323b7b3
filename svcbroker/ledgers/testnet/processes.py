"""
The processes of a test network: brokers, and nodes of a chain, each with its log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol

from ...net.processes import ProcessEnd, ProcessLimits, Supervisor

LIMITS: Final = ProcessLimits(firstDelay=1.0, maxDelay=30.0, endTimeout=45.0)

_MAX_LINE = 4096


@frozen(kw_only=True)
class BrokerEnd:
    """
    The end of a broker.

    @ivar how: with which status, or by which signal.
    @ivar lastWords: the last line of its standard error; where it has none and no signal ended
        it, of its log.
    """

    how: ProcessEnd
    lastWords: str

    def __str__(self) -> str:
        return str(self.how) + (f": {self.lastWords}" if self.lastWords else "")


class BrokerProcess:
    """
    Keeps one broker running, and its output in a file.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        reactor: Any,
        ended: Callable[[BrokerEnd], object],
    ) -> None:
        """
        @param name: what it is called.
        @param command: what starts it.
        @param log: the file that its output is appended to.
        @param reactor: starts processes and keeps time.
        @param ended: told when it has ended without being stopped, before it is started again.
        """
        self._process = Supervisor(
            name,
            command,
            clock=reactor,
            limits=LIMITS,
            launch=self._launch,
            output=self._outputReceived,
            ended=self._processEnded,
        )
        self._log = log
        self._reactor = reactor
        self._tell = ended
        self._errors = b""

    def start(self) -> None:
        """Start it, and start it again whenever it ends."""
        self._process.start()

    def settle(self) -> None:
        """It serves: its next end counts as the first."""
        self._process.settle()

    def stop(self) -> Deferred[None]:
        """
        End it, and do not start it again.

        @return: fires when there is no process any more.
        """
        return self._process.stop()

    def _launch(self, child: ProcessProtocol, program: str, arguments: Sequence[str]) -> None:
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                self._reactor.spawnProcess(
                    child,
                    program,
                    arguments,
                    env=os.environ,
                    path=str(self._log.parent),
                    childFDs={0: nothing, 1: log, 2: "r"},
                )
            finally:
                os.close(log)
        finally:
            os.close(nothing)

    def _outputReceived(self, data: bytes, isError: bool) -> None:
        with self._log.open("ab") as file:
            file.write(data)
        self._errors = (self._errors + data)[-_MAX_LINE:]

    def _processEnded(self, end: ProcessEnd) -> None:
        words = _lastLine(self._errors)
        self._errors = b""
        if not words and end.status is not None:
            with self._log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _MAX_LINE))
                words = _lastLine(file.read())
        if self._process.isWanted:
            self._tell(BrokerEnd(how=end, lastWords=words))


def _lastLine(data: bytes) -> str:
    lines = data.decode("utf-8", "replace").split("\n")
    words = [line.strip() for line in lines if line.strip()]
    return words[-1] if words else ""
