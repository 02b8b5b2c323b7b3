"""
The AsyncAPI document: how events are sent and received besides single calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from ..... import __version__
from .....operations import EVENT, ErrorRecord, LoggedEvent
from ..declared import SECURITY, ServedPath, schemasOf
from ._http import followPart, webhookPart
from ._mqtt import mqttPart
from ._parts import CarrierSection
from ._stomp import stompParts

_DESCRIPTION = """\
Events by MQTT 3.1.1 and 5, STOMP 1.0 to 1.2, Server-Sent Events and webhooks. The application is
the broker: it receives what clients publish, and sends what they subscribe to. The hosts and ports
are those of a broker without options. A broker without accounts needs no credentials.\
"""
_DIALECT_DESCRIPTION = """\
Events by STOMP 1.1 over WebSocket, for clients of another product, and webhooks. The application is
the broker: it receives what clients publish, and sends what they subscribe to. The host and port
are those of a broker without options. A broker without accounts needs no credentials.\
"""
_USER_PASSWORD = {
    "userPassword": {
        "type": "userPassword",
        "description": "An account and its password, or a token in place of the password.",
    }
}


def document(served: ServedPath) -> Mapping[str, Any]:
    """The AsyncAPI 3.1 document of a path and, if it is the main one, of the carriers beside it."""
    types = [EVENT.type, LoggedEvent, ErrorRecord] if served.isMain else [EVENT.type]
    (event, *more), components = schemasOf(types)
    parts = [*stompParts(served), webhookPart(event)]
    if served.isMain:
        parts = [mqttPart(served.base), *parts, followPart(served.base, *more)]
    whole = reduce(CarrierSection.__add__, parts)
    description = _DESCRIPTION if served.isMain else _DIALECT_DESCRIPTION
    return {
        "asyncapi": "3.1.0",
        "info": {"title": served.title, "version": __version__, "description": description},
        "defaultContentType": "application/json",
        "servers": whole.servers,
        "channels": whole.channels,
        "operations": whole.operations,
        "components": {
            "messages": whole.messages,
            "schemas": components,
            "securitySchemes": {**SECURITY, **_USER_PASSWORD},
        },
    }
