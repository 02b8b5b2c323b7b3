"""
C{svcbroker tail}: the last events, and those that follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ._arguments import Whole, options
from ._command import Console, Exit
from ._connection import clientCommand
from ._events import FORMAT_OPTIONS, Erasures, formatOf, show
from .sub import COUNT, TAG

if TYPE_CHECKING:
    from ..client import Client


@clientCommand(
    """\
    Show the last stored events, and then events as they are published.

    PATTERN is a topic, or a pattern as MQTT has them.

    \b
    svcbroker tail 'weather/#' --last 100
    """
)
@options(
    click.argument("pattern"),
    click.option(
        "-n",
        "--last",
        type=Whole(min=1, max=100_000),
        default=10,
        show_default=True,
        metavar="NUMBER",
        help="How many stored events are shown first.",
    ),
    TAG,
    COUNT,
    *FORMAT_OPTIONS,
)
def command(
    console: Console,
    client: Client,
    pattern: str,
    last: int,
    tag: str | None,
    count: int | None,
    asJson: bool,
    template: str | None,
    erased: str,
) -> int:
    """Read backwards, and follow from there."""
    format = formatOf(asJson, template, Erasures(client))
    isShown = erased == "show"
    newest = client.events(
        pattern, after="OFFSET_LAST", limit=last, tag=tag, reverse=True, tombstones=isShown
    )
    stored = list(newest)[::-1]
    shown = show(stored, format, console, count)
    if count is None or shown < count:
        after = stored[-1].eventId if stored else "OFFSET_FIRST"
        left = None if count is None else count - shown
        events = client.follow(pattern, after=after, tag=tag, tombstones=isShown)
        show(events, format, console, left)
    return Exit.GOOD
