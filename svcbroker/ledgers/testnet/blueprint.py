"""
The layout of a test network: its directory, its ports, and the files of each node; and units of
systemd for brokers beside engines.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from attrs import frozen
from msgspec import Struct

from ...commands.terminal import CommandError
from ...files import readFile
from ...model import TopicRule
from ...proofs.cometbft import Instant
from ...storage import writeFile
from ..cometbft._home import EngineKeys, LayoutError
from ..cometbft.enginecommands.networkfiles import JOIN_REQUEST_NAME, brokerKey, seedOf
from ..cometbft.provisioning import (
    PROFILES,
    Address,
    NetworkPlan,
    NodePlan,
    encodeJoinRequest,
    layOutNetwork,
    makeJoinRequest,
)


def describeLedger(home: Path, rpc: int, engine: Path | None) -> str:
    """
    The C{--ledger} of a broker beside an engine.

    @param rpc: the port of the engine's RPC on this machine.
    @param engine: the program; C{None} where it is run separately.
    """
    settings = [f"home={escaped(home)}", f"rpc={rpc}"]
    if engine is not None:
        settings.append(f"engine={escaped(engine)}")
    return ":".join(["cometbft", *settings])


def escaped(path: Path) -> str:
    """A path in a ledger's description."""
    return str(path).replace("\\", "\\\\").replace(":", "\\:")


def tomlText(text: str) -> str:
    """A text as TOML has it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def unitText(text: str) -> str:
    """A text as a word in a unit of systemd."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{quoted}"' if quoted != text or " " in text else text


def brokerUnit(description: str, command: str, directory: Path) -> str:
    """
    A unit of systemd for a broker that runs its engine as its child.

    @param command: what is run, quoted as systemd has it.
    @param directory: all that it writes to.
    """
    return "\n".join(
        [
            "[Unit]",
            f"Description={description.replace('%', '%%')}",
            "After=network-online.target",
            "Wants=network-online.target",
            "",
            "[Service]",
            f"ExecStart={command}",
            f"WorkingDirectory={str(directory).replace('%', '%%')}",
            "# The broker ends its engine itself, after what it has still to answer.",
            "KillMode=mixed",
            "Restart=on-failure",
            "RestartSec=2",
            "# More than shutdown-timeout, so that systemd does not cut a stop short.",
            "TimeoutStopSec=45",
            "NoNewPrivileges=yes",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


HOST: Final = "127.0.0.1"
MAX_NODES: Final = 32
STRIDE: Final = 10
"""The number of ports that each node is given."""

CARRIERS: Final = ("http", "stomp", "mqtt")
PORTS: Final = (*CARRIERS, "p2p", "rpc", "grpc")
"""The ports of a node, in their order: those of its broker, and those of its engine."""

ENGINES: Final = "cometbft"
"""The kind of a network of CometBFT engines. The others are those of EVM chains."""

NAME: Final = "testnet.json"
BASE_PATH: Final = "/svcbroker"
GROUP: Final = "1"

_LOCK = "lock"
_FIRST, _LAST = 10_000, 30_000
_TRIES = 200
RUN: Final = "from twisted.scripts.twistd import run; run()"


class _Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The record of a network.

    @ivar directory: where it was laid out; its files refer to this path.
    @ivar basePort: the first port of its first node.
    @ivar kind: what decides its blocks.
    """

    chain: str
    directory: str
    nodes: int
    basePort: int
    kind: str = ENGINES


@frozen(kw_only=True)
class TestNode:
    """
    One node: an engine and the broker beside it.

    @ivar number: from 0.
    @ivar directory: the directory of all its files.
    @ivar basePort: its first port.
    """

    number: int
    directory: Path
    basePort: int

    @property
    def name(self) -> str:
        return f"node{self.number}"

    @property
    def home(self) -> Path:
        """The engine's home."""
        return self.directory / "engine"

    @property
    def config(self) -> Path:
        """The broker's configuration."""
        return self.directory / "broker.toml"

    @property
    def log(self) -> Path:
        """The log of the broker and its engine."""
        return self.directory / "broker.log"

    @property
    def ports(self) -> dict[str, int]:
        """Its ports, all on L{HOST}."""
        return {name: self.basePort + number for number, name in enumerate(PORTS)}

    @property
    def root(self) -> str:
        """The address of its HTTP."""
        return f"http://{HOST}:{self.ports['http']}"

    @property
    def url(self) -> str:
        """The base address of its broker."""
        return self.root + BASE_PATH

    def command(self, ledger: str | None = None) -> Sequence[str]:
        """
        The command line that starts its broker.

        @param ledger: its ledger, if it differs from the configuration.
        """
        twistd = Path(sys.executable).with_name("twistd")
        start = [str(twistd)] if twistd.exists() else [sys.executable, "-c", RUN]
        own = [] if ledger is None else [f"--ledger={ledger}"]
        return [*start, "-n", "--pidfile=", "svcbroker", f"--config={self.config}", *own]


@frozen(kw_only=True)
class TestNetwork:
    """
    A network on one machine.

    @ivar chain: the engines' name of the chain.
    @ivar kind: what decides its blocks.
    """

    chain: str
    directory: Path
    nodes: Sequence[TestNode]
    kind: str = ENGINES

    @classmethod
    def of(cls, record: _Record) -> TestNetwork:
        """The network that a record describes."""
        directory = Path(record.directory)
        return cls(
            chain=record.chain,
            directory=directory,
            kind=record.kind,
            nodes=[
                TestNode(
                    number=number,
                    directory=directory / f"node{number}",
                    basePort=record.basePort + number * STRIDE,
                )
                for number in range(record.nodes)
            ],
        )


@contextmanager
def holding(directory: Path) -> Iterator[None]:
    """
    Lock a network's directory, which is made, against other runs of this command.

    @raise CommandError: another run holds the lock.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandError(f"another svcbroker net testnet runs on {directory}") from None
        yield
    finally:
        os.close(descriptor)


def readNetwork(directory: Path) -> TestNetwork | None:
    """
    Read the network that was laid out in a directory, if there is one.

    @raise CommandError: the directory is in use for something else, or was moved.
    """
    path = directory / NAME
    try:
        record = msgspec.json.decode(readFile(path), type=_Record)
    except FileNotFoundError:
        if any(each.name != _LOCK for each in directory.iterdir()):
            raise CommandError(
                f"{directory} is not empty and has no {NAME}: give an empty or a new directory, "
                "and remove one whose layout was interrupted"
            ) from None
        return None
    except msgspec.MsgspecError as error:
        raise CommandError(f"{path} is not what this command has written: {error}") from None
    if not (1 <= record.nodes <= MAX_NODES and 1024 <= record.basePort <= 65535):
        raise CommandError(f"{path} is not what this command has written")
    if Path(record.directory) != directory:
        raise CommandError(
            f"this network was laid out in {record.directory}, and its files say so: move it back"
        )
    return TestNetwork.of(record)


def layOut(
    directory: Path,
    nodes: int,
    engine: Path,
    basePort: int | None,
    *,
    timeouts: str,
    topics: TopicRule = TopicRule.PUBLISHED,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
) -> TestNetwork:
    """
    Lay out a network.

    @param directory: its directory, which is empty.
    @param basePort: the first port; C{None}: free ports.
    @param timeouts: the name of the engines' timeouts.
    @param topics: the rule of topics' names.
    @raise CommandError: it cannot be laid out.
    """
    network = planNetwork(directory, nodes, basePort, ENGINES, entropy)
    plans = [
        NodePlan(
            home=node.home,
            name=node.name,
            rpc=Address(host=HOST, port=node.ports["rpc"]),
            p2p=Address(host=HOST, port=node.ports["p2p"]),
        )
        for node in network.nodes
    ]
    created = Instant(int(now() * 1000) * 1_000_000)
    try:
        plan = NetworkPlan(
            chainId=network.chain,
            created=created,
            nodes=plans,
            tuning=PROFILES[timeouts],
            topics=topics,
        )
        for node, keys in zip(network.nodes, layOutNetwork(plan, entropy), strict=True):
            _writeJoinRequest(network, node, keys, timeouts, topics, entropy, now())
    except LayoutError as error:
        raise CommandError(str(error)) from None
    for node in network.nodes:
        writeNode(network, node, describeLedger(node.home, node.ports["rpc"], engine))
    writeRecord(network)
    return network


def planNetwork(
    directory: Path,
    nodes: int,
    basePort: int | None,
    kind: str,
    entropy: Callable[[int], bytes],
) -> TestNetwork:
    """
    Give a new network its name and its ports.

    @param basePort: the first port; C{None}: free ports.
    @param kind: what decides its blocks.
    """
    return TestNetwork.of(
        _Record(
            chain=f"testnet-{entropy(4).hex()}",
            directory=str(directory),
            nodes=nodes,
            basePort=_freePorts(nodes, entropy) if basePort is None else basePort,
            kind=kind,
        )
    )


def writeNode(network: TestNetwork, node: TestNode, ledger: str) -> None:
    """
    Write the configuration of a node's broker, and the files that start it.

    @param ledger: the broker's ledger.
    """
    command = " ".join(unitText(word) for word in node.command())
    unit = brokerUnit(f"svcbroker {node.name} of {network.chain}", command, node.directory)
    script = f"#!/bin/sh\nexec {shlex.join(node.command())}\n"
    writeFile(node.config, _configText(node, ledger).encode("utf-8"))
    writeFile(node.directory / f"svcbroker-{node.name}.service", unit.encode("utf-8"))
    writeFile(node.directory / "start", script.encode("utf-8"), 0o755)


def writeRecord(network: TestNetwork) -> None:
    """
    Write the record of a network: the last file, so that an interrupted layout is not taken for
    one.
    """
    record = _Record(
        chain=network.chain,
        directory=str(network.directory),
        nodes=len(network.nodes),
        basePort=network.nodes[0].basePort,
        kind=network.kind,
    )
    writeFile(network.directory / NAME, msgspec.json.format(msgspec.json.encode(record)) + b"\n")


def _writeJoinRequest(
    network: TestNetwork,
    node: TestNode,
    keys: EngineKeys,
    timeouts: str,
    topics: TopicRule,
    entropy: Callable[[int], bytes],
    now: float,
) -> None:
    """The join request of a node; a node that joins later connects by it."""
    request = makeJoinRequest(
        seedOf(node.home),
        keys,
        chain=network.chain,
        name=node.name,
        p2p=Address(host=HOST, port=node.ports["p2p"]),
        broker=brokerKey(node.directory / "broker", GROUP, entropy),
        timeouts=timeouts,
        topics=topics,
        now=now,
    )
    writeFile(node.home / JOIN_REQUEST_NAME, encodeJoinRequest(request))


def _configText(node: TestNode, ledger: str) -> str:
    ports = node.ports
    settings = {
        "data-dir": str(node.directory / "broker"),
        "ledger": ledger,
        "advertise": f"{HOST}:{ports['http']}",
        "base-path": BASE_PATH,
    }
    settings |= {name: f"tcp:{ports[name]}:interface={HOST}" for name in CARRIERS}
    lines = [f"# {node.name} of a test network. Made by svcbroker net testnet."]
    lines += [f"{name} = {tomlText(value)}" for name, value in settings.items()]
    return "\n".join([*lines, ""])


def checkPorts(network: TestNetwork) -> None:
    """
    Check that the network's ports are free.

    @raise CommandError: one is in use.
    """
    for node in network.nodes:
        for name, port in node.ports.items():
            if not _isFree(port):
                raise CommandError(
                    f"port {port} of {HOST}, {name} of {node.name}, is in use: does this network "
                    "run, or is it still ending?"
                )


def _freePorts(nodes: int, entropy: Callable[[int], bytes]) -> int:
    """The first of a range of free ports, below the ephemeral ones."""
    for _ in range(_TRIES):
        chance = int.from_bytes(entropy(4), "big")
        base = _FIRST + chance % ((_LAST - _FIRST) // STRIDE) * STRIDE
        if all(_isFree(base + offset) for offset in range(nodes * STRIDE)):
            return base
    raise CommandError("no ports are free: give the first of some with --base-port")


def _isFree(port: int) -> bool:
    with socket.socket() as trying:
        # As the listening ports do: connections in TIME_WAIT do not count.
        trying.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trying.bind((HOST, port))
        except OSError:
            return False
    return True
