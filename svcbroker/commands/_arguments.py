"""
What the commands share of click: decorators, common options, and types of parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import click


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

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See C{click.Command}."""
        placed = {name for names in self.sections.values() for name in names}
        records: dict[str, list[tuple[str, str]]] = {"Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
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


class PathType(click.Path):
    """
    A path. Whether it exists is told by what opens it.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)


class HeightType(click.ParamType):
    """
    The height of a block.
    """

    name = "height"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """See C{click.ParamType}."""
        if isinstance(value, int):
            return value
        if not (value.isascii() and value.isdigit() and len(value) <= 18):
            self.fail("not a height", param, ctx)
        return int(value)


class ChainType(click.ParamType):
    """
    The id of a chain: the hash of its genesis.
    """

    name = "hash"

    def convert(self, value: Any, param: Any, ctx: Any) -> bytes:
        """See C{click.ParamType}."""
        if isinstance(value, bytes):
            return value
        digits = value.removeprefix("0x")
        try:
            found = bytes.fromhex(digits)
        except ValueError:
            found = b""
        if len(found) != 32 or len(digits) != 64:
            self.fail("a hash has 64 hexadecimal digits", param, ctx)
        return found


class NodeType(click.ParamType):
    """
    The number of a node, or one of nodes.
    """

    name = "node"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        """See C{click.ParamType}."""
        if isinstance(value, int):
            return value
        if not (value.isascii() and value.isdigit() and len(value) <= 3):
            self.fail(f"{value!r} is neither a node's number nor one of nodes", param, ctx)
        return int(value)


class ParsedType(click.ParamType):
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


UNEXPECTED: Final = "Got unexpected extra argument"
"""With what click's message about too many arguments begins."""

PATH: Final = PathType()
HEIGHT: Final = HeightType()
CHAIN: Final = ChainType()
NODE: Final = NodeType()
COUNT: Final = click.IntRange(min=0)

DATA_DIR: Final = click.argument("directory", metavar="DATA-DIR", type=PATH)
PROGRESS: Final = click.option(
    "--progress",
    "isProgressShown",
    is_flag=True,
    help="Show a progress bar on standard error although it is no terminal.",
)


def jsonOption(help: str) -> Any:
    """The option C{--json}, for the parameter C{asJson}."""
    return click.option("--json", "asJson", is_flag=True, help=help)
