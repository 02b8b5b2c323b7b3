"""
What is measured, and on what.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from attrs import frozen

from ..brokers import TOPIC, Broker
from ..loader import Load
from ..wires import amqp, http, mqtt, nats, resp, stomp

FAN_TOPIC = "fan"


class Who(Enum):
    """
    What is measured. The value is what it is called where it cannot be.
    """

    AT_ONCE = "svcbroker, interval=0"
    KLEIN = "svcbroker, interval=0, --http-door=klein"
    DEFAULT = "svcbroker, default settings"
    REDIS = "Redis Streams, appendfsync always"
    NATS = "NATS JetStream, sync always"
    RABBIT = "RabbitMQ, quorum queue"
    MOSQUITTO = "mosquitto"
    NODE = "Node http, hello"
    GO = "Go net/http, hello"
    KLEIN_HELLO = "Klein route, hello"
    RESOURCE_HELLO = "twisted.web resource, hello"


class Part(Enum):
    """
    What is compared with each other: the value is the heading of its table.
    """

    ONE = "Publish, 1 connection, 1 under way"
    MANY = "Publish, 32 connections, 1 under way on each"
    CROWD = "Publish, 256 connections, 1 under way on each"
    WINDOW = "Publish, 1 connection, 256 under way"
    FULL = "Publish, 32 connections, 32 under way on each"
    BATCH = "Publish in batches"
    HELLO = "HTTP: what stands behind the request"
    FAN_OUT = "Fan-out: deliveries to subscribers"


@frozen(kw_only=True)
class Case:
    """
    One row.

    @ivar part: in which table.
    @ivar who: on what.
    @ivar load: what is done, in words.
    @ivar connections: by how many clients.
    @ivar window: how many requests each has under way.
    @ivar protocol: the port; see L{Broker.ports}.
    @ivar make: makes the load, given the broker and ids of events that it has.
    @ivar topic: what is published to, and counted; C{None} where nothing is published.
    @ivar subscribers: how many deliveries each publish gives.
    """

    part: Part
    who: Who
    load: str
    connections: int
    window: int = 1
    protocol: str
    make: Callable[[Broker, Sequence[str]], Load]
    topic: str | None = TOPIC
    subscribers: int = 1


def _publishing(
    who: Who,
    load: str,
    protocol: str,
    make: Callable[[Broker, int], Load],
    shapes: Sequence[Part],
) -> list[Case]:
    sizes = {
        Part.ONE: (1, 1),
        Part.MANY: (32, 1),
        Part.CROWD: (256, 1),
        Part.WINDOW: (1, 256),
        Part.FULL: (32, 32),
    }

    def case(part: Part) -> Case:
        connections, window = sizes[part]
        return Case(
            part=part,
            who=who,
            load=load,
            connections=connections,
            window=window,
            protocol=protocol,
            make=lambda broker, known: make(broker, window),
        )

    return [case(part) for part in shapes]


def _rest(who: Who, shapes: Sequence[Part]) -> list[Case]:
    return _publishing(who, "REST publish, POST", "http", lambda *_: http.postForm(), shapes)


def _batch(
    who: Who, load: str, connections: int, make: Load, protocol: str = "http", window: int = 1
) -> Case:
    return Case(
        part=Part.BATCH,
        who=who,
        load=load,
        connections=connections,
        window=window,
        protocol=protocol,
        make=lambda broker, known: make,
    )


def _getEvent(who: Who) -> Case:
    return Case(
        part=Part.HELLO,
        who=who,
        load="REST getEvent, GET",
        connections=32,
        protocol="http",
        make=lambda broker, known: http.getEvent(known),
        topic=None,
    )


def _hello(who: Who) -> list[Case]:
    return [
        Case(
            part=Part.HELLO,
            who=who,
            load=f"the same publish, {method}",
            connections=32,
            protocol="http",
            make=make,
            topic=None,
        )
        for method, make in (
            ("POST", lambda *_: http.postForm()),
            ("GET", lambda *_: http.getQuery()),
        )
    ]


def _fanOut(who: Who) -> list[Case]:
    """The publisher uses QoS 1; RabbitMQ gives each subscriber a queue in memory."""
    return [
        Case(
            part=Part.FAN_OUT,
            who=who,
            load=f"MQTT, 1 to {subscribers}, QoS {qos}",
            connections=subscribers + 1,
            window=mqtt.FAN_WINDOW,
            protocol="mqtt",
            make=lambda broker, known, qos=qos: mqtt.fanOut(FAN_TOPIC, qos),  # type: ignore[misc]
            topic=FAN_TOPIC,
            subscribers=subscribers,
        )
        for subscribers in (10, 100)
        for qos in (0, 1)
    ]


_WAITING = (Part.ONE, Part.MANY, Part.CROWD)
_ALL = (*_WAITING, Part.WINDOW, Part.FULL)


def _mqtt(who: Who, shapes: Sequence[Part]) -> list[Case]:
    return _publishing(
        who, "MQTT QoS 1", "mqtt", lambda broker, window: mqtt.publishes(TOPIC, window), shapes
    )


def _stomp(who: Who, shapes: Sequence[Part]) -> list[Case]:
    return _publishing(
        who,
        "STOMP, receipts",
        "stomp",
        lambda broker, window: stomp.publishes(broker.destination, window),
        shapes,
    )


CASES: Sequence[Case] = (
    *_rest(Who.AT_ONCE, _WAITING),
    *_publishing(Who.AT_ONCE, "REST publish, GET", "http", lambda *_: http.getQuery(), [Part.MANY]),
    *_publishing(
        Who.AT_ONCE, "JSON-RPC publish", "http", lambda *_: http.rpc(), [Part.MANY, Part.CROWD]
    ),
    *_mqtt(Who.AT_ONCE, _ALL),
    *_stomp(Who.AT_ONCE, (Part.ONE, Part.MANY, Part.WINDOW, Part.FULL)),
    _batch(Who.AT_ONCE, "JSON-RPC publish, batches of 10", 8, http.rpc(10)),
    _batch(Who.AT_ONCE, "JSON-RPC publish, batches of 100", 4, http.rpc(100)),
    _batch(Who.AT_ONCE, "JSON-RPC publish, batches of 100", 32, http.rpc(100)),
    _getEvent(Who.AT_ONCE),
    *_rest(Who.KLEIN, (Part.ONE, Part.MANY, Part.CROWD)),
    _batch(Who.KLEIN, "JSON-RPC publish, batches of 100", 4, http.rpc(100)),
    _getEvent(Who.KLEIN),
    *_rest(Who.DEFAULT, _WAITING),
    *_mqtt(Who.DEFAULT, (Part.MANY, Part.FULL)),
    _batch(Who.DEFAULT, "JSON-RPC publish, batches of 100", 4, http.rpc(100)),
    *_publishing(Who.REDIS, "XADD", "resp", lambda _, window: resp.publishes(TOPIC, window), _ALL),
    _batch(Who.REDIS, "XADD, pipelines of 100", 4, resp.publishes(TOPIC, 100), "resp", 100),
    *_publishing(Who.NATS, "PUB", "nats", lambda _, window: nats.publishes(TOPIC, window), _ALL),
    *_publishing(
        Who.RABBIT,
        "AMQP, confirms",
        "amqp",
        lambda _, window: amqp.publishes(TOPIC, window),
        _ALL,
    ),
    *_mqtt(Who.RABBIT, (Part.ONE, Part.MANY, Part.WINDOW, Part.FULL)),
    *_stomp(Who.RABBIT, (Part.ONE, Part.MANY, Part.WINDOW, Part.FULL)),
    *_mqtt(Who.MOSQUITTO, _ALL),
    *_fanOut(Who.AT_ONCE),
    *_fanOut(Who.DEFAULT),
    *_fanOut(Who.MOSQUITTO),
    *_fanOut(Who.RABBIT),
    *_hello(Who.NODE),
    *_hello(Who.GO),
    *_hello(Who.KLEIN_HELLO),
    *_hello(Who.RESOURCE_HELLO),
)
"""All rows, in the order of the tables."""
