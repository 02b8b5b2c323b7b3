"""
Writes the manual page svcbroker(1), made of the commands' own help texts.

    python3 -m tools.packages.manpage >svcbroker.1
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from inspect import cleandoc

import click

from svcbroker import __version__
from svcbroker.commands._arguments import SectionedCommand
from svcbroker.commands._connection import SECTION
from svcbroker.commands._group import PROGRAM
from svcbroker.commands._main import makeGroup


def escape(text: str) -> str:
    """Text as roff has it: dashes are those of options, and no line is a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in text.split("\n"))


def paragraphs(text: str) -> Iterator[str]:
    """A help text as click formats it: paragraphs are filled, but for those marked with BS."""
    for paragraph in cleandoc(text).split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f".PP\n.nf\n{escape(paragraph[2:])}\n.fi"
        elif paragraph:
            yield f".PP\n{escape(paragraph)}"


def describe(
    command: click.Command, context: click.Context, connection: dict[str, str]
) -> Iterator[str]:
    """
    A command and its subcommands.

    @param connection: is given the options that say which broker is meant, which many commands
        have.
    """
    if context.parent is not None:
        usage = " ".join(command.collect_usage_pieces(context))
        yield f".SS \\fB{escape(context.command_path)}\\fR {escape(usage)}"
        yield from paragraphs(command.help or "")
    shared = command.sections.get(SECTION, ()) if isinstance(command, SectionedCommand) else ()
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or not isinstance(parameter, click.Option):
            continue
        if parameter.name in shared:
            connection[record[0]] = record[1]
        else:
            yield f".TP\n.B {escape(record[0])}\n{escape(record[1])}"
    if shared:
        yield ".PP\nIt takes the connection options."
    if isinstance(command, click.Group):
        if context.parent is None:
            yield ".SH COMMANDS"
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            assert each is not None
            inner = click.Context(each, parent=context, info_name=name)
            yield from describe(each, inner, connection)


def manualPage(date: str) -> str:
    """
    The whole page.

    @param date: the day that it shows.
    """
    group = makeGroup()
    context = click.Context(group, info_name=PROGRAM, **group.context_settings)
    connection: dict[str, str] = {}
    lines = [
        f'.TH SVCBROKER 1 "{date}" "svcbroker {__version__}" "User Commands"',
        ".SH NAME",
        "svcbroker \\- an event broker that stores events on a blockchain",
        ".SH SYNOPSIS",
        f".B svcbroker\n{escape(' '.join(group.collect_usage_pieces(context)))}",
        ".SH DESCRIPTION",
        *paragraphs(group.help or ""),
        ".SH OPTIONS",
        *describe(group, context, connection),
        ".SH CONNECTION OPTIONS",
        *(f".TP\n.B {escape(name)}\n{escape(text)}" for name, text in connection.items()),
        ".SH FILES",
        ".TP\n.I /etc/svcbroker/svcbroker.toml\nThe configuration of the service.",
        ".TP\n.I /var/lib/svcbroker\nIts data.",
        ".SH SEE ALSO",
        ".BR systemctl (1)",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or time.time())
    sys.stdout.write(manualPage(time.strftime("%Y-%m-%d", time.gmtime(seconds))))
