"""
Server-Sent Events and webhooks in the AsyncAPI document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .....operations import (
    CLOUD_EVENT_SCHEMA,
    CLOUD_EVENT_TYPE,
    CLOUD_EVENTS_TYPE,
    FOLLOW,
    StompHeader,
)
from ..openapi import EVENT_STREAM
from ._parts import (
    BYTES,
    HTTP,
    OPAQUE,
    CarrierSection,
    headersSchema,
    makeMessage,
    makeOperation,
    named,
    refer,
)

_JSON = "application/json"
_FOLLOW_REQUEST = (
    StompHeader(
        "Last-Event-ID", "Where to resume: the last id of an earlier stream. It wins over from."
    ),
)
_STREAM_START = (
    StompHeader("retry", "When a browser connects again, in milliseconds.", isRequired=True),
    StompHeader("id", "Where the stream begins, to resume there before the first event."),
)
_STREAM_EVENT = (
    StompHeader("id", "The event's id.", isRequired=True),
    StompHeader("event", "event.", isRequired=True),
)
_STREAM_END = (StompHeader("event", "end.", isRequired=True),)
_WEBHOOK = (
    StompHeader("webhook-id", "The event's id; in a batch the last event's.", isRequired=True),
    StompHeader(
        "webhook-timestamp",
        "When this attempt was made, in seconds since the epoch.",
        isRequired=True,
    ),
    StompHeader(
        "webhook-signature",
        "The signatures of Standard Webhooks, where a secret is configured.",
    ),
    StompHeader("X-Svc-Subscription-Id", "The subscription's id.", isRequired=True),
    StompHeader("X-Svc-Event-Id", "As webhook-id.", isRequired=True),
    StompHeader("X-Svc-Timestamp", "As webhook-timestamp.", isRequired=True),
    StompHeader(
        "X-Svc-Signature",
        "The signature of earlier releases, where the webhook names no secret of its own.",
    ),
    StompHeader("User-Agent", "svcbroker and its version.", isRequired=True),
)
_CLOUD_EVENT = tuple(
    StompHeader(f"ce-{name}", f"The attribute {name}.", isRequired=True)
    for name in ("specversion", "id", "source", "type")
)


def followPart(base: str, logged: Mapping[str, Any], error: Mapping[str, Any]) -> CarrierSection:
    """
    C{follow} below a path.

    @param logged: the schema of an event of the log.
    @param error: the schema of a failure.
    """
    properties = {
        each.name: {**each.type.schema, "description": each.description}
        for each in FOLLOW.parameters
    }
    query = {
        "type": "object",
        "properties": properties,
        "required": [each.name for each in FOLLOW.parameters if each.isRequired],
    }
    stream = ("followStart", "followed", "followEnd")
    operation = makeOperation("receive", "follow", FOLLOW.summary, ["followRequest"], stream)
    binding = {"method": "GET", "query": query, "bindingVersion": "0.3.0"}
    return CarrierSection(
        servers={
            "http": {
                "host": HTTP,
                "pathname": base or "/",
                "protocol": "http",
                "description": "Server-Sent Events.",
                "security": refer("components/securitySchemes", "basic", "bearer"),
            }
        },
        channels={
            "follow": {
                "address": f"/rest/{FOLLOW.name}",
                "title": "Topics by Server-Sent Events",
                "description": FOLLOW.summary,
                "servers": refer("servers", "http"),
                "messages": named("followRequest", *stream),
            }
        },
        operations={"follow": {**operation, "bindings": {"http": binding}}},
        messages={
            "followRequest": makeMessage(
                "Request", "A GET without a body.", None, headersSchema(_FOLLOW_REQUEST)
            ),
            "followStart": makeMessage(
                "Beginning",
                "The fields before the first event.",
                None,
                headersSchema(_STREAM_START),
                EVENT_STREAM,
            ),
            "followed": makeMessage(
                "Event of type event",
                "Its field data is the event as JSON, by format=cloudevents as a CloudEvent. The "
                "headers are its other fields.",
                {"oneOf": [logged, CLOUD_EVENT_SCHEMA]},
                headersSchema(_STREAM_EVENT),
                EVENT_STREAM,
            ),
            "followEnd": makeMessage(
                "Event of type end",
                "Why the stream has ended.",
                error,
                headersSchema(_STREAM_END),
                EVENT_STREAM,
            ),
        },
    )


def webhookPart(event: Mapping[str, Any]) -> CarrierSection:
    """
    Webhooks.

    @param event: the schema of an event.
    """
    delivery = _record({"subscriptionId": {"type": "string", "format": "uuid"}, "event": event})
    call = _record(
        {
            "jsonrpc": {"const": "2.0"},
            "id": {"type": "string", "description": "The event's id."},
            "method": {"const": "onEvent"},
            "params": delivery,
        }
    )
    names = (
        *("webhookEvent", "webhookCall"),
        *("webhookCloudEvent", "webhookCloudEvents", "webhookBinaryEvent"),
    )
    operation = makeOperation("send", "webhook", "Send events to a URL.", names)
    post = {"method": "POST", "bindingVersion": "0.3.0"}
    return CarrierSection(
        servers={
            "receiver": {
                "host": "{host}",
                "protocol": "https",
                "description": "The receiver of a webhook. It may have http as well.",
                "variables": {
                    "host": {"description": "As the URL says.", "default": "receiver.example"}
                },
            }
        },
        channels={
            "webhook": {
                "address": None,
                "title": "Topics by webhook",
                "description": "The URL that subscribe of REST or JSON-RPC was given. Each event "
                "is sent until the receiver answers with a status 2xx, or all attempts are used "
                "up.",
                "servers": refer("servers", "receiver"),
                "messages": named(*names),
            }
        },
        operations={"webhook": {**operation, "bindings": {"http": post}}},
        messages={
            "webhookEvent": makeMessage(
                "RESTful delivery",
                "To a webhook of REST. A webhook with batches gets an array. Also the headers that "
                "subscribe was given.",
                _orBatch(delivery),
                headersSchema(_WEBHOOK),
                _JSON,
            ),
            "webhookCall": makeMessage(
                "JSON-RPC delivery",
                "To a webhook of JSON-RPC. A webhook with batches gets an array. Also the headers "
                "that subscribe was given.",
                _orBatch(call),
                headersSchema(_WEBHOOK),
                _JSON,
            ),
            "webhookCloudEvent": makeMessage(
                "CloudEvent",
                "To a webhook with format=cloudevents.",
                CLOUD_EVENT_SCHEMA,
                headersSchema(_WEBHOOK),
                CLOUD_EVENT_TYPE,
            ),
            "webhookCloudEvents": makeMessage(
                "CloudEvents",
                "To a webhook with format=cloudevents and batches.",
                {"type": "array", "items": CLOUD_EVENT_SCHEMA, "minItems": 1},
                headersSchema(_WEBHOOK),
                CLOUD_EVENTS_TYPE,
            ),
            "webhookBinaryEvent": makeMessage(
                "CloudEvent in binary mode",
                "To a webhook with format=cloudevents-binary. Every attribute is a header, the "
                "content type is the attribute datacontenttype.",
                OPAQUE,
                headersSchema((*_WEBHOOK, *_CLOUD_EVENT), "ce-", "Another attribute."),
                BYTES,
            ),
        },
    )


def _record(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _orBatch(one: Mapping[str, Any]) -> dict[str, Any]:
    return {"oneOf": [one, {"type": "array", "items": one, "minItems": 1}]}
