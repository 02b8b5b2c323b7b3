"""
STOMP in the AsyncAPI document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .....model import EXTENSION_PREFIX
from .....operations import STOMP, Dialect, StompHeaders
from ..declared import ServedPath
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


def stompParts(served: ServedPath) -> Iterator[CarrierSection]:
    """STOMP over TCP, and over WebSocket; one channel where they speak the same."""
    overTCP = {
        "stomp": {
            "host": "127.0.0.1:61613",
            "protocol": "stomp",
            "protocolVersion": "1.2",
            "description": "STOMP 1.2, 1.1 and 1.0.",
            "security": BY_PASSWORD,
        }
    }
    dialect, headers = served.interface.dialect, served.interface.stomp
    overWebSocket = {
        "stompOverWebSocket": {
            "host": HTTP,
            "pathname": f"{served.base}/stomp",
            "protocol": "ws",
            "description": "STOMP over WebSocket.",
            "security": BY_PASSWORD,
        }
    }
    if dialect is None:
        yield _stomp("stomp", "A topic by STOMP", headers, {**overTCP, **overWebSocket})
        return
    title = f"A topic by STOMP, dialect {dialect.name}"
    if served.isMain:
        yield _stomp("stomp", "A topic by STOMP", STOMP, overTCP)
        yield _stomp("dialect", title, headers, overWebSocket, dialect)
    else:
        yield _stomp("stomp", title, headers, overWebSocket, dialect)


def _stomp(
    id: str,
    title: str,
    headers: StompHeaders,
    servers: Mapping[str, Any],
    dialect: Dialect | None = None,
) -> CarrierSection:
    """
    One channel.

    @param id: its name, with which those of its operations and messages begin.
    """
    if dialect is None:
        prefix, parameters = EXTENSION_PREFIX, topicParameter()
    else:
        prefix, parameters = dialect.prefix, topicParameter(dialect.maxTopic)
    send, subscribe, message, receipt, error = (
        f"{id}{frame}" for frame in ("Send", "Subscribe", "Message", "Receipt", "Error")
    )
    others = "come back in MESSAGE" if headers.keepsOthers else "are not kept"
    answers = (receipt, error)
    return CarrierSection(
        servers=servers,
        channels={
            id: {
                "address": "{topic}",
                "title": title,
                "description": "The topic is the header destination.",
                "parameters": parameters,
                "servers": refer("servers", *servers),
                "messages": named(send, subscribe, message, *answers),
            }
        },
        operations={
            send: makeOperation("receive", id, "Publish an event.", [send], answers),
            subscribe: makeOperation("receive", id, "Have events sent.", [subscribe], answers),
            message: makeOperation("send", id, "Send an event to a subscriber.", [message]),
        },
        messages={
            send: makeMessage(
                "SEND",
                f"Other headers {others}.",
                OPAQUE,
                headersSchema(headers.send, prefix),
                BYTES,
            ),
            subscribe: makeMessage(
                "SUBSCRIBE",
                "A frame without a body.",
                None,
                headersSchema(headers.subscribe),
            ),
            message: makeMessage(
                "MESSAGE",
                "Also headers of the publisher.",
                TEXT if headers.isText else OPAQUE,
                headersSchema(headers.message, prefix),
                "text/plain" if headers.isText else BYTES,
            ),
            receipt: makeMessage(
                "RECEIPT", "A frame was carried out.", None, headersSchema(headers.receipt)
            ),
            error: makeMessage(
                "ERROR", "A frame was refused.", TEXT, headersSchema(headers.error), "text/plain"
            ),
        },
    )
