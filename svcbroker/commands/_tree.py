"""
The commands of svcbroker and their options, for the manual page and the documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from ._arguments import SectionedCommand
from ._group import PROGRAM
from ._main import makeGroup


def commands() -> Iterator[tuple[click.Command, click.Context]]:
    """Every command and group of commands, the whole program first, with a context of its name."""
    group = makeGroup()
    return _below(group, click.Context(group, info_name=PROGRAM, **group.context_settings))


def _below(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            assert each is not None
            yield from _below(each, click.Context(each, parent=context, info_name=name))


def commandOptions(command: click.Command, context: click.Context) -> dict[str, dict[str, str]]:
    """
    What each option of a command means, by the title of its section in the help text: empty for
    those that have none.
    """
    sections = command.sections if isinstance(command, SectionedCommand) else {}
    found: dict[str, dict[str, str]] = {}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or not isinstance(parameter, click.Option):
            continue
        titles = [title for title, names in sections.items() if parameter.name in names]
        found.setdefault(titles[0] if titles else "", {})[record[0]] = record[1]
    return found
