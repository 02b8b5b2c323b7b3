"""
Arguments of commands in click: decorators, common options, and types of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import isnan
from pathlib import Path
from typing import Any, Final

import click

UNEXPECTED: Final = "Got unexpected extra argument"
"""With what click's message about too many arguments begins."""


class SectionedCommand(click.Command):
    """
    A command whose help text shows the options by their sections.

    @ivar sections: the names of parameters, by the title of their section; all others come first.
    """

    sections: dict[str, Collection[str]]

    def __init__(
        self, *args: Any, sections: dict[str, Collection[str]] | None = None, **keywords: Any
    ) -> None:
        super().__init__(*args, **keywords)
        self.sections = sections or {}
        placed = {name for names in self.sections.values() for name in names}
        self.params.sort(key=lambda parameter: parameter.name in placed)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See C{click.Command}."""
        placed = {name for names in self.sections.values() for name in names}
        records: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is None:
                continue
            title = "Options"
            if parameter.name in placed:
                title = next(key for key, names in self.sections.items() if parameter.name in names)
            records.setdefault(title, []).append(record)
        for title in ("Options", *self.sections):
            if records.get(title):
                with formatter.section(title):
                    formatter.write_dl(records[title])


def options(*those: Any) -> Callable[[Any], Any]:
    """Apply several decorators of click; the first one comes first in the help text."""

    def decorate(function: Any) -> Any:
        for each in reversed(those):
            function = each(function)
        return function

    return decorate


def makeCommand(
    help: str, sections: dict[str, Collection[str]] | None = None
) -> Callable[[Callable[..., int]], click.Command]:
    """
    Make a command of a function that is called with the L{Console} and the parameters of the
    command, and returns the exit code.

    @param sections: see L{SectionedCommand}.
    """

    def decorate(function: Callable[..., int]) -> click.Command:
        made: click.Command = click.command(
            cls=SectionedCommand, help=help, options_metavar="[options]", sections=sections
        )(click.pass_obj(function))
        return made

    return decorate


class ParsedType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4
    """
    A parameter that a function reads.
    """

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        """
        @param parse: raises C{ValueError}, whose text follows the name of the option.
        """
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """See C{click.ParamType}."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Whole(click.IntRange):
    """
    A whole number between bounds.
    """

    name = "whole number"


class Decimal(click.FloatRange):
    """
    A number between bounds, which may have a fraction.
    """

    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """See C{click.ParamType}."""
        number = super().convert(value, param, ctx)
        if isnan(number):
            # It is in every range.
            self.fail(f"{value!r} is not a valid {self.name}", param, ctx)
        return number


def _height(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError("not a height")
    return int(text)


def _chain(text: str) -> bytes:
    digits = text.removeprefix("0x")
    try:
        found = bytes.fromhex(digits)
    except ValueError:
        found = b""
    if len(found) != 32 or len(digits) != 64:
        raise ValueError("a hash has 64 hexadecimal digits")
    return found


def _node(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3):
        raise ValueError(f"{text!r} is not a number of at most three digits")
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError("not a number")
    return int(text)


def wholeNumber(minimum: int, maximum: int, reason: str) -> ParsedType:
    """
    A number between bounds, both included.

    @param reason: what is said of other values, after the value.
    """

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 20) or not (
            minimum <= int(text) <= maximum
        ):
            raise ValueError(f"{text!r} {reason}")
        return int(text)

    return ParsedType("number", parse)


PATH: Final = click.Path(path_type=Path)
"""A path. Whether it exists is told by what opens it."""
HEIGHT: Final = ParsedType("height", _height)
CHAIN: Final = ParsedType("chain", _chain)
"""The id of a chain: the hash of its genesis."""
NODE: Final = ParsedType("node", _node)
"""The number of a node, or one of nodes."""
COUNT: Final = ParsedType("number", _count)

DATA_DIR: Final = click.argument("directory", metavar="DATA-DIR", type=PATH)
PROGRESS: Final = click.option(
    "--progress",
    "isProgressShown",
    is_flag=True,
    help="Show a progress bar on standard error although it is no terminal.",
)


def jsonOption(help: str = "Show the result as a line of JSON.") -> Any:
    """The option C{--json}, for the parameter C{asJson}."""
    return click.option("--json", "asJson", is_flag=True, help=help)
