"""
The OpenRPC document, made from the declarations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from attrs import evolve
from msgspec import Raw
from twisted.internet.defer import succeed

from .... import __version__
from ....errors import BrokerError, NotAuthorized
from ....operations import Interface, Operation, Parameter, Result
from ..routes import encode
from .openapi import ServedPath, errorsOf, schemasOf

ABOUT: Final = """\
Calls of JSON-RPC 2.0 by POST. Parameters are an object, or an array in the order given here; null
is as good as an absent parameter. Members that a method does not know are ignored.\
"""
_DESCRIPTION = f"""\
{ABOUT}

A required parameter with x-optional may be absent from an object. From an array it may not, since
others follow it: there it is null.\
"""
_BOOLEAN = {"type": "string", "enum": ["true", "false"]}


def document(served: ServedPath) -> Mapping[str, Any]:
    """The OpenRPC 1.3 document of the endpoint of JSON-RPC below a path."""
    interface = served.interface
    operations = interface.operations
    schemas, components = schemasOf([each.result.type for each in operations])
    errors = {error for each in operations for error in _errorsOf(each)}
    return {
        "openrpc": "1.3.2",
        "info": {"title": served.title, "version": __version__, "description": _DESCRIPTION},
        "servers": [
            {
                "name": "default",
                "description": "Where a broker listens unless --http says otherwise.",
                "url": f"http://127.0.0.1:8080{served.base}/jsonrpc",
            }
        ],
        "methods": [
            _method(each, schema) for each, schema in zip(operations, schemas, strict=True)
        ],
        "components": {
            "schemas": components,
            "errors": {
                error.__name__: _error(error, interface.exceptionName)
                for error in sorted(errors, key=lambda error: error.code)
            },
        },
    }


def _errorsOf(operation: Operation) -> Sequence[type[BrokerError]]:
    return (*errorsOf(operation), NotAuthorized)


def _error(error: type[BrokerError], exceptionName: str | None) -> dict[str, Any]:
    data = {
        "exceptionTypeName": exceptionName or error.__name__,
        "message": error.text,
        "code": error.code,
    }
    return {"code": error.rpcCode, "message": error.text, "data": data}


def _method(operation: Operation, result: Mapping[str, Any]) -> dict[str, Any]:
    parameters = operation.parameters
    # Behind the last required one are those that an array can do without.
    last = max((n for n, each in enumerate(parameters) if each.isRequired), default=-1)
    return {
        "name": operation.name,
        "summary": operation.summary,
        "paramStructure": "either",
        "params": [_parameter(each, n <= last) for n, each in enumerate(parameters)],
        "result": {
            "name": "result",
            "schema": _BOOLEAN if operation.result.type is bool else result,
        },
        "errors": [
            {"$ref": f"#/components/errors/{error.__name__}"} for error in _errorsOf(operation)
        ],
    }


def _parameter(parameter: Parameter, isRequired: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "name": parameter.name,
        "description": parameter.description,
        "required": isRequired,
        "schema": parameter.type.schema,
    }
    if isRequired and not parameter.isRequired:
        described["schema"] = {"anyOf": [parameter.type.schema, {"type": "null"}]}
        described["x-optional"] = True
    return described


def withDiscovery(served: ServedPath) -> Interface:
    """
    The interface of a path and the method C{rpc.discover}, which answers with the document of its
    calls.
    """
    interface = served.interface
    # Made with the first call, since that takes long.
    text = cache(lambda: Raw(encode(document(served))))
    discover = Operation(
        name="rpc.discover",
        summary="Read the OpenRPC document.",
        result=Result(type=dict[str, Any], render=lambda text: text),
        method=lambda broker: lambda principal: succeed(text()),
    )
    return evolve(interface, operations=(*interface.operations, discover))
