"""
MQTT packets for tests, as bytes: both versions, and as wrong as one wants them.

It shares nothing with the broker's own codec, so that a mistake is not made on both sides alike.
What is read is checked strictly: a server may not send what its specification forbids.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from attrs import frozen

V4 = 4
V5 = 5

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP = 8, 9, 10, 11, 12, 13
DISCONNECT, AUTH = 14, 15

NAMES = (
    "reserved",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
)

Property = tuple[str, Any]

PROPERTIES: dict[str, tuple[int, str]] = {
    "payloadFormat": (0x01, "byte"),
    "messageExpiry": (0x02, "u32"),
    "contentType": (0x03, "text"),
    "responseTopic": (0x08, "text"),
    "correlationData": (0x09, "binary"),
    "subscriptionId": (0x0B, "varint"),
    "sessionExpiry": (0x11, "u32"),
    "assignedClientId": (0x12, "text"),
    "serverKeepAlive": (0x13, "u16"),
    "authMethod": (0x15, "text"),
    "authData": (0x16, "binary"),
    "requestProblem": (0x17, "byte"),
    "willDelay": (0x18, "u32"),
    "requestResponse": (0x19, "byte"),
    "responseInformation": (0x1A, "text"),
    "serverReference": (0x1C, "text"),
    "reasonString": (0x1F, "text"),
    "receiveMaximum": (0x21, "u16"),
    "topicAliasMaximum": (0x22, "u16"),
    "topicAlias": (0x23, "u16"),
    "maximumQos": (0x24, "byte"),
    "retainAvailable": (0x25, "byte"),
    "userProperty": (0x26, "pair"),
    "maximumPacketSize": (0x27, "u32"),
    "wildcardAvailable": (0x28, "byte"),
    "subscriptionIdsAvailable": (0x29, "byte"),
    "sharedAvailable": (0x2A, "byte"),
}
_BY_ID = {number: (name, form) for name, (number, form) in PROPERTIES.items()}

_ACK = {"reasonString", "userProperty"}
# What a server may send where. Table 2-4 of MQTT 5.
ALLOWED: dict[int, set[str]] = {
    CONNACK: _ACK
    | {"sessionExpiry", "receiveMaximum", "maximumQos", "retainAvailable", "maximumPacketSize"}
    | {"assignedClientId", "topicAliasMaximum", "wildcardAvailable", "subscriptionIdsAvailable"}
    | {"sharedAvailable", "serverKeepAlive", "responseInformation", "serverReference"}
    | {"authMethod", "authData"},
    PUBLISH: {"payloadFormat", "messageExpiry", "topicAlias", "responseTopic", "contentType"}
    | {"correlationData", "userProperty", "subscriptionId"},
    PUBACK: _ACK,
    PUBREC: _ACK,
    PUBREL: _ACK,
    PUBCOMP: _ACK,
    SUBACK: _ACK,
    UNSUBACK: _ACK,
    DISCONNECT: _ACK | {"serverReference"},
    AUTH: _ACK | {"authMethod", "authData"},
}


class WireError(AssertionError):
    """The server sent what it must not send."""


def varint(value: int) -> bytes:
    """A variable byte integer."""
    out = bytearray()
    while True:
        value, low = divmod(value, 128)
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def binary(value: bytes | str) -> bytes:
    """Bytes, or a text in UTF-8, with two bytes of length."""
    data = value.encode("utf-8") if isinstance(value, str) else value
    return struct.pack(">H", len(data)) + data


def u16(value: int) -> bytes:
    """Two bytes."""
    return struct.pack(">H", value)


def frame(kind: int, flags: int, body: bytes) -> bytes:
    """A packet."""
    return bytes([kind << 4 | flags]) + varint(len(body)) + body


def property_(name: str, value: Any) -> bytes:
    """One property."""
    number, form = PROPERTIES[name]
    encoded: bytes
    if form == "byte":
        encoded = bytes([value])
    elif form == "u16":
        encoded = u16(value)
    elif form == "u32":
        encoded = struct.pack(">I", value)
    elif form == "varint":
        encoded = varint(value)
    elif form == "pair":
        encoded = binary(value[0]) + binary(value[1])
    else:
        encoded = binary(value)
    return bytes([number]) + encoded


def properties(version: int, items: Sequence[Property]) -> bytes:
    """All properties with their length; nothing in 3.1.1, which has none."""
    if version != V5:
        if items:
            raise ValueError("MQTT 3.1.1 has no properties")
        return b""
    body = b"".join(property_(name, value) for name, value in items)
    return varint(len(body)) + body


@frozen(kw_only=True)
class Will:
    """A will message."""

    topic: str
    payload: bytes = b"will"
    qos: int = 0
    retain: bool = False
    properties: Sequence[Property] = ()


def connect(
    version: int,
    clientId: str | bytes = "",
    *,
    clean: bool = True,
    keepAlive: int = 60,
    will: Will | None = None,
    user: str | None = None,
    password: bytes | None = None,
    properties_: Sequence[Property] = (),
    name: str | bytes = "MQTT",
    level: int | None = None,
    flags: int = 0,
    extra: bytes = b"",
) -> bytes:
    """
    A CONNECT.

    @param flags: more bits for the connect flags.
    @param extra: more bytes at the end.
    """
    flags |= (0x02 if clean else 0) | (0x80 if user is not None else 0)
    flags |= 0x40 if password is not None else 0
    body = properties(version, properties_) + binary(clientId)
    if will is not None:
        flags |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        body += properties(version, will.properties) + binary(will.topic) + binary(will.payload)
    body += b"" if user is None else binary(user)
    body += b"" if password is None else binary(password)
    head = binary(name) + bytes([version if level is None else level, flags]) + u16(keepAlive)
    return frame(CONNECT, 0, head + body + extra)


def publish(
    version: int,
    topic: str | bytes,
    payload: bytes = b"",
    *,
    qos: int = 0,
    packetId: int | None = None,
    dup: bool = False,
    retain: bool = False,
    properties_: Sequence[Property] = (),
) -> bytes:
    """A PUBLISH."""
    body = binary(topic) + (b"" if packetId is None else u16(packetId))
    body += properties(version, properties_) + payload
    return frame(PUBLISH, (8 if dup else 0) | qos << 1 | (1 if retain else 0), body)


def ack(kind: int, packetId: int, reason: int | None = None, flags: int | None = None) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP; the reason is for MQTT 5 only."""
    if flags is None:
        flags = 2 if kind == PUBREL else 0
    return frame(kind, flags, u16(packetId) + (b"" if reason is None else bytes([reason])))


