"""
The real daemon as a child, for what is measured on it alone.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from attrs import define

from svcbroker.commands.bench import TIMEOUT, Broken

from .children import cpuOf, memoryOf, start

TWISTD = "from twisted.scripts.twistd import run; run()"
"""What Python is told, to be C{twistd}."""


@define(eq=False)
class Server:
    """
    A server that runs.

    @ivar ports: where it serves.
    """

    process: subprocess.Popen[str]
    ports: Sequence[int]

    def status(self, path: str) -> int:
        """The status that a GET is answered with."""
        connection = HTTPConnection("127.0.0.1", self.ports[0], timeout=TIMEOUT)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    def cpu(self) -> float:
        """Seconds of processor time that it has used, all its threads together."""
        return cpuOf(self.process.pid)

    def memory(self) -> int:
        """Bytes of memory that are its own now."""
        return memoryOf(self.process.pid)

    def stop(self) -> None:
        """
        End it.

        @raise Broken: it does not end, or not well.
        """
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise Broken("a server does not stop") from None
        if code not in (0, -signal.SIGTERM):
            raise Broken(f"a server has ended with {code}")

    def call(self, path: str, **parameters: str) -> Any:
        """What the daemon's REST interface answers."""
        connection = HTTPConnection("127.0.0.1", self.ports[0], timeout=TIMEOUT)
        try:
            connection.request("GET", f"/svcbroker{path}?{urlencode(parameters)}")
            return msgspec.json.decode(connection.getresponse().read())
        finally:
            connection.close()

    def post(self, path: str, body: bytes) -> bytes:
        """What the daemon answers to JSON."""
        connection = HTTPConnection("127.0.0.1", self.ports[0], timeout=TIMEOUT)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"/svcbroker{path}", body, headers)
            return connection.getresponse().read()
        finally:
            connection.close()


def awaitLine(process: subprocess.Popen[str], log: Path, pattern: str) -> re.Match[str]:
    for _ in range(int(TIMEOUT * 20)):
        found = re.search(pattern, log.read_text("utf-8", "replace"))
        if found is not None:
            return found
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
        break
    process.kill()
    raise Broken(f"a server does not start: {log.read_text('utf-8', 'replace')}")


def startDaemon(
    directory: Path, cores: set[int], ledger: str = "pbft", options: Sequence[str] = ()
) -> Server:
    """
    The real daemon with a new chain, serving HTTP alone.

    @param directory: created for its data and its log.
    @param ledger: the description of its ledger; by default the one that daemons have by default.
    @param options: more options.
    """
    command = [
        *(sys.executable, "-c", TWISTD, "-n", "--pidfile=", "svcbroker"),
        *("--http", "tcp:0:interface=127.0.0.1", "--ledger", ledger, "--data-dir", "data"),
        *("--stomp", "", "--mqtt", "", *options),
    ]
    process = start(command, directory, cores)
    found = awaitLine(process, directory / "log", r"serves \S+?:(\d+)/\S*, data in")
    return Server(process, [int(found[1])])
