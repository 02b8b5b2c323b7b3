"""
The control packets of MQTT 3.1.1 and 5 as values.

One class a packet, for both versions: fields that 3.1.1 lacks have their defaults there. They are
C{msgspec} structures, which are made ten times as fast as other frozen values. PUBLISH and PUBACK
come with every message, so the garbage collector does not track them: they cannot be part of a
cycle.

Many names: the protocol has so many packets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from .fields import NO_PROPERTIES, Properties, ReasonCode

MQTT_311 = 4
"""The protocol level of MQTT 3.1.1."""
MQTT_5 = 5
"""The protocol version of MQTT 5."""


class Will(Struct, frozen=True):
    """The message that the server publishes when the connection is lost. Section 3.1.2.5."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NO_PROPERTIES


class Connect(Struct, frozen=True):
    """Section 3.1. C{cleanStart} is Clean Session in 3.1.1."""

    clientId: str
    cleanStart: bool = True
    keepAlive: int = 0
    version: int = MQTT_5
    will: Will | None = None
    userName: str | None = None
    password: bytes | None = None
    properties: Properties = NO_PROPERTIES


class Connack(Struct, frozen=True):
    """Section 3.2. C{reason} is a return code of 3.1.1 there."""

    sessionPresent: bool = False
    reason: int = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Publish(Struct, frozen=True, gc=False):
    """Section 3.3. C{packetId} is 0 with QoS 0, where a packet has none."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packetId: int = 0
    properties: Properties = NO_PROPERTIES


class Puback(Struct, frozen=True, gc=False):
    """Section 3.4."""

    packetId: int
    reason: int = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubrec(Struct, frozen=True):
    """Section 3.5."""

    packetId: int
    reason: int = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubrel(Struct, frozen=True):
    """Section 3.6."""

    packetId: int
    reason: int = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Pubcomp(Struct, frozen=True):
    """Section 3.7."""

    packetId: int
    reason: int = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class TopicSubscription(Struct, frozen=True):
    """
    One topic filter of a SUBSCRIBE with its options. Section 3.8.3.

    C{retainHandling}: 0 sends retained messages, 1 only if the subscription is new, 2 never.
    """

    topicFilter: str
    qos: int = 0
    noLocal: bool = False
    retainAsPublished: bool = False
    retainHandling: int = 0


class Subscribe(Struct, frozen=True):
    """Section 3.8."""

    packetId: int
    subscriptions: tuple[TopicSubscription, ...]
    properties: Properties = NO_PROPERTIES


class Suback(Struct, frozen=True):
    """Section 3.9."""

    packetId: int
    reasons: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


class Unsubscribe(Struct, frozen=True):
    """Section 3.10."""

    packetId: int
    topicFilters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


class Unsuback(Struct, frozen=True):
    """Section 3.11. 3.1.1 has no reasons."""

    packetId: int
    reasons: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


class Pingreq(Struct, frozen=True):
    """Section 3.12."""


class Pingresp(Struct, frozen=True):
    """Section 3.13."""


class Disconnect(Struct, frozen=True):
    """Section 3.14."""

    reason: int = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


class Auth(Struct, frozen=True):
    """Section 3.15. MQTT 5 only."""

    reason: int = ReasonCode.SUCCESS
    properties: Properties = NO_PROPERTIES


Packet: TypeAlias = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)
"""Any control packet."""

PACKET_TYPES: tuple[type[Packet], ...] = (
    Connect,
    Connack,
    Publish,
    Puback,
    Pubrec,
    Pubrel,
    Pubcomp,
    Subscribe,
    Suback,
    Unsubscribe,
    Unsuback,
    Pingreq,
    Pingresp,
    Disconnect,
    Auth,
)
"""The packets in the order of their types, which begin with 1. Section 2.1.2."""


class PublishRun(Struct, frozen=True):
    """
    Consecutive PUBLISH packets that differ in packet identifier and payload alone.

    @ivar first: the first of them. With properties it is the only one; with RETAIN either no
        payload of the run is empty or all are.
    @ivar packetIds: of all of them; 0 with QoS 0.
    @ivar payloads: of all of them.
    """

    first: Publish
    packetIds: list[int]
    payloads: list[bytes]

    def packets(self) -> Iterator[Publish]:
        """The packets one by one."""
        for packetId, payload in zip(self.packetIds, self.payloads, strict=True):
            yield replace(self.first, packetId=packetId, payload=payload)


class Publishes(Struct, frozen=True):
    """Consecutive PUBLISH packets."""

    runs: list[PublishRun]

    @property
    def count(self) -> int:
        """The number of packets."""
        runs = self.runs
        return (
            len(runs[0].packetIds) if len(runs) == 1 else sum(len(each.packetIds) for each in runs)
        )

    def split(self, count: int) -> tuple[Publishes, Publishes]:
        """The first so many packets, and the others."""
        first: list[PublishRun] = []
        others: list[PublishRun] = []
        for run in self.runs:
            packetIds, payloads = run.packetIds, run.payloads
            if 0 < count < len(packetIds):
                head = replace(run.first, packetId=packetIds[count], payload=payloads[count])
                others.append(PublishRun(head, packetIds[count:], payloads[count:]))
                first.append(replace(run, packetIds=packetIds[:count], payloads=payloads[:count]))
            else:
                (first if count > 0 else others).append(run)
            count -= len(packetIds)
        return Publishes(first), Publishes(others)


class Pubacks(Struct, frozen=True):
    """
    The packet identifiers of a run of consecutive PUBACK packets without a reason.
    """

    packetIds: Sequence[int]


class Pubrels(Struct, frozen=True):
    """
    The packet identifiers of a run of consecutive PUBREL packets without a reason.
    """

    packetIds: Sequence[int]


Arrival: TypeAlias = Packet | Publishes | Pubacks | Pubrels
"""A packet, or a run of packets, that a server handles in one piece."""