def subscribe(
    version: int,
    packetId: int,
    filters: Sequence[tuple[str | bytes, int]],
    *,
    properties_: Sequence[Property] = (),
    flags: int = 2,
    extra: bytes = b"",
) -> bytes:
    """A SUBSCRIBE: topic filters with their options byte."""
    body = u16(packetId) + properties(version, properties_)
    body += b"".join(binary(each) + bytes([options]) for each, options in filters)
    return frame(SUBSCRIBE, flags, body + extra)


def unsubscribe(
    version: int, packetId: int, filters: Sequence[str | bytes], *, flags: int = 2
) -> bytes:
    """An UNSUBSCRIBE."""
    body = u16(packetId) + properties(version, ()) + b"".join(map(binary, filters))
    return frame(UNSUBSCRIBE, flags, body)


def disconnect(
    version: int, reason: int | None = None, properties_: Sequence[Property] = ()
) -> bytes:
    """A DISCONNECT."""
    if reason is None:
        return frame(DISCONNECT, 0, b"")
    return frame(DISCONNECT, 0, bytes([reason]) + properties(version, properties_))


PING = frame(PINGREQ, 0, b"")


@frozen(kw_only=True)
class Packet:
    """
    A packet of the server.

    @ivar codes: its return or reason codes.
    @ivar size: its length on the wire in bytes.
    """

    kind: int
    flags: int = 0
    packetId: int = 0
    topic: str = ""
    payload: bytes = b""
    codes: tuple[int, ...] = ()
    sessionPresent: bool = False
    properties: tuple[Property, ...] = ()
    size: int = 0

    @property
    def qos(self) -> int:
        """The QoS of a PUBLISH."""
        return self.flags >> 1 & 3

    @property
    def dup(self) -> bool:
        """Whether it is sent again."""
        return bool(self.flags & 8)

    @property
    def retain(self) -> bool:
        """Whether it is retained."""
        return bool(self.flags & 1)

    @property
    def code(self) -> int:
        """Its only code."""
        (code,) = self.codes
        return code

    def all(self, name: str) -> list[Any]:
        """The values of a property in their order."""
        return [value for each, value in self.properties if each == name]

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a property that may be there once."""
        return next(iter(self.all(name)), default)

    @property
    def user(self) -> list[tuple[str, str]]:
        """The user properties, without those that the broker itself may add."""
        return [pair for pair in self.all("userProperty") if pair[0] != "svc-eventId"]


class Reader:
    """Reads a packet's body."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        """The next bytes."""
        if self.at + count > len(self.data):
            raise WireError(f"a packet ends early: {self.data!r}")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, count: int) -> int:
        """An integer."""
        return int.from_bytes(self.take(count), "big")

    def varint(self) -> int:
        """A variable byte integer in its shortest form [MQTT5-1.5.5-1]."""
        value = 0
        for place in range(4):
            byte = self.number(1)
            value |= (byte & 0x7F) << 7 * place
            if not byte & 0x80:
                if place and not byte:
                    raise WireError(f"a length is longer than it must be: {self.data[:32]!r}")
                return value
        raise WireError(f"a length of more than four bytes: {self.data[:32]!r}")

    def binary(self) -> bytes:
        """Bytes with their length."""
        return self.take(self.number(2))

    def text(self) -> str:
        """A text [MQTT-1.5.3-1] [MQTT-1.5.3-2]."""
        text = self.binary().decode("utf-8")
        if "\0" in text:
            raise WireError("a text holds U+0000")
        return text

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(len(self.data) - self.at)

    def properties(self, kind: int) -> tuple[Property, ...]:
        """The properties of a packet that may have them, none twice that may be there once."""
        inner = Reader(self.take(self.varint()))
        found: list[Property] = []
        while inner.at < len(inner.data):
            name, form = _BY_ID[inner.varint()]
            once = name != "userProperty" and not (kind == PUBLISH and name == "subscriptionId")
            if name not in ALLOWED[kind] or (once and any(name == each for each, _ in found)):
                raise WireError(f"{NAMES[kind]} may not have this {name}")
            found.append((name, inner._value(form)))
        return tuple(found)

    def _value(self, form: str) -> Any:
        if form in ("byte", "u16", "u32"):
            return self.number({"byte": 1, "u16": 2, "u32": 4}[form])
        if form == "varint":
            return self.varint()
        if form == "pair":
            return (self.text(), self.text())
        return self.binary() if form == "binary" else self.text()


