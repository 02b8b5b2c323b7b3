"""
The parts that all descriptions have in common.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen
from msgspec.json import schema_components

from ....errors import BrokerError
from ....operations import CLOUD_EVENT_SCHEMA, COMMON_ERRORS, EventPageResult, Interface, Operation

SECURITY: Final = {
    "basic": {"type": "http", "scheme": "basic", "description": "An account and its password."},
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of an account."},
}
"""The ways in which a request of HTTP has credentials."""

_IVAR = re.compile(r"@ivar (\w+):")
_MARKUP = re.compile(r"[A-Z]\{([^{}]*)\}")
_REFERENCE = "#/components/schemas/{name}"
_HIDDEN = re.compile(r"svcbroker\.(?:_?[a-z]+\.)*|(?<!Send)Result(?![A-Za-z])")
"""The parts of the names of records that the documents do not show: modules, and an ending."""


@frozen(kw_only=True)
class ServedPath:
    """
    A context path, and what is served below it.

    @ivar base: the context path.
    @ivar interface: the calls below it, by REST and by JSON-RPC, and the STOMP over WebSocket.
    @ivar isMain: whether it is the broker's own path, below which everything else is served too.
        Otherwise it is the path of a dialect.
    """

    base: str
    interface: Interface
    isMain: bool

    @property
    def title(self) -> str:
        """The title of its documents."""
        dialect = self.interface.dialect
        return "svcbroker" if dialect is None else f"svcbroker (dialect {dialect.name})"


def schemasOf(types: Sequence[Any]) -> tuple[Sequence[dict[str, Any]], Mapping[str, Any]]:
    """
    The JSON Schema of each type.

    @param types: types of the wire, as msgspec knows them.
    @return: the schemas, in the order of the types, and those that they refer to below
        C{#/components/schemas}, by name.
    """
    schemas, components = schema_components(types, ref_template=_REFERENCE)
    page = components.get(EventPageResult.__name__)
    if page is not None:
        # msgspec has no union of two kinds of objects.
        events = page["properties"]["events"]
        events["items"] = {"anyOf": [events["items"], CLOUD_EVENT_SCHEMA]}
    shown = {_HIDDEN.sub("", name): _described(each) for name, each in components.items()}
    return _renamed(schemas), _renamed(shown)


def _renamed(value: Any) -> Any:
    """A part of a schema with the names of records as the documents show them."""
    if isinstance(value, list | tuple):
        return [_renamed(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _HIDDEN.sub("", inner)
        if name in ("$ref", "title") and isinstance(inner, str)
        else _renamed(inner)
        for name, inner in value.items()
    }


def _described(schema: dict[str, Any]) -> dict[str, Any]:
    """
    A record's schema with what its docstring says of each member at that member, in plain text.
    """
    if "description" not in schema:
        return schema
    text, *members = _IVAR.split(_MARKUP.sub(r"\1", schema["description"]))
    properties = dict(schema.get("properties", {}))
    for name, said in zip(members[::2], members[1::2], strict=True):
        # Beside a reference many readers do not see it.
        if "$ref" not in properties.get(name, {"$ref": ""}):
            properties[name] = {**properties[name], "description": " ".join(said.split())}
    described = {**schema, "description": text.strip()}
    return {**described, "properties": properties} if properties else described


def errorsOf(operation: Operation) -> Sequence[type[BrokerError]]:
    """Every error of an operation: its own, then those that any call can have."""
    return (*operation.errors, *COMMON_ERRORS)
