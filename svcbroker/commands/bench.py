"""
C{svcbroker bench}: measures how many events a broker takes in, and how long each publish waits.

The load is publishes over each protocol: connections each keep some requests under way, and every
answer is checked. Raw sockets and one epoll, so that a request costs this side some 10 µs.
"""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import ssl
from array import array
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from itertools import cycle, islice, repeat
from math import ceil
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

import click
from attrs import Factory, define, field, frozen

from .arguments import Decimal, Whole, jsonOption, options
from .clientcommand import brokerOf, connected, connectedCommand
from .terminal import CommandError, Console, Exit, progressBar

if TYPE_CHECKING:
    from ..client import Client


PROTOCOLS: Final = ("rest", "jsonrpc", "mqtt", "stomp")
PORTS: Final = {"mqtt": (1883, 8883), "stomp": (61613, 61614)}
"""The ports of the protocols that have their own: plain, and with TLS."""

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


MQTT_311 = 4
MQTT_5 = 5

_ANSWER_SIZE = 1 << 16
_MOST = 1 << 20


def ask(opened: socket.socket, request: bytes, start: bytes, end: bytes = b"") -> bytes:
    """
    Send something, and wait for its answer, on a connection that blocks.

    @param start: what the answer begins with.
    @param end: what it is whole with.
    @return: the answer.
    @raise Broken: something else was answered, or nothing.
    """
    opened.sendall(request)
    received = b""
    while len(received) < len(start) or end not in received:
        received += read(opened)
        if not start.startswith(received[: len(start)]) or len(received) > _MOST:
            raise Broken(f"not {start!r}, but {received[:300]!r}")
    return received


def read(opened: socket.socket) -> bytes:
    """
    Read the bytes that have come, at least one.

    @raise Broken: the connection ends.
    """
    data = opened.recv(_ANSWER_SIZE)
    if not data:
        raise Broken("the server has closed a connection")
    return data


# HTTP


def httpRequest(
    method: bytes, target: bytes, type: bytes = b"", body: bytes = b"", head: bytes = b""
) -> bytes:
    """
    A request.

    @param head: the header C{Host} and others, each with the end of its line.
    """
    lines = b"%b %b HTTP/1.1\r\n%b" % (method, target, head or b"Host: 127.0.0.1\r\n")
    if body:
        lines += b"Content-Type: %b\r\nContent-Length: %d\r\n" % (type, len(body))
    return lines + b"\r\n" + body


# MQTT


def packet(first: int, *parts: bytes) -> bytes:
    """A control packet of MQTT."""
    body = b"".join(parts)
    length = len(body)
    encoded = bytearray((first,))
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    encoded.append(length)
    return bytes(encoded) + body


def text(words: str) -> bytes:
    """A string of MQTT, with its length."""
    encoded = words.encode("utf-8")
    return len(encoded).to_bytes(2, "big") + encoded


def connectPacket(clientId: str = "", version: int = MQTT_311, login: Sequence[str] = ()) -> bytes:
    """
    A CONNECT without a keep-alive, for a session that ends with the connection.

    @param login: the account's name and its password, where there are accounts.
    """
    properties = b"\0" if version == MQTT_5 else b""
    flags = 0xC2 if login else 2
    fields = (text("MQTT"), bytes((version, flags, 0, 0)), properties, text(clientId))
    return packet(0x10, *fields, *map(text, login))


def greet(opened: socket.socket, clientId: str = "", login: Sequence[str] = ()) -> None:
    """
    Begin a connection in MQTT 3.1.1.

    @raise Broken: it is refused.
    """
    ask(opened, connectPacket(clientId, login=login), b"\x20\x02\x00\x00")


def publishPacket(topic: str, qos: int, packetId: int, content: bytes) -> bytes:
    """A PUBLISH in MQTT 3.1.1."""
    identifier = packetId.to_bytes(2, "big") if qos else b""
    return packet(0x30 | qos << 1, text(topic), identifier, content)


# STOMP