def parse(version: int, kind: int, flags: int, body: bytes, size: int) -> Packet:
    """
    Read a packet of a server.

    @raise WireError: when a server must not send it.
    """
    wanted = 2 if kind == PUBREL else 0
    if kind != PUBLISH and flags != wanted:
        raise WireError(f"{NAMES[kind]} with flags {flags:#x}")  # [MQTT-2.2.2-1]
    reader = Reader(body)
    fields: dict[str, Any] = {}
    if kind == CONNACK:
        flag = reader.number(1)
        if flag > 1:
            raise WireError(f"CONNACK with flags {flag:#x}")  # [MQTT-3.2.2-1]
        fields.update(sessionPresent=bool(flag), codes=(reader.number(1),))
        fields["properties"] = reader.properties(kind) if version == V5 else ()
    elif kind == PUBLISH:
        fields["topic"] = reader.text()
        fields["packetId"] = reader.number(2) if flags & 6 else 0
        if flags & 6 and not fields["packetId"]:
            raise WireError("PUBLISH with the packet identifier 0")  # [MQTT-2.3.1-1]
        if flags & 6 == 6 or flags & 14 == 8:
            raise WireError(f"PUBLISH with flags {flags:#x}")  # [MQTT-3.3.1-2] [MQTT-3.3.1-4]
        if any(each in fields["topic"] for each in "+#"):
            raise WireError(f"PUBLISH to {fields['topic']}")  # [MQTT-3.3.2-2]
        fields["properties"] = reader.properties(kind) if version == V5 else ()
        fields["payload"] = reader.rest()
    elif kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        fields.update(packetId=reader.number(2), codes=(0,))
        if version == V5 and len(body) > 2:
            fields["codes"] = (reader.number(1),)
            fields["properties"] = reader.properties(kind) if len(body) > 3 else ()
    elif kind in (SUBACK, UNSUBACK):
        fields["packetId"] = reader.number(2)
        fields["properties"] = reader.properties(kind) if version == V5 else ()
        fields["codes"] = tuple(reader.rest())
    elif kind == PINGRESP:
        pass
    elif kind in (DISCONNECT, AUTH) and version == V5:
        fields["codes"] = (reader.number(1),) if body else (0,)
        fields["properties"] = reader.properties(kind) if len(body) > 1 else ()
    else:
        raise WireError(f"a server may not send {NAMES[kind]}: {body!r}")
    if reader.at != len(body):
        raise WireError(f"{NAMES[kind]} with more bytes than it has: {body!r}")
    return Packet(kind=kind, flags=flags, size=size, **fields)
