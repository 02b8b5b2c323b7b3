"""
The real daemon, started again and again on the same data.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter, sleep
from typing import Any
from urllib.parse import urlencode

import msgspec
from attrs import frozen

from svcbroker.commands.bench import TIMEOUT, Broken

from ..children import START_SECONDS, STOP_SECONDS, cpuOf, freePorts, memoryOf, start

_TWISTD = "from twisted.scripts.twistd import run; run()"
_LOOK_AGAIN = 0.002


@frozen(kw_only=True)
class Run:
    """
    A start of the daemon, or a command from its beginning to its end.

    @ivar seconds: from the start of the process to the first answer that it is ready, or its end.
    @ivar cpu: seconds of processor time until then.
    @ivar memory: bytes of memory that it has for itself then, or that a command had at most.
    """

    seconds: float
    cpu: float
    memory: int


class Daemon:
    """
    The real daemon on a directory of its own: log and data.

    @ivar data: its data directory.
    @ivar port: where it serves HTTP.
    @ivar mqttPort: where it serves MQTT.
    """

    def __init__(
        self,
        home: Path,
        cores: set[int],
        options: Sequence[str] = (),
        *,
        data: Path | None = None,
    ) -> None:
        """
        @param home: made where it is not there.
        @param cores: the processors that it may use.
        @param options: more of its options.
        @param data: where its data is; by default in its directory.
        """
        self.data = home / "data" if data is None else data
        self.port, self.mqttPort = freePorts(2)
        self._home = home
        self._cores = cores
        self._options = options
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Daemon:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    @property
    def chain(self) -> Path:
        """The file of its chain."""
        return self.data / "1" / "ledger.sqlite"

    def start(self) -> Run:
        """
        Start it, and wait until it can be given work.

        @raise Broken: it is not ready in time.
        """
        began = perf_counter()
        self._process = start(
            [
                *(sys.executable, "-c", _TWISTD, "-n", "--pidfile=", "svcbroker"),
                *("--http", f"tcp:{self.port}:interface=127.0.0.1", "--stomp", ""),
                *("--mqtt", f"tcp:{self.mqttPort}:interface=127.0.0.1"),
                *("--data-dir", str(self.data.absolute()), *self._options),
            ],
            self._home,
            self._cores,
        )
        while not self._isReady():
            if self._process.poll() is not None or perf_counter() - began > START_SECONDS:
                words = (self._home / "log").read_text("utf-8", "replace")
                raise Broken(f"the daemon does not start: {words[-1000:]}")
            sleep(_LOOK_AGAIN)
        return Run(seconds=perf_counter() - began, cpu=self.cpu(), memory=self.memory())

    def _isReady(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), TIMEOUT) as opened:
                opened.sendall(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                return opened.recv(4096).startswith(b"HTTP/1.1 200 ")
        except (ConnectionError, TimeoutError):
            return False

    def stop(self) -> None:
        """
        End it in order.

        @raise Broken: it does not end, or not well.
        """
        process, self._process = self._running(), None
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Broken("the daemon does not stop") from None
        if code not in (0, -signal.SIGTERM):
            raise Broken(f"the daemon has ended with {code}")

    def kill(self) -> None:
        """End it as a crash does."""
        process, self._process = self._running(), None
        process.kill()
        process.wait()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise Broken("the daemon does not run")
        return self._process

    def cpu(self) -> float:
        """Seconds of processor time that it has used since its start."""
        return cpuOf(self._running().pid)

    def memory(self) -> int:
        """Bytes of memory that it has for itself now."""
        return memoryOf(self._running().pid)

    def peakMemory(self) -> int:
        """The most bytes of memory that it has had since its start."""
        status = Path(f"/proc/{self._running().pid}/status").read_text("ascii")
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        if found is None:
            raise Broken("the kernel does not say how much memory it had")
        return int(found[1]) * 1024

    def diskBytes(self) -> int:
        """How many bytes its chain takes on disk."""
        return sum(path.stat().st_size for path in self.chain.parent.glob("ledger.sqlite*"))

    def events(self) -> int:
        """How many transactions its chain has."""
        found: int = int(self.call("/admin/group/general", groupId="1")["data"]["transactionCount"])
        return found

    def command(self, *words: str | Path) -> Run:
        """
        Run a command of C{svcbroker} on the data, where the load runs.

        @raise Broken: it fails.
        """
        began = perf_counter()
        command = [sys.executable, "-m", "svcbroker.commands", *words]
        process = start(command, self._home, os.sched_getaffinity(0))
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            text = (self._home / "log").read_text("utf-8", "replace")
            raise Broken(f"svcbroker {words[0]} {words[1]} fails: {text[-1000:]}")
        return Run(
            seconds=perf_counter() - began,
            cpu=used.ru_utime + used.ru_stime,
            memory=used.ru_maxrss * 1024,
        )

    def call(self, path: str, **parameters: str) -> Any:
        """What an operation answers."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            connection.request("GET", f"/svcbroker{path}?{urlencode(parameters)}")
            return msgspec.json.decode(connection.getresponse().read())
        finally:
            connection.close()
