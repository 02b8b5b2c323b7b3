"""
C{svcbroker get}: one event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..errors import EventErased
from ._arguments import options
from ._command import Console, Exit
from ._connection import clientCommand
from ._events import FORMAT_OPTIONS, Erasures, formatOf

if TYPE_CHECKING:
    from ..client import Client, Event


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
    erased: str,
) -> int:
    """Read it, and show it."""
    format = formatOf(asJson, template, Erasures(client))
    try:
        found = client.getEvent(event)
    except EventErased as error:
        if content or erased == "hide":
            raise
        found = _readErased(client, event, error)
    if content:
        console.output.buffer.write(found.content)
    else:
        console.say(format(found))
    return Exit.GOOD


def _readErased(client: Client, eventId: str, error: EventErased) -> Event:
    """
    What is left of an erased event.

    @raise EventErased: the broker does not tell its topic, as those of before do not.
    """
    height = int(eventId.split("-")[2])
    if error.topic:
        for each in client.events(error.topic, after=height, tombstones=True):
            if each.eventId == eventId:
                return each
            if each.height > height:
                break
    raise error
