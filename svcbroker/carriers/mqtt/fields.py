"""
The fields of packets: data representations (MQTT 5, section 1.5; 3.1.1 has the first four) and the
properties of MQTT 5 (section 2.2.2), read and written from one table. And the reason codes of MQTT
5, the return codes of 3.1.1, and the errors that close a connection.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, IntEnum, auto
from functools import lru_cache
from struct import Struct as Layout
from typing import Any, Final

from attrs import frozen
from msgspec import Struct

from ...errors import (
    AuthorRefused,
    BrokerError,
    ContentTooLarge,
    ExtensionsTooLarge,
    IdempotencyConflict,
    LedgerUnavailable,
    NotAuthorized,
    Overloaded,
    ParameterInvalid,
    QuotaExceeded,
    SequenceConflict,
    SignatureInvalid,
    TopicBlank,
    TopicInvalid,
    TopicNotFound,
    TopicTooLong,
    TransactionFailed,
)


class ReasonCode(IntEnum):
    """
    The reason codes of MQTT 5, section 2.4. From 0x80 on they are failures.
    """

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class ConnectReturnCode(IntEnum):
    """
    The return codes of CONNACK in MQTT 3.1.1, section 3.2.2.3.
    """

    ACCEPTED = 0
    UNACCEPTABLE_PROTOCOL_VERSION = 1
    IDENTIFIER_REJECTED = 2
    SERVER_UNAVAILABLE = 3
    BAD_USER_NAME_OR_PASSWORD = 4
    NOT_AUTHORIZED = 5


RETURN_CODES = {
    ReasonCode.SUCCESS: ConnectReturnCode.ACCEPTED,
    ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: ConnectReturnCode.UNACCEPTABLE_PROTOCOL_VERSION,
    ReasonCode.CLIENT_IDENTIFIER_NOT_VALID: ConnectReturnCode.IDENTIFIER_REJECTED,
    ReasonCode.SERVER_UNAVAILABLE: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_SHUTTING_DOWN: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.SERVER_BUSY: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.QUOTA_EXCEEDED: ConnectReturnCode.SERVER_UNAVAILABLE,
    ReasonCode.BAD_USER_NAME_OR_PASSWORD: ConnectReturnCode.BAD_USER_NAME_OR_PASSWORD,
    ReasonCode.NOT_AUTHORIZED: ConnectReturnCode.NOT_AUTHORIZED,
}
"""The return code of 3.1.1 for a reason. Without one, a CONNECT is closed without a CONNACK."""

SUBSCRIBE_FAILURE = 0x80
"""The failure code of SUBACK in 3.1.1."""


class MqttError(Exception):
    """
    The error of a client that closes its connection.

    @ivar reason: the reason code that an MQTT 5 client is sent.
    """

    def __init__(self, reason: ReasonCode, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class MalformedPacket(MqttError):
    """A packet that cannot be parsed according to the specification (MQTT 5, section 1.2)."""

    def __init__(self, text: str) -> None:
        super().__init__(ReasonCode.MALFORMED_PACKET, text)


class ProtocolError(MqttError):
    """A packet that is well-formed but not allowed here (MQTT 5, section 1.2)."""

    def __init__(self, text: str) -> None:
        super().__init__(ReasonCode.PROTOCOL_ERROR, text)


_REASONS: Final[dict[type[BrokerError], ReasonCode]] = {
    TopicBlank: ReasonCode.TOPIC_NAME_INVALID,
    TopicTooLong: ReasonCode.TOPIC_NAME_INVALID,
    TopicInvalid: ReasonCode.TOPIC_NAME_INVALID,
    TopicNotFound: ReasonCode.TOPIC_NAME_INVALID,
    ContentTooLarge: ReasonCode.QUOTA_EXCEEDED,
    ExtensionsTooLarge: ReasonCode.QUOTA_EXCEEDED,
    Overloaded: ReasonCode.QUOTA_EXCEEDED,
    QuotaExceeded: ReasonCode.QUOTA_EXCEEDED,
    NotAuthorized: ReasonCode.NOT_AUTHORIZED,
    AuthorRefused: ReasonCode.NOT_AUTHORIZED,
    SignatureInvalid: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    IdempotencyConflict: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    SequenceConflict: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    LedgerUnavailable: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    TransactionFailed: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
    ParameterInvalid: ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR,
}


def publishReason(error: BrokerError) -> ReasonCode:
    """
    The reason code of PUBACK and PUBREC for an error. Section 3.4.2.1 of MQTT 5.
    """
    return _REASONS.get(type(error), ReasonCode.UNSPECIFIED_ERROR)


MAX_VARIABLE_BYTE_INTEGER = 268_435_455
MAX_LENGTH = 65_535
"""The most bytes of a string or of binary data."""

U16 = Layout(">H")
U32 = Layout(">I")


def decodeText(data: bytes) -> str:
    """
    Read the bytes of a UTF-8 encoded string.

    @raise MalformedPacket: they are not well-formed, or have a null character.
    """
    try:
        # Surrogates are refused too [MQTT-1.5.3-1] [MQTT5-1.5.4-1]; U+FEFF stays where it is
        # [MQTT-1.5.3-3] [MQTT5-1.5.4-3].
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedPacket("a string is not well-formed UTF-8") from None
    if "\0" in text:
        # [MQTT-1.5.3-2] [MQTT5-1.5.4-2]
        raise MalformedPacket("a string has the null character")
    return text


class FieldReader:
    """
    Reads the fields of one packet in order.
    """

    __slots__ = ("_data", "_end", "position")

    def __init__(self, data: bytes, position: int, end: int) -> None:
        """
        @param data: bytes that hold the packet.
        @param position: where to begin.
        @param end: where the packet ends.
        """
        self._data = data
        self.position = position
        self._end = end

    def isAtEnd(self) -> bool:
        """Whether all fields were read."""
        return self.position >= self._end

    def take(self, length: int) -> bytes:
        """
        The next bytes.

        @raise MalformedPacket: there are not as many. So do all other methods.
        """
        start = self.position
        if start + length > self._end:
            raise MalformedPacket("a packet ends too soon")
        self.position = start + length
        return self._data[start : self.position]

    def part(self, length: int) -> FieldReader:
        """A reader of the next bytes, which are skipped here."""
        start = self.position
        if start + length > self._end:
            raise MalformedPacket("a packet ends too soon")
        self.position = start + length
        return FieldReader(self._data, start, self.position)

    def byte(self) -> int:
        """A number of one byte."""
        start = self.position
        if start >= self._end:
            raise MalformedPacket("a packet ends too soon")
        self.position = start + 1
        return self._data[start]

    def twoByteInteger(self) -> int:
        """A number of two bytes."""
        value: int = U16.unpack(self.take(2))[0]
        return value

    def fourByteInteger(self) -> int:
        """A number of four bytes."""
        value: int = U32.unpack(self.take(4))[0]
        return value

    def variableByteInteger(self) -> int:
        """
        A number of one to four bytes.

        @raise MalformedPacket: also where it has more bytes than it needs.
        """
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 21:
                raise MalformedPacket("a variable byte integer has more than four bytes")
        if shift and not byte:
            # [MQTT5-1.5.5-1]
            raise MalformedPacket("a variable byte integer is longer than it needs to be")
        return value

    def binary(self) -> bytes:
        """Binary data with its length."""
        return self.take(self.twoByteInteger())

    def text(self) -> str:
        """A UTF-8 encoded string."""
        return decodeText(self.take(self.twoByteInteger()))


@lru_cache(maxsize=4096)
def encodeVariableByteInteger(value: int) -> bytes:
    """
    A number in as few bytes as it needs [MQTT5-1.5.5-1].
    """
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        # Hot path.
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value > MAX_VARIABLE_BYTE_INTEGER:
        raise ValueError("too large for a variable byte integer")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encodeBinary(data: bytes) -> bytes:
    """Binary data with its length."""
    if len(data) > MAX_LENGTH:
        raise ValueError("longer than 65535 bytes")
    return U16.pack(len(data)) + data


def encodeText(text: str) -> bytes:
    """A UTF-8 encoded string."""
    return encodeBinary(text.encode("utf-8"))


def lengthSize(encoded: bytes, position: int = 0) -> int:
    """The size of the variable byte integer at a position, in bytes."""
    size = 1
    while encoded[position + size - 1] >= 0x80:
        size += 1
    return size


def withoutLength(encoded: bytes) -> bytes:
    """The bytes behind the variable byte integer at the front."""
    return encoded[lengthSize(encoded) :]


class Properties(Struct, frozen=True, repr_omit_defaults=True):
    """
    The properties of one packet or will. C{None} stands for one that is absent.
    """

    payloadFormatIndicator: int | None = None
    messageExpiryInterval: int | None = None
    contentType: str | None = None
    responseTopic: str | None = None
    correlationData: bytes | None = None
    subscriptionIdentifiers: tuple[int, ...] = ()
    sessionExpiryInterval: int | None = None
    assignedClientIdentifier: str | None = None
    serverKeepAlive: int | None = None
    authenticationMethod: str | None = None
    authenticationData: bytes | None = None
    requestProblemInformation: int | None = None
    willDelayInterval: int | None = None
    requestResponseInformation: int | None = None
    responseInformation: str | None = None
    serverReference: str | None = None
    reasonString: str | None = None
    receiveMaximum: int | None = None
    topicAliasMaximum: int | None = None
    topicAlias: int | None = None
    maximumQos: int | None = None
    retainAvailable: int | None = None
    userProperties: tuple[tuple[str, str], ...] = ()
    maximumPacketSize: int | None = None
    wildcardSubscriptionAvailable: int | None = None
    subscriptionIdentifierAvailable: int | None = None
    sharedSubscriptionAvailable: int | None = None


NO_PROPERTIES: Final = Properties()


class Place(Enum):
    """The place of properties: a packet, or the will in a CONNECT."""

    CONNECT = auto()
    CONNACK = auto()
    PUBLISH = auto()
    PUBACK = auto()
    PUBREC = auto()
    PUBREL = auto()
    PUBCOMP = auto()
    SUBSCRIBE = auto()
    SUBACK = auto()
    UNSUBSCRIBE = auto()
    UNSUBACK = auto()
    DISCONNECT = auto()
    AUTH = auto()
    WILL = auto()


@frozen
class _Kind:
    """The functions that read and write a property's value."""

    read: Callable[[FieldReader], Any]
    write: Callable[[Any], bytes]


