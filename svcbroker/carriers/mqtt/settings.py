"""
What an operator can choose about MQTT, and the bounds of what clients may ask for.
"""

from __future__ import annotations

from attrs import field, frozen
from attrs.validators import and_, ge, le

MAX_U16 = 65_535
PACKET_MARGIN = 64 * 1024 + 256
"""What a PUBLISH may hold besides content, in bytes: a topic name, properties, its header."""

NEVER = 0xFFFFFFFF
"""The session expiry interval of a session that does not expire."""


def _u16(default: int) -> int:
    value: int = field(default=default, validator=and_(ge(1), le(MAX_U16)))
    return value


@frozen(kw_only=True)
class MqttSettings:
    """
    What an operator can choose about MQTT.

    @ivar openTopics: whether a publish to a topic that is not open opens it.
    @ivar maxContent: the largest content of an event, in bytes.
    @ivar receiveMaximum: how many publishes of a client may wait for their acknowledgement.
    @ivar sendMaximum: how many deliveries with QoS 1 and 2 may be unacknowledged by a client,
        whatever more it allows.
    @ivar maxInFlightBytes: how many bytes those may have together, except where it is one.
    @ivar topicAliasMaximum: how many topic aliases a client may set, and how many the broker
        sets for one that allows them.
    @ivar maxKeepAlive: the longest keep-alive that a MQTT 5 client may have, in seconds.
    @ivar maxSessionExpiry: the longest session expiry interval, in seconds;
        L{NEVER} for no bound.
    @ivar maxSessions: how many sessions there may be, those of absent clients included.
    @ivar maxSubscriptions: how many topic filters a session may have.
    @ivar maxRetained: how many topics of a group may have a retained message.
    @ivar connectTimeout: how long a client may take to send its CONNECT, in seconds.
    """

    openTopics: bool = True
    maxContent: int = 1024 * 1024
    receiveMaximum: int = _u16(1024)
    sendMaximum: int = _u16(1024)
    maxInFlightBytes: int = 4 * 1024 * 1024
    topicAliasMaximum: int = _u16(64)
    maxKeepAlive: int = _u16(60)
    maxSessionExpiry: int = NEVER
    maxSessions: int = 100_000
    maxSubscriptions: int = 1000
    maxRetained: int = 1_000_000
    connectTimeout: float = 10.0

    @property
    def maximumPacketSize(self) -> int:
        """The most bytes of a packet of a client."""
        return self.maxContent + PACKET_MARGIN
