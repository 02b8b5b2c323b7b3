"""
Programs in Python that are forked from one that has imported the broker already.

Such a daemon starts in a fifth of the time, nearly all of which Python takes to import modules.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.abstract import FileDescriptor
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.fdesc import readFromFD
from twisted.internet.interfaces import IProcessProtocol
from twisted.python.failure import Failure

PROGRAM = Path(__file__).with_name("forkserver.py")


@cache
def _server(pythonPath: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The program that forks. It ends with this process."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            # Not with its directory among those of modules.
            [sys.executable, "-P", str(PROGRAM)],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": pythonPath},
        )
    return ours, process


class _Pipe(FileDescriptor):
    """The end of a pipe from which is read."""

    def __init__(
        self, file: int, received: Callable[[bytes], None], ended: Callable[[], None]
    ) -> None:
        super().__init__(_reactor)
        self._file = file
        self._received = received
        self._ended = ended
        os.set_blocking(file, False)
        self.connected = 1
        self.startReading()

    def fileno(self) -> int:
        return self._file

    def doRead(self) -> Exception | None:
        """See L{twisted.internet.interfaces.IReadDescriptor.doRead}."""
        outcome: Exception | None = readFromFD(self._file, self._received)
        return outcome

    def connectionLost(self, reason: Failure) -> None:
        super().connectionLost(reason)
        os.close(self._file)
        self._file = -1
        self._ended()


class ForkedProcess:
    """
    A program that runs, as C{spawnProcess} would give it, but for its standard input.

    @ivar pid: its process identifier.
    """

    def __init__(
        self,
        protocol: IProcessProtocol,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        path: str,
        stdin: bytes,
    ) -> None:
        """
        @param arguments: of Python, of which the first is C{-c} or C{-m}.
        @param environment: C{PYTHONPATH} is there, and is the same for most programs.
        @param path: the working directory.
        @param stdin: what the program reads from its standard input.
        """
        umask = os.umask(0)
        os.umask(umask)
        request = {"arguments": arguments, "environment": environment, "path": path, "umask": umask}
        server, _ = _server(environment["PYTHONPATH"])
        (output, toOutput), (errors, toErrors), (report, toReport) = (os.pipe() for _ in range(3))
        with TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            files = [file.fileno(), toOutput, toErrors, toReport]
            socket.send_fds(server, [json.dumps(request).encode()], files)
        for each in files[1:]:
            os.close(each)
        self._protocol = protocol
        self._report = os.read(report, 100)
        self.pid = int(self._report.split()[0])
        self._open = 3
        transport: Any = self
        protocol.makeConnection(transport)
        _Pipe(output, lambda data: protocol.childDataReceived(1, data), self._ended)
        _Pipe(errors, lambda data: protocol.childDataReceived(2, data), self._ended)
        _Pipe(report, self._reported, self._ended)

    def signalProcess(self, number: int) -> None:
        """
        Send a signal.

        @raise ProcessExitedAlready: the program has ended.
        """
        if len(self._report.split()) > 1:
            raise ProcessExitedAlready
        os.kill(self.pid, number)

    def _reported(self, data: bytes) -> None:
        self._report += data

    def _ended(self) -> None:
        self._open -= 1
        if not self._open:
            status = int(self._report.split()[1])
            code, number = (status, None) if status >= 0 else (None, -status)
            ended = ProcessTerminated(code, number) if status else ProcessDone(0)
            self._protocol.processEnded(Failure(ended))
