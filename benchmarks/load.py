"""
What comes of a load; and a load in Python, for requests that are made up, or answers that are
looked at, while it runs: C{benchmarks.loader} is for all others.

Connections each send a request, wait for its answer, check it, and send the next. Raw sockets and
one epoll, so that a request costs this side some 10 µs.
"""

from __future__ import annotations

import select
import socket
from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from time import perf_counter, process_time

from attrs import define, field, frozen

TIMEOUT = 30.0
"""Seconds that an answer may take before the run counts as broken."""

_READ_SIZE = 1 << 18


class Broken(Exception):
    """The server did not do what it should. The text says what."""


@frozen(kw_only=True)
class Shape:
    """
    What is sent, and what must come back.

    @ivar requests: gives whole HTTP requests, for ever.
    @ivar check: C{check(body)} says how many events an answer has acknowledged or brought, or
        raises L{Broken}.
    """

    requests: Iterator[bytes]
    check: Callable[[bytes], int]

    @classmethod
    def same(cls, request: bytes, check: Callable[[bytes], int]) -> Shape:
        """The same request over and over."""
        return cls(requests=repeat(request), check=check)


@frozen(kw_only=True)
class Measured:
    """
    What came of a load.

    @ivar seconds: how long it took.
    @ivar events: how many events the answers acknowledged or brought.
    @ivar latencies: seconds from each request to its answer, in the order of the answers.
    @ivar clientShare: the share of the time in which this side computed; near 1 it is this
        side that was measured.
    """

    seconds: float
    events: int
    latencies: array[float]
    clientShare: float


def splitAnswer(received: bytes) -> tuple[bytes, bytes] | None:
    """
    Take an answer off the front of what was received.

    @return: its body and what follows it; C{None} where it is not there whole.
    @raise Broken: it has not status 200, or no length.
    """
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = received[:end]
    if not head.startswith(b"HTTP/1.1 200 "):
        raise Broken(f"the answer begins with {head[:200]!r}")
    _, found, rest = head.lower().partition(b"\r\ncontent-length: ")
    if not found:
        raise Broken(f"an answer has no length: {head!r}")
    start = end + 4
    stop = start + int(rest.partition(b"\r\n")[0])
    if len(received) < stop:
        return None
    return received[start:stop], received[stop:]


@define(eq=False)
class _Connection:
    socket: socket.socket
    received: bytes = b""
    unsent: bytes = b""
    sent: float = 0.0


@define(eq=False)
class _Load:
    shape: Shape
    epoll: select.epoll
    connections: dict[int, _Connection]
    events: int = 0
    latencies: array[float] = field(factory=lambda: array("d"))

    def ask(self, connection: _Connection) -> None:
        request = next(self.shape.requests)
        connection.sent = perf_counter()
        count = connection.socket.send(request)
        if count < len(request):
            connection.unsent = request[count:]
            self._watch(connection, select.EPOLLIN | select.EPOLLOUT)

    def sendMore(self, connection: _Connection) -> None:
        count = connection.socket.send(connection.unsent)
        connection.unsent = connection.unsent[count:]
        if not connection.unsent:
            self._watch(connection, select.EPOLLIN)

    def hear(self, connection: _Connection) -> bool:
        """Read; whether the answer is there whole."""
        data = connection.socket.recv(_READ_SIZE)
        if not data:
            raise Broken("the server has closed a connection")
        found = splitAnswer(connection.received + data if connection.received else data)
        if found is None:
            connection.received += data
            return False
        body, connection.received = found
        if connection.received:
            raise Broken(f"there is more than an answer: {connection.received[:200]!r}")
        self.latencies.append(perf_counter() - connection.sent)
        self.events += self.shape.check(body)
        return True

    def _watch(self, connection: _Connection, what: int) -> None:
        self.epoll.modify(connection.socket.fileno(), what)


def drive(
    port: int | Sequence[int],
    shape: Shape,
    connections: int,
    seconds: float,
    requests: int | None = None,
) -> Measured:
    """
    Load a server on 127.0.0.1. Everything that was asked is answered and checked when it ends.

    @param port: where it is; several are servers to which the clients are dealt out.
    @param connections: how many clients there are, each with one request under way.
    @param seconds: after this time nothing more is asked.
    @param requests: after this number nothing more is asked either.
    @raise Broken: an answer is wrong, or there is none for L{TIMEOUT} seconds.
    """
    ports = [port] if isinstance(port, int) else port
    with select.epoll() as epoll:
        load = _Load(shape, epoll, {})
        try:
            for number in range(connections):
                place = ("127.0.0.1", ports[number % len(ports)])
                opened = socket.create_connection(place, TIMEOUT)
                opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                opened.setblocking(False)
                load.connections[opened.fileno()] = _Connection(opened)
                epoll.register(opened.fileno(), select.EPOLLIN)
            return _run(load, seconds, requests)
        finally:
            for connection in load.connections.values():
                connection.socket.close()


def _run(load: _Load, seconds: float, requests: int | None) -> Measured:
    began, computed = perf_counter(), process_time()
    end = began + seconds
    limit = float("inf") if requests is None else requests
    asked = waiting = min(len(load.connections), int(min(limit, len(load.connections))))
    for connection in list(load.connections.values())[:asked]:
        load.ask(connection)
    while waiting:
        ready = load.epoll.poll(TIMEOUT)
        if not ready:
            raise Broken(f"no answer for {TIMEOUT:g} seconds")
        for number, what in ready:
            connection = load.connections[number]
            if what & select.EPOLLOUT:
                load.sendMore(connection)
            if what & ~select.EPOLLOUT and load.hear(connection):
                if asked < limit and perf_counter() < end:
                    asked += 1
                    load.ask(connection)
                else:
                    waiting -= 1
    took = perf_counter() - began
    return Measured(
        seconds=took,
        events=load.events,
        latencies=load.latencies,
        clientShare=(process_time() - computed) / took,
    )
