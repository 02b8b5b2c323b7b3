"""
Arguments of commands in click: decorators, common options, and types of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import isnan
from pathlib import Path
from typing import Any, Final

import click

from .terminal import CommandError

UNEXPECTED: Final = "Got unexpected extra argument"
"""With what click's message about too many arguments begins."""


CONNECTION: Final = "Connection"
"""The title of the options that say which broker is asked, which have a page of their own."""

_CONNECTION_NAMES: Final = "--url, --data-dir, --user, ..."


class SectionedCommand(click.Command):
    """
    A command whose help text shows the options by their sections, but for L{CONNECTION}.

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
                    rows = [(_CONNECTION_NAMES, "see svcbroker help connection")]
                    formatter.write_dl(rows if title == CONNECTION else records[title])


class RenamedOption(click.Option):
    """
    An option that had other names in earlier releases. They are taken, and not shown.
    """

    def __init__(self, names: Sequence[str], *, old: Sequence[str], **keywords: Any) -> None:
        super().__init__([*names, *old], **keywords)
        self._old = old

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """See C{click.Option}."""
        known = self.opts
        self.opts = [each for each in known if each not in self._old]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = known


def options(*those: Any) -> Callable[[Any], Any]:
    """Apply several decorators of click; the first one comes first in the help text."""

    def decorate(function: Any) -> Any:
        for each in reversed(those):
            function = each(function)
        return function

    return decorate


def makeCommand(
    help: str, sections: dict[str, Collection[str]] | None = None
) -> Callable[[Callable[..., int | None]], click.Command]:
    """
    Make a command of a function that is called with the L{Console} and the parameters of the
    command, and returns the exit code, or nothing for success.

    @param sections: see L{SectionedCommand}.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
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


def _rangeText(bounds: click.IntRange | click.FloatRange) -> str:
    """The bounds of a number in words, for help texts and errors: click writes C{1<=x<=9}."""
    if bounds.max is None:
        return f"{bounds.min} or more"
    lowest = f"above {bounds.min}, up" if bounds.min_open else f"{bounds.min}"
    return f"{lowest} to {bounds.max}"


class Whole(click.IntRange):
    """
    A whole number between bounds.
    """

    name = "whole number"

    def _describe_range(self) -> str:
        return _rangeText(self)


class Decimal(click.FloatRange):
    """
    A number between bounds, which may have a fraction.
    """

    name = "number"

    def _describe_range(self) -> str:
        return _rangeText(self)

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


def _event(text: str) -> str:
    # Not for other commands: it takes its time to import.
    from ..errors import BrokerError
    from ..model import EventId

    try:
        EventId.parse(text)
    except BrokerError as error:
        raise ValueError(f"{text!r}: {error.message}; one is such as 7ba3f518-1-2") from None
    return text


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
FILE: Final = click.Path(path_type=Path, dir_okay=False)
DIRECTORY: Final = click.Path(path_type=Path, file_okay=False)
HEIGHT: Final = ParsedType("height", _height)
CHAIN: Final = ParsedType("chain", _chain)
"""The id of a chain: the hash of its genesis."""
NODE: Final = ParsedType("node", _node)
"""The number of a node, or one of nodes."""
COUNT: Final = ParsedType("number", _count)
EVENT: Final = ParsedType("event", _event)
"""The id of an event."""

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


EXTENSIONS: Final = click.option(
    "--ext",
    "extensions",
    cls=RenamedOption,
    old=["--extension"],
    metavar="NAME=VALUE",
    multiple=True,
    help="An extension; svc- is put before its name. May come again.",
)
_PREFIX: Final = "svc-"


def readExtensions(given: Sequence[str]) -> dict[str, str]:
    """
    The extensions that C{--ext} gives, by their whole names.

    @raise CommandError: one is malformed, or comes again.
    """
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name or (name := _PREFIX + name.removeprefix(_PREFIX)) in found:
            raise CommandError(f"--ext: {each!r} is not NAME=VALUE, or comes again")
        found[name] = value
    return found
