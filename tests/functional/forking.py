"""
Programs in Python that are forked from one that has imported the broker already.

Such a daemon starts in a fifth of the time, a command in a tenth: Python takes nearly all of it to
import modules, and to free them.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.abstract import FileDescriptor
from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.internet.fdesc import readFromFD
from twisted.internet.interfaces import IProcessProtocol
from twisted.python.failure import Failure

PROGRAM = Path(__file__).with_name("forkserver.py")
CLIENT = Path(__file__).with_name("forkclient.py")


@cache
def _server(pythonPath: str) -> tuple[str, subprocess.Popen[bytes]]:
    """The socket of the program that forks, and the program. It ends with this process."""
    directory = tempfile.mkdtemp(prefix="svcbroker-fork-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    path = os.path.join(directory, "requests")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(path)
        listening.listen()
        process = subprocess.Popen(
            # Not with its directory among those of modules.
            [sys.executable, "-P", str(PROGRAM), str(listening.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # A program is buffered unless its own arguments say otherwise.
            env={**os.environ, "PYTHONPATH": pythonPath, "PYTHONUNBUFFERED": ""},
            pass_fds=[listening.fileno()],
        )
    atexit.register(process.communicate)
    return path, process


def forkedPython(pythonPath: str) -> str:
    """
    What a shell runs in place of C{python}: the program is forked.

    @param pythonPath: C{PYTHONPATH}, which the shell's environment has as well.
    """
    path, _ = _server(pythonPath)
    return shlex.join([sys.executable, "-IS", str(CLIENT), path])


def _request(
    arguments: Sequence[str], environment: Mapping[str, str], path: str, files: Sequence[int]
) -> None:
    """
    Have a program forked.

    @param files: its standard ones, and the one to which its process identifier and, at its end,
        its exit status are written.
    """
    umask = os.umask(0)
    os.umask(umask)
    request = {
        "arguments": arguments,
        "environment": dict(environment),
        "path": path,
        "umask": umask,
    }
    server, _ = _server(environment["PYTHONPATH"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as requests:
        requests.connect(server)
        socket.send_fds(requests, [json.dumps(request).encode()], files)


class BlockingProcess:
    """
    A program that runs, as C{subprocess.Popen} would give it: for tests without a reactor.

    @ivar pid: its process identifier.
    @ivar stdout: what it prints, on both streams.
    @ivar returncode: its exit status, or its signal with a minus, once it was found to have ended.
    """

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], path: str) -> None:
        """See L{ForkedProcess}."""
        (output, toOutput), (report, toReport) = os.pipe(), os.pipe()
        with open(os.devnull, "rb") as nothing:
            files = [nothing.fileno(), toOutput, toOutput, toReport]
            _request(arguments, environment, path, files)
        os.close(toOutput)
        os.close(toReport)
        self.stdout = os.fdopen(output, encoding="utf-8")
        self._report = os.fdopen(report, "rb", buffering=0)
        self.pid = int(self._report.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status, if it has ended."""
        return self.wait(0)

    def wait(self, timeout: float) -> int | None:
        """Wait for its end, for at most so many seconds; its exit status, if it has ended."""
        if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
            self.returncode = int(self._report.readline())
            self._report.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


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
        @param arguments: of Python; the first is C{-c} or C{-m}, or the second after C{-u}.
        @param environment: C{PYTHONPATH} is there, and is the same for most programs.
        @param path: the working directory.
        @param stdin: what the program reads from its standard input.
        """
        (output, toOutput), (errors, toErrors), (report, toReport) = (os.pipe() for _ in range(3))
        with tempfile.TemporaryFile() as file:
            file.write(stdin)
            file.seek(0)
            files = [file.fileno(), toOutput, toErrors, toReport]
            _request(arguments, environment, path, files)
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
