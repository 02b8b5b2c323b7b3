"""
What hostile clients cost others: C{python -m benchmarks.hostile [--only TEXT ...] [--tree TREE]}.

For each call that a client can make, clients make it with the largest input that is allowed, one
after the other, from many connections, pipelined and in batches, and read the answers or leave them
unread. Meanwhile an innocent client publishes at a steady pace. Shown is the processor time that
the daemon's reactor thread has taken between a publish and its answer (that is how long the reactor
was held, whatever else the machine does), the time of the publishes, and the daemon's memory:
while the clients were there, and ten seconds after they have gone. The next attack begins when the
daemon has nothing to do any more.
"""

from __future__ import annotations

import multiprocessing
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from urllib.parse import urlencode

import msgspec
from attrs import define, evolve, field, frozen

from svcbroker.commands.bench import (
    TIMEOUT,
    Broken,
    ask,
    connectFrame,
    connectPacket,
    greet,
    httpRequest,
    packet,
    publishPacket,
    text,
)
from svcbroker.daemon.operating import readOperatorFile

from .brokers import Broker, startDaemon
from .children import CHECKOUT, Missing, household, memoryOf, separateCores
from .report import markdownTable

SECONDS = 2.0
"""How long each attack is."""
FIRST, LAST = -10, 19
"""The priorities of the innocent client, where it may have it, and of the hostile ones."""
PACE = 0.01
"""Seconds between two publishes of the innocent client."""
CONNECTIONS = 64
PIPELINED = 50
BATCH = 1000
BLOCKS = 20
EVENTS = 1000
"""Events in each of these blocks."""
LARGE = 1024 * 1024
"""The largest content of an event by default."""
HOLD = "benchmark"
"""The case that holds as many events as one may."""
UNSENT = 64 * 1024
"""
The bytes that the kernel keeps of what a hostile client sends: by default megabytes, for which the
broker would be at work when the client has gone, and beside the attacks that follow.
"""
GONE_SECONDS = 10.0
SETTLED = 300.0
"""The longest that the daemon may be at work after an attack, in seconds."""
IDLE = 10.0
"""Milliseconds that an idle daemon may use in a fifth of a second."""
HELD = 0.05
"""The longest that the reactor may be held, in seconds."""
LEFT = 20 << 20
"""The most memory that may stay, in bytes."""


# The requests


def _get(path: str, **parameters: object) -> bytes:
    query = f"?{urlencode(parameters)}" if parameters else ""
    return httpRequest(b"GET", f"/svcbroker{path}{query}".encode())


