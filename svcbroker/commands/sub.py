"""
C{svcbroker sub}: follow topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ._arguments import Whole, options
from ._command import Console, Exit
from ._connection import clientCommand
from ._events import FORMAT_OPTIONS, Erasures, beginning, formatOf, show

if TYPE_CHECKING:
    from ..client import Client

COUNT = click.option(
    "--count", type=Whole(min=1), metavar="NUMBER", help="End after so many events."
)
FROM = click.option(
    "--from",
    "offset",
    metavar="OFFSET",
    help="Begin after this event id, with the block of this height, or at OFFSET_FIRST.",
)
SINCE = click.option(
    "--since", metavar="TIME", help="Begin so long ago: 90s, 5m, 1h, 2d; or at a time."
)
TAG = click.option("--tag", metavar="TAG", help="Only events whose extension svc-tag is this.")


@clientCommand(
    """\
    Show events as they are published.

    PATTERN is a topic, or a pattern as MQTT has them. When the connection is lost, it resumes
    after the last event by itself.

    \b
    svcbroker sub 'weather/#'
    svcbroker sub 'weather/#' --from OFFSET_FIRST --count 1 --template '{topic} {content}'
    """
)
@options(click.argument("pattern"), FROM, SINCE, TAG, COUNT, *FORMAT_OPTIONS)
def command(
    console: Console,
    client: Client,
    pattern: str,
    offset: str | None,
    since: str | None,
    tag: str | None,
    count: int | None,
    asJson: bool,
    template: str | None,
    erased: str,
) -> int:
    """Follow, and show each event."""
    after = beginning(offset, since, "OFFSET_LAST")
    format = formatOf(asJson, template, Erasures(client))
    # To follow has no end, also where no broker has ever answered.
    next(client.events(pattern, after="OFFSET_LAST", limit=1), None)
    events = client.follow(pattern, after=after, tag=tag, tombstones=erased == "show")
    show(events, format, console, count)
    return Exit.GOOD
