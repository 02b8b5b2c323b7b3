"""
C{svcbroker events}: read stored events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ._arguments import Whole, options
from ._command import Console, Exit
from ._connection import clientCommand
from ._events import FORMAT_OPTIONS, Erasures, beginning, formatOf
from ._progress import counted, progressBar
from .sub import FROM, SINCE, TAG

if TYPE_CHECKING:
    from ..client import Client


@clientCommand(
    """\
    Show stored events, from the first one on, up to the end of the log.

    PATTERN is a topic, or a pattern as MQTT has them.

    \b
    svcbroker events 'weather/#' --since 1h --json
    svcbroker events weather/zurich --reverse --limit 10
    """
)
@options(
    click.argument("pattern"),
    FROM,
    SINCE,
    TAG,
    click.option("--limit", type=Whole(min=1), metavar="NUMBER", help="Show at most so many."),
    click.option("--reverse", is_flag=True, help="Begin with the last one, and go backwards."),
    *FORMAT_OPTIONS,
)
def command(
    console: Console,
    client: Client,
    pattern: str,
    offset: str | None,
    since: str | None,
    tag: str | None,
    limit: int | None,
    reverse: bool,
    asJson: bool,
    template: str | None,
    erased: str,
) -> int:
    """Read, and show each event."""
    after = beginning(offset, since, "OFFSET_LAST" if reverse else "OFFSET_FIRST")
    format = formatOf(asJson, template, Erasures(client))
    events = client.events(
        pattern,
        after=after,
        limit=limit,
        tag=tag,
        reverse=reverse,
        tombstones=erased == "show",
    )
    with progressBar(console, "reading", "events", isResultShown=True) as report:
        for event in counted(events, report, limit):
            console.say(format(event))
    return Exit.GOOD
