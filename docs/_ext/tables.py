"""
The tables of the documentation, made from the declarations in the code, as reStructuredText.

Nothing here knows Sphinx; C{svctables.py} puts these texts into pages.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import EnumMeta
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import click
from advice import ADVICE
from msgspec import Struct, UnsetType
from msgspec.structs import fields

from svcbroker import errors
from svcbroker.access import DEFAULT_COST
from svcbroker.carriers.http.routes import refuse
from svcbroker.carriers.mqtt.fields import publishReason
from svcbroker.commands.arguments import CONNECTION
from svcbroker.commands.commandline import GROUPS, allCommands, commandOptions
from svcbroker.daemon import config, memory
from svcbroker.daemon.process import WANTED_FILES
from svcbroker.interfaces import IAuthenticatorFactory
from svcbroker.ledgers import findLedgerFactories
from svcbroker.model import Edge
from svcbroker.net.bounds import amountText
from svcbroker.net.descriptions import findFactories
from svcbroker.net.settings import Flag, Setting
from svcbroker.operations import (
    COMMON_ERRORS,
    OPERATIONS,
    OPERATOR_CALLS,
    ErrorRecord,
    ExtensionsType,
    Operation,
    Parameter,
)
from svcbroker.operations._adminqueries import QUERIES
from svcbroker.operations._declarations import OMITTED
from svcbroker.operations._results import Envelope

CALLS = (*OPERATIONS, *QUERIES, *OPERATOR_CALLS)
"""Every call that there is."""

_EPYTEXT = re.compile(r"\b([CLI])\{([^<}]*)(?:<[^>]*>)?\}")
_PLAIN = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    bytes: "string, Base64",
    UnsetType: "absent",
}


def prose(text: str | None) -> str:
    """A docstring's text in one line of reStructuredText."""
    line = " ".join(cleandoc(text or "").split())
    return _EPYTEXT.sub(lambda found: f"``{found[2]}``", line)