def _writePair(pair: tuple[str, str]) -> bytes:
    return encodeText(pair[0]) + encodeText(pair[1])


_BYTE = _Kind(FieldReader.byte, lambda value: bytes((value,)))
_TWO = _Kind(FieldReader.twoByteInteger, U16.pack)
_FOUR = _Kind(FieldReader.fourByteInteger, U32.pack)
_VARIABLE = _Kind(FieldReader.variableByteInteger, encodeVariableByteInteger)
_TEXT = _Kind(FieldReader.text, encodeText)
_BINARY = _Kind(FieldReader.binary, encodeBinary)
_PAIR = _Kind(lambda reader: (reader.text(), reader.text()), _writePair)


@frozen(kw_only=True)
class _Property:
    """
    One row of the table.

    @ivar isRepeated: whether there may be several, all of which are kept.
    @ivar check: tells whether a value is allowed.
    """

    identifier: bytes
    name: str
    kind: _Kind
    places: frozenset[Place]
    isRepeated: bool
    check: Callable[[Any], bool] | None


_TABLE: dict[int, _Property] = {}


def _add(
    identifier: int,
    name: str,
    kind: _Kind,
    *places: Place,
    isRepeated: bool = False,
    check: Callable[[Any], bool] | None = None,
) -> None:
    _TABLE[identifier] = _Property(
        identifier=encodeVariableByteInteger(identifier),
        name=name,
        kind=kind,
        places=frozenset(places),
        isRepeated=isRepeated,
        check=check,
    )


