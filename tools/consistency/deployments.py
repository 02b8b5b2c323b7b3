"""
Deployments whose nodes can be killed, suspended, wiped and cut off.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import treq
from attrs import define, field
from twisted.internet.defer import Deferred
from twisted.internet.protocol import ProcessProtocol
from twisted.internet.task import deferLater
from twisted.internet.utils import getProcessOutputAndValue
from twisted.python.failure import Failure
from twisted.web.client import HTTPConnectionPool

from .links import HOST, Network

LEVEL_TIMEOUT = 240.0
"""The seconds that nodes may take to be level again; a bound for machines under load."""
STEP = 0.2

_JSON: dict[bytes | str, bytes | str] = {"Content-Type": "application/json"}
_MODULE = "svcbroker.commands"
TWISTD = ("-c", "from twisted.scripts.twistd import run; run()")


class Process(ProcessProtocol):
    """The process of a broker, whose output goes to a file."""

    transport: Any

    def __init__(self, log: Path) -> None:
        self._log = log.open("ab", buffering=0)
        self.ended: Deferred[None] = Deferred()

    def outReceived(self, data: bytes) -> None:
        self._log.write(data)

    def errReceived(self, data: bytes) -> None:
        self._log.write(data)

    def processEnded(self, reason: Failure) -> None:
        self._log.close()
        self.ended.callback(None)


@define(eq=False, kw_only=True)
class Node:
    """
    A broker, and what decides its blocks.

    @ivar url: its base address.
    @ivar command: the words by which it is started.
    @ivar directory: its files.
    @ivar data: the data directory of the broker.
    @ivar isWriter: whether it takes writes.
    """

    reactor: Any
    name: str
    url: str
    command: Sequence[str]
    directory: Path
    data: Path
    isWriter: bool = True
    _process: Process | None = field(default=None, init=False)

    def start(self) -> None:
        """Start the broker."""
        process = self._process = Process(self.directory / "output")
        words = [sys.executable, *self.command]
        self.reactor.spawnProcess(process, sys.executable, words, env=os.environ)

    async def end(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the broker, and wait until it has ended. A suspended one goes on."""
        if self._process is not None:
            self.signal(number)
            self.signal(signal.SIGCONT)
            await self._process.ended

    def signal(self, number: int) -> None:
        """Send a signal to the broker, if it runs."""
        if self._process is not None and not self._process.ended.called:
            self._process.transport.signalProcess(number)

    def limitFiles(self, size: int | None) -> None:
        """
        Bound the size of each file of the broker, if it runs: longer ones cannot be written to.

        @param size: in bytes; C{None} for no bound.
        """
        if self._process is not None and not self._process.ended.called:
            process = self._process.transport.pid
            _, most = resource.prlimit(process, resource.RLIMIT_FSIZE)
            resource.prlimit(process, resource.RLIMIT_FSIZE, (most if size is None else size, most))

    def signalEngine(self, number: int) -> None:
        """Send a signal to the engine."""
        for process in engines(self.directory / "engine"):
            os.kill(process, number)

    def wipe(self, withEngine: bool) -> None:
        """
        Remove what a stopped node has stored, but for its keys and what says what it has signed.
        """
        group = self.data / "1"
        keys = [group / "broker.key"]
        engine = self.directory / "engine" / "data"
        if withEngine:
            keys.append(engine / "priv_validator_state.json")
        kept = {path: path.read_bytes() for path in keys if path.exists()}
        shutil.rmtree(self.data, ignore_errors=True)
        if withEngine:
            shutil.rmtree(engine)
        for path, data in kept.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o600)