def listTable(header: Sequence[str], rows: Iterable[Sequence[str]], widths: str = "auto") -> str:
    """A C{list-table}."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :align: left",
        f"   :widths: {widths}",
        "",
    ]
    for row in (header, *rows):
        for number, cell in enumerate(row):
            lines.append(f"   {'* -' if number == 0 else '  -'} {cell}".rstrip())
    return "\n".join([*lines, ""])


def typeText(type: Any) -> str:
    """A type of the wire in words."""
    origin, arguments = get_origin(type), get_args(type)
    if origin is Annotated:
        return typeText(arguments[0])
    if origin is Literal:
        return " or ".join(f"``{value}``" for value in arguments)
    if origin in (Union, UnionType):
        return " or ".join("null" if each is NoneType else typeText(each) for each in arguments)
    if origin is list:
        return f"array of {typeText(arguments[0])}"
    if origin is dict:
        return f"object with values: {typeText(arguments[1])}"
    if isinstance(origin, builtinType) and issubclass(origin, Struct):
        return f"{typeText(origin)} of {typeText(arguments[0])}"
    if isinstance(type, TypeVar):
        return "what the query says"
    if isinstance(type, EnumMeta):
        return " or ".join(f"``{each.value}``" for each in type)
    if isProof(type):
        return f":ref:`{type.__name__} <proof-{type.__name__}>`"
    return _PLAIN.get(type) or f":ref:`{type.__name__} <record-{type.__name__}>`"


def isProof(type: Any) -> bool:
    """Whether a record is part of the format of proofs, which has a page of its own."""
    return str(getattr(type, "__module__", "")).startswith("svcbroker.proofs")


# "type" is a parameter's name above.
builtinType = type


def resultText(operation: Operation) -> str:
    """What an operation answers, in words."""
    type = operation.result.type
    if get_origin(type) is Envelope:
        return f"the :ref:`Envelope <record-Envelope>` of: {typeText(get_args(type)[0])}"
    return typeText(type)


def _parameterRow(parameter: Parameter) -> Sequence[str]:
    name = f"``{parameter.name}``"
    if parameter.isRequired:
        needed = f"required, else {parameter.absent.code}"
    elif parameter.default in (None, (), "", OMITTED) or parameter.default == {}:
        needed = "optional"
    else:
        default = "false" if parameter.default is False else parameter.default
        if isinstance(default, Edge):
            default = f"OFFSET_{default.name}"
        needed = f"default ``{default}``"
    return name, needed, parameter.description


def _errorText(error: type[errors.BrokerError]) -> str:
    return f":ref:`{error.code} <error-{error.code}>` {error.__name__}"


def operationText(operation: Operation, prefix: str) -> str:
    """
    The section of one operation.

    @param prefix: the path in front of its name.
    """
    title = operation.name
    lines = [f".. _call-{title.replace('/', '-')}:", "", title, "^" * len(title), ""]
    lines += [operation.summary, "", f"Path: ``{prefix}/{operation.name}``", ""]
    if operation.parameters:
        rows = [_parameterRow(parameter) for parameter in operation.parameters]
        lines += [listTable(("parameter", "given", "meaning"), rows, "20 25 55")]
        if any(isinstance(each.type, ExtensionsType) for each in operation.parameters):
            lines += [
                "In REST the extensions are all parameters whose names start with ``svc-``.",
                "",
            ]
    else:
        lines += ["Takes no parameters.", ""]
    lines += [f"Answers: {resultText(operation)}.", ""]
    if operation.errors:
        lines += ["Errors: " + ", ".join(map(_errorText, operation.errors)) + ".", ""]
    return "\n".join(lines)


def operationsText() -> str:
    """All operations."""
    return "\n".join(operationText(each, "/rest") for each in OPERATIONS)


def queriesText() -> str:
    """All admin queries."""
    return "\n".join(operationText(each, "/admin") for each in QUERIES)


def operatorText() -> str:
    """All operator calls."""
    return "\n".join(operationText(each, "/admin/operator") for each in OPERATOR_CALLS)


def commonErrorsText() -> str:
    """What everything can answer."""
    return ", ".join(map(_errorText, COMMON_ERRORS)) + ".\n"


def _structs(type: Any) -> Iterator[type[Struct]]:
    """The records in a type, from the outside in."""
    origin = get_origin(type)
    for candidate in (type, origin):
        if isinstance(candidate, builtinType) and issubclass(candidate, Struct):
            if isProof(candidate):
                return
            yield candidate
            for field in fields(candidate):
                yield from _structs(field.type)
    if origin is not Literal:
        for argument in get_args(type):
            yield from _structs(argument)


def records() -> Sequence[type[Struct]]:
    """Every record of the interface, once."""
    found = [each for call in CALLS for each in _structs(call.result.type)]
    return list(dict.fromkeys([*_structs(ErrorRecord), *found]))


def recordsText() -> str:
    """The sections of all records."""
    lines = []
    for record in records():
        name = record.__name__
        rows = [(f"``{field.name}``", typeText(field.type)) for field in fields(record)]
        lines += [f".. _record-{name}:", "", name, "^" * len(name), "", prose(record.__doc__), ""]
        lines += [listTable(("field", "type"), rows, "30 70")]
    return "\n".join(lines)


def errorsText() -> str:
    """The table of errors."""
    rows = [
        (
            f".. _error-{error.code}:\n\n       ``{error.code}``",
            f"``{error.rpcCode}``",
            error.__name__,
            prose(error.__doc__),
        )
        for error in errors.TABLE
    ]
    return listTable(("code", "JSON-RPC", "name", "when"), rows, "12 12 24 52")


def _statusText(error: errors.BrokerError) -> str:
    """The HTTP status that REST answers an error with, and whether it says when to try again."""
    refusal = refuse(error)
    if refusal is None:
        return "200"
    isTimed = any(name == b"Retry-After" for name, _ in refusal.headers)
    return f"{refusal.code}, with ``Retry-After``" if isTimed else str(refusal.code)


def _errorSection(error: type[errors.BrokerError]) -> Iterator[str]:
    name = error.__name__
    reason = publishReason(error())
    calls = [
        f":ref:`{each.name} <call-{each.name.replace('/', '-')}>`"
        for each in CALLS
        if error in each.errors
    ]
    if error in COMMON_ERRORS:
        calls = ["every call"]
    yield from (f".. index:: ! {error.code}, ! {name}", "")
    yield from (f".. _error-of-{name}:", "", name, "-" * len(name), "")
    yield f"*{_escaped(error.text)}*"
    yield from ("", prose(error.__doc__), "", prose(ADVICE[error]), "")
    yield from (
        ":Code: " + f":ref:`{error.code} <error-{error.code}>`, over JSON-RPC ``{error.rpcCode}``",
    )
    yield f":HTTP status of REST: {_statusText(error())}"
    yield f":MQTT 5: a publish that fails by it gets ``0x{reason:02x}``"
    yield from ([f":Calls: {', '.join(calls)}"] if calls else [])
    yield ""


def errorsByNameText() -> str:
    """A section for each error, by its name, with what a user does about it."""
    table = sorted(errors.TABLE, key=lambda error: error.__name__)
    return "\n".join(line for error in table for line in _errorSection(error))


def _optionText(setting: Setting) -> str:
    if isinstance(setting.kind, Flag):
        return f"``--{setting.name}``, ``--no-{setting.name}``"
    return f"``--{setting.name} {setting.kind.metavar}``"


def settingsText() -> str:
    """The table of settings."""
    rows = [
        (
            _optionText(setting),
            f"``{setting.default or 'none'}``",
            setting.help.replace("*", r"\*"),
        )
        for setting in config.SETTINGS
    ]
    return listTable(("setting", "default", "meaning"), rows, "34 26 40")


_DOCUMENTED_MEMORY = 16 << 30


def boundsText() -> str:
    """The table of what may be in memory, with the default settings."""
    table = memory.boundsOf(config.Config(), (), (DEFAULT_COST,), _DOCUMENTED_MEMORY, WANTED_FILES)
    rows = [
        (
            each.name,
            f"{amountText(each.bytes)} {each.each}".rstrip(),
            each.how.replace("*", r"\*"),
        )
        for each in table.bounds
    ]
    rows.append(("**the sum**, without what is told for each", amountText(table.total), ""))
    return listTable(("what", "at most", "how"), rows, "30 14 56")


def _pluginTable(factory: Any) -> str:
    rows = [(f"``{key}``", meaning) for key, meaning in factory.settings.items()]
    return listTable(("setting", "meaning"), rows, "20 80") if rows else ""


def _pluginsText(factories: Iterable[Any]) -> str:
    lines = []
    for factory in factories:
        lines += [f"``{factory.name}``", f"   {factory.summary}", ""]
        lines += [textwrap.indent(_pluginTable(factory), "   "), ""]
    return "\n".join(lines)


def ledgersText() -> str:
    """Every ledger that comes with the broker, with its settings."""
    return _pluginsText(findLedgerFactories())


def authenticatorsText() -> str:
    """Every authenticator that comes with the broker, with its settings."""
    return _pluginsText(findFactories(IAuthenticatorFactory))


def cometbftText() -> str:
    """The settings of the ledger beside an engine."""
    [factory] = [each for each in findLedgerFactories() if each.name == "cometbft"]
    return _pluginTable(factory)


def _escaped(text: str) -> str:
    """Plain text in one line of reStructuredText."""
    return re.sub(r"([\\*`|_])", r"\\\1", " ".join(text.split()))


def _helpText(text: str) -> Iterator[str]:
    """A help text as click formats it: paragraphs are filled, but for those marked with BS."""
    for paragraph in cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield ".. code-block:: text\n\n" + textwrap.indent(paragraph[2:], "   ")
        else:
            yield _escaped(paragraph)
        yield ""


def _optionTable(options: dict[str, str]) -> str:
    rows = [(f"``{name}``", _escaped(meaning)) for name, meaning in options.items()]
    return listTable(("option", "meaning"), rows, "36 64")


def commandListText() -> str:
    """All commands by group, a line each."""
    rows: dict[str, list[tuple[str, str]]] = {}
    for command, context in allCommands():
        if isinstance(command, click.Group):
            continue
        words = context.command_path.split()
        group = words[1] if words[1] in GROUPS else ""
        summary = command.get_short_help_str(limit=200).removesuffix(".")
        rows.setdefault(group, []).append((f"``{' '.join(words)}``", _escaped(summary)))
    lines = []
    for group, those in rows.items():
        lines += [f"**{GROUPS[group] if group else 'Every day'}**".replace(".**", "**"), ""]
        lines += [listTable(("command", "what it does"), those, "34 66")]
    return "\n".join(lines)


def commandsText() -> str:
    """The sections of all commands, and the options that many of them have."""
    lines = []
    connection: dict[str, str] = {}
    for command, context in allCommands():
        if context.parent is None:
            continue
        title, usage = context.command_path, " ".join(command.collect_usage_pieces(context))
        lines += [title, "-" * len(title), "", f"``{title} {usage}``".replace(" ``", "``"), ""]
        lines += _helpText(command.help or "")
        options = commandOptions(command, context)
        own = {name: text for name, text in options.get("", {}).items() if name != "-h, --help"}
        if own:
            lines += [_optionTable(own)]
        if CONNECTION in options:
            connection.update(options[CONNECTION])
            lines += ["And the :ref:`connection options <connection-options>`.", ""]
        if set(options) - {"", CONNECTION}:
            lines += ["And the settings of the daemon: :ref:`settings`.", ""]
    title = "Connection options"
    lines += [".. _connection-options:", "", title, "-" * len(title), "", _optionTable(connection)]
    return "\n".join(lines)


TEXTS = {
    "svc-operations": operationsText,
    "svc-queries": queriesText,
    "svc-operator": operatorText,
    "svc-common-errors": commonErrorsText,
    "svc-records": recordsText,
    "svc-errors": errorsText,
    "svc-errors-by-name": errorsByNameText,
    "svc-settings": settingsText,
    "svc-bounds": boundsText,
    "svc-ledgers": ledgersText,
    "svc-authenticators": authenticatorsText,
    "svc-cometbft": cometbftText,
    "svc-command-list": commandListText,
    "svc-commands": commandsText,
}
"""The text of each directive."""