def _isZeroOrOne(value: int) -> bool:
    return value <= 1


def _isNotZero(value: int) -> bool:
    return value > 0


def _isTopicName(value: str) -> bool:
    return "+" not in value and "#" not in value


_MESSAGE = (Place.PUBLISH, Place.WILL)
_BOTH = (Place.CONNECT, Place.CONNACK)
_REASONED = (
    Place.CONNACK,
    Place.PUBACK,
    Place.PUBREC,
    Place.PUBREL,
    Place.PUBCOMP,
    Place.SUBACK,
    Place.UNSUBACK,
    Place.DISCONNECT,
    Place.AUTH,
)

_add(0x01, "payloadFormatIndicator", _BYTE, *_MESSAGE, check=_isZeroOrOne)
_add(0x02, "messageExpiryInterval", _FOUR, *_MESSAGE)
_add(0x03, "contentType", _TEXT, *_MESSAGE)
# [MQTT5-3.3.2-14]
_add(0x08, "responseTopic", _TEXT, *_MESSAGE, check=_isTopicName)
_add(0x09, "correlationData", _BINARY, *_MESSAGE)
_add(
    0x0B,
    "subscriptionIdentifiers",
    _VARIABLE,
    Place.PUBLISH,
    Place.SUBSCRIBE,
    isRepeated=True,
    check=_isNotZero,
)
_add(0x11, "sessionExpiryInterval", _FOUR, *_BOTH, Place.DISCONNECT)
_add(0x12, "assignedClientIdentifier", _TEXT, Place.CONNACK)
_add(0x13, "serverKeepAlive", _TWO, Place.CONNACK)
_add(0x15, "authenticationMethod", _TEXT, *_BOTH, Place.AUTH)
_add(0x16, "authenticationData", _BINARY, *_BOTH, Place.AUTH)
_add(0x17, "requestProblemInformation", _BYTE, Place.CONNECT, check=_isZeroOrOne)
_add(0x18, "willDelayInterval", _FOUR, Place.WILL)
_add(0x19, "requestResponseInformation", _BYTE, Place.CONNECT, check=_isZeroOrOne)
_add(0x1A, "responseInformation", _TEXT, Place.CONNACK)
_add(0x1C, "serverReference", _TEXT, Place.CONNACK, Place.DISCONNECT)
_add(0x1F, "reasonString", _TEXT, *_REASONED)
_add(0x21, "receiveMaximum", _TWO, *_BOTH, check=_isNotZero)
_add(0x22, "topicAliasMaximum", _TWO, *_BOTH)
_add(0x23, "topicAlias", _TWO, Place.PUBLISH)
_add(0x24, "maximumQos", _BYTE, Place.CONNACK, check=_isZeroOrOne)
_add(0x25, "retainAvailable", _BYTE, Place.CONNACK, check=_isZeroOrOne)
_add(0x26, "userProperties", _PAIR, *Place, isRepeated=True)
_add(0x27, "maximumPacketSize", _FOUR, *_BOTH, check=_isNotZero)
_add(0x28, "wildcardSubscriptionAvailable", _BYTE, Place.CONNACK, check=_isZeroOrOne)
_add(0x29, "subscriptionIdentifierAvailable", _BYTE, Place.CONNACK, check=_isZeroOrOne)
_add(0x2A, "sharedSubscriptionAvailable", _BYTE, Place.CONNACK, check=_isZeroOrOne)


