"""
Groups of commands from tables, in click.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from ._command import Command, CommandError, didYouMean

PROGRAM: Final = "svcbroker"


class CommandGroup(click.Group):
    """
    A group of commands from a table. The module of a command is imported when it is used.
    """

    def __init__(
        self,
        name: str,
        commands: Sequence[Command],
        *,
        sections: Mapping[str, Sequence[Command]] | None = None,
        default: str | None = None,
        **keywords: Any,
    ) -> None:
        """
        @param sections: the same commands by the titles under which the help text shows them.
        @param default: where the commands ask a daemon, the one that is meant if none is named,
            or an empty text. The daemon may stand before them.
        """
        super().__init__(
            name,
            invoke_without_command=True,
            no_args_is_help=False,
            callback=_requireCommand,
            options_metavar="[options]",
            subcommand_metavar=f"{'' if default is None else '[DATA-DIR|URL] '}COMMAND ...",
            **keywords,
        )
        self._table = {command.name: command for command in commands}
        self._sections = {"Commands": commands} if sections is None else sections
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See C{click.Command}."""
        if self._default is not None:
            from ._daemon import takeDaemon

            if not (args and args[0] in self._table):
                args = list(takeDaemon(ctx, tuple(args)))
            isNamed = args and (not args[0].startswith("-") or args[0] in ctx.help_option_names)
            if self._default and not isNamed and not ctx.resilient_parsing:
                args = [self._default, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See C{click.Group}."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See C{click.Group}."""
        command = self._table.get(cmd_name)
        return None if command is None else loadCommand(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """See C{click.Group}."""
        if args[0] not in self._table and not ctx.resilient_parsing:
            hint = didYouMean(args[0], list(self._table))
            what = "Unknown command" if self._default is None else "No command or data directory"
            raise CommandError(f"{what}: {args[0]}{hint}")
        ctx.meta[PROGRAM] = [*ctx.meta.get(PROGRAM, ()), args[0]]
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """See C{click.Group}."""
        width = max(map(len, self._table))
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(each.name.ljust(width), each.summary) for each in commands])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """See C{click.Group}."""
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(each.name, help=each.summary)
            for each in self._table.values()
            if each.name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


def _requireCommand(**options: Any) -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        raise CommandError(f"which command? See: {context.command_path} --help")


def loadCommand(command: Command) -> click.Command:
    """Import a command's module, and make what click runs of it."""
    module = command.load()
    if hasattr(module, "COMMANDS"):
        return CommandGroup(
            command.name,
            module.COMMANDS,
            default=getattr(module, "DEFAULT", None),
            help=f"{command.summary}\n\n{module.HELP}",
            short_help=command.summary,
        )
    found: click.Command = module.command
    return found
