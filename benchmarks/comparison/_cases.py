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


class Subject(Enum):
    """
    A server that is measured. The value is its name in the report.
    """

    SVCBROKER = "svcbroker, default settings"
    REDIS = "Redis Streams, appendfsync always"
    NATS = "NATS JetStream, sync always"
    RABBIT = "RabbitMQ, quorum queue"
    MOSQUITTO = "mosquitto"
    NODE = "Node http, hello"
    GO = "Go net/http, hello"
    KLEIN_HELLO = "Klein route, hello"
    RESOURCE_HELLO = "twisted.web resource, hello"


class Table(Enum):
    """
    A table of rows that are compared with each other. The value is its heading.
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

    @ivar table: in which table.
    @ivar who: on what.
    @ivar load: what is done, in words.
    @ivar connections: by how many clients.
    @ivar window: how many requests each has under way.
    @ivar protocol: the port; see L{Broker.ports}.
    @ivar make: makes the load, given the broker and ids of events that it has.
    @ivar topic: what is published to, and counted; C{None} where nothing is published.
    @ivar subscribers: how many deliveries each publish gives.
    """

    table: Table
    who: Subject
    load: str
    connections: int
    window: int = 1
    protocol: str
    make: Callable[[Broker, Sequence[str]], Load]
    topic: str | None = TOPIC
    subscribers: int = 1


def _publishing(
    who: Subject,
    load: str,
    protocol: str,
    make: Callable[[Broker, int], Load],
    shapes: Sequence[Table],
) -> list[Case]:
    sizes = {
        Table.ONE: (1, 1),
        Table.MANY: (32, 1),
        Table.CROWD: (256, 1),
        Table.WINDOW: (1, 256),
        Table.FULL: (32, 32),
    }

    def case(table: Table) -> Case:
        connections, window = sizes[table]
        return Case(
            table=table,
            who=who,
            load=load,
            connections=connections,
            window=window,
            protocol=protocol,
            make=lambda broker, known: make(broker, window),
        )

    return [case(table) for table in shapes]


def _rest(who: Subject, shapes: Sequence[Table]) -> list[Case]:
    return _publishing(who, "REST publish, POST", "http", lambda *_: http.postForm(), shapes)


def _batch(
    who: Subject, load: str, connections: int, make: Load, protocol: str = "http", window: int = 1
) -> Case:
    return Case(
        table=Table.BATCH,
        who=who,
        load=load,
        connections=connections,
        window=window,
        protocol=protocol,
        make=lambda broker, known: make,
    )


def _getEvent(who: Subject) -> Case:
    return Case(
        table=Table.HELLO,
        who=who,
        load="REST getEvent, GET",
        connections=32,
        protocol="http",
        make=lambda broker, known: http.getEvent(known),
        topic=None,
    )


def _hello(who: Subject) -> list[Case]:
    return [
        Case(
            table=Table.HELLO,
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


def _fanOut(who: Subject) -> list[Case]:
    """The publisher uses QoS 1; RabbitMQ gives each subscriber a queue in memory."""
    return [
        Case(
            table=Table.FAN_OUT,
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


_WAITING = (Table.ONE, Table.MANY, Table.CROWD)
_ALL = (*_WAITING, Table.WINDOW, Table.FULL)


def _mqtt(who: Subject, shapes: Sequence[Table]) -> list[Case]:
    return _publishing(
        who, "MQTT QoS 1", "mqtt", lambda broker, window: mqtt.publishes(TOPIC, window), shapes
    )


def _stomp(who: Subject, shapes: Sequence[Table]) -> list[Case]:
    return _publishing(
        who,
        "STOMP, receipts",
        "stomp",
        lambda broker, window: stomp.publishes(broker.destination, window),
        shapes,
    )


CASES: Sequence[Case] = (
    *_rest(Subject.SVCBROKER, _WAITING),
    *_publishing(
        Subject.SVCBROKER, "REST publish, GET", "http", lambda *_: http.getQuery(), [Table.MANY]
    ),
    *_publishing(
        Subject.SVCBROKER,
        "JSON-RPC publish",
        "http",
        lambda *_: http.rpc(),
        [Table.MANY, Table.CROWD],
    ),
    *_mqtt(Subject.SVCBROKER, _ALL),
    *_stomp(Subject.SVCBROKER, (Table.ONE, Table.MANY, Table.WINDOW, Table.FULL)),
    _batch(Subject.SVCBROKER, "JSON-RPC publish, batches of 10", 8, http.rpc(10)),
    _batch(Subject.SVCBROKER, "JSON-RPC publish, batches of 100", 4, http.rpc(100)),
    _batch(Subject.SVCBROKER, "JSON-RPC publish, batches of 100", 32, http.rpc(100)),
    _getEvent(Subject.SVCBROKER),
    *_publishing(
        Subject.REDIS, "XADD", "resp", lambda _, window: resp.publishes(TOPIC, window), _ALL
    ),
    _batch(Subject.REDIS, "XADD, pipelines of 100", 4, resp.publishes(TOPIC, 100), "resp", 100),
    *_publishing(
        Subject.NATS, "PUB", "nats", lambda _, window: nats.publishes(TOPIC, window), _ALL
    ),
    *_publishing(
        Subject.RABBIT,
        "AMQP, confirms",
        "amqp",
        lambda _, window: amqp.publishes(TOPIC, window),
        _ALL,
    ),
    *_mqtt(Subject.RABBIT, (Table.ONE, Table.MANY, Table.WINDOW, Table.FULL)),
    *_stomp(Subject.RABBIT, (Table.ONE, Table.MANY, Table.WINDOW, Table.FULL)),
    *_mqtt(Subject.MOSQUITTO, _ALL),
    *_fanOut(Subject.SVCBROKER),
    *_fanOut(Subject.MOSQUITTO),
    *_fanOut(Subject.RABBIT),
    *_hello(Subject.NODE),
    *_hello(Subject.GO),
    *_hello(Subject.KLEIN_HELLO),
    *_hello(Subject.RESOURCE_HELLO),
)
"""All rows, in the order of the tables."""
