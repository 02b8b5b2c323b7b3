"""
C{svcbroker admin context}: contexts, which name brokers and the credentials for them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import click

from .arguments import jsonOption, makeCommand, options
from .clientcommand import FIELD_OPTIONS, FIELDS, IDENTITY, RECIPIENTS, Contexts, contextsPath
from .commandline import Command
from .terminal import CommandError, Console, quoted, showTable

_FILES: Final = ("password-file", "token-file", "ca", "cert", "cert-key", "identity", "recipients")
_NAME: Final = click.argument("name")


def _read() -> Contexts:
    return Contexts.read(contextsPath(os.environ))


@makeCommand("Add a context, or replace it. The first one is used from then on.")
@options(
    _NAME,
    click.option("--url", metavar="URL", required=True, help="The broker's URL."),
    *FIELD_OPTIONS,
    IDENTITY,
    RECIPIENTS,
)
def _add(console: Console, name: str, **given: str | None) -> None:
    # Not for the other commands: it takes its time to import.
    from ..client._requests import checkUrl

    contexts = _read()
    values = {each: given[each.replace("-", "_")] for each in FIELDS}
    fields = {each: value for each, value in values.items() if value is not None}
    try:
        fields["url"] = checkUrl(fields["url"])
    except ValueError as error:
        raise CommandError(f"--url: {error}") from None
    if "password-file" in fields and "user" not in fields:
        raise CommandError("--password-file needs --user")
    for each in _FILES:
        if each in fields:
            fields[each] = str(Path(fields[each]).absolute())
    contexts.contexts[name] = fields
    contexts.current = contexts.current or name
    contexts.write()
    used = ", and is used" if contexts.current == name else ""
    console.warn(f"{contexts.path}: the context {name} is there{used}")


@makeCommand("""\
    Use a context from now on.

    It is used wherever neither --url, --context nor SVCBROKER_URL says otherwise.
    """)
@options(_NAME)
def _use(console: Console, name: str) -> None:
    contexts = _read()
    contexts.find(name)
    contexts.current = name
    contexts.write()
    console.warn(f"{contexts.path}: the context {name} is used")


@makeCommand("List the contexts. A * is before the one in use.")
@options(
    jsonOption("Show each context as a line of JSON."),
)
def _list(console: Console, asJson: bool) -> None:
    contexts = _read()
    rows = []
    for name, fields in contexts.contexts.items():
        isUsed = name == contexts.current
        if asJson:
            console.sayJson({"name": name, "used": isUsed, **fields})
        words = [f"{key} {quoted(value)}" for key, value in fields.items() if key != "url"]
        rows.append((f"{'*' if isUsed else ' '} {name}", fields["url"], "  ".join(words)))
    if not asJson:
        lines = ("  ".join(filter(None, row)) for row in rows)
        showTable(console, ("context", "url", "credentials"), rows, lines)


@makeCommand("Remove a context. Its files of secrets stay.")
@options(_NAME)
def _remove(console: Console, name: str) -> None:
    contexts = _read()
    contexts.find(name)
    del contexts.contexts[name]
    contexts.current = None if contexts.current == name else contexts.current
    contexts.write()
    console.warn(f"{contexts.path}: removed the context {name}")


HELP: Final = (
    "They are in svcbroker/contexts.toml, in XDG_CONFIG_HOME or ~/.config. Secrets are not in it, "
    "but in the files that it names."
)
COMMANDS: Final = (
    Command.of(
        "add",
        _add,
        "svcbroker admin context add mine --url https://broker.example:8443/svcbroker --user ann",
    ),
    Command.of("use", _use, "svcbroker admin context use mine"),
    Command.of("list", _list, "svcbroker admin context list --json"),
    Command.of("remove", _remove, "svcbroker admin context remove mine"),
)
