"""
What of the ledger touches the network and other processes.
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
from ._home import LayoutError, readGenesis, readPeers
from ._rpc import EngineRpc, connectEngine
from ._settings import CometSettings
from .abci import AbciFactory, listenUnix


class EngineKeeper(Protocol):
    """
    Whoever keeps the engine running: L{Engine<svcbroker.ledgers.cometbft._engine.Engine>}, or
    nobody here.
    """

    @property
    def reason(self) -> str:
        """Why the engine is not running; empty where it is."""

    def start(self) -> None:
        """Start it."""

    def stop(self) -> Deferred[None]:
        """End it."""

    def connectionsChanged(self, count: int) -> None:
        """The application has more connections than before, or less."""


class ForeignEngine:
    """
    An engine that somebody else keeps running.
    """

    def __init__(self, socket: Path) -> None:
        """
        @param socket: where it is to connect to.
        """
        self._socket = socket
        self._connections = 0

    @property
    def reason(self) -> str:
        """See L{EngineKeeper}."""
        if self._connections < CONNECTIONS:
            return f"no engine is connected to {self._socket}"
        return ""

    def start(self) -> None:
        """See L{EngineKeeper}."""

    def stop(self) -> Deferred[None]:
        """See L{EngineKeeper}."""
        return succeed(None)

    def connectionsChanged(self, count: int) -> None:
        """See L{EngineKeeper}."""
        self._connections = count


@define
class EngineParts:
    """
    The parts of one ledger.

    @ivar socket: where the engine connects to.
    @ivar rpc: asks the engine.
    @ivar engine: keeps it running.
    """

    socket: Path
    rpc: EngineRpc
    engine: EngineKeeper
    _home: Path
    _listen: Callable[[AbciFactory], IListeningPort]
    _port: IListeningPort | None = field(default=None, init=False)
    _names: Mapping[str, bytes] | None = field(default=None, init=False)
    _wanted: frozenset[str] | None = field(default=None, init=False)
    _isRead: bool = field(default=False, init=False)

    @classmethod
    def real(cls, context: LedgerContext, settings: CometSettings) -> EngineParts:
        """
        The parts of a daemon. The context's reactor must be one.
        """
        reactor: Any = context.reactor
        socket = settings.socket
        engine: EngineKeeper = ForeignEngine(socket)
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
        Let the engine connect.

        @raise ValueError: the socket's path cannot be one.
        @raise OSError: the operating system refuses.
        """
        self._port = self._listen(factory)

    def stopListening(self) -> Deferred[Any]:
        """Let nobody connect any more. Fires when the socket is gone."""
        port, self._port = self._port, None
        return succeed(None) if port is None else maybeDeferred(port.stopListening)

    def names(self) -> Mapping[str, bytes]:
        """The public keys of the first validators, by the names of their engines."""
        if self._names is None:
            try:
                self._names = namesOf(readGenesis(self._home))
            except LayoutError:
                # The engine is elsewhere. Who is whom, only votes tell then.
                self._names = {}
        return self._names

    def wanted(self) -> frozenset[str] | None:
        """The ids of the nodes that the engine keeps connections to; C{None}: unknown."""
        if not self._isRead:
            self._isRead, self._wanted = True, readPeers(self._home)
        return self._wanted

    def close(self) -> Deferred[Any]:
        """Close what is kept open to the engine."""
        return self.rpc.close()
