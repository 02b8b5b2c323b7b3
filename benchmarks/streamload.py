"""
The load of the measurements of streaming: raw sockets and one epoll, as in L{benchmarks.load}.
"""

from __future__ import annotations

import select
import socket
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter, process_time

from attrs import Factory, define

from .load import PATIENCE, Broken, Measured
from .wires_old import (
    CYCLE,
    MQTT_5,
    Deliveries,
    Publishing,
    mqttConnect,
    mqttPublishing,
    mqttReplay,
    mqttSubscribe,
)

FAN_WINDOW = 64
"""How many publishes of a fan-out are under way."""
FAN_LEAD = 1024
"""How far the slowest subscriber of a fan-out may be behind what was acknowledged."""
_READ_SIZE = 1 << 18
_SUBACK_SIZE = 5


class _Client:
    """
    A connection that has been made and accepted.

    @ivar hear: called with what arrives.
    """

    def __init__(self, port: int, hello: bytes, welcome: bytes, end: bytes = b"") -> None:
        self.hear: Callable[[bytes], None] = lambda data: None
        self._unsent = b""
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ask(hello, welcome, end)

    def ask(self, request: bytes, answer: bytes, end: bytes = b"") -> None:
        """
        Send something and wait for its answer.

        @param answer: what it begins with.
        @param end: what it ends with.
        @raise Broken: something else was answered, or nothing.
        """
        self.socket.sendall(request)
        received = b""
        while len(received) < len(answer) or end not in received:
            data = self.socket.recv(_READ_SIZE)
            if not data:
                raise Broken("the server has closed a connection")
            received += data
        if not received.startswith(answer):
            raise Broken(f"not {answer!r}, but {received[:300]!r}")

    def subscribe(self, topicFilter: str, qos: int) -> None:
        """Subscribe in MQTT 3.1.1."""
        self.ask(mqttSubscribe(topicFilter, qos), bytes((0x90, 3, 0, 1, qos)))

    def send(self, data: bytes | memoryview) -> None:
        """Send, as far as the socket takes it; the rest with the next call of L{flush}."""
        if self._unsent:
            self._unsent += data
            return
        try:
            count = self.socket.send(data)
        except BlockingIOError:
            count = 0
        if count < len(data):
            self._unsent = bytes(data[count:])

    @property
    def isBlocked(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Send what waits."""
        data, self._unsent = self._unsent, b""
        self.send(data)


class _Crowd:
    """
    Clients that are listened to together.
    """

    def __init__(self, epoll: select.epoll) -> None:
        self._epoll = epoll
        self._clients: dict[int, _Client] = {}
        self._blocked: set[int] = set()

    def add(self, client: _Client) -> None:
        """Listen to a client from now on."""
        client.socket.setblocking(False)
        number = client.socket.fileno()
        self._clients[number] = client
        self._epoll.register(number, select.EPOLLIN)

    def turn(self) -> None:
        """
        Wait until something happens, and take what has arrived.

        @raise Broken: nothing happens, or a connection ends.
        """
        ready = self._epoll.poll(PATIENCE)
        if not ready:
            raise Broken(f"nothing has come for {PATIENCE:g} seconds")
        for number, what in ready:
            client = self._clients[number]
            if what & select.EPOLLOUT:
                client.flush()
            if what & ~select.EPOLLOUT:
                data = client.socket.recv(_READ_SIZE)
                if not data:
                    raise Broken("the server has closed a connection")
                client.hear(data)
            if client.isBlocked != (number in self._blocked):
                self._watch(number, client.isBlocked)

    def _watch(self, number: int, isBlocked: bool) -> None:
        self._epoll.modify(number, select.EPOLLIN | (select.EPOLLOUT if isBlocked else 0))
        if isBlocked:
            self._blocked.add(number)
        else:
            self._blocked.discard(number)

    def close(self) -> None:
        """Cut everybody off."""
        for client in self._clients.values():
            client.socket.close()


@contextmanager
def _crowd() -> Iterator[_Crowd]:
    with select.epoll() as epoll:
        crowd = _Crowd(epoll)
        try:
            yield crowd
        finally:
            crowd.close()


@define(eq=False)
class _Publisher:
    """
    Keeps a number of publishes under way.

    Of what arrives together one latency is taken: that of the publish that waited longest.
    """

    client: _Client
    publishing: Publishing
    latencies: array[float]
    sent: int = 0
    acknowledged: int = 0
    _received: bytes = b""
    _early: set[int] = Factory(set)
    _times: array[float] = Factory(lambda: array("d", bytes(8 * CYCLE)))

    def publish(self, count: int) -> None:
        """Send so many more."""
        now = perf_counter()
        size, frames = self.publishing.size, self.publishing.frames
        while count:
            first = self.sent % CYCLE
            part = min(count, CYCLE - first)
            self._times[first : first + part] = array("d", (now,)) * part
            self.client.send(frames[first * size : (first + part) * size])
            self.sent += part
            count -= part

    def take(self, data: bytes) -> int:
        """
        Count acknowledgements; how many there are more, in the order of the publishes.

        @raise Broken: they acknowledge something else.
        """
        publishing = self.publishing
        before = self.acknowledged
        expected = before % CYCLE
        count, rest = divmod(len(data), publishing.answerSize)
        if (
            not (rest or self._received or self._early)
            and before + count <= self.sent
            and publishing.answers.startswith(data, expected * publishing.answerSize)
        ):
            self.latencies.append(perf_counter() - self._times[expected])
            self.acknowledged += count
            return count
        numbers, end = publishing.split(self._received + data)
        self._received = (self._received + data)[end:]
        if not numbers:
            return 0
        self.latencies.append(perf_counter() - self._times[numbers[0]])
        for number in numbers:
            if number == expected and not self._early:
                self.acknowledged += 1
                expected = (expected + 1) % CYCLE
            else:
                self._takeEarly(number)
                expected = self.acknowledged % CYCLE
        return self.acknowledged - before

    def _takeEarly(self, number: int) -> None:
        ahead = (number - self.acknowledged) % CYCLE
        if number in self._early or ahead >= self.sent - self.acknowledged:
            raise Broken(f"publish {number} was not under way, but is acknowledged")
        self._early.add(number)
        while self.acknowledged % CYCLE in self._early:
            self._early.discard(self.acknowledged % CYCLE)
            self.acknowledged += 1


def drivePublishes(
    port: int, publishing: Publishing, connections: int, window: int, seconds: float
) -> Measured:
    """
    Publish over some connections, each with C{window} publishes under way.

    Everything that was published is acknowledged when it ends.
    """
    latencies = array("d")
    with _crowd() as crowd:
        publishers = []
        for _ in range(connections):
            client = _Client(port, publishing.hello, publishing.welcome, publishing.end)
            publisher = _Publisher(client, publishing, latencies)
            crowd.add(client)
            publishers.append(publisher)
        began, computed = perf_counter(), process_time()
        for publisher in publishers:
            publisher.client.hear = _keepUp(publisher, began + seconds)
            publisher.publish(window)
        while any(publisher.acknowledged < publisher.sent for publisher in publishers):
            crowd.turn()
        return _measured(sum(each.acknowledged for each in publishers), began, computed, latencies)


def _keepUp(publisher: _Publisher, end: float) -> Callable[[bytes], None]:
    def hear(data: bytes) -> None:
        count = publisher.take(data)
        if count and perf_counter() < end:
            publisher.publish(count)

    return hear


def _measured(events: int, began: float, computed: float, latencies: array[float]) -> Measured:
    took = perf_counter() - began
    return Measured(
        seconds=took,
        events=events,
        latencies=latencies,
        clientShare=(process_time() - computed) / took,
    )


def driveFanOut(port: int, topic: str, subscribers: int, qos: int, seconds: float) -> Measured:
    """
    One client publishes with QoS 1, some subscribe. Events are deliveries.

    @raise Broken: somebody got something else, or not as much as was acknowledged.
    """
    latencies = array("d")
    publishing = mqttPublishing(topic)
    with _crowd() as crowd:
        received = []
        for _ in range(subscribers):
            client = _Client(port, publishing.hello, publishing.welcome)
            client.subscribe(topic, qos)
            deliveries = Deliveries(topic, qos)
            client.hear = _acknowledge(client, deliveries)
            crowd.add(client)
            received.append(deliveries)
        client = _Client(port, publishing.hello, publishing.welcome)
        publisher = _Publisher(client, publishing, latencies)
        client.hear = lambda data: _void(publisher.take(data))
        crowd.add(client)
        began, computed = perf_counter(), process_time()
        while perf_counter() < began + seconds:
            slowest = min(deliveries.count for deliveries in received)
            room = min(
                FAN_WINDOW - (publisher.sent - publisher.acknowledged),
                FAN_LEAD - (publisher.sent - slowest),
            )
            if room > 0:
                publisher.publish(room)
            crowd.turn()
        while (
            publisher.acknowledged < publisher.sent
            or min(deliveries.count for deliveries in received) < publisher.sent
        ):
            crowd.turn()
        total = sum(deliveries.count for deliveries in received)
        if total != publisher.sent * subscribers:
            raise Broken(f"{publisher.sent} events gave {total} deliveries to {subscribers}")
        return _measured(total, began, computed, latencies)


def _void(_: object) -> None:
    """Nothing."""


def _acknowledge(client: _Client, deliveries: Deliveries) -> Callable[[bytes], None]:
    def hear(data: bytes) -> None:
        acknowledgement = deliveries.take(data)
        if acknowledgement:
            client.send(acknowledgement)

    return hear


def driveNotify(port: int, topic: str, seconds: float) -> Measured:
    """
    One client publishes with QoS 1, one subscribes with QoS 0; nothing more is published before
    the event was delivered and acknowledged. Latencies are those from publish to delivery.
    """
    latencies = array("d")
    publishing = mqttPublishing(topic)
    with _crowd() as crowd:
        reader = _Client(port, publishing.hello, publishing.welcome)
        reader.subscribe(topic, 0)
        deliveries = Deliveries(topic, 0)
        client = _Client(port, publishing.hello, publishing.welcome)
        publisher = _Publisher(client, publishing, array("d"))
        sent = 0.0

        def delivered(data: bytes) -> None:
            before = deliveries.count
            deliveries.take(data)
            if deliveries.count > before:
                latencies.append(perf_counter() - sent)

        reader.hear = delivered
        client.hear = lambda data: _void(publisher.take(data))
        crowd.add(reader)
        crowd.add(client)
        began, computed = perf_counter(), process_time()
        while perf_counter() < began + seconds:
            sent = perf_counter()
            publisher.publish(1)
            while not publisher.acknowledged == deliveries.count == publisher.sent:
                crowd.turn()
        return _measured(publisher.sent, began, computed, latencies)


def driveReplay(port: int, topic: str, events: int) -> Measured:
    """
    Read a topic of so many events from its beginning, with QoS 0. One latency: that of the first.

    The frames differ in their event ids, so their contents are counted.
    """
    marker = mqttConnect("", MQTT_5)
    latencies = array("d")
    with _crowd() as crowd:
        client = _Client(port, marker, b"\x20")
        content = b"x" * 300
        found = 0
        tail = b""

        def hear(data: bytes) -> None:
            nonlocal found, tail
            data = tail + data
            count = data.count(content)
            if count and not found:
                latencies.append(perf_counter() - began)
            found += count
            last = data.rfind(content)
            tail = data[last + len(content) :] if last >= 0 else data

        client.hear = hear
        crowd.add(client)
        began, computed = perf_counter(), process_time()
        client.send(mqttReplay(topic))
        while found < events:
            crowd.turn()
        if found != events:
            raise Broken(f"{found} events were replayed, the topic has {events}")
        return _measured(events, began, computed, latencies)


def gather(port: int, subscribers: int, deadline: float) -> Sequence[socket.socket]:
    """
    Have many clients subscribe, each to a topic of its own.

    @param deadline: when to give up, as C{perf_counter} tells it.
    @return: their sockets, to be closed by the caller.
    @raise Broken: it takes too long.
    """
    opened: list[socket.socket] = []
    try:
        for number in range(subscribers):
            client = _Client(port, mqttConnect(f"idle{number}"), b"\x20\x02\x00\x00")
            opened.append(client.socket)
            client.subscribe(f"idle/{number}", 0)
            if perf_counter() > deadline:
                raise Broken(f"only {number} of {subscribers} could subscribe in time")
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened
