"""
C{svcbroker get}: one event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ._arguments import options
from ._command import Console, Exit
from ._connection import clientCommand
from ._events import FORMAT_OPTIONS, formatOf

if TYPE_CHECKING:
    from ..client import Client


@clientCommand(
    """\
    Show an event.

    \b
    svcbroker get 7ba3f518-1-1 --content > reading.bin
    """
)
@options(
    click.argument("event"),
    click.option("--content", is_flag=True, help="Write its content alone, byte by byte."),
    *FORMAT_OPTIONS,
)
def command(
    console: Console,
    client: Client,
    event: str,
    content: bool,
    asJson: bool,
    template: str | None,
) -> int:
    """Read it, and show it."""
    format = formatOf(asJson, template)
    found = client.getEvent(event)
    if content:
        console.output.buffer.write(found.content)
    else:
        console.say(format(found))
    return Exit.GOOD
