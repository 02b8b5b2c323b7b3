"""
The reason codes of MQTT 5, the return codes of 3.1.1, and the errors that close a connection.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

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
