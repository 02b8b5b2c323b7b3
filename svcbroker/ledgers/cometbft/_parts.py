"""
The parts of the ledger that touch the network and other processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import define, field
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IListeningPort

from ...interfaces import LedgerContext
from ._admin import namesOf
from ._engine import CONNECTIONS, Engine
from ._home import LayoutError, readGenesis, readPeers, readSignedHeight
from ._rpc import EngineRpc, connectEngine
from ._settings import CometSettings
from .abci import AbciFactory, listenUnix


class EngineSupervisor(Protocol):
    """
    A supervisor of the engine: L{Engine<svcbroker.ledgers.cometbft._engine.Engine>} or
    L{ForeignEngine}.
    """

    @property
    def reason(self) -> str:
        """Why the engine is not running; empty while it is."""

    @property
    def failure(self) -> str:
        """Why the engine does not come back by itself; empty if it runs or may come back."""

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


@define
class EngineParts:
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
    _port: IListeningPort | None = field(default=None, init=False)
    _names: Mapping[str, bytes] | None = field(default=None, init=False)
    _wanted: frozenset[str] | None = field(default=None, init=False)
    _isRead: bool = field(default=False, init=False)

    @classmethod
    def real(cls, context: LedgerContext, settings: CometSettings) -> EngineParts:
        """
        The parts of a daemon.
        """
        reactor: Any = context.reactor
        socket = settings.socket
        engine: EngineSupervisor = ForeignEngine(socket)
        if settings.engine is not None:
            engine = Engine(
                [str(settings.engine), "start", "--home", str(settings.home)],
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

    def wanted(self) -> frozenset[str] | None:
        """The ids of the engine's persistent peers; C{None} if unknown."""
        if not self._isRead:
            self._isRead, self._wanted = True, readPeers(self._home)
        return self._wanted

    def signedHeight(self) -> int:
        """The last height that the engine's validator has signed; 0 if it is unknown."""
        return readSignedHeight(self._home)

    def close(self) -> Deferred[Any]:
        """Close the connections to the engine."""
        return self.rpc.close()
