"""
The real daemon as a child process, and a client for it.

Waiting is for output, exits and answers, never for time to pass; C{TIMEOUT} only bounds it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import treq
from attrs import define
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ProcessDone
from twisted.internet.protocol import ProcessProtocol
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from twisted.web.client import HTTPConnectionPool

import svcbroker
from tests.waiting import TIMEOUT as TIMEOUT
from tests.waiting import until as until

from .forking import ForkedProcess, forkedPython

STEP = 0.05
"""Seconds between two looks at something that will come."""

RUN = "from twisted.scripts.twistd import run; run()"
LOCAL = "tcp:0:interface=127.0.0.1"
AGAIN = "tcp:0:interface=127.0.0.2"
"""
Where a daemon listens that will be started again on its port: other programs, which listen on any
free port of 127.0.0.1 or connect from one, do not take it meanwhile.
"""

OFF = ("--stomp=", "--mqtt=")
"""Ports that are off where a test does not ask for them: their defaults are fixed numbers."""

SERVES = re.compile(r"svcbroker \S+ serves (\S+), data in")

reactor: Any = _reactor


@define(eq=False)
class _Waiter:
    pattern: re.Pattern[str]
    found: Deferred[re.Match[str]]


class DaemonProtocol(ProcessProtocol):
    """
    Gathers what a daemon prints, and tells who waits for it.
    """

    def __init__(self) -> None:
        self.output = ""
        self.errors = ""
        self.ended: Deferred[int] = Deferred()
        self._waiters: list[_Waiter] = []

    def waitFor(self, pattern: str | re.Pattern[str]) -> Deferred[re.Match[str]]:
        """Fires with the first match in the output; fails when the daemon ends without one."""
        waiter = _Waiter(re.compile(pattern), Deferred())
        self._waiters.append(waiter)
        self._look()
        return waiter.found.addTimeout(TIMEOUT, reactor)

    def _look(self) -> None:
        for waiter in list(self._waiters):
            found = waiter.pattern.search(self.output)
            if found is not None:
                self._waiters.remove(waiter)
                waiter.found.callback(found)

    def outReceived(self, data: bytes) -> None:
        self.output += data.decode("utf-8", "replace")
        self._look()

    def errReceived(self, data: bytes) -> None:
        self.errors += data.decode("utf-8", "replace")

    def processEnded(self, reason: Failure) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.found.errback(AssertionError(f"the daemon ended: {self.output}\n{self.errors}"))
        value: Any = reason.value
        isClean = reason.check(ProcessDone) is not None
        code = 0 if isClean else (value.exitCode if value.exitCode is not None else -value.signal)
        self.ended.callback(code)


@define(eq=False)
class Daemon:
    """
    A daemon that was started.

    @ivar protocol: what it prints.
    @ivar process: its process.
    @ivar pool: the connections of the client.
    @ivar base: the base address, once it serves.
    """

    protocol: DaemonProtocol
    process: Any
    pool: Any
    base: str = ""

    async def serves(self) -> Daemon:
        """Wait until it serves clients."""
        found = await self.protocol.waitFor(SERVES)
        self.base = f"http://{found[1]}"
        return self

    async def exits(self) -> int:
        """Wait until it has ended; its status, or the signal with a minus."""
        return await self.protocol.ended.addTimeout(TIMEOUT, reactor)

    async def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait until it has ended."""
        self.process.signalProcess(number)
        return await self.exits()

    async def call(
        self,
        path: str,
        method: str = "GET",
        data: Any = None,
        headers: dict[bytes | str, bytes | str] | None = None,
        **parameters: Any,
    ) -> Any:
        """What it answers, as JSON."""
        query = f"?{urlencode(parameters)}" if parameters else ""
        response = await treq.request(
            method,
            self.base + path + query,
            data=data,
            headers=headers,
            pool=self.pool,
            timeout=TIMEOUT,
        )
        return json.loads(await response.content())

    async def rpc(self, method: str, **parameters: Any) -> Any:
        """What JSON-RPC answers."""
        body = {"jsonrpc": "2.0", "id": "1", "method": method, "params": parameters}
        return await self.call(
            "/jsonrpc", "POST", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )


