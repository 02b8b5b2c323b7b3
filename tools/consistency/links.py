"""
The links between nodes: a relay for each direction, which can be cut, slowed down and reset.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from attrs import define, field
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.python.failure import Failure

HOST = "127.0.0.1"


@define(eq=False)
class Network:
    """
    The links of all pairs of nodes.

    @ivar severed: the pairs, from and to, between which nothing arrives. The connections stay open,
        as where packets are lost.
    @ivar delay: how long each piece takes, in seconds.
    """

    reactor: Any
    severed: frozenset[tuple[int, int]] = frozenset()
    delay: float = 0.0
    _open: set[Pipe] = field(factory=set, init=False)

    async def relay(self, source: int, target: int, port: int) -> int:
        """
        Make the link by which a node reaches another one.

        @param port: where the other one listens.
        @return: where the first one connects instead.
        """
        made = Factory.forProtocol(lambda: Pipe(self, source, target, port))
        made.noisy = False
        listening = self.reactor.listenTCP(0, made, interface=HOST)
        number: int = listening.getHost().port
        return number

    def sever(self, *pairs: tuple[int, int]) -> None:
        """Cut these, and no others."""
        self.severed = frozenset(pairs)
        for pipe in list(self._open):
            pipe.flush()

    def heal(self) -> None:
        """Let everything arrive at once."""
        self.delay = 0.0
        self.sever()

    def reset(self, pipes: int) -> None:
        """End some connections."""
        for pipe in list(self._open)[:pipes]:
            pipe.abort()

    def add(self, pipe: Pipe) -> None:
        """A connection was opened."""
        self._open.add(pipe)

    def remove(self, pipe: Pipe) -> None:
        """A connection has ended."""
        self._open.discard(pipe)


class Pipe(Protocol):
    """
    A connection of one node to another one, and the one that it is handed on to.
    """

    transport: Any

    def __init__(self, network: Network, source: int, target: int, port: int) -> None:
        self._network = network
        self._port = port
        self._ends: dict[tuple[int, int], Any] = {}
        self._forth, self._back = (source, target), (target, source)
        self._held: dict[tuple[int, int], deque[bytes]] = {
            self._forth: deque(),
            self._back: deque(),
        }

    def connectionMade(self) -> None:
        self._ends[self._back] = self.transport
        self._network.add(self)
        factory = Factory.forProtocol(lambda: _Far(self))
        factory.noisy = False
        endpoint = HostnameEndpoint(self._network.reactor, HOST, self._port)
        endpoint.connect(factory).addErrback(lambda _: self.abort())

    def farConnected(self, far: Any) -> None:
        """The other side is there."""
        self._ends[self._forth] = far
        if self.transport.disconnected:
            far.abortConnection()
        self.flush()

    def dataReceived(self, data: bytes) -> None:
        self.carry(self._forth, data)

    def answered(self, data: bytes) -> None:
        """The other side says something."""
        self.carry(self._back, data)

    def carry(self, way: tuple[int, int], data: bytes) -> None:
        """Take a piece, which arrives after the delay."""
        self._held[way].append(data)
        self._network.reactor.callLater(self._network.delay, self.flush)

    def flush(self) -> None:
        """
        Hand on what may arrive. What is severed waits here: the engines' own bounds on what is
        under way keep it small.
        """
        for way, held in self._held.items():
            end = self._ends.get(way)
            while held and end is not None and way not in self._network.severed:
                end.write(held.popleft())

    def abort(self) -> None:
        """End both sides."""
        for end in self._ends.values():
            end.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._network.remove(self)
        self.abort()


class _Far(Protocol):
    """
    The side of a connection that was handed on.
    """

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def connectionMade(self) -> None:
        self._pipe.farConnected(self.transport)

    def dataReceived(self, data: bytes) -> None:
        self._pipe.answered(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self._pipe.abort()
