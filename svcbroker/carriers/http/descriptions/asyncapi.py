"""
The AsyncAPI document: how events are sent and received besides single calls.

It is written in C{asyncapi.json} as clients get it, but for C{{"$use": NAME}}, which stands for
something of C{definitions} or of L{_constants}.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from .... import __version__
from ....model import EXTENSION_PREFIX
from ....operations import (
    CLOUD_EVENT_SCHEMA,
    EVENT,
    FOLLOW,
    FRAME_HEADERS,
    SEND_HEADERS,
    ErrorRecord,
    EventHeader,
    LoggedEvent,
)
from .openapi import ServedPath, schemasOf

_TEMPLATE: Final = Path(__file__).with_name("asyncapi.json")
_TEXT: Final = {"type": "string"}
_DIALECT: Final = "dialect"
"""The channel of STOMP in a dialect; the names of its operations and messages begin with it."""

_DIALECT_DESCRIPTION = """\
Events by STOMP 1.1 over WebSocket, for clients of another product, and webhooks. The application is
the broker: it receives what clients publish, and sends what they subscribe to. The host and port
are those of a broker without options. A broker without accounts needs no credentials.\
"""


def document(served: ServedPath) -> Mapping[str, Any]:
    """The AsyncAPI 3.1 document of a path and, if it is the main one, of the carriers beside it."""
    text = _TEMPLATE.read_text("utf-8")
    for name, value in (
        ("base", served.base),
        ("root", served.base or "/"),
        ("title", served.title),
        ("version", __version__),
    ):
        text = text.replace(f"{{{name}}}", value)
    template = json.loads(text)
    if served.interface.dialect is None:
        _keep(template, {"mqtt", "stomp", "webhook", "follow"})
    elif served.isMain:
        template["channels"]["stomp"]["servers"].pop()  # over WebSocket there is the dialect
    else:
        _keep(template, {_DIALECT, "webhook"})
        template["info"]["description"] = _DIALECT_DESCRIPTION
        # It is the only STOMP that is served here.
        text = re.sub(rf'(?<=["/]){_DIALECT}(?=[A-Z"/])', "stomp", json.dumps(template))
        template = json.loads(text)
    uses = {**template.pop("definitions"), **_constants(served)}
    types = [EVENT.type, LoggedEvent, ErrorRecord] if served.isMain else [EVENT.type]
    template["components"]["schemas"] = schemasOf(types)[1]
    made: dict[str, Any] = _expanded(template, uses)
    return made


def _keep(template: dict[str, Any], channels: Collection[str]) -> None:
    """Leave only these channels in a document, with what they need."""
    used: set[str] = set()
    for kind in ("channels", "operations"):
        for name, part in list(template[kind].items()):
            channel = name if kind == "channels" else part["channel"]["$ref"].rpartition("/")[2]
            if channel in channels:
                used |= {each["$ref"].rpartition("/")[2] for each in part.get("servers", ())}
                used |= {*part["messages"]} if kind == "channels" else set()
            else:
                del template[kind][name]
    for parts in (template["servers"], template["components"]["messages"]):
        for name in parts.keys() - used:
            del parts[name]


def _constants(served: ServedPath) -> Mapping[str, Any]:
    """The parts of the document that are made of declarations, by their names."""
    dialect = served.interface.dialect
    frames = {"stomp": (FRAME_HEADERS, EXTENSION_PREFIX)}
    if dialect is not None:
        name = _DIALECT if served.isMain else "stomp"
        frames[name] = (served.interface.frames, dialect.prefix)
    headers = {
        f"{name}{kind}": schema
        for name, (table, prefix) in frames.items()
        for kind, schema in (
            ("Send", _headersSchema(table.send, prefix)),
            ("Subscribe", _headersSchema(table.subscribe)),
            ("Message", _headersSchema(table.message, prefix)),
            ("Receipt", _headersSchema(table.receipt)),
            ("Error", _headersSchema(table.error)),
        )
    }
    parameters = {
        "type": "object",
        "properties": {
            each.name: {**each.type.schema, "description": each.description}
            for each in FOLLOW.parameters
        },
        "required": [each.name for each in FOLLOW.parameters if each.isRequired],
    }
    return {
        **headers,
        "mqttPublish": _headersSchema(SEND_HEADERS, EXTENSION_PREFIX),
        "followParameters": parameters,
        "cloudEvent": CLOUD_EVENT_SCHEMA,
    }


def _headersSchema(declared: Collection[EventHeader], prefix: str = "") -> dict[str, Any]:
    """
    The schema of headers.

    @param prefix: the beginning of those that are extensions; empty where there are none.
    """
    required = [each.name for each in declared if each.isRequired]
    headers: dict[str, Any] = {
        "type": "object",
        "properties": {each.name: {**_TEXT, "description": each.description} for each in declared},
        "additionalProperties": _TEXT,
    }
    if prefix:
        extension = {**_TEXT, "description": "An extension of the event."}
        headers["patternProperties"] = {f"^{prefix}": extension}
    return {**headers, "required": required} if required else headers


def _expanded(value: Any, uses: Mapping[str, Any]) -> Any:
    """A part of the template with what it uses in place."""
    if isinstance(value, list):
        return [_expanded(each, uses) for each in value]
    if not isinstance(value, dict):
        return value
    if "$use" in value:
        return _expanded(uses[value["$use"]], uses)
    return {name: _expanded(each, uses) for name, each in value.items()}