def decodeProperties(reader: FieldReader, place: Place) -> Properties:
    """
    Read the properties that stand next.

    @raise MalformedPacket: one is not known, not allowed in this place, or cannot be read.
    @raise ProtocolError: one is there twice, or has a value that it must not have.
    """
    length = reader.variableByteInteger()
    if not length:
        return NO_PROPERTIES
    inner = reader.part(length)
    found: dict[str, Any] = {}
    while not inner.isAtEnd():
        row = _TABLE.get(inner.variableByteInteger())
        if row is None or place not in row.places:
            raise MalformedPacket("a property is not allowed here")
        value = row.kind.read(inner)
        if row.check is not None and not row.check(value):
            raise ProtocolError(f"{row.name} has a value that is not allowed")
        if row.isRepeated:
            found.setdefault(row.name, []).append(value)
        elif row.name in found:
            raise ProtocolError(f"{row.name} is there twice")
        else:
            found[row.name] = value
    for name in ("userProperties", "subscriptionIdentifiers"):
        if name in found:
            found[name] = tuple(found[name])
    if place is Place.SUBSCRIBE and len(found.get("subscriptionIdentifiers", ())) > 1:
        raise ProtocolError("subscriptionIdentifiers is there twice")
    return Properties(**found)


def encodeProperties(properties: Properties) -> bytes:
    """
    Write properties, with their length. The caller gives only those that the packet may have.
    """
    if properties is NO_PROPERTIES:
        # [MQTT5-2.2.2-1]
        return b"\0"
    parts: list[bytes] = []
    for row in _TABLE.values():
        value = getattr(properties, row.name)
        if row.isRepeated:
            for each in value:
                parts += (row.identifier, row.kind.write(each))
        elif value is not None:
            parts += (row.identifier, row.kind.write(value))
    encoded = b"".join(parts)
    return encodeVariableByteInteger(len(encoded)) + encoded
