"""
The AsyncAPI document: how events are sent and received besides single calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .... import __version__
from ....operations import (
    CLOUD_EVENT_SCHEMA,
    CLOUD_EVENT_TYPE,
    CLOUD_EVENTS_TYPE,
    EVENT,
    FOLLOW,
    ErrorRecord,
    LoggedEvent,
)
from .declared import SECURITY, schemasOf
from .openapi import EVENT_STREAM

_DESCRIPTION = """\
Events by MQTT 3.1.1 and 5, STOMP 1.0 to 1.2, Server-Sent Events and webhooks. The application is
the broker: it receives what clients publish, and sends what they subscribe to. The hosts and ports
are those of a broker without options. A broker without accounts needs no credentials.\
"""
_TEXT = {"type": "string"}
_OPAQUE = {"type": "string", "format": "binary", "description": "Any bytes, kept as they are."}
_BYTES = "application/octet-stream"
_JSON = "application/json"
_TOPIC = {"topic": {"description": "The topic's name: 1 to 256 characters in [32,128]."}}
_EXTENSIONS = {"^svc-": {"type": "string", "description": "An extension of the event."}}
_USER_PASSWORD = {
    "userPassword": {
        "type": "userPassword",
        "description": "An account and its password, or a token in place of the password.",
    }
}
_MQTT_SENT = {
    "svc-eventId": "The event's id. Only in MQTT 5.",
}
_STOMP_SENT = {
    "subscription": "The id of SUBSCRIBE.",
    "subscription-id": "The subscription's UUID.",
    "message-id": "Unique in the connection for each event and subscription.",
    "destination": "The event's topic, also where a pattern was subscribed to.",
    "eventId": "The event's id.",
    "content-length": "The size of the body in bytes.",
    "ack": "The id for ACK and NACK of STOMP 1.2, where the subscription has acknowledgement.",
    "redelivered": "true where the event was sent before.",
}
_STOMP_RECEIVED = {
    "destination": "The topic. It must be open.",
    "groupId": "The group; absent means 1.",
    "receipt": "Asks for a RECEIPT, which has the event's id.",
    "transaction": "The transaction whose COMMIT the frame waits for.",
    "content-length": "The size of the body. Without it the body ends at the first NUL.",
}
_WEBHOOK_SENT = {
    "webhook-id": "The event's id; in a batch the last event's.",
    "webhook-timestamp": "When this attempt was made, in seconds since the epoch.",
    "webhook-signature": "The signature, where a secret is configured.",
    "X-Svc-Subscription-Id": "The subscription's id.",
}
_CLOUD_EVENT_SENT = {
    f"ce-{name}": f"The attribute {name}." for name in ("specversion", "id", "source", "type")
}
_WEBHOOK_MESSAGES = (
    *("webhookEvent", "webhookCall"),
    *("webhookCloudEvent", "webhookCloudEvents", "webhookBinaryEvent"),
)
_WEBHOOK_ALWAYS = ("webhook-id", "webhook-timestamp", "X-Svc-Subscription-Id")


def document(base: str) -> Mapping[str, Any]:
    """
    The AsyncAPI 3.0 document of a site and of the carriers beside it.

    @param base: the site's base path.
    """
    (event, logged, error), components = schemasOf([EVENT.type, LoggedEvent, ErrorRecord])
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "svcbroker", "version": __version__, "description": _DESCRIPTION},
        "defaultContentType": _JSON,
        "servers": _servers(base),
        "channels": _channels(),
        "operations": _operations(),
        "components": {
            "messages": _messages(event, logged, error),
            "schemas": components,
            "securitySchemes": {**SECURITY, **_USER_PASSWORD},
        },
    }


def _refer(kind: str, *names: str) -> list[dict[str, str]]:
    return [{"$ref": f"#/{kind}/{name}"} for name in names]


def _servers(base: str) -> dict[str, Any]:
    byPassword = _refer("components/securitySchemes", "userPassword")
    byHeader = _refer("components/securitySchemes", "basic", "bearer")
    http = "127.0.0.1:8080"
    return {
        "mqtt": {
            "host": "127.0.0.1:1883",
            "protocol": "mqtt",
            "protocolVersion": "5",
            "description": "MQTT 5 and 3.1.1. The user name group/account selects a group.",
            "security": byPassword,
        },
        "mqttOverWebSocket": {
            "host": http,
            "pathname": f"{base}/mqtt",
            "protocol": "ws",
            "description": "MQTT over WebSocket, with the subprotocol mqtt.",
            "security": byPassword,
        },
        "stomp": {
            "host": "127.0.0.1:61613",
            "protocol": "stomp",
            "protocolVersion": "1.2",
            "description": "STOMP 1.2, 1.1 and 1.0.",
            "security": byPassword,
        },
        "stompOverWebSocket": {
            "host": http,
            "pathname": f"{base}/stomp",
            "protocol": "ws",
            "description": "STOMP over WebSocket.",
            "security": byPassword,
        },
        "http": {
            "host": http,
            "pathname": base or "/",
            "protocol": "http",
            "description": "Server-Sent Events.",
            "security": byHeader,
        },
        "receiver": {
            "host": "{host}",
            "protocol": "https",
            "description": "The receiver of a webhook. It may have http as well.",
            "variables": {
                "host": {"description": "As the URL says.", "default": "receiver.example"}
            },
        },
    }


def _channels() -> dict[str, Any]:
    return {
        "mqtt": {
            "address": "{topic}",
            "title": "A topic by MQTT",
            "description": "A subscription may have a pattern in place of the topic.",
            "parameters": _TOPIC,
            "servers": _refer("servers", "mqtt", "mqttOverWebSocket"),
            "messages": _named("mqttReceived", "mqttSent"),
        },
        "stomp": {
            "address": "{topic}",
            "title": "A topic by STOMP",
            "description": "The header destination. A subscription may have a pattern, or several "
            "topics and patterns with commas between them.",
            "parameters": _TOPIC,
            "servers": _refer("servers", "stomp", "stompOverWebSocket"),
            "messages": _named("stompReceived", "stompSent"),
        },
        "follow": {
            "address": f"/rest/{FOLLOW.name}",
            "title": "Topics by Server-Sent Events",
            "description": FOLLOW.summary,
            "servers": _refer("servers", "http"),
            "messages": _named("followed", "followEnd"),
        },
        "webhook": {
            "address": None,
            "title": "Topics by webhook",
            "description": "The URL that subscribe of REST or JSON-RPC was given. Each event is "
            "sent until the receiver answers with a status 2xx, or all attempts are used up.",
            "servers": _refer("servers", "receiver"),
            "messages": _named(*_WEBHOOK_MESSAGES),
        },
    }


def _named(*messages: str) -> dict[str, Any]:
    references = _refer("components/messages", *messages)
    return dict(zip(messages, references, strict=True))


def _operations() -> dict[str, Any]:
    properties = {
        each.name: {**each.type.schema, "description": each.description}
        for each in FOLLOW.parameters
    }
    query = {
        "type": "object",
        "properties": properties,
        "required": [each.name for each in FOLLOW.parameters if each.isRequired],
    }
    get = {"method": "GET", "query": query, "bindingVersion": "0.3.0"}
    post = {"method": "POST", "bindingVersion": "0.3.0"}
    return {
        "mqttPublish": _operation("receive", "mqtt", "PUBLISH: publish an event.", "mqttReceived"),
        "mqttSubscribe": _operation(
            "send", "mqtt", "SUBSCRIBE: have events sent, with QoS 0, 1 or 2.", "mqttSent"
        ),
        "stompSend": _operation("receive", "stomp", "SEND: publish an event.", "stompReceived"),
        "stompSubscribe": _operation(
            "send", "stomp", "SUBSCRIBE: have events sent as MESSAGE frames.", "stompSent"
        ),
        "follow": {
            **_operation("send", "follow", FOLLOW.summary, "followed", "followEnd"),
            "bindings": {"http": get},
        },
        "webhook": {
            **_operation("send", "webhook", "Send events to a URL.", *_WEBHOOK_MESSAGES),
            "bindings": {"http": post},
        },
    }


def _operation(action: str, channel: str, summary: str, *messages: str) -> dict[str, Any]:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": summary,
        "messages": _refer(f"channels/{channel}/messages", *messages),
    }


def _messages(
    event: Mapping[str, Any], logged: Mapping[str, Any], error: Mapping[str, Any]
) -> dict[str, Any]:
    delivery = _record({"subscriptionId": {"type": "string", "format": "uuid"}, "event": event})
    call = _record(
        {
            "jsonrpc": {"const": "2.0"},
            "id": {"type": "string", "description": "The event's id."},
            "method": {"const": "onEvent"},
            "params": delivery,
        }
    )
    return {
        "mqttReceived": _message(
            "PUBLISH from a client",
            "User properties that begin with svc- become extensions.",
            _OPAQUE,
            _headers({}),
            _BYTES,
        ),
        "mqttSent": _message(
            "PUBLISH to a client",
            "The publisher's properties and user properties, and the event's extensions.",
            _OPAQUE,
            _headers(_MQTT_SENT),
            _BYTES,
        ),
        "stompReceived": _message(
            "SEND",
            "Other headers come back in MESSAGE.",
            _OPAQUE,
            _headers(_STOMP_RECEIVED),
            _BYTES,
        ),
        "stompSent": _message(
            "MESSAGE",
            "Also the headers of the SEND.",
            _OPAQUE,
            _headers(_STOMP_SENT, ("destination", "eventId", "message-id", "content-length")),
            _BYTES,
        ),
        "followed": _message(
            "Event of type event",
            "Its field id is the event's id, its data the event as JSON, by format=cloudevents as "
            "a CloudEvent. To resume, send the last id as Last-Event-ID.",
            {"oneOf": [logged, CLOUD_EVENT_SCHEMA]},
            None,
            EVENT_STREAM,
        ),
        "followEnd": _message(
            "Event of type end", "Why the stream has ended.", error, None, EVENT_STREAM
        ),
        "webhookEvent": _message(
            "RESTful delivery",
            "To a webhook of REST. A webhook with batches gets an array.",
            _orBatch(delivery),
            _headers(_WEBHOOK_SENT, _WEBHOOK_ALWAYS),
            _JSON,
        ),
        "webhookCall": _message(
            "JSON-RPC delivery",
            "To a webhook of JSON-RPC. A webhook with batches gets an array.",
            _orBatch(call),
            _headers(_WEBHOOK_SENT, _WEBHOOK_ALWAYS),
            _JSON,
        ),
        "webhookCloudEvent": _message(
            "CloudEvent",
            "To a webhook with format=cloudevents.",
            CLOUD_EVENT_SCHEMA,
            _headers(_WEBHOOK_SENT, _WEBHOOK_ALWAYS),
            CLOUD_EVENT_TYPE,
        ),
        "webhookCloudEvents": _message(
            "CloudEvents",
            "To a webhook with format=cloudevents and batches.",
            {"type": "array", "items": CLOUD_EVENT_SCHEMA, "minItems": 1},
            _headers(_WEBHOOK_SENT, _WEBHOOK_ALWAYS),
            CLOUD_EVENTS_TYPE,
        ),
        "webhookBinaryEvent": _message(
            "CloudEvent in binary mode",
            "To a webhook with format=cloudevents-binary. Every attribute is a header, the content "
            "type is the attribute datacontenttype.",
            _OPAQUE,
            _headers(
                {**_WEBHOOK_SENT, **_CLOUD_EVENT_SENT}, (*_WEBHOOK_ALWAYS, *_CLOUD_EVENT_SENT)
            ),
            _BYTES,
        ),
    }


def _record(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _orBatch(one: Mapping[str, Any]) -> dict[str, Any]:
    return {"oneOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def _headers(described: Mapping[str, str], required: Sequence[str] = ()) -> dict[str, Any]:
    headers: dict[str, Any] = {
        "type": "object",
        "properties": {name: {**_TEXT, "description": text} for name, text in described.items()},
        "patternProperties": _EXTENSIONS,
        "additionalProperties": _TEXT,
    }
    return {**headers, "required": list(required)} if required else headers


def _message(
    title: str,
    summary: str,
    payload: Mapping[str, Any],
    headers: Mapping[str, Any] | None,
    contentType: str,
) -> dict[str, Any]:
    message = {"title": title, "summary": summary, "contentType": contentType, "payload": payload}
    return message if headers is None else {**message, "headers": headers}
