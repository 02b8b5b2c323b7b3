"""
Commands whose options are C{usage.Options}, as those of C{twistd} are, in the command line of
click.
"""

from __future__ import annotations

import getopt
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
from twisted.python import usage

from ..version import readVersion
from ._command import CommandError, Console, Exit, didYouMean

_TWISTED_COUNTS = "Wrong number of arguments."
"""All that C{usage.Options} says of it."""


class HelpRequested(Exception):
    """The option C{--help} was given."""


class CommandOptions(usage.Options):
    """
    The options of a command. Bad values raise C{usage.UsageError} with one line. Options may
    stand behind arguments, too.

    @cvar synopsis: the arguments, for the help text.
    @cvar longdesc: the help text.
    """

    synopsis = "[options]"
    longdesc = ""

    def opt_help(self) -> None:
        """Show this message and exit."""
        raise HelpRequested()

    opt_h = opt_help

    def opt_version(self) -> None:
        """Show the version and exit."""
        sys.stdout.write(f"svcbroker {readVersion().version}\n")
        raise SystemExit(0)

    def parseOptions(self, options: Sequence[str] | None = None) -> None:
        """See C{usage.Options}."""
        try:
            given, arguments = getopt.gnu_getopt(list(options or ()), self.shortOpt, self.longOpt)
        except getopt.GetoptError as error:
            names = [name.removesuffix("=") for name in self.longOpt]
            raise usage.UsageError(error.msg + didYouMean(error.opt, names, "--")) from None
        sorted = [
            f"{name}={value}" if f"{name[2:]}=" in self.longOpt else name + value
            for name, value in given
        ]
        try:
            super().parseOptions([*sorted, "--", *arguments])
        except usage.UsageError as error:
            if str(error) != _TWISTED_COUNTS:
                raise
            raise usage.UsageError(f"Wrong number of arguments: {self.synopsis}") from None


class ProgressOptions(CommandOptions):
    """
    Options of a command that shows how far it is; see
    L{progressBar<svcbroker.commands._progress.progressBar>}.
    """

    optFlags = [
        ["progress", None, "Show a progress bar on standard error although it is no terminal."]
    ]


def readChain(text: str) -> bytes:
    """
    The id of a chain, as the option C{--chain} has it.

    @raise usage.UsageError: it is not one.
    """
    digits = text.removeprefix("0x")
    try:
        value = bytes.fromhex(digits)
    except ValueError:
        value = b""
    if len(value) != 32 or len(digits) != 64:
        raise usage.UsageError("--chain: a hash has 64 hexadecimal digits")
    return value


class OptionsCommand(click.Command):
    """
    A command whose module has C{Options} and C{run}. The options parse the arguments; click
    completes them and shows their help.
    """

    def __init__(self, name: str, summary: str, module: Any) -> None:
        """
        @param module: has C{Options}, L{CommandOptions}, and C{run(options, console)}.
        """
        self._options: CommandOptions = module.Options()
        self._run = module.run
        super().__init__(
            name,
            help=f"{summary}\n\n{self._options.longdesc}",
            short_help=summary,
            params=[
                *_parameters(self._options),
                click.Argument(["arguments"], nargs=-1, type=click.Path()),
            ],
            add_help_option=False,
        )

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """See C{click.Command}."""
        return [self._options.synopsis]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See C{click.Command}."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        try:
            self._options.parseOptions(args)
        except HelpRequested:
            click.echo(ctx.get_help())
            ctx.exit()
        except usage.UsageError as error:
            raise CommandError(str(error)) from None
        except SystemExit as ended:
            # --version and --help-ledger end so, after they have written to standard output.
            ctx.exit(ended.code if isinstance(ended.code, int) else Exit.GOOD)
        return []

    def invoke(self, ctx: click.Context) -> Any:
        """See C{click.Command}."""
        try:
            return self._run(self._options, ctx.find_object(Console))
        except usage.UsageError as error:
            raise CommandError(str(error)) from None


def _parameters(options: Any) -> Iterator[click.Option]:
    """What click has to know of options: names, help, and whether they take a value."""
    takeValue = {name.removesuffix("=") for name in options.longOpt if name.endswith("=")}
    for name in sorted({each.removesuffix("=") for each in options.longOpt}):
        if options.synonyms.get(name, name) != name:
            continue
        short = [
            f"-{other}"
            for other, long in options.synonyms.items()
            if long == name and len(other) == 1
        ]
        help = " ".join((options.docs.get(name) or "").split())
        default = options.defaults.get(name)
        if name in takeValue and default not in (None, "") and "[default" not in help:
            help += f" [default: {default}]"
        # The names of parameters are of no use here, but must be identifiers.
        yield click.Option(
            [*short, f"--{name}", "option_" + name.replace("-", "_")],
            is_flag=name not in takeValue,
            metavar="VALUE" if name in takeValue else None,
            help=help,
        )