class DaemonTestCase(TestCase):
    """
    A test of real daemons. Whatever is still running at its end is killed.

    @cvar isForked: whether programs in Python are forked from one that has imported the broker
        already: see L{.forking}. Tests of a process as such say no.
    @ivar pluginPath: where there are more plugins.
    """

    isForked = True
    pluginPath: Path | None = None

    timeout = 2 * TIMEOUT

    def setUp(self) -> None:
        self.root = Path(self.mktemp()).absolute()
        self.root.mkdir()
        self.dataDir = self.root / "data"
        paths = [str(Path(svcbroker.__file__).parent.parent), os.environ.get("PYTHONPATH")]
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def run_(
        self, arguments: Sequence[str], twistd: Sequence[str] = ("-n", "--pidfile=")
    ) -> Daemon:
        """
        Start C{twistd svcbroker}, with the Python and the svcbroker that run this test.
        """
        return self.spawn(sys.executable, "-c", RUN, *twistd, "svcbroker", *OFF, *arguments)

    def spawn(self, program: str, *arguments: object, hasTerminal: bool = False) -> Daemon:
        """
        Start a program, in a directory of its own.

        @param hasTerminal: whether it has a terminal of its own, which closes with its process's
            C{loseConnection}.
        """
        words = [*map(str, arguments)]
        paths = [self.pluginPath, self.environment["PYTHONPATH"]]
        path = os.pathsep.join(str(each) for each in paths if each)
        environment = {**self.environment, "PYTHONPATH": path}
        isPython = program == sys.executable and words[0] in ("-c", "-m", "-u")
        if isPython and self.isForked and not hasTerminal:
            return self._fork(words, environment)
        protocol = DaemonProtocol()
        process = reactor.spawnProcess(
            protocol,
            program,
            [program, *words],
            env=environment,
            path=str(self.root),
            usePTY=hasTerminal,
        )
        return self._daemon(protocol, process)

    def _fork(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: bytes = b""
    ) -> Daemon:
        protocol = DaemonProtocol()
        process = ForkedProcess(protocol, arguments, environment, str(self.root), stdin)
        return self._daemon(protocol, process)

    def python(self) -> str:
        """
        The words by which scripts of a shell run programs in Python, which are forked as those of
        L{spawn} are.
        """
        return forkedPython(self.environment["PYTHONPATH"])

    def _daemon(self, protocol: DaemonProtocol, process: Any) -> Daemon:
        pool = HTTPConnectionPool(reactor)
        pool.retryAutomatically = False
        pool.maxPersistentPerHost = 64
        daemon = Daemon(protocol, process, pool)
        self.addCleanup(self._end, daemon)
        return daemon

    def _end(self, daemon: Daemon) -> Deferred[None]:
        async def end() -> None:
            await daemon.pool.closeCachedConnections()
            if not daemon.protocol.ended.called:
                await daemon.stop(signal.SIGKILL)

        return Deferred.fromCoroutine(end())

    async def start(self, *arguments: str, ledger: str = "memory", http: str = LOCAL) -> Daemon:
        """A daemon that serves, with a data directory of this test."""
        return await self.run_(
            [f"--http={http}", f"--ledger={ledger}", f"--data-dir={self.dataDir}", *arguments]
        ).serves()

    async def outcomeOf(self, *arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        """The exit code, the output and the errors of a command of C{svcbroker}."""
        words = ["-m", "svcbroker.commands", *map(str, arguments)]
        command = self._fork(words, self.environment, stdin)
        code = await command.exits()
        return code, command.protocol.output, command.protocol.errors

    async def refused(self, *arguments: str) -> str:
        """The one line with which a daemon that cannot start ends, on standard error."""
        daemon = self.run_(arguments)
        code = await daemon.exits()
        self.assertEqual(code, 1, daemon.protocol.output)
        self.assertNotIn("Traceback", daemon.protocol.output + daemon.protocol.errors)
        (line,) = daemon.protocol.errors.splitlines()
        return line
