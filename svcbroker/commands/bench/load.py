"""
A load on a broker: connections each keep some requests under way, and every answer is checked.

Raw sockets and one epoll, so that a request costs this side some 10 µs.
"""

from __future__ import annotations

import resource
import select
import socket
import ssl
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, repeat
from math import ceil
from time import perf_counter, process_time

from attrs import Factory, define, field, frozen

TIMEOUT = 30.0
"""Seconds that an answer may take before the run counts as broken."""

REPORT_INTERVAL = 0.2
"""Seconds between two reports of how far a run is."""

_READ_SIZE = 1 << 18
_SPARE_FILES = 64


class Broken(Exception):
    """The server did not do what it should. The text says what."""


def splitAnswer(received: bytes) -> tuple[bytes, bytes] | None:
    """
    Take an answer of HTTP off the front of what was received.

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


@frozen(kw_only=True)
class Shape:
    """
    The shape of a load: its requests, and the answers that must come.

    @ivar requests: gives the requests of a connection, for ever, by the number of the connection.
    @ivar check: C{check(answer)} says how many events an answer has acknowledged or brought, or
        raises L{Broken}.
    @ivar split: takes an answer off the front of what was received, as L{splitAnswer} does.
    @ivar window: how many requests each connection has under way. They are answered in their
        order.
    @ivar greet: is called first with each connection, which blocks then.
    """

    requests: Callable[[int], Iterator[bytes]]
    check: Callable[[bytes], int]
    split: Callable[[bytes], tuple[bytes, bytes] | None] = splitAnswer
    window: int = 1
    greet: Callable[[socket.socket], None] | None = None

    @classmethod
    def same(cls, request: bytes, check: Callable[[bytes], int]) -> Shape:
        """The same request over and over."""
        return cls(requests=lambda number: repeat(request), check=check)


@frozen(kw_only=True)
class Measured:
    """
    The results of a load.

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


def percentile(ordered: Sequence[float], share: float) -> float:
    """
    The least value that C{share} per cent of the values do not exceed.

    @param ordered: one value or more, in rising order.
    """
    # Rounded first: 99.9 per cent of 1000 is 999, and not a little more.
    return ordered[max(0, ceil(round(len(ordered) * share / 100, 9)) - 1)]


@define(eq=False)
class _Connection:
    socket: socket.socket
    requests: Iterator[bytes]
    received: bytes = b""
    unsent: bytes = b""
    sent: deque[float] = Factory(deque)


@define(eq=False)
class _Load:
    shape: Shape
    epoll: select.epoll
    connections: dict[int, _Connection]
    events: int = 0
    latencies: array[float] = field(factory=lambda: array("d"))

    def ask(self, connection: _Connection, count: int) -> None:
        """Send so many requests."""
        if count == 1:
            data = next(connection.requests)
            connection.sent.append(perf_counter())
        else:
            data = b"".join(islice(connection.requests, count))
            connection.sent.extend(repeat(perf_counter(), count))
        if connection.unsent:
            connection.unsent += data
            return
        sent = _send(connection.socket, data)
        if sent < len(data):
            connection.unsent = data[sent:]
            self._watch(connection, select.EPOLLIN | select.EPOLLOUT)

    def sendMore(self, connection: _Connection) -> None:
        """Send what could not be sent before."""
        sent = _send(connection.socket, connection.unsent)
        connection.unsent = connection.unsent[sent:]
        if not connection.unsent:
            self._watch(connection, select.EPOLLIN)

    def hear(self, connection: _Connection) -> int:
        """Read; how many answers have come whole."""
        try:
            data = connection.socket.recv(_READ_SIZE)
            while isinstance(connection.socket, ssl.SSLSocket) and connection.socket.pending():
                data += connection.socket.recv(_READ_SIZE)
        except (BlockingIOError, ssl.SSLWantReadError):
            return 0
        except OSError as error:
            raise Broken(f"a connection was lost: {error.strerror or error}") from None
        if not data:
            raise Broken("the server has closed a connection")
        rest, split, check = connection.received + data, self.shape.split, self.shape.check
        now, count, sent = perf_counter(), 0, connection.sent
        while rest and (found := split(rest)) is not None:
            answer, rest = found
            if not sent:
                raise Broken(f"there is more than an answer: {answer[:200]!r}")
            self.latencies.append(now - sent.popleft())
            self.events += check(answer)
            count += 1
        connection.received = rest
        return count

    def _watch(self, connection: _Connection, what: int) -> None:
        self.epoll.modify(connection.socket.fileno(), what)


