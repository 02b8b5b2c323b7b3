"""
What single subscribers are measured with: they wait for what comes, on sockets that block.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from contextlib import closing
from socket import socket
from time import perf_counter, process_time

from svcbroker.commands.bench import MQTT_5, Broken, Measured, connectPacket, greet, publishPacket

from .loader import allowFiles, connect
from .wires import mqtt
from .wires.talk import CONTENT, ask, read, readExactly


def driveNotify(port: int, topic: str, seconds: float) -> Measured:
    """
    One client publishes with QoS 1, one subscribes with QoS 0; nothing more is published before
    the event was delivered and acknowledged. Latencies are those from publish to delivery.

    @raise Broken: something else than the event was delivered.
    """
    latencies = array("d")
    publish = publishPacket(topic, 1, 1, CONTENT)
    delivery = publishPacket(topic, 0, 0, CONTENT)
    with closing(connect(port)) as reader, closing(connect(port)) as publisher:
        greet(reader)
        mqtt.subscribe(reader, topic, 0)
        greet(publisher)
        began, computed = perf_counter(), process_time()
        while perf_counter() < began + seconds:
            sent = perf_counter()
            publisher.sendall(publish)
            delivered = readExactly(reader, len(delivery))
            latencies.append(perf_counter() - sent)
            if delivered != delivery:
                raise Broken(f"a delivery is not what was published: {delivered[:400]!r}")
            if readExactly(publisher, 4) != b"\x40\2\0\1":
                raise Broken("the acknowledgement is of something else")
        return _measured(len(latencies), began, computed, latencies)


def driveReplay(port: int, topic: str, events: int) -> Measured:
    """
    Read a topic of so many events from its beginning, with QoS 0. One latency: that of the first.

    The frames differ in their event ids, so their contents are counted.
    """
    latencies = array("d")
    with closing(connect(port)) as reader:
        ask(reader, connectPacket("", MQTT_5), b"\x20")
        began, computed = perf_counter(), process_time()
        reader.sendall(mqtt.replayPacket(topic))
        found = 0
        tail = b""
        while found < events:
            data = tail + read(reader)
            count = data.count(CONTENT)
            if count and not found:
                latencies.append(perf_counter() - began)
            found += count
            last = data.rfind(CONTENT)
            tail = data[last + len(CONTENT) :] if last >= 0 else data
        if found != events:
            raise Broken(f"{found} events were replayed, the topic has {events}")
        return _measured(events, began, computed, latencies)


def _measured(events: int, began: float, computed: float, latencies: array[float]) -> Measured:
    took = perf_counter() - began
    return Measured(
        seconds=took,
        events=events,
        latencies=latencies,
        clientShare=(process_time() - computed) / took,
    )


def gather(port: int, subscribers: int, deadline: float) -> Sequence[socket]:
    """
    Have many clients subscribe, each to a topic of its own.

    @param deadline: when to give up, as C{perf_counter} tells it.
    @return: their sockets, to be closed by the caller.
    @raise Broken: it takes too long.
    """
    opened: list[socket] = []
    allowFiles(subscribers)
    try:
        for number in range(subscribers):
            one = connect(port)
            opened.append(one)
            greet(one, f"idle{number}")
            mqtt.subscribe(one, f"idle/{number}", 0)
            if perf_counter() > deadline:
                raise Broken(f"only {number} of {subscribers} could subscribe in time")
    except BaseException:
        for each in opened:
            each.close()
        raise
    return opened