def engines(home: Path) -> Iterator[int]:
    """The engines that run with a home."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"cometbft" in words[0] and any(str(home).encode() in word for word in words):
            yield int(path.parent.name)


@define(eq=False)
class Deployment(ABC):
    """
    Nodes of one log.

    @ivar links: the links between them.
    """

    reactor: Any
    root: Path
    nodes: list[Node] = field(factory=list, init=False)
    links: Network = field(init=False)
    pool: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.links = Network(self.reactor)
        self.pool = HTTPConnectionPool(self.reactor)
        self.pool.retryAutomatically = False
        self.pool.maxPersistentPerHost = 32

    @abstractmethod
    async def layOut(self) -> None:
        """Make the nodes and their files."""

    async def start(self) -> None:
        """Start all nodes, and wait until they are level."""
        await self.layOut()
        for node in self.writers:
            node.start()
        # A copy without a chain looks for its original when it starts.
        await self._until(
            self.reactor.seconds() + LEVEL_TIMEOUT, self.nodes[0], "open", topic="level"
        )
        for node in self.nodes:
            if not node.isWriter:
                node.start()
        await self.level()

    @property
    def writers(self) -> list[Node]:
        """The nodes that take writes."""
        return [node for node in self.nodes if node.isWriter]

    async def ask(self, node: Node, method: str, timeout: float = 10.0, **parameters: Any) -> Any:
        """The whole answer of a node to a call of JSON-RPC."""
        body = {"jsonrpc": "2.0", "id": "1", "method": method, "params": parameters}
        response = await treq.post(
            f"{node.url}/jsonrpc",
            json.dumps(body).encode(),
            headers=_JSON,
            pool=self.pool,
            timeout=timeout,
        )
        answer = response.content().addTimeout(timeout, self.reactor)
        return json.loads(await answer)

    async def level(self) -> None:
        """
        Wait until each node has what all others had acknowledged.

        @raise TimeoutError: that did not come.
        """
        end = self.reactor.seconds() + LEVEL_TIMEOUT
        for node in self.writers:
            await self._until(end, node, "open", topic="level")
        ids = []
        for node in self.writers:
            answer = await self._until(end, node, "publish", topic="level", content="bGV2ZWw=")
            ids.append(answer["result"]["eventId"])
        for node in self.nodes:
            for eventId in ids:
                await self._until(end, node, "getEvent", eventId=eventId)

    async def _until(self, end: float, node: Node, method: str, **parameters: Any) -> Any:
        last: object = "nothing"
        while self.reactor.seconds() < end:
            try:
                last = answer = await self.ask(node, method, **parameters)
            except Exception as failure:
                last = repr(failure)
            else:
                result = answer.get("result")
                if result and (not isinstance(result, dict) or result.get("eventId")):
                    return answer
            await deferLater(self.reactor, STEP)
        raise TimeoutError(f"{node.name} is not level after {LEVEL_TIMEOUT:g} s: {method}: {last}")

    async def stop(self) -> list[str]:
        """Stop all nodes; what an audit of each says that is not good."""
        self.links.heal()
        for node in self.nodes:
            await node.end(signal.SIGTERM)
        await self.pool.closeCachedConnections()
        found = []
        for node in self.nodes:
            output, errors, code = await getProcessOutputAndValue(
                sys.executable, ["-m", _MODULE, "audit", str(node.data)], env=os.environ
            )
            if code != 0:
                said = (output + errors).decode("utf-8", "replace")
                found.append(f"the audit of {node.name} ends with {code}: {said}")
        return found


class EngineNetwork(Deployment):
    """
    Four CometBFT nodes with a broker each.
    """

    async def layOut(self) -> None:
        directory = self.root / "net"
        output, errors, code = await getProcessOutputAndValue(
            sys.executable,
            ["-m", _MODULE, "testnet", "--lay-out-only", "--json", str(directory)],
            env=os.environ,
        )
        if code != 0:
            raise OSError(errors.decode())
        records = json.loads(output)["nodes"]
        ports = {record["ports"]["p2p"]: number for number, record in enumerate(records)}
        for number, record in enumerate(records):
            home = directory / record["name"]
            await self._linkPeers(number, home / "engine" / "config" / "config.toml", ports)
            self.nodes.append(
                Node(
                    reactor=self.reactor,
                    name=record["name"],
                    url=record["url"],
                    command=[*TWISTD, *record["command"][1:]],
                    directory=home,
                    data=home / "broker",
                )
            )

    async def _linkPeers(self, number: int, file: Path, ports: dict[int, int]) -> None:
        """Have a node reach the others by links."""
        lines = file.read_text().splitlines(keepends=True)
        [row] = [row for row, line in enumerate(lines) if line.startswith("persistent_peers =")]
        for port, target in ports.items():
            if target != number:
                link = await self.links.relay(number, target, port)
                lines[row] = re.sub(f":{port}\\b", f":{link}", lines[row])
        file.write_text("".join(lines))


class Copied(Deployment):
    """
    A broker with the embedded ledger, and a copy of it.
    """

    async def layOut(self) -> None:
        urls = [f"http://{HOST}:{port}/svcbroker" for port in _freePorts(2)]
        link = await self.links.relay(1, 0, _portOf(urls[0]))
        original = f"http\\://{HOST}\\:{link}/svcbroker"
        ledgers = ["pbft", f"copy:url={original}"]
        for name, url, ledger in zip(("original", "copy"), urls, ledgers, strict=True):
            directory = self.root / name
            directory.mkdir(parents=True)
            options = [f"--http=tcp:{_portOf(url)}:interface={HOST}", "--stomp=", "--mqtt="]
            options += [f"--ledger={ledger}", f"--data-dir={directory / 'data'}"]
            if name == "original":
                options.append("--faults")
            self.nodes.append(
                Node(
                    reactor=self.reactor,
                    name=name,
                    url=url,
                    command=[*TWISTD, "-n", "--pidfile=", "svcbroker", *options],
                    directory=directory,
                    data=directory / "data",
                    isWriter=name == "original",
                )
            )

    async def fault(self, *words: str) -> None:
        """Give a command of C{svcbroker net fault} to the original, if that runs."""
        await getProcessOutputAndValue(
            sys.executable, ["-m", _MODULE, "fault", self.nodes[0].url, *words], env=os.environ
        )


def _portOf(url: str) -> int:
    return int(url.split(":")[2].split("/")[0])


def _freePorts(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind((HOST, 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports
