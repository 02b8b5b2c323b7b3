"""
The broker under test.

It is the daemon, started once for all tests of this package in a process: they use client
identifiers and topics of their own, so they do not see each other. With the environment variable
C{SVCBROKER_TEST_MQTT=HOST:PORT} it is whatever listens there: so the tests themselves are
tried against brokers of others; C{SVCBROKER_TEST_MQTT_WS} says where it takes WebSockets. Where
C{SVCBROKER_TEST_STRICT} is set too, none of its deviations are forgiven.
"""

from __future__ import annotations

import atexit
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from attrs import define, field

import svcbroker

TIMEOUT = 60.0
"""Seconds after which a daemon that says nothing counts as broken."""

VARIABLE = "SVCBROKER_TEST_MQTT"
WEBSOCKET = "SVCBROKER_TEST_MQTT_WS"
OURS = "SVCBROKER_TEST_STRICT"
_RUN = "from twisted.scripts.twistd import run; run()"
_LOCAL = "tcp:0:interface=127.0.0.1"
_PORT = re.compile(r"(HTTP|MQTT) on (\S+):(\d+)$")
_SERVES = re.compile(r"svcbroker \S+ serves ")
_TROUBLE = re.compile(r"Traceback|Unhandled|CRITICAL|\[critical\]|\berror\]")


@define
class Broker:
    """
    A broker that runs.

    @ivar mqtt: where it speaks MQTT.
    @ivar http: where it speaks HTTP; C{None} for one that was not started here.
    @ivar isOurs: whether nothing is forgiven.
    """

    mqtt: tuple[str, int]
    http: tuple[str, int] | None = None
    process: subprocess.Popen[str] | None = None
    output: list[str] = field(factory=list)
    isOurs: bool = True
    _seen: int = 0

    @property
    def isForeign(self) -> bool:
        """Whether it is somebody else's."""
        return not self.isOurs

    def trouble(self) -> str:
        """What it has logged since the last call, if that tells of an error, or its end."""
        if self.process is None:
            return ""
        lines = self.output[self._seen :]
        self._seen += len(lines)
        if self.process.poll() is not None:
            return f"the daemon ended with {self.process.returncode}: {''.join(lines)}"
        return "".join(lines) if any(map(_TROUBLE.search, lines)) else ""

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return its status."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(TIMEOUT)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()


def start(dataDir: Path, arguments: Sequence[str] = (), ledger: str = "memory") -> Broker:
    """
    Start the daemon, and wait until it serves.
    """
    ours = str(Path(svcbroker.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (ours, os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", _RUN, "-n", "--pidfile=", "svcbroker"]
    command += [f"--http={_LOCAL}", f"--mqtt={_LOCAL}", "--stomp=", f"--ledger={ledger}"]
    process = subprocess.Popen(
        [*command, f"--data-dir={dataDir}", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=dataDir.parent,
    )
    broker = Broker(("", 0), process=process)
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            broker.output.append(line)
            lines.put(line)
        process.stdout.close()
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    ports: dict[str, tuple[str, int]] = {}
    serves = False
    while not serves:
        try:
            line = lines.get(timeout=TIMEOUT)
        except queue.Empty:
            line = None
        if line is None:
            broker.stop(signal.SIGKILL)
            raise AssertionError(f"the daemon does not serve: {''.join(broker.output)}")
        if found := _PORT.search(line.rstrip()):
            ports[found[1]] = (found[2], int(found[3]))
        serves = _SERVES.search(line) is not None
    broker.http, broker.mqtt = ports["HTTP"], ports["MQTT"]
    return broker


@cache
def shared() -> Broker:
    """
    The broker of all tests of this process. It ends with the process.
    """
    elsewhere = os.environ.get(VARIABLE)
    if elsewhere:
        host, _, port = elsewhere.rpartition(":")
        broker = Broker((host, int(port)), isOurs=OURS in os.environ)
        if webSocket := os.environ.get(WEBSOCKET):
            host, _, port = webSocket.rpartition(":")
            broker.http = (host, int(port))
        return broker
    root = Path(tempfile.mkdtemp(prefix="svcbroker-interop-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    broker = start(root / "data")
    atexit.register(broker.stop, signal.SIGKILL)
    return broker
