"""
The ports of an engine: the RPC, the child process, the listener and the home that the ledger beside
it uses. Tests have their own.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import define, field
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.interfaces import IListeningPort, IStreamClientEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

from ...interfaces import LedgerContext
from ...net.deferreds import asDeferred
from ._cometsettings import CometSettings
from ._engine import CONNECTIONS, Engine
from ._home import LayoutError, namesOf, readGenesis, readPeers, readSignedHeight
from ._rpc import EngineRpc, connectEngine
from .abci import AbciFactory, listenUnix

DIALS: Final = 8
"""The number of times that an engine dials each of its peers after its start."""


class EngineSupervisor(typing.Protocol):
    """
    A supervisor of the engine: L{Engine<svcbroker.ledgers.cometbft._engine.Engine>} or
    L{ForeignEngine}.
    """

    @property
    def reason(self) -> str:
        """The reason for which the engine is not running; empty while it is."""

    @property
    def failure(self) -> str:
        """
        The reason for which the engine does not come back by itself; empty if it runs or may come
        back.
        """

    def start(self) -> None:
        """Start the engine."""

    def stop(self) -> Deferred[None]:
        """Stop the engine."""

    def connectionsChanged(self, count: int) -> None:
        """The number of the application's connections has changed."""


class ForeignEngine:
    """
    An engine that runs outside of this daemon.
    """

    def __init__(self, socket: Path) -> None:
        """
        @param socket: the application's socket.
        """
        self._socket = socket
        self._connections = 0

    @property
    def reason(self) -> str:
        """See L{EngineSupervisor}."""
        if self._connections < CONNECTIONS:
            return f"no engine is connected to {self._socket}"
        return ""

    @property
    def failure(self) -> str:
        """See L{EngineSupervisor}."""
        return ""

    def start(self) -> None:
        """See L{EngineSupervisor}."""

    def stop(self) -> Deferred[None]:
        """See L{EngineSupervisor}."""
        return succeed(None)

    def connectionsChanged(self, count: int) -> None:
        """See L{EngineSupervisor}."""
        self._connections = count


def startCommand(engine: Path, home: Path) -> Sequence[str]:
    """
    The command that starts an engine.

    An engine waits up to three seconds, at random, before it dials a persistent peer, and seconds
    more after a dial that failed, or that met one of the peer's own. So each is listed several
    times, and the first of its dials counts.
    """
    command = [str(engine), "start", "--home", str(home)]
    peers = readPeers(home) or {}
    if peers:
        places = [
            f"{node}@[{host}]:{port}" if ":" in host else f"{node}@{host}:{port}"
            for node, (host, port) in peers.items()
        ]
        command += ["--p2p.persistent_peers", ",".join(places * DIALS)]
    return command


class _Knock(Protocol):
    """
    Waits for the first bytes of a handshake, which an engine sends to everybody who connects, and
    hangs up.
    """

    def __init__(self) -> None:
        self.heard: Deferred[None] = Deferred(lambda heard: self._hangUp())

    def _hangUp(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        """Something has come."""
        self._hangUp()
        if not self.heard.called:
            self.heard.callback(None)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Nothing more comes."""
        if not self.heard.called:
            self.heard.errback(reason)


@asDeferred
async def knock(place: IStreamClientEndpoint) -> None:
    """
    Connect to an engine as its peers do, and wait for its first bytes. An operating system may
    accept connections for an engine that is stopped.
    """
    factory = Factory.forProtocol(_Knock)
    factory.noisy = False
    connection: Any = await place.connect(factory)
    await connection.heard


@define
class EnginePorts:
    """
    The parts of one ledger.

    @ivar socket: the application's socket.
    @ivar rpc: the client of the engine's RPC.
    @ivar engine: the engine's supervisor.
    """

    socket: Path
    rpc: EngineRpc
    engine: EngineSupervisor
    _home: Path
    _listen: Callable[[AbciFactory], IListeningPort]
    _knock: Callable[[str, int], Deferred[None]]
    _port: IListeningPort | None = field(default=None, init=False)
    _names: Mapping[str, bytes] | None = field(default=None, init=False)
    _peers: Mapping[str, tuple[str, int]] | None = field(default=None, init=False)
    _isRead: bool = field(default=False, init=False)

    @classmethod
    def real(cls, context: LedgerContext, settings: CometSettings) -> EnginePorts:
        """
        The parts of a daemon.
        """
        reactor: Any = context.reactor
        socket = settings.socket
        engine: EngineSupervisor = ForeignEngine(socket)
        if settings.engine is not None:
            engine = Engine(
                startCommand(settings.engine, settings.home),
                reactor=reactor,
                entropy=lambda: int.from_bytes(context.entropy(4), "big") / 2**32,
                sockets=[settings.rpc] if isinstance(settings.rpc, Path) else [],
            )
        return cls(
            socket=socket,
            rpc=connectEngine(reactor, settings.rpc, settings.timeout),
            engine=engine,
            home=settings.home,
            listen=lambda factory: listenUnix(reactor, socket, factory),
            knock=lambda host, port: knock(HostnameEndpoint(reactor, host, port)),
        )

    def listen(self, factory: AbciFactory) -> None:
        """
        Listen for the engine.

        @raise ValueError: the socket's path is invalid or in use.
        @raise OSError: the operating system refuses.
        """
        self._port = self._listen(factory)

    def stopListening(self) -> Deferred[Any]:
        """Stop listening. Fires when the socket is removed."""
        port, self._port = self._port, None
        return succeed(None) if port is None else maybeDeferred(port.stopListening)

    def names(self) -> Mapping[str, bytes]:
        """The public keys of the first validators, by the names of their engines."""
        if self._names is None:
            try:
                self._names = namesOf(readGenesis(self._home))
            except LayoutError:
                # The engine is on another machine: only votes tell which validators are active.
                self._names = {}
        return self._names

    def peers(self) -> Collection[str] | None:
        """The ids of the engine's persistent peers; C{None} if unknown."""
        if not self._isRead:
            self._isRead, self._peers = True, readPeers(self._home)
        return self._peers

    def probe(self, node: str) -> Deferred[None]:
        """
        Ask one of the L{peers} for a sign of life. Fires when it has sent something.
        """
        assert self._peers is not None
        host, port = self._peers[node]
        return self._knock(host, port)

    def signedHeight(self) -> int:
        """The last height that the engine's validator has signed; 0 if it is unknown."""
        return readSignedHeight(self._home)

    def close(self) -> Deferred[Any]:
        """Close the connections to the engine."""
        return self.rpc.close()
