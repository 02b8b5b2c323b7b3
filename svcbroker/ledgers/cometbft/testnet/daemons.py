"""
The daemons of a test network: children of this process, from start to stop.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater, react
from twisted.python.failure import Failure

from ....commands.terminal import CommandError, Console, Exit, progressBar, showRecord
from ....net.deferreds import asDeferred
from ....net.http import HttpError, makeClient, readBody
from ....net.processes import ProcessEnd, ProcessLimits, Supervisor
from .blueprint import CARRIERS, PORTS, TestNetwork, TestNode

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


POLL: Final = 0.2
"""Seconds from one look at a broker that is not ready to the next."""

ANSWER: Final = 10.0
"""Seconds that a broker may take to tell whether it is ready."""

_MAX_ANSWER = 64 * 1024


class RunningNetwork:
    """
    The brokers of a test network, each with its engine.
    """

    def __init__(
        self,
        network: TestNetwork,
        ledgers: Sequence[str],
        *,
        reactor: Any,
        console: Console,
        timeout: float,
        asJson: bool,
    ) -> None:
        """
        @param ledgers: the ledger of each broker.
        @param timeout: how many seconds the start may take.
        @param asJson: show the network as JSON, and all else on standard error.
        """
        self._asJson = asJson
        self._network = network
        self._reactor = reactor
        self._console = console
        self._timeout = timeout
        self._client = makeClient(reactor, maxBody=_MAX_ANSWER)
        self._reasons = {node.number: "it has not answered" for node in network.nodes}
        self._begun: Deferred[None] = Deferred()
        self._returning: dict[int, Deferred[None]] = {}
        self._brokers = [
            BrokerProcess(
                node.name,
                node.command(ledger),
                node.log,
                reactor=reactor,
                ended=partial(self._brokerEnded, node),
            )
            for node, ledger in zip(network.nodes, ledgers, strict=True)
        ]

    async def run(self) -> None:
        """
        Start all of it, tell where it is, and keep it running until it is cancelled.

        @raise CommandError: it does not start.
        """
        for broker in self._brokers:
            broker.start()
        nodes = self._network.nodes
        with progressBar(self._console, "starting", "nodes") as report:

            async def ready(node: TestNode) -> None:
                await self._ready(node)
                report(len(nodes) - len(self._reasons), len(nodes))

            report(0, len(nodes))
            looking = gatherResults(
                [Deferred.fromCoroutine(ready(node)) for node in nodes], consumeErrors=True
            )
            looking.addCallbacks(lambda _: self._begun.callback(None), self._notReady)
            self._begun.addTimeout(self._timeout, self._reactor, self._tooLate)
            try:
                await self._begun
            finally:
                looking.cancel()
        for broker in self._brokers:
            broker.settle()
        showRecord(self._console, recordOf(self._network), describe(self._network), self._asJson)
        self._console.output.flush()
        await Deferred()

    async def stop(self) -> None:
        """End all of it. Fires when no process is left."""
        self.say("Stopping.")
        for returning in self._returning.values():
            returning.cancel()
        await gatherResults([broker.stop() for broker in self._brokers])
        self.say("Stopped.")

    def say(self, *lines: str) -> None:
        """Write lines about what happens, at once."""
        for line in lines:
            (self._console.warn if self._asJson else self._console.say)(line)
        self._console.output.flush()

    def _brokerEnded(self, node: TestNode, end: BrokerEnd) -> None:
        if not self._begun.called:
            self._begun.errback(
                CommandError(f"{node.name} has ended {end} (its log is {node.log})", Exit.BAD)
            )
            return
        self.say(f"{node.name} has ended {end}; it is started again")
        before = self._returning.pop(node.number, None)
        if before is not None:
            before.cancel()
        returning = self._return(node)
        self._returning[node.number] = returning
        returning.addErrback(lambda failure: failure.trap(CancelledError))

    @asDeferred
    async def _return(self, node: TestNode) -> None:
        await self._ready(node)
        self._brokers[node.number].settle()
        self.say(f"{node.name} is ready again")

    def _notReady(self, failure: Failure) -> None:
        # Cancelled with the start, which knows why.
        if not self._begun.called:
            self._begun.errback(failure)

    def _tooLate(self, result: object, seconds: float) -> Failure:
        node, reason = next(iter(self._reasons.items()))
        return Failure(
            CommandError(
                f"node{node} is not ready after {seconds:g} seconds: {reason} (its log is "
                f"{self._network.nodes[node].log})",
                Exit.BAD,
            )
        )

    async def _ready(self, node: TestNode) -> None:
        """Fires when the broker of a node can be given work."""
        while True:
            reason = await self._look(node)
            if not reason:
                self._reasons.pop(node.number, None)
                return
            self._reasons[node.number] = reason
            await deferLater(self._reactor, POLL)

    async def _look(self, node: TestNode) -> str:
        """The reason for which a broker is not ready; empty where it is."""
        try:
            response = await self._client.request(
                "GET", f"{node.root}/readyz", timeout=ANSWER, maxBody=_MAX_ANSWER
            )
            answer = json.loads(await readBody(response))
            if answer["status"] == "ready":
                return ""
            return "; ".join(group["reason"] for group in answer["groups"].values())
        except HttpError:
            return "it does not answer"
        except (ValueError, LookupError, TypeError, AttributeError):
            return f"what answers at {node.root} is no svcbroker"


def recordOf(network: TestNetwork) -> Mapping[str, Any]:
    """Addresses of the nodes of a network, and the commands that start them, for JSON."""
    return {
        "directory": str(network.directory),
        "nodes": [
            {
                "name": node.name,
                "url": node.url,
                "ports": node.ports,
                "log": str(node.log),
                "command": node.command(),
            }
            for node in network.nodes
        ],
    }


def describe(network: TestNetwork) -> Sequence[str]:
    """Addresses of the nodes of a network, in lines for people."""
    rows: list[tuple[str, ...]] = [
        ("node", *(name.upper() for name in CARRIERS), "engine's P2P", "engine's RPC")
    ]
    for node in network.nodes:
        ports = node.ports
        others = (f":{ports[name]}" for name in PORTS[1:])
        rows.append((node.name, node.url, *others))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return [
        *table,
        "",
        f"{len(network.nodes)} nodes are ready. Their logs: "
        f"{network.directory}/node*/broker.log. Ctrl-C stops all of them.",
    ]


def runNetwork(
    network: TestNetwork,
    ledgers: Sequence[str],
    console: Console,
    timeout: float,
    *,
    asJson: bool,
) -> None:
    """
    Run a network until somebody interrupts this process. Runs the reactor, so it may be called
    once in a process.

    @raise CommandError: it does not start; nothing of it runs then.
    """
    failures: list[Failure] = []

    def main(reactor: Any) -> Deferred[None]:
        running = RunningNetwork(
            network, ledgers, reactor=reactor, console=console, timeout=timeout, asJson=asJson
        )
        work = Deferred.fromCoroutine(running.run())

        def stop() -> Deferred[None]:
            isOver.append(True)
            work.cancel()
            return Deferred.fromCoroutine(running.stop())

        def over(failure: Failure) -> None:
            if not isOver:
                failures.append(failure)

        isOver: list[bool] = []
        reactor.addSystemEventTrigger("before", "shutdown", stop)
        return work.addErrback(over)

    # It always ends so; what came of it is known by then.
    with suppress(SystemExit):
        react(main)
    for failure in failures[:1]:
        failure.raiseException()