def _send(opened: socket.socket, data: bytes) -> int:
    try:
        return opened.send(data)
    except (BlockingIOError, ssl.SSLWantWriteError):
        return 0
    except OSError as error:
        raise Broken(f"a connection was lost: {error.strerror or error}") from None


def allowFiles(connections: int) -> None:
    """
    Have room for so many connections.

    @raise Broken: there may not be so many.
    """
    count = connections + _SPARE_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise Broken(f"there may be only {hard} open files here, {count} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def _connect(place: tuple[str, int], context: ssl.SSLContext | None) -> socket.socket:
    opened = socket.create_connection(place, TIMEOUT)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened if context is None else context.wrap_socket(opened, server_hostname=place[0])


def drive(
    port: int | Sequence[int],
    shape: Shape,
    connections: int,
    seconds: float,
    requests: int | None = None,
    *,
    host: str = "127.0.0.1",
    context: ssl.SSLContext | None = None,
    report: Callable[[float], None] | None = None,
) -> Measured:
    """
    Load a server. Everything that was asked is answered and checked when it ends.

    @param port: where it is; several are servers to which the clients are dealt out.
    @param connections: how many clients there are.
    @param seconds: after this time nothing more is asked.
    @param requests: after this number nothing more is asked either.
    @param context: that of TLS, where connections are encrypted.
    @param report: is called with the seconds since the beginning, now and then.
    @raise Broken: an answer is wrong, or there is none for L{TIMEOUT} seconds.
    @raise OSError: a connection cannot be made.
    """
    ports = [port] if isinstance(port, int) else port
    allowFiles(connections)
    with select.epoll() as epoll:
        load = _Load(shape, epoll, {})
        try:
            for number in range(connections):
                opened = _connect((host, ports[number % len(ports)]), context)
                load.connections[opened.fileno()] = _Connection(opened, shape.requests(number))
                if shape.greet is not None:
                    shape.greet(opened)
                opened.setblocking(False)
                epoll.register(opened.fileno(), select.EPOLLIN)
            return _run(load, seconds, requests, report)
        finally:
            for connection in load.connections.values():
                connection.socket.close()


def _run(
    load: _Load, seconds: float, requests: int | None, report: Callable[[float], None] | None
) -> Measured:
    began, computed = perf_counter(), process_time()
    end = began + seconds
    nextReport = began if report is not None else float("inf")
    left = float("inf") if requests is None else requests
    waiting = 0
    for connection in load.connections.values():
        count = int(min(load.shape.window, left))
        if count:
            load.ask(connection, count)
            waiting, left = waiting + count, left - count
    while waiting:
        ready = load.epoll.poll(TIMEOUT)
        if not ready:
            raise Broken(f"no answer for {TIMEOUT:g} seconds")
        for number, what in ready:
            connection = load.connections[number]
            if what & select.EPOLLOUT:
                load.sendMore(connection)
            if what & ~select.EPOLLOUT and (answered := load.hear(connection)):
                waiting -= answered
                now = perf_counter()
                if now < end and left:
                    count = int(min(answered, left))
                    load.ask(connection, count)
                    waiting, left = waiting + count, left - count
                if now > nextReport and report is not None:
                    nextReport = now + REPORT_INTERVAL
                    report(now - began)
    took = perf_counter() - began
    return Measured(
        seconds=took,
        events=load.events,
        latencies=load.latencies,
        clientShare=(process_time() - computed) / took,
    )