def _call(method: str, number: int, **parameters: object) -> bytes:
    return msgspec.json.encode(
        {"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}
    )


def _batch(method: str, calls: Sequence[Mapping[str, object]]) -> bytes:
    body = b"[%b]" % b",".join(_call(method, n, **each) for n, each in enumerate(calls))
    return httpRequest(b"POST", b"/svcbroker/jsonrpc", b"application/json", body)


@frozen
class Attack:
    """
    Something that hostile clients do.

    @ivar name: what it is.
    @ivar port: the carrier that it is done to.
    @ivar payloads: makes what a connection sends, again and again, of the connection's number.
    @ivar answers: how many answers there are to a payload; 0 where none is waited for.
    @ivar marker: what each answer has once.
    @ivar hello: what a connection begins with.
    @ivar connections: from how many.
    @ivar isRead: whether the answers are read.
    @ivar leaves: whether a connection is closed when its answers have come, and opened anew.
    """

    name: str
    port: str
    payloads: Callable[[int], bytes]
    answers: int = 1
    marker: bytes = b"HTTP/1.1 "
    hello: bytes = b""
    connections: int = 1
    isRead: bool = True
    leaves: bool = False


@frozen
class Known:
    """
    What the daemon has, that may be asked for.

    @ivar ids: ids of events, of one block after the other in turn.
    @ivar large: an id of an event with the largest content.
    @ivar height: the height of the chain.
    @ivar token: what operators have to show.
    """

    ids: Sequence[str]
    large: str
    height: int
    token: str


def restCalls(known: Known) -> Mapping[str, Callable[[int], tuple[str, dict[str, object]]]]:
    """The calls of REST, each with what makes the parameters of a number of it."""
    ids, height = known.ids, known.height

    def steady(path: str, **parameters: object) -> Callable[[int], tuple[str, dict[str, object]]]:
        return lambda number: (path, dict(parameters))

    def at(
        path: str, name: str, values: Sequence[object]
    ) -> Callable[[int], tuple[str, dict[str, object]]]:
        return lambda number: (path, {name: values[number % len(values)]})

    return {
        "publish": steady("/rest/publish", topic="hostile", content="x" * 300),
        "open": steady("/rest/open", topic="hostile"),
        "exist": steady("/rest/exist", topic="t/1"),
        "state": steady("/rest/state", topic="t/1"),
        "list": steady("/rest/list", pageIndex=9, pageSize=99),
        "getEvent": at("/rest/getEvent", "eventId", ids),
        "getEvent of 1 MiB": steady("/rest/getEvent", eventId=known.large),
        "events": steady("/rest/events", topic="bulk", limit=1000),
        "events of 1 MiB": steady("/rest/events", topic="large", limit=1000),
        "events, pattern": steady("/rest/events", topic="t/+/none/#", limit=1000),
        "events, reverse": steady("/rest/events", topic="#", limit=1000, reverse="true"),
        "proof": at("/rest/proof", "eventId", ids),
        "proof, trusted": lambda number: (
            "/rest/proof",
            {"eventId": ids[number % len(ids)], "trusted": height},
        ),
        "topicProof": lambda number: ("/rest/topicProof", {"topic": f"t/{number % 2000}"}),
        "checkpoint": lambda number: ("/rest/checkpoint", {"height": number % height}),
        "consistency": lambda number: (
            "/rest/consistency",
            {"older": number % (height - 1), "newer": height},
        ),
        "genesis": steady("/rest/genesis"),
        "explainAccess": steady(
            "/rest/explainAccess", action="subscribe", topic="/".join("t" * 50) + "/#"
        ),
        "witnesses": steady("/rest/witnesses"),
        "listWebhooks": steady("/rest/listWebhooks", limit=1000),
        "listDurableSubscriptions": steady(
            "/rest/listDurableSubscriptions", interfaceType="MQTT", limit=1000
        ),
        "listGroup": steady("/admin/listGroup"),
        "listNodes": steady("/admin/listNodes"),
        "listSubscription": steady("/admin/listSubscription"),
        "getVersion": steady("/admin/getVersion"),
        "listAccounts": steady("/rest/listAccounts", limit=1000),
        "listAlarms": steady("/admin/listAlarms"),
        "history": steady("/admin/history", seconds=86400),
        "listIncidents": steady("/admin/listIncidents"),
        "general": steady("/admin/group/general"),
        "measures": steady("/admin/group/measures"),
        "transList": lambda number: (
            "/admin/transaction/transList",
            {"pageNumber": 1 + number % 200, "pageSize": 99},
        ),
        "blockList": lambda number: (
            "/admin/block/blockList",
            {"pageNumber": 1 + number % 3, "pageSize": 99},
        ),
        "topicList": lambda number: (
            "/admin/topic/topicList",
            {"pageNumber": 1 + number % 3, "pageSize": 99},
        ),
        "nodeList": steady("/admin/node/nodeList", pageSize=99),
        "unknown path": lambda number: (f"/nothing/{number}", {}),
        "wrong parameters": lambda number: ("/rest/getEvent", {"eventId": f"{number}-1"}),
        "openapi.json": steady("/openapi.json"),
        "openrpc.json": steady("/openrpc.json"),
        "metrics": lambda number: ("/../metrics", {}),
        "health": lambda number: ("/../healthz", {}),
        "console": steady("/console/"),
        "console bundle": lambda number: (
            "/console/bundle",
            {"events": ",".join(ids[number * 50 % 5000 :][:50])},
        ),
        "log checkpoint": steady("/log/1/checkpoint"),
        "log tile": steady("/log/1/tile/0/000.p/10"),
        "log proof": at("/log/1/proof", "eventId", ids),
    }


def operatorCalls(known: Known) -> Mapping[str, Mapping[str, object]]:
    """
    The operator calls that change nothing that is looked at, each with the largest parameters; and
    an erasure of events of which the last is not there.
    """
    return {
        "alarms/list": {},
        "history/show": {"seconds": 86400},
        "incidents/list": {},
        "jobs/list": {},
        "configuration": {},
        "reload": {},
        "validators": {},
        "connections/list": {"limit": 1000, "search": "7"},
        "connections/close": {"protocol": "http", "remote": "x" * 60_000},
        "subscriptions/list": {"interfaceType": "MQTT", "limit": 1000},
        "webhooks/list": {"limit": 1000},
        "erase": {"reason": "x" * 200, "events": [*known.ids[:999], f"{'0' * 8}-999999999-1"]},
        "erase/preview": {"events": known.ids[-EVENTS:]},
        "holds/list": {"case": HOLD},
        "holds/released": {},
    }


def _onHttp(name: str, one: Callable[[int], bytes]) -> Iterator[Attack]:
    """A request, one after the other, from many connections, pipelined, and unread."""

    def pipelined(connection: int) -> bytes:
        return b"".join(one(connection * PIPELINED + each) for each in range(PIPELINED))

    single = Attack(f"{name}, 1", "http", one)
    yield single
    yield evolve(single, name=f"{name}, {CONNECTIONS}", connections=CONNECTIONS)
    many = Attack(f"{name}, 8 x {PIPELINED}", "http", pipelined, PIPELINED, connections=8)
    yield many
    many = evolve(many, connections=CONNECTIONS)
    yield evolve(many, name=f"{name}, {CONNECTIONS} x {PIPELINED}")
    yield evolve(many, name=f"{name}, {CONNECTIONS} x {PIPELINED}, unread", isRead=False)


def attacks(known: Known) -> Iterator[Attack]:
    """Everything that is tried."""
    for name, parameters in restCalls(known).items():

        def one(number: int, parameters: Callable[..., object] = parameters) -> bytes:
            path, given = parameters(number)  # type: ignore[misc]
            target = path.removeprefix("/..")
            if target != path:
                return httpRequest(b"GET", target.encode())
            return _get(path, **given)

        yield from _onHttp(name, one)
        path, _ = parameters(0)
        if path.startswith("/rest/"):
            method = path.removeprefix("/rest/")

            def batch(
                connection: int,
                method: str = method,
                parameters: Callable[..., object] = parameters,
            ) -> bytes:
                numbers = range(connection * BATCH, (connection + 1) * BATCH)
                calls = [parameters(each)[1] for each in numbers]  # type: ignore[index]
                for call in calls:
                    if "content" in call:
                        call["content"] = "eHh4" * 100
                return _batch(method, calls)

            for connections in (1, 8):
                title = f"{name}, batch of {BATCH}, {connections}"
                yield Attack(title, "http", batch, connections=connections)
            title = f"{name}, batch of {BATCH}, {CONNECTIONS}, unread"
            yield Attack(title, "http", batch, connections=CONNECTIONS, isRead=False)
    head = _operatorHead(known.token)
    for name, given in operatorCalls(known).items():
        target, body = f"/svcbroker/admin/operator/{name}".encode(), msgspec.json.encode(given)
        request = httpRequest(b"POST", target, b"application/json", body, head)
        yield from _onHttp(f"operator {name}", lambda _, request=request: request)
    yield from _more()


def _more() -> Iterator[Attack]:
    """What is no call of REST."""

    def discover(_: int) -> bytes:
        return _batch("rpc.discover", [{}] * 262)

    for isRead in (True, False):
        title = "rpc.discover, batch of 262, 60" + ("" if isRead else ", unread")
        yield Attack(title, "http", discover, connections=60, isRead=isRead)
    signed = {
        "topic": "hostile",
        "content": "eA==",
        "author": "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "signature": "00" * 64,
        "signedAt": 1,
    }
    for connections in (1, 8):
        yield Attack(
            f"wrong signatures, batch of {BATCH}, {connections}",
            "http",
            lambda _: _batch("publish", [signed] * BATCH),
            connections=connections,
        )
    yield from _mqtt()
    yield from _stomp()
    yield from _webSockets()


def _mqtt() -> Iterator[Attack]:
    hello = connectPacket()
    filters = b"".join(text(f"a/{number}/+") + b"\0" for number in range(1000))
    ends = b"".join(text(f"a/{number}/+") for number in range(1000))
    for name, payload, answers, marker in (
        ("PINGREQ", b"\xc0\0" * 30_000, 30_000, b"\xd0\0"),
        ("PUBLISH QoS 0", publishPacket("hostile", 0, 0, b"") * 5000, 0, b""),
        ("PUBLISH QoS 1", publishPacket("hostile", 1, 1, b"x") * 5000, 5000, b"\x40\2"),
        ("PUBACK", packet(0x40, b"\0\1") * 16_000, 0, b""),
        ("PUBREL", packet(0x62, b"\0\1") * 16_000, 16_000, b"\x70\2"),
        (
            "SUBSCRIBE and UNSUBSCRIBE of 1000",
            packet(0x82, b"\0\1", filters) + packet(0xA2, b"\0\1", ends),
            1,
            b"\xb0\2",
        ),
    ):
        for connections in (1, CONNECTIONS):
            yield Attack(
                *(f"MQTT {name}, {connections}", "mqtt", lambda _, data=payload: data),
                *(answers, marker, hello, connections),
            )
    # A CONNECT behind a CONNECT is refused, and the connection closed.
    for connections in (1, CONNECTIONS):
        yield Attack(
            *(f"MQTT leave with 1000 filters, {connections}", "mqtt"),
            *(lambda _: packet(0x82, b"\0\1", filters), 1, b"\x90", hello, connections),
            leaves=True,
        )
        yield Attack(
            *(f"MQTT CONNECT, {connections}", "mqtt", lambda _: connectPacket() * 2),
            *(2, b"\x20\2", b"", connections),
        )


def _stomp() -> Iterator[Attack]:
    hello = connectFrame()
    sends = b"SEND\ndestination:hostile\n\nx\0" * 2000
    subscribes = b"".join(
        b"SUBSCRIBE\nid:%d\ndestination:a/%d/+\n\n\0UNSUBSCRIBE\nid:%d\n\n\0" % (n, n, n)
        for n in range(1000)
    )
    for name, payload, answers, marker in (
        ("SEND", sends, 0, b""),
        (
            "SEND with receipts",
            b"SEND\ndestination:hostile\nreceipt:1\n\nx\0" * 1000,
            1000,
            b"RECEIPT\n",
        ),
        ("SUBSCRIBE and UNSUBSCRIBE", subscribes, 0, b""),
        (
            "BEGIN and ABORT",
            b"BEGIN\ntransaction:1\n\n\0ABORT\ntransaction:1\n\n\0" * 2000,
            0,
            b"",
        ),
        (
            "BEGIN, 1000 SEND, COMMIT",
            b"BEGIN\ntransaction:1\n\n\0"
            + b"SEND\ndestination:hostile\ntransaction:1\n\nx\0" * 1000
            + b"COMMIT\ntransaction:1\nreceipt:1\n\n\0",
            1,
            b"RECEIPT\n",
        ),
        ("newlines", b"\n" * 100_000, 0, b""),
        (
            "leave with 1000 subscriptions",
            b"".join(b"SUBSCRIBE\nid:%d\ndestination:a/%d/+\n\n\0" % (n, n) for n in range(1000))
            + b"BEGIN\ntransaction:1\nreceipt:1\n\n\0",
            1,
            b"RECEIPT\n",
        ),
    ):
        for connections in (1, CONNECTIONS):
            yield Attack(
                *(f"STOMP {name}, {connections}", "stomp", lambda _, data=payload: data),
                *(answers, marker, hello, connections),
                leaves=name.startswith("leave"),
            )


def _webSockets() -> Iterator[Attack]:
    for path, protocol in (("mqtt", "mqtt"), ("stomp", "v12.stomp")):
        hello = httpRequest(
            b"GET",
            f"/svcbroker/{path}".encode(),
            head=b"Host: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            + f"Sec-WebSocket-Protocol: {protocol}\r\n".encode(),
        )
        for name, frame in (
            ("pings", b"\x89\x80\0\0\0\0"),
            ("empty messages", b"\x82\x80\0\0\0\0"),
        ):
            for connections in (1, CONNECTIONS):
                yield Attack(
                    f"WebSocket of {path}, {name}, {connections}",
                    "http",
                    lambda _, data=frame * 10_000: data,
                    0,
                    hello=hello,
                    connections=connections,
                )


# The hostile clients


@define(eq=False)
class Client:
    """A connection of an attack."""

    attack: Attack
    port: int
    payload: bytes
    selector: selectors.BaseSelector
    opened: socket.socket = field(init=False)
    unsent: memoryview = field(init=False)
    missing: int = 0
    tail: bytes = b""
    isGreeted: bool = False

    def open(self) -> None:
        """Connect, and begin."""
        self.opened = socket.create_connection(("127.0.0.1", self.port), TIMEOUT)
        self.opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, UNSENT)
        self.opened.setblocking(False)
        self.selector.register(self.opened, selectors.EVENT_READ | selectors.EVENT_WRITE, self)
        self.isGreeted = not self.attack.hello
        self.unsent = memoryview(self.attack.hello or self.payload)
        self.missing = self.attack.answers if self.isGreeted else 1
        self.tail = b""

    def handle(self, events: int) -> None:
        """Read and write, as far as that goes now."""
        try:
            if events & selectors.EVENT_READ and (self.attack.isRead or not self.isGreeted):
                self._read()
            if events & selectors.EVENT_WRITE:
                self._write()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._reopen()

    def _reopen(self) -> None:
        self.selector.unregister(self.opened)
        self.opened.close()
        with suppress(OSError):
            self.open()

    def _read(self) -> None:
        data = self.opened.recv(1 << 20)
        if not data:
            raise ConnectionError
        if not self.isGreeted:
            self.isGreeted = True
            self._again()
            return
        marker = self.attack.marker
        if self.attack.answers:
            seen = self.tail + data
            self.missing -= seen.count(marker)
            self.tail = seen[len(seen) - len(marker) + 1 :] if len(marker) > 1 else b""
        if self.attack.answers and self.missing <= 0:
            if self.attack.leaves:
                raise ConnectionError
            self._again()

    def _again(self) -> None:
        self.unsent = memoryview(self.payload)
        self.missing = self.attack.answers
        self._wants(selectors.EVENT_READ | selectors.EVENT_WRITE)

    def _write(self) -> None:
        if self.unsent:
            self.unsent = self.unsent[self.opened.send(self.unsent) :]
        elif self.isGreeted and (not self.attack.answers or not self.attack.isRead):
            self.unsent = memoryview(self.payload)
        else:
            self._wants(selectors.EVENT_READ)

    def _wants(self, events: int) -> None:
        self.selector.modify(self.opened, events, self)