def connectFrame(login: Sequence[str] = ()) -> bytes:
    """
    A CONNECT of STOMP 1.2 without heart-beats.

    @param login: the account's name and its password, where there are accounts.
    """
    credentials = b""
    if login:
        credentials = b"login:%b\npasscode:%b\n" % tuple(_escaped(each) for each in login)
    return b"CONNECT\naccept-version:1.2\nhost:/\nheart-beat:0,0\n%b\n\0" % credentials


def sendFrame(destination: str, number: int, content: bytes) -> bytes:
    """A SEND with a receipt, persistent where the broker knows a difference."""
    return b"SEND\ndestination:%b\npersistent:true\nreceipt:%06d\ncontent-length:%d\n\n%b\0" % (
        _escaped(destination),
        number,
        len(content),
        content,
    )


def _escaped(text: str) -> bytes:
    for each, escape in (("\\", r"\\"), ("\r", r"\r"), ("\n", r"\n"), (":", r"\c")):
        text = text.replace(each, escape)
    return text.encode("utf-8")


CYCLE: Final = 4096
"""After so many publishes of a connection its packet identifiers and receipts come again."""

_SUCCESS: Final = b'"status":"SUCCESS"'


@frozen(kw_only=True)
class LoadTarget:
    """
    The broker that is measured.

    @ivar client: a client of it.
    @ivar url: its base address.
    @ivar headers: the headers with the credentials.
    @ivar login: the account's name and password, for protocols without headers.
    @ivar group: the group; C{None} for the broker's.
    @ivar context: that of TLS; C{None} without.
    """

    client: Client
    url: str
    headers: Mapping[str, str]
    login: tuple[str, ...]
    group: str | None
    context: ssl.SSLContext | None

    @property
    def host(self) -> str:
        """The host of its URL."""
        return str(urlsplit(self.url).hostname)

    @property
    def isLocal(self) -> bool:
        """Whether it is on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def makeShape(
    target: LoadTarget, over: str, topic: str, content: bytes, window: int, batch: int
) -> Shape:
    """
    Make the shape of a load: its requests, and the answers that must come.

    @param over: the protocol, of L{PROTOCOLS}.
    @param window: how many publishes are under way on each connection of those in L{PORTS}.
    @param batch: how many events each request of jsonrpc has.
    """
    if over == "rest":
        return _restShape(target, topic, content)
    if over == "jsonrpc":
        return _rpcShape(target, topic, content, batch)
    if over == "mqtt":
        packets = [publishPacket(topic, 1, number, content) for number in range(1, CYCLE + 1)]
        return Shape(
            requests=lambda number: cycle(packets),
            check=_checkPuback,
            split=lambda received: (received[:4], received[4:]) if len(received) > 3 else None,
            window=window,
            greet=lambda opened: greet(opened, login=target.login),
        )
    frames = [sendFrame(topic, number, content) for number in range(CYCLE)]
    if target.group is not None:
        header = b"\ngroupId:%b\n" % target.group.encode("utf-8")
        frames = [each.replace(b"\n", header, 1) for each in frames]
    return Shape(
        requests=lambda number: cycle(frames),
        check=_checkReceipt,
        split=_splitFrame,
        window=window,
        greet=lambda opened: _connectStomp(opened, target.login),
    )


def _connectStomp(opened: socket.socket, login: Sequence[str]) -> None:
    ask(opened, connectFrame(login), b"CONNECTED\n", b"\0")


def _head(target: LoadTarget) -> bytes:
    lines = {"Host": urlsplit(target.url).netloc, **target.headers}
    return "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode("latin-1")


def _restShape(target: LoadTarget, topic: str, content: bytes) -> Shape:
    group = "" if target.group is None else f"&groupId={quote(target.group)}"
    fields = f"topic={quote(topic, safe='')}{group}&content=".encode("ascii") + content
    request = httpRequest(
        b"POST",
        f"{urlsplit(target.url).path}/rest/publish".encode("ascii"),
        b"application/x-www-form-urlencoded",
        fields,
        _head(target),
    )
    return Shape(requests=lambda number: repeat(request), check=_counting(1))


def _rpcShape(target: LoadTarget, topic: str, content: bytes, batch: int) -> Shape:
    params = {"topic": topic, "content": b64encode(content).decode("ascii")}
    if target.group is not None:
        params["groupId"] = target.group
    calls = [
        {"jsonrpc": "2.0", "id": str(number), "method": "publish", "params": params}
        for number in range(batch)
    ]
    request = httpRequest(
        b"POST",
        f"{urlsplit(target.url).path}/jsonrpc".encode("ascii"),
        b"application/json",
        json.dumps(calls if batch > 1 else calls[0]).encode("utf-8"),
        _head(target),
    )
    return Shape(requests=lambda number: repeat(request), check=_counting(batch))


def _counting(events: int) -> Callable[[bytes], int]:
    def check(body: bytes) -> int:
        if body.count(_SUCCESS) != events:
            raise Broken(f"not published: {body[:300].decode('utf-8', 'replace')}")
        return events

    return check


def _checkPuback(answer: bytes) -> int:
    if answer[:2] != b"\x40\x02":
        raise Broken(f"not an acknowledgement of MQTT: {answer!r}")
    return 1


def _splitFrame(received: bytes) -> tuple[bytes, bytes] | None:
    # Between frames there may be ends of lines.
    frame, end, rest = received.lstrip(b"\r\n").partition(b"\0")
    return (frame, rest.lstrip(b"\r\n")) if end else None


def _checkReceipt(frame: bytes) -> int:
    if not frame.startswith(b"RECEIPT\n"):
        raise Broken(f"not a receipt of STOMP: {frame[:300].decode('utf-8', 'replace')}")
    return 1


WARM_UP: Final = 0.3
"""Seconds of load before the measurement, at most a quarter of it."""

_OWN_PORTS: Final = " and ".join(PORTS)
_MAX_WINDOW: Final = 1024
_BUSY: Final = 0.8
_MAX_CONTENT: Final = 10_000_000


@contextmanager
def _targeted(given: Mapping[str, Any]) -> Iterator[LoadTarget]:
    from ..client._httpx import makeContext
    from ..client._requests import authorization

    urls, settings = brokerOf(given, os.environ)
    if len(urls) > 1:
        raise CommandError("one broker is measured: give one --url")
    user, password, token = (settings.get(name) for name in ("user", "password", "token"))
    with connected(urls, settings) as client:
        yield LoadTarget(
            client=client,
            url=urls[0].rstrip("/"),
            headers=authorization(user, password, token),
            login=(str(user), str(password)) if user else (),
            group=settings["group"],
            context=makeContext(settings) if urls[0].startswith("https:") else None,  # type: ignore[arg-type]
        )


@connectedCommand(
    """\
    Measure how fast a broker takes events in.

    Publishes for some seconds over some connections, each of which waits for the answers to what it
    has under way, and shows the rate and the latency of the publishes.

    IT WRITES TO THE CHAIN, and what is written stays: the events are in the log, in backups, and on
    every node. A broker that is not on this machine is measured only with --yes.

    \b
    svcbroker bench --seconds 10 --connections 64
    svcbroker bench --over jsonrpc --batch 100 --size 1000
    """,
    _targeted,
)
@options(
    click.argument("topic", default="bench/publish"),
    click.option(
        "--over",
        type=click.Choice(PROTOCOLS),
        default="rest",
        show_default=True,
        help="The protocol.",
    ),
    click.option(
        "--seconds",
        type=Decimal(0.1, 3600),
        default=5.0,
        show_default=True,
        metavar="NUMBER",
        help="How long.",
    ),
    click.option(
        "--connections",
        type=Whole(1, 10_000),
        default=32,
        show_default=True,
        metavar="NUMBER",
        help="How many connections publish.",
    ),
    click.option(
        "--window",
        type=Whole(1, _MAX_WINDOW),
        metavar="NUMBER",
        help=f"How many publishes are under way on each connection of {_OWN_PORTS}. [default: 32]",
    ),
    click.option(
        "--batch",
        type=Whole(1, 1000),
        metavar="NUMBER",
        help="How many events each request of jsonrpc has. [default: 1]",
    ),
    click.option(
        "--size",
        type=Whole(0, _MAX_CONTENT),
        default=300,
        show_default=True,
        metavar="BYTES",
        help="The size of each event's content.",
    ),
    click.option(
        "--port",
        type=Whole(1, 65535),
        metavar="PORT",
        help="The port of "
        + " or ".join(f"{each} ({plain}, with https {tls})" for each, (plain, tls) in PORTS.items())
        + ".",
    ),
    click.option("--yes", is_flag=True, help="Do not ask, wherever the broker is."),
    jsonOption("Show the result as a line of JSON."),
)
def command(
    console: Console,
    target: LoadTarget,
    topic: str,
    over: str,
    seconds: float,
    connections: int,
    window: int | None,
    batch: int | None,
    size: int,
    port: int | None,
    yes: bool,
    asJson: bool,
) -> None:
    """Load the broker, and show what came of it."""
    if window is not None and over not in PORTS:
        raise CommandError(f"--window is for {_OWN_PORTS}")
    if port is not None and over not in PORTS:
        raise CommandError(f"--port is for {_OWN_PORTS}: others have that of the URL")
    if batch is not None and over != "jsonrpc":
        raise CommandError("--batch is for jsonrpc")
    if over in PORTS and "Authorization" in target.headers and not target.login:
        raise CommandError(f"{_OWN_PORTS} need --user, not a token alone")
    if target.group is not None and over == "mqtt":
        raise CommandError("--group is for the other protocols")
    if not yes:
        _ask(console, target, topic)
    target.client.open(topic)
    shape = makeShape(target, over, topic, b"x" * size, window or 32, batch or 1)
    place = port or _port(target, over)
    try:
        drive(
            place,
            shape,
            connections,
            min(WARM_UP, seconds / 4),
            host=target.host,
            context=target.context,
        )
        with progressBar(console, "measuring", "seconds") as report:
            measured = drive(
                place,
                shape,
                connections,
                seconds,
                host=target.host,
                context=target.context,
                report=lambda now: report(int(now), int(seconds)),
            )
    except Broken as error:
        raise CommandError(str(error), Exit.BAD) from None
    except OSError as error:
        where = f"{target.host}:{place}"
        raise CommandError(f"no connection to {where}: {error.strerror or error}") from None
    found = _figures(measured)
    if asJson:
        fields = {"over": over, "connections": connections, "topic": topic, "size": size}
        console.sayJson({**fields, "batch": batch or 1, **found})
        return
    for label, text in (
        ("events/s", f"{found['rate']:,.0f}"),
        ("p50", f"{found['p50']:.2f} ms"),
        ("p99", f"{found['p99']:.2f} ms"),
        ("events", f"{found['events']:,} in {found['seconds']:.1f} s, in the topic {topic}"),
        ("client CPU", f"{found['clientCpu']:.0%} of a core"),
    ):
        console.say(f"{label:12}{text}")
    if measured.clientShare > _BUSY:
        console.warn("this command was as busy as it can be: the broker may be faster")


def _ask(console: Console, target: LoadTarget, topic: str) -> None:
    what = f"events are written to the chain of {target.url}, topic {topic}, and stay there"
    if target.isLocal:
        console.warn(what)
    elif not (console.errors.isatty() and os.isatty(0)):
        raise CommandError(f"{what}: give --yes if you want that")
    else:
        click.confirm(f"{what}. Go on?", abort=True, err=True)


def _port(target: LoadTarget, over: str) -> int:
    if over in PORTS:
        return PORTS[over][target.context is not None]
    parts = urlsplit(target.url)
    return parts.port or (80 if target.context is None else 443)


def _figures(measured: Measured) -> dict[str, Any]:
    """The results: latencies in milliseconds, the client's processor time as a share."""
    ordered = sorted(measured.latencies)
    return {
        "events": measured.events,
        "seconds": round(measured.seconds, 3),
        "rate": round(measured.events / measured.seconds, 1),
        "p50": round(percentile(ordered, 50) * 1000, 3),
        "p99": round(percentile(ordered, 99) * 1000, 3),
        "clientCpu": round(measured.clientShare, 3),
    }
