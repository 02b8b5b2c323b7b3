"""
Help texts of all commands, as C{helptexts.json} keeps them: C{--help} shows the text of a command
without an import of what that command needs, such as Twisted.

C{python -m tools.helptexts} writes the file from the commands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

FILE: Final = Path(__file__).with_name("helptexts.json")


class StoredCommand(click.Command):
    """
    A command that has the help text of another one, and nothing else of it.
    """

    def __init__(self, name: str, record: Mapping[str, Any]) -> None:
        """
        @param record: what L{describeHelp} has made of the other command.
        """
        super().__init__(name, help=record["help"])
        self._record = record

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """See C{click.Command}."""
        return [*self._record["usage"]]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See C{click.Command}."""
        for title, rows in self._record["sections"].items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, text in rows])


class _SectionReader(click.HelpFormatter):
    """
    Keeps the rows of each section as they are before they are laid out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sections: dict[str, list[tuple[str, str]]] = {}
        self._title = ""

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """See C{click.HelpFormatter}."""
        self._title = name
        yield

    def write_dl(self, rows: Iterable[tuple[str, str]], *_: Any, **__: Any) -> None:
        """See C{click.HelpFormatter}."""
        self.sections[self._title] = [*rows]


def describeHelp(command: click.Command, context: click.Context) -> dict[str, Any]:
    """The parts of a command's help text, which L{StoredCommand} shows in any width."""
    reader = _SectionReader()
    command.format_options(context, reader)
    return {
        "usage": command.collect_usage_pieces(context),
        "help": command.help,
        "sections": reader.sections,
    }


def storedHelp(words: Sequence[str], root: click.Context) -> str | None:
    """
    Look the help text of a command up.

    @param words: the words of the command, without the program's name.
    @param root: the context of the whole program.
    @return: the text, in the width of the terminal; C{None} if no command has these words.
    """
    name = " ".join(words)
    record = json.loads(FILE.read_text("utf-8")).get(name)
    if record is None:
        return None
    command = StoredCommand(name, record)
    return command.get_help(click.Context(command, parent=root, info_name=name))