def drive(attack: Attack, port: int) -> None:
    """Attack until this process is ended."""
    os.setpriority(os.PRIO_PROCESS, 0, LAST)
    selector = selectors.DefaultSelector()
    for number in range(attack.connections):
        Client(attack, port, attack.payloads(number), selector).open()
    while True:
        for key, events in selector.select(0.1):
            key.data.handle(events)


@contextmanager
def attacking(attack: Attack, port: int) -> Iterator[None]:
    """An attack, in a process of its own, until the end of the block."""
    process = multiprocessing.Process(target=drive, args=(attack, port), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


# What is measured


@define
class Figures:
    """
    What was measured in an attack: times in milliseconds, memory in bytes.

    @ivar held: processor time of the reactor thread from a publish to its answer.
    @ivar times: how long the publishes took.
    @ivar share: the share of a processor that the reactor thread used meanwhile. Where it is small
        and the clients read their answers, they were waiting, and the row shows no load.
    @ivar before: the memory before.
    @ivar during: the most while.
    @ivar after: ten seconds after the clients have gone; 0 where that was not waited for.
    @ivar busy: the seconds that the daemon was still at work after they had gone.
    """

    held: list[float] = field(factory=list)
    times: list[float] = field(factory=list)
    share: float = 0.0
    before: int = 0
    during: int = 0
    after: int = 0
    busy: float = 0.0


def quantile(values: Sequence[float], share: float) -> float:
    """A quantile; 0 of nothing."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def threadTime(pid: int) -> float:
    """Milliseconds of processor time that the first thread of a process has used."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text("ascii").split()[0]) / 1e6


def publishSteadily(port: int, pid: int, seconds: float, figures: Figures) -> None:
    """
    Publish at a steady pace.

    @raise Broken: a publish was refused.
    """
    one = _get("/rest/publish", topic="innocent", content="x" * 300)
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as opened:
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        since, used = perf_counter(), threadTime(pid)
        while perf_counter() < since + seconds:
            held, begin = threadTime(pid), perf_counter()
            opened.sendall(one)
            answer = opened.recv(1 << 16)
            figures.times.append(1000 * (perf_counter() - begin))
            figures.held.append(threadTime(pid) - held)
            figures.during = max(figures.during, memoryOf(pid))
            if b'"SUCCESS"' not in answer:
                raise Broken(f"an innocent publish has failed: {answer!r}")
            sleep(max(0.0, PACE - (perf_counter() - begin)))
        figures.share = (threadTime(pid) - used) / 1000 / (perf_counter() - since)


def measure(attack: Attack | None, ports: Mapping[str, int], pid: int) -> Figures:
    """Measure an attack, or with C{None} that there is none."""
    figures = Figures(before=memoryOf(pid))
    if attack is None:
        publishSteadily(ports["http"], pid, SECONDS, figures)
        return figures
    with attacking(attack, ports[attack.port]):
        sleep(0.2)
        publishSteadily(ports["http"], pid, SECONDS, figures)
    gone = perf_counter()
    settle(pid)
    figures.busy = perf_counter() - gone
    if figures.during - figures.before > LEFT:
        sleep(max(0.0, GONE_SECONDS - figures.busy))
        figures.after = memoryOf(pid)
    return figures


def settle(pid: int) -> None:
    """
    Wait until the daemon has nothing to do.

    @raise Broken: it is at work for more than L{SETTLED} seconds. What is measured next would be
        what it still does, too.
    """
    end = perf_counter() + SETTLED
    while perf_counter() < end:
        before = threadTime(pid)
        sleep(0.2)
        if threadTime(pid) - before < IDLE:
            return
    raise Broken(f"the daemon is still at work after {SETTLED:.0f} s")


# What there is to ask for


def fill(broker: Broker, data: Path) -> Known:
    """
    Publish what is asked for: blocks of a thousand events, large events, topics.

    @param data: the data directory of the broker.
    @return: what can be asked for.
    """
    port = broker.ports["http"]
    ids: list[list[str]] = []
    for topic in ("hostile", "innocent", "bulk", "large", *(f"t/{n}" for n in range(2000))):
        _posted(port, _call("open", 1, topic=topic))
    for _ in range(BLOCKS):
        calls = [_call("publish", n, topic="bulk", content="eHh4" * 30) for n in range(EVENTS)]
        answers = _posted(port, b"[%b]" % b",".join(calls))
        ids.append([each["result"]["eventId"] for each in answers])
    large = ""
    for _ in range(6):
        [answer] = _posted(
            port, b"[%b]" % _call("publish", 1, topic="large", content="A" * (LARGE // 3 * 4))
        )
        large = answer["result"]["eventId"]
    turned = [each for group in zip(*ids, strict=True) for each in group]
    token = readOperatorFile(data).token
    held = {"case": HOLD, "reason": "x" * 200, "events": turned[-EVENTS:]}
    _posted(port, msgspec.json.encode(held), "/admin/operator/holds/add", token)
    height = broker.daemon.call("/admin/group/general", groupId="1")["data"]["latestBlock"]
    return Known(turned, large, int(height), token)


def _operatorHead(token: str) -> bytes:
    return f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n".encode()


def _posted(
    port: int, body: bytes, path: str = "/jsonrpc", token: str = ""
) -> list[dict[str, dict[str, str]]]:
    head = _operatorHead(token) if token else b""
    target = f"/svcbroker{path}".encode()
    request = httpRequest(b"POST", target, b"application/json", body, head)
    with socket.create_connection(("127.0.0.1", port), TIMEOUT) as opened:
        opened.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        received = b""
        while data := opened.recv(1 << 20):
            received += data
    answer = msgspec.json.decode(received.partition(b"\r\n\r\n")[2])
    found: list[dict[str, dict[str, str]]] = answer if isinstance(answer, list) else [answer]
    return found


def subscribe(port: int, stay: list[socket.socket], clients: int = 20, filters: int = 1000) -> None:
    """Have many subscriptions, which C{listSubscription} lists."""
    for number in range(clients):
        opened = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        stay.append(opened)
        greet(opened, f"idle{number}")
        names = b"".join(text(f"idle/{number}/{each}") + b"\0" for each in range(filters))
        ask(opened, packet(0x82, b"\0\1", names), b"\x90")


# The table


def row(name: str, figures: Figures, alone: Figures) -> Sequence[str]:
    """A line of the table; bold where a target is missed."""

    def cell(value: str, isMissed: bool) -> str:
        return f"**{value}**" if isMissed else value

    held = max(figures.held, default=0.0)
    p99, normal = quantile(figures.times, 0.99), quantile(alone.times, 0.99)
    growth, left = figures.during - figures.before, figures.after - figures.before
    return [
        name,
        f"{100 * figures.share:.0f} %",
        cell(f"{held:.0f} ms", held > 1000 * HELD),
        f"{median(figures.times):.1f} ms",
        cell(f"{p99:.1f} ms", p99 > 2 * normal),
        f"{growth / (1 << 20):+.0f} MiB",
        cell(f"{left / (1 << 20):+.0f} MiB", left > LEFT) if figures.after else "",
        f"{figures.busy:.1f} s" if figures.busy > 1 else "",
    ]


TITLES = (
    *("attack", "processor", "held, most", "p50", "p99"),
    *("memory while", "10 s after", "at work after"),
)


def _options() -> Namespace:
    parser = ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[""], metavar="TEXT", help="attacks with this")
    parser.add_argument("--tree", type=Path, default=CHECKOUT, help="the checkout of the daemon")
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often each is made: what stays after the first?"
    )
    parser.add_argument("--missed", action="store_true", help="show rows that miss a target alone")
    return parser.parse_args()


def main() -> None:
    """Measure, and print a table."""
    options = _options()
    serverCores, loadCores = separateCores()
    os.sched_setaffinity(0, loadCores)
    rows: list[Sequence[str]] = []
    stay: list[socket.socket] = []
    with household(), tempfile.TemporaryDirectory() as home:
        broker = startDaemon(Path(home) / "daemon", serverCores, options.tree.resolve())
        try:
            pid = broker.processes[0].pid
            # The innocent client reads its answers at once, whatever else its processor does.
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, 0, FIRST)
            known = fill(broker, Path(home) / "daemon" / "data")
            subscribe(broker.ports["mqtt"], stay)
            settle(pid)
            alone = measure(None, broker.ports, pid)
            rows.append(row("none", alone, alone))
            print(" | ".join(rows[0]), file=sys.stderr, flush=True)
            chosen = [
                attack
                for attack in attacks(known)
                if any(each in attack.name for each in options.only)
            ]
            for attack in chosen * options.rounds:
                found = row(attack.name, measure(attack, broker.ports, pid), alone)
                print(" | ".join(found), file=sys.stderr, flush=True)
                if not options.missed or any("**" in each for each in found):
                    rows.append(found)
        finally:
            broker.stop()
    print(markdownTable(TITLES, rows))


if __name__ == "__main__":
    try:
        main()
    except (Broken, Missing, subprocess.SubprocessError) as error:
        sys.exit(f"benchmarks: {error}")
