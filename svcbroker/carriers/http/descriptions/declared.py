"""
What all descriptions take of the declarations alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.json import schema_components

from ....errors import BrokerError
from ....operations import COMMON_ERRORS, Operation

SECURITY: Final = {
    "basic": {"type": "http", "scheme": "basic", "description": "An account and its password."},
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of an account."},
}
"""The ways in which a request of HTTP has credentials."""

_REFERENCE = "#/components/schemas/{name}"


def schemasOf(types: Sequence[Any]) -> tuple[Sequence[dict[str, Any]], Mapping[str, Any]]:
    """
    The JSON Schema of each type.

    @param types: types of the wire, as msgspec knows them.
    @return: the schemas, in the order of the types, and those that they refer to below
        C{#/components/schemas}, by name.
    """
    return schema_components(types, ref_template=_REFERENCE)


def errorsOf(operation: Operation) -> Sequence[type[BrokerError]]:
    """Every error of an operation: its own, then those that any call can have."""
    return (*operation.errors, *COMMON_ERRORS)
