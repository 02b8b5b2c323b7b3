"""
The daemons of a test network: children of this process, from start to stop.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.task import deferLater, react
from twisted.python.failure import Failure

from ...commands.terminal import CommandError, Console, Exit, progressBar, showRecord
from ...net.deferreds import asDeferred
from ...net.http import HttpError, makeClient, readBody
from .blueprint import CARRIERS, ENGINES, HOST, TestNetwork, TestNode
from .evmchain import IBFT, RunningChain, TestChain
from .processes import BrokerEnd, BrokerProcess

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
        ledgers: Sequence[str | None],
        *,
        reactor: Any,
        console: Console,
        timeout: float,
        asJson: bool,
        chain: TestChain | None = None,
    ) -> None:
        """
        @param ledgers: the ledger of each broker, where it differs from its configuration.
        @param timeout: how many seconds the start may take.
        @param chain: the EVM chain that the ledgers are on.
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
        self._chain = None if chain is None else RunningChain(chain, reactor, self._chainEnded)
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
        nodes = self._network.nodes
        with progressBar(self._console, "starting", "nodes") as report:

            async def ready(node: TestNode) -> None:
                await self._ready(node)
                report(len(nodes) - len(self._reasons), len(nodes))

            async def begin() -> None:
                if self._chain is not None:
                    await self._chain.start()
                for broker in self._brokers:
                    broker.start()
                await gatherResults(
                    [Deferred.fromCoroutine(ready(node)) for node in nodes], consumeErrors=True
                )

            report(0, len(nodes))
            looking = Deferred.fromCoroutine(begin())
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
        if self._chain is not None:
            await self._chain.stop()
        self.say("Stopped.")

    def say(self, *lines: str) -> None:
        """Write lines about what happens, at once."""
        for line in lines:
            (self._console.warn if self._asJson else self._console.say)(line)
        self._console.output.flush()

    def _chainEnded(self, name: str, end: BrokerEnd) -> None:
        if self._begun.called:
            self.say(f"{name} has ended {end}; it is started again")
        else:
            self._begun.errback(CommandError(f"{name} has ended {end}", Exit.BAD))

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


def recordOf(network: TestNetwork, chain: TestChain | None = None) -> Mapping[str, Any]:
    """
    Addresses of the nodes of a network, and the commands that start them, for JSON.

    @param chain: the EVM chain that it is on, which has nodes of its own.
    """
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
        **({} if chain is None else {"chain": _chainRecord(chain)}),
    }


def _chainRecord(chain: TestChain) -> Mapping[str, Any]:
    return {
        "id": chain.id,
        "ownerKey": str(chain.ownerKey),
        "nodes": [
            {
                "genesis": str(chain.genesisOf(node)),
                "log": str(chain.logOf(node)),
                "command": chain.command(node),
            }
            for node in chain.nodes
        ],
    }


_ENGINE_PORTS: Final[Mapping[str, Mapping[str, str]]] = {
    ENGINES: {"p2p": "engine's P2P", "rpc": "engine's RPC"},
    IBFT: {"p2p": "validator's P2P", "rpc": "validator's RPC"},
}


def describe(network: TestNetwork) -> Sequence[str]:
    """Addresses of the nodes of a network, in lines for people."""
    ofEngines = _ENGINE_PORTS.get(network.kind, {})
    shown = (*CARRIERS[1:], *ofEngines)
    rows: list[tuple[str, ...]] = [
        ("node", *(name.upper() for name in CARRIERS), *ofEngines.values())
    ]
    for node in network.nodes:
        rows.append((node.name, node.url, *(f":{node.ports[name]}" for name in shown)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    table = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines = [
        *table,
        "",
        f"{len(network.nodes)} nodes are ready. Their logs: "
        f"{network.directory}/node*/broker.log. Ctrl-C stops all of them.",
    ]
    if not ofEngines:
        port = network.nodes[0].ports["rpc"]
        lines.insert(-1, f"The chain is one node, at http://{HOST}:{port}.")
    return lines


def runNetwork(
    network: TestNetwork,
    ledgers: Sequence[str | None],
    console: Console,
    timeout: float,
    *,
    asJson: bool,
    chain: TestChain | None = None,
) -> None:
    """
    Run a network until somebody interrupts this process. Runs the reactor, so it may be called
    once in a process.

    @raise CommandError: it does not start; nothing of it runs then.
    """
    failures: list[Failure] = []

    def main(reactor: Any) -> Deferred[None]:
        running = RunningNetwork(
            network,
            ledgers,
            reactor=reactor,
            console=console,
            timeout=timeout,
            asJson=asJson,
            chain=chain,
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
