"""
A CometBFT network on this machine: engines, each with the real daemon beside it, or alone.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from attrs import define

from svcbroker.commands.bench import TIMEOUT, Broken
from svcbroker.ledgers.cometbft.provisioning import (
    Address,
    NetworkPlan,
    NodePlan,
    Tuning,
    layOutNetwork,
)
from svcbroker.proofs.cometbft import Instant

from .children import cpuOf, start, stop
from .servers import Server, startDaemon

NODES = 4


@define(eq=False)
class Network:
    """
    Daemons that keep one chain together.

    @ivar brokers: the daemons.
    @ivar engines: the process ids of their engines.
    """

    brokers: Sequence[Server]
    engines: Sequence[int]

    def stopLast(self) -> Network:
        """Stop the last broker with its engine; the network of the others."""
        self.brokers[-1].stop()
        return Network(self.brokers[:-1], self.engines[:-1])

    @property
    def ports(self) -> Sequence[int]:
        """Where the brokers serve."""
        return [broker.ports[0] for broker in self.brokers]

    def call(self, path: str, **parameters: str) -> Any:
        """What the first broker answers."""
        return self.brokers[0].call(path, **parameters)

    def height(self) -> int:
        """The height of the last block."""
        return int(self.call("/admin/group/general", groupId="1")["data"]["latestBlock"])

    def brokerCpu(self) -> float:
        """Seconds of processor time that the brokers have used."""
        return sum(broker.cpu() for broker in self.brokers)

    def engineCpu(self) -> float:
        """Seconds of processor time that the engines have used."""
        return sum(map(cpuOf, self.engines))

    def cpu(self) -> float:
        """Seconds of processor time that all have used."""
        return self.brokerCpu() + self.engineCpu()

    def agree(self, topic: str, events: int) -> int:
        """
        Make sure that all brokers have the same chain, with so many events of a topic.

        @return: its height.
        @raise Broken: they have not, after a while.
        """
        seen = awaitGood(lambda: self._agreed(topic), lambda found: len(found) == 1)
        height: int
        ((height, _, sequence),) = seen
        if sequence != events:
            raise Broken(f"{events} publishes were acknowledged, the topic has {sequence} events")
        return height

    def _agreed(self, topic: str) -> set[tuple[int, str, int]]:
        found = set()
        for broker in self.brokers:
            (last,) = broker.call(
                "/admin/block/blockList", groupId="1", pageNumber="1", pageSize="1"
            )["data"]["pageData"]
            sequence = broker.call("/rest/state", topic=topic)["sequenceNumber"]
            found.add((last["blockNumber"], last["pkHash"], sequence))
        return found


@define(eq=False)
class BareNetwork:
    """
    Engines that keep one chain together, each with C{kvstore}, the engine's own example of an
    application, inside: the measure for what brokers add to an engine.

    @ivar processes: the engines.
    @ivar ports: the ports of their RPC.
    """

    processes: Sequence[subprocess.Popen[str]]
    ports: Sequence[int]

    def height(self) -> int:
        """The height of the last block."""
        return int(self._ask(self.ports[0], "status")["sync_info"]["latest_block_height"])

    def isReady(self) -> bool:
        """Whether all engines have all others for peers, and the first block."""
        try:
            peers = [int(self._ask(port, "net_info")["n_peers"]) for port in self.ports]
            return set(peers) == {len(self.ports) - 1} and self.height() > 0
        except OSError:
            return False

    def brokerCpu(self) -> float:
        """There are no brokers."""
        return 0.0

    def engineCpu(self) -> float:
        """Seconds of processor time that the engines have used."""
        return sum(cpuOf(process.pid) for process in self.processes)

    def agree(self, transactions: int) -> None:
        """
        Make sure that all engines have executed so many transactions.

        @raise Broken: they have not, after a while.
        """
        awaitGood(self._sizes, lambda found: found == {transactions})

    def _sizes(self) -> set[int]:
        states = (self._ask(port, "abci_info")["response"]["data"] for port in self.ports)
        return {int(json.loads(state)["size"]) for state in states}

    def _ask(self, port: int, method: str) -> Any:
        with urlopen(f"http://127.0.0.1:{port}/{method}", timeout=TIMEOUT) as answer:
            return json.load(answer)["result"]


def awaitGood(look: Callable[[], Any], isGood: Callable[[Any], bool]) -> Any:
    """
    Look until it is good.

    @raise Broken: it does not become so.
    """
    end = time.monotonic() + TIMEOUT
    while True:
        found = look()
        if isGood(found):
            return found
        if time.monotonic() > end:
            raise Broken(f"the network does not come to it: {found}")
        time.sleep(0.1)


def startNetwork(
    home: Path, engine: Path, stack: ExitStack, tuning: Tuning | None = None, settings: str = ""
) -> Network:
    """
    Lay out a new network, and start it.

    @param home: made for it.
    @param engine: the C{cometbft} program.
    @param stack: where the end of each daemon is left.
    @param settings: more settings of the ledger, each with a colon before it.
    """
    cores = os.sched_getaffinity(0)
    nodes = _layOut(home, tuning or Tuning())
    brokers = []
    for number, node in enumerate(nodes):
        assert isinstance(node.rpc, Address)
        ledger = f"cometbft:home={node.home}:rpc={node.rpc.port}:engine={engine}{settings}"
        broker = startDaemon(home / f"broker{number}", cores, ledger)
        stack.callback(broker.stop)
        brokers.append(broker)
    network = Network(brokers, [_childOf(broker) for broker in brokers])
    awaitGood(lambda: [_isReady(broker) for broker in brokers], all)
    return network


def startBareNetwork(home: Path, engine: Path, stack: ExitStack) -> BareNetwork:
    """
    Lay out a new network of engines without brokers, with the same settings, and start it.

    @param home: made for it.
    @param engine: the C{cometbft} program.
    @param stack: where the end of the engines is left.
    """
    cores = os.sched_getaffinity(0)
    processes: list[subprocess.Popen[str]] = []
    stack.callback(lambda: stop(processes))
    ports = []
    for node in _layOut(home, Tuning(), application="kvstore"):
        assert isinstance(node.rpc, Address)
        command = [engine, "start", "--home", node.home]
        processes.append(start(command, home / f"run-{node.name}", cores))
        ports.append(node.rpc.port)
    network = BareNetwork(processes, ports)
    awaitGood(network.isReady, bool)
    return network


def _layOut(home: Path, tuning: Tuning, application: str | None = None) -> Sequence[NodePlan]:
    """
    Make the homes of engines.

    @param application: the name of an application inside the engine; C{None}: a broker's socket.
    """
    home.mkdir()
    ports = _freePorts(2 * NODES)
    nodes = [
        NodePlan(
            home=home / f"engine{number}",
            name=f"node{number}",
            rpc=Address(host="127.0.0.1", port=ports[2 * number]),
            p2p=Address(host="127.0.0.1", port=ports[2 * number + 1]),
            socket=application,
        )
        for number in range(NODES)
    ]
    plan = NetworkPlan(chainId="bench", created=Instant(time.time_ns()), nodes=nodes, tuning=tuning)
    layOutNetwork(plan, os.urandom)
    return nodes


def _childOf(server: Server) -> int:
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    (pid,) = awaitGood(lambda: children.read_text("ascii").split(), lambda found: len(found) == 1)
    return int(pid)


def _isReady(server: Server) -> bool:
    return server.status("/readyz") == 200


def _freePorts(count: int) -> Sequence[int]:
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            found.append(one.getsockname()[1])
        return found
