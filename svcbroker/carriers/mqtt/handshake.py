"""
The negotiation of CONNECT: limits, session expiry, client identifier, group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from attrs import frozen

from ...access import Admission, Principal
from ...broker import DEFAULT_GROUP
from ...errors import BrokerError, GroupUnknown, NotAuthenticated, NotAuthorized, QuotaExceeded
from .codec import encode
from .context import MAX_U16, NEVER, Context
from .fields import (
    MAX_VARIABLE_BYTE_INTEGER,
    NO_PROPERTIES,
    MqttError,
    Properties,
    ProtocolError,
    ReasonCode,
)
from .packets import MQTT_5, MQTT_311, Arrival, Connect, Disconnect, Puback, Pubrec, Suback

if TYPE_CHECKING:
    from .output import IWire

Explained = TypeVar("Explained", Puback, Pubrec, Suback, Disconnect)

_SIZE_OF_ID: Final = 16
_SEPARATOR: Final = "/"
PLAIN: Final = ("svc-plain", "1")
"""The user property of CONNECT with which a client declines C{svc-eventId}."""
_MAX_HEADER: Final = 5
UNBOUNDED: Final = MAX_VARIABLE_BYTE_INTEGER + _MAX_HEADER
MAX_CLIENT_ID: Final = 1024
"""The longest client identifier in characters; the specifications ask for 23 at least."""


@frozen(kw_only=True)
class Handshake:
    """
    The negotiated terms of a connection.

    @ivar group: the group that the user name chooses.
    @ivar clientId: its identifier, or the one that was assigned to it.
    @ivar sessionExpiry: the session expiry interval, in seconds.
    @ivar keepAlive: the keep-alive in seconds, 0 for none.
    @ivar window: the most unacknowledged deliveries.
    @ivar maximumPacketSize: the most bytes of a packet that the client accepts.
    @ivar topicAliasMaximum: the most topic aliases that may be set for the client.
    @ivar hasProblemInformation: whether the client wants reason strings.
    @ivar properties: those of the CONNACK of MQTT 5.
    @ivar version: the protocol level.
    @ivar isPlain: whether the broker adds no user properties of its own.
    """

    group: str
    clientId: str
    sessionExpiry: int
    keepAlive: int
    window: int
    maximumPacketSize: int
    topicAliasMaximum: int
    hasProblemInformation: bool
    properties: Properties
    version: int
    isPlain: bool

    def explain(self, packet: Explained, text: str) -> Explained:
        """
        Add a reason string, if the client wants it and the packet still fits.

        @param packet: has no properties yet.
        """
        isWanted = self.hasProblemInformation or isinstance(packet, Disconnect)
        if self.version != MQTT_5 or not isWanted:
            return packet  # [MQTT5-3.1.2-32]
        explained = msgspec.structs.replace(packet, properties=Properties(reasonString=text))
        # [MQTT5-3.4.2-2] [MQTT5-3.5.2-2] [MQTT5-3.9.2-1] [MQTT5-3.14.2-3]
        fits = len(encode(explained, self.version)) <= self.maximumPacketSize
        return explained if fits else packet


def groupOf(userName: str | None) -> str:
    """
    The group that a user name selects: C{group/account}; without a slash it is an account of
    group C{1}.
    """
    if userName is None or _SEPARATOR not in userName:
        return DEFAULT_GROUP
    return userName.split(_SEPARATOR, 1)[0].strip() or DEFAULT_GROUP


def _accountOf(userName: str | None) -> str | None:
    """The account that a user name names; C{None} where it names at most a group."""
    if userName is None:
        return None
    return userName.split(_SEPARATOR, 1)[-1] or None


def negotiate(packet: Connect, context: Context) -> Handshake:
    """
    Negotiate the terms of a connection.

    @raise MqttError: it cannot be accepted [MQTT-3.1.4-1] [MQTT5-3.1.4-1] [MQTT5-3.1.4-2].
    """
    settings, properties = context.settings, packet.properties
    if properties.authenticationMethod is not None:
        # [MQTT5-4.12.0-1]
        raise MqttError(
            ReasonCode.BAD_AUTHENTICATION_METHOD, "there is no such authentication method"
        )
    if len(packet.clientId) > MAX_CLIENT_ID:
        raise MqttError(ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "the client id is too long")
    assigned = None
    if not packet.clientId:
        if packet.version == MQTT_311 and not packet.cleanStart:
            # [MQTT-3.1.3-7] [MQTT-3.1.3-8]
            raise MqttError(
                ReasonCode.CLIENT_IDENTIFIER_NOT_VALID, "there is no client id for a session"
            )
        # [MQTT-3.1.3-6] [MQTT5-3.1.3-6] [MQTT5-3.2.2-16]
        assigned = "svc-" + context.entropy(_SIZE_OF_ID).hex()
    if packet.version == MQTT_5:
        asked = properties.sessionExpiryInterval or 0
    else:
        # Section 3.1.2.4 of 3.1.1: a session without Clean Session does not expire.
        asked = 0 if packet.cleanStart else NEVER
    expiry = min(asked, settings.maxSessionExpiry)
    keepAlive = packet.keepAlive
    if packet.version == MQTT_5 and not 0 < keepAlive <= settings.maxKeepAlive:
        # [MQTT5-3.2.2-21]
        keepAlive = settings.maxKeepAlive
    granted = NO_PROPERTIES
    if packet.version == MQTT_5:
        granted = Properties(
            # [MQTT5-3.1.3-7]
            assignedClientIdentifier=assigned,
            sessionExpiryInterval=None if expiry == asked else expiry,
            # [MQTT5-3.2.2-22]
            serverKeepAlive=None if keepAlive == packet.keepAlive else keepAlive,
            receiveMaximum=settings.receiveMaximum,
            maximumPacketSize=settings.maximumPacketSize,
            topicAliasMaximum=settings.topicAliasMaximum,
        )
    return Handshake(
        group=groupOf(packet.userName),
        clientId=packet.clientId or assigned or "",
        sessionExpiry=expiry,
        keepAlive=keepAlive,
        window=min(properties.receiveMaximum or MAX_U16, settings.sendMaximum),
        maximumPacketSize=properties.maximumPacketSize or UNBOUNDED,
        topicAliasMaximum=min(properties.topicAliasMaximum or 0, settings.topicAliasMaximum),
        hasProblemInformation=properties.requestProblemInformation != 0,
        version=packet.version,
        isPlain=PLAIN in properties.userProperties,
        properties=granted,
    )


def checkGroup(context: Context, principal: Principal, group: str) -> None:
    """
    Check that a group is served, and that something is granted in it. Called after the log-in:
    strangers do not learn which groups there are.

    @raise MqttError: it is not.
    """
    try:
        context.broker.groups.resolve(principal, group)
    except NotAuthorized as error:
        raise MqttError(ReasonCode.NOT_AUTHORIZED, error.message) from None
    except GroupUnknown:
        raise MqttError(
            ReasonCode.BAD_USER_NAME_OR_PASSWORD, "the user's group is unknown"
        ) from None


async def logIn(
    wire: IWire, packet: Connect, handshake: Handshake, ended: Callable[[], object]
) -> Admission:
    """
    Log a client in.

    @param ended: called when its account is gone.
    @raise MqttError: it is refused.
    """
    account, password = _accountOf(packet.userName), packet.password
    name = None if account is None else account.encode("utf-8")
    try:
        return await wire.admit(name, password, handshake.clientId, ended)
    except NotAuthenticated as error:
        # [MQTT-3.2.2-5]
        hasNone = name is None and password is None
        reason = ReasonCode.NOT_AUTHORIZED if hasNone else ReasonCode.BAD_USER_NAME_OR_PASSWORD
        raise MqttError(reason, error.message) from None
    except QuotaExceeded as error:
        raise MqttError(ReasonCode.QUOTA_EXCEEDED, error.message) from None
    except BrokerError as error:
        raise MqttError(ReasonCode.SERVER_BUSY, error.message) from None


def outOfPlace(packet: Arrival, isConnected: bool) -> MqttError:
    """The error of a packet that must not be sent now."""
    if isinstance(packet, Connect) and isConnected:
        # [MQTT-3.1.0-2] [MQTT5-3.1.0-2]
        return ProtocolError("there was a CONNECT already")
    return ProtocolError(f"a client must not send {type(packet).__name__.upper()}")
