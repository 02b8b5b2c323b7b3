"""
Parts of the AsyncAPI document: what it says of one carrier.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from .....operations import StompHeader

HTTP: Final = "127.0.0.1:8080"
"""Where a broker without options serves HTTP."""
TEXT: Final = {"type": "string"}
OPAQUE: Final = {
    "type": "string",
    "format": "binary",
    "description": "Any bytes, kept as they are.",
}
BYTES: Final = "application/octet-stream"


@frozen(kw_only=True)
class CarrierSection:
    """What a document says of one carrier."""

    servers: Mapping[str, Any]
    channels: Mapping[str, Any]
    operations: Mapping[str, Any]
    messages: Mapping[str, Any]

    def __add__(self, other: CarrierSection) -> CarrierSection:
        return CarrierSection(
            servers={**self.servers, **other.servers},
            channels={**self.channels, **other.channels},
            operations={**self.operations, **other.operations},
            messages={**self.messages, **other.messages},
        )


def refer(kind: str, *names: str) -> list[dict[str, str]]:
    """References to objects of one kind."""
    return [{"$ref": f"#/{kind}/{name}"} for name in names]


BY_PASSWORD: Final = refer("components/securitySchemes", "userPassword")


def topicParameter(longest: int = 256) -> dict[str, Any]:
    """
    The parameter of a channel that is a topic.

    @param longest: the longest name, in characters.
    """
    return {"topic": {"description": f"The topic's name: 1 to {longest} characters in [32,128]."}}


def named(*messages: str) -> dict[str, Any]:
    """The messages of a channel, which have the names of the components that they are."""
    references = refer("components/messages", *messages)
    return dict(zip(messages, references, strict=True))


def makeOperation(
    action: str,
    channel: str,
    summary: str,
    messages: Sequence[str],
    replies: Sequence[str] = (),
) -> dict[str, Any]:
    """
    An operation.

    @param action: what the broker does: C{receive} or C{send}.
    @param replies: the messages that the broker answers with, in the same channel.
    """
    operation: dict[str, Any] = {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "summary": summary,
        "messages": refer(f"channels/{channel}/messages", *messages),
    }
    if replies:
        operation["reply"] = {
            "channel": operation["channel"],
            "messages": refer(f"channels/{channel}/messages", *replies),
        }
    return operation


def headersSchema(
    declared: Collection[StompHeader],
    prefix: str = "",
    described: str = "An extension of the event.",
) -> dict[str, Any]:
    """
    The schema of headers.

    @param prefix: how further headers begin that mean something; empty where there are none.
    @param described: what those mean.
    """
    required = [each.name for each in declared if each.isRequired]
    headers: dict[str, Any] = {
        "type": "object",
        "properties": {each.name: {**TEXT, "description": each.description} for each in declared},
        "additionalProperties": TEXT,
    }
    if prefix:
        headers["patternProperties"] = {f"^{prefix}": {**TEXT, "description": described}}
    return {**headers, "required": required} if required else headers


def makeMessage(
    title: str,
    summary: str,
    payload: Mapping[str, Any] | None,
    headers: Mapping[str, Any],
    contentType: str | None = None,
) -> dict[str, Any]:
    """
    A message.

    @param payload: the schema of what it has besides headers; C{None} where that is nothing.
    @param headers: the schema of its headers.
    """
    message: dict[str, Any] = {"title": title, "summary": summary, "headers": headers}
    if contentType is not None:
        message["contentType"] = contentType
    return message if payload is None else {**message, "payload": payload}
