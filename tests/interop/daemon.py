"""
The daemon, as foreign clients and real sockets find it.
"""

from __future__ import annotations

import atexit
import os
import queue
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import svcbroker
from tests.carriers.mqtt.conformance.brokers import IBroker, SocketBroker
from tests.carriers.mqtt.conformance.support import MqttTestCase
from tests.functional.forking import BlockingProcess
from tests.waiting import TIMEOUT as TIMEOUT

_RUN = "from twisted.scripts.twistd import run; run()"
_LOCAL = "tcp:0:interface=127.0.0.1"
_PORT = re.compile(r"(HTTP|MQTT) on (\S+):(\d+)$")
_SERVES = re.compile(r"svcbroker \S+ serves ")
_ERROR = re.compile(r"Traceback|Unhandled|CRITICAL|\[critical\]|\berror\]")


class Daemon(SocketBroker):
    """
    A daemon that runs.

    @ivar mqtt: the host and port of MQTT.
    @ivar http: those of HTTP.
    @ivar output: the lines that it has logged.
    """

    def __init__(
        self, dataDir: Path, arguments: Sequence[str] = (), ledger: str = "memory"
    ) -> None:
        """Start it, and wait until it serves."""
        ours = str(Path(svcbroker.__file__).parent.parent)
        path = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
        command = ["-c", _RUN, "-n", "--pidfile=", "svcbroker"]
        command += [f"--http={_LOCAL}", f"--mqtt={_LOCAL}", "--stomp=", f"--ledger={ledger}"]
        self.output: list[str] = []
        self._seen = 0
        self.process = BlockingProcess(
            [*command, f"--data-dir={dataDir}", *arguments],
            {**os.environ, "PYTHONPATH": path},
            str(dataDir.parent),
        )
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, args=(lines,), daemon=True).start()
        ports: dict[str, tuple[str, int]] = {}
        serves = False
        while not serves:
            try:
                line = lines.get(timeout=TIMEOUT)
            except queue.Empty:
                line = None
            if line is None:
                self.stop(signal.SIGKILL)
                raise AssertionError(f"the daemon does not serve: {''.join(self.output)}")
            if found := _PORT.search(line.rstrip()):
                ports[found[1]] = (found[2], int(found[3]))
            serves = _SERVES.search(line) is not None
        self.http, self.mqtt = ports["HTTP"], ports["MQTT"]
        super().__init__(self.mqtt)

    def _read(self, lines: queue.Queue[str | None]) -> None:
        for line in self.process.stdout:
            self.output.append(line)
            lines.put(line)
        self.process.stdout.close()
        lines.put(None)

    def errors(self) -> str:
        """What it has logged since the last call, if that tells of an error, or its end."""
        lines = self.output[self._seen :]
        self._seen += len(lines)
        if self.process.poll() is not None:
            return f"the daemon ended with {self.process.returncode}: {''.join(lines)}"
        return "".join(lines) if any(map(_ERROR.search, lines)) else ""

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return its status."""
        self.process.send_signal(number)
        status = self.process.wait(TIMEOUT)
        if status is None:
            self.process.send_signal(signal.SIGKILL)
            raise AssertionError(f"the daemon does not end: {''.join(self.output)}")
        return status


@cache
def shared() -> Daemon:
    """
    The daemon of all tests of this process. It ends with the process. Tests use client
    identifiers and topics of their own, so they do not see each other.
    """
    root = Path(tempfile.mkdtemp(prefix="svcbroker-interop-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    daemon = Daemon(root / "data")
    atexit.register(daemon.stop, signal.SIGKILL)
    return daemon


class DaemonTestCase(MqttTestCase):
    """
    A test of the daemon with our own client.
    """

    def makeBroker(self) -> IBroker:
        """The broker under test."""
        self.daemon = shared()
        return self.daemon
