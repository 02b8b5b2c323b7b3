"""
MQTT in the AsyncAPI document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .....model import EXTENSION_PREFIX, TAG
from .....operations import ERASED_HEADER, EVENT_HEADERS, SEND_HEADERS, StompHeader
from ._parts import (
    BY_PASSWORD,
    BYTES,
    HTTP,
    OPAQUE,
    TEXT,
    CarrierSection,
    headersSchema,
    makeMessage,
    makeOperation,
    named,
    refer,
    topicParameter,
)

_PROPERTIES = {
    "payloadFormatIndicator": {"enum": [0, 1], "description": "1 where the payload is UTF-8."},
    "messageExpiryInterval": {
        "type": "integer",
        "minimum": 0,
        "maximum": 2**32 - 1,
        "description": "How long the message is delivered, in seconds; to a client, what is left.",
    },
    "contentType": {**TEXT, "description": "The type of the payload."},
    "responseTopic": {**TEXT, "description": "Where a response is expected."},
    "correlationData": {**OPAQUE, "description": "What a response is known by."},
}
"""Properties of MQTT 5 that a publisher gives and subscribers get."""


def _identifiers(description: str) -> dict[str, Any]:
    return {
        "subscriptionIdentifiers": {
            "type": "array",
            "items": {"type": "integer", "minimum": 1},
            "description": description,
        }
    }


def mqttPart(base: str) -> CarrierSection:
    """MQTT over TCP, and over WebSocket below a path."""
    servers = {
        "mqtt": {
            "host": "127.0.0.1:1883",
            "protocol": "mqtt",
            "protocolVersion": "5",
            "description": "MQTT 5 and 3.1.1. The user name group/account selects a group.",
            "security": BY_PASSWORD,
        },
        "mqttOverWebSocket": {
            "host": HTTP,
            "pathname": f"{base}/mqtt",
            "protocol": "ws",
            "description": "MQTT over WebSocket, with the subprotocol mqtt.",
            "security": BY_PASSWORD,
        },
    }
    publish, subscribe, message = names = ("mqttPublish", "mqttSubscribe", "mqttMessage")
    return CarrierSection(
        servers=servers,
        channels={
            "mqtt": {
                "address": "{topic}",
                "title": "A topic by MQTT",
                "description": "A subscription may have a pattern in place of the topic.",
                "parameters": topicParameter(),
                "servers": refer("servers", *servers),
                "messages": named(*names),
            }
        },
        operations={
            publish: makeOperation("receive", "mqtt", "Publish an event.", [publish]),
            subscribe: makeOperation(
                "receive", "mqtt", "Have events sent, with QoS 0, 1 or 2.", [subscribe]
            ),
            message: makeOperation("send", "mqtt", "Send an event to a subscriber.", [message]),
        },
        messages={
            publish: _packet(
                "PUBLISH from a client",
                "Other user properties that begin with svc- become extensions. A CloudEvent is "
                "kept as one, in binary and in structured mode.",
                headersSchema(SEND_HEADERS, EXTENSION_PREFIX),
                {
                    **_PROPERTIES,
                    "topicAlias": {
                        "type": "integer",
                        "minimum": 1,
                        "description": "A number in place of the topic.",
                    },
                },
                OPAQUE,
            ),
            subscribe: _packet(
                "SUBSCRIBE",
                "The user properties are of MQTT 5.",
                headersSchema(
                    (
                        StompHeader(
                            "svc-offset",
                            "Where it begins, as eventId of STOMP; by default with the next event.",
                        ),
                        StompHeader(
                            TAG, "Only events whose extension of this name has this value."
                        ),
                        StompHeader(
                            "svc-format",
                            "svc (the default), or cloudevents or cloudevents-binary: all events "
                            "are CloudEvents.",
                        ),
                        ERASED_HEADER,
                    )
                ),
                _identifiers("A number that PUBLISH has then."),
            ),
            message: _packet(
                "PUBLISH to a client",
                "The publisher's properties and user properties, and the event's extensions.",
                headersSchema(
                    (
                        StompHeader(
                            "svc-eventId",
                            "The event's id. Only in MQTT 5, neither where CONNECT has the user "
                            "property svc-plain with the value 1, nor in CloudEvents.",
                        ),
                        *EVENT_HEADERS,
                    ),
                    EXTENSION_PREFIX,
                ),
                {**_PROPERTIES, **_identifiers("The numbers of the subscriptions that match.")},
                OPAQUE,
            ),
        },
    )


def _packet(
    title: str,
    summary: str,
    userProperties: Mapping[str, Any],
    properties: Mapping[str, Any],
    payload: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """
    A packet of MQTT. The binding has but two of its properties, as schemas.

    @param userProperties: the schema of its user properties.
    @param properties: its other properties of MQTT 5.
    """
    packet = makeMessage(title, summary, payload, userProperties, BYTES if payload else None)
    bound = {name: properties[name] for name in ("responseTopic", "correlationData") if payload}
    if bound:
        packet["bindings"] = {"mqtt": {**bound, "bindingVersion": "0.2.0"}}
    packet["x-properties"] = {"type": "object", "properties": properties}
    return packet
