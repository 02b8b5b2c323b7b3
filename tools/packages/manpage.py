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

from svcbroker import __version__
from svcbroker.commands.arguments import CONNECTION
from svcbroker.commands.commandline import allCommands, commandOptions


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


def entries(options: dict[str, str]) -> Iterator[str]:
    """Options, and what they mean."""
    for name, meaning in options.items():
        yield f".TP\n.B {escape(name)}\n{escape(meaning)}"


def describe(connection: dict[str, str]) -> Iterator[str]:
    """
    The options of the program, and all commands.

    @param connection: is given the options that say which broker is meant, which many commands
        have.
    """
    for command, context in allCommands():
        if context.parent is not None:
            usage = " ".join(command.collect_usage_pieces(context))
            yield f".SS \\fB{escape(context.command_path)}\\fR {escape(usage)}"
            yield from paragraphs(command.help or "")
        sections = commandOptions(command, context)
        shared = sections.pop(CONNECTION, {})
        connection.update(shared)
        for options in sections.values():
            yield from entries(options)
        if shared:
            yield ".PP\nIt takes the connection options."
        if context.parent is None:
            yield ".SH COMMANDS"


def manualPage(date: str) -> str:
    """
    The whole page.

    @param date: the day that it shows.
    """
    group, context = next(allCommands())
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
        *describe(connection),
        ".SH CONNECTION OPTIONS",
        *entries(connection),
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
