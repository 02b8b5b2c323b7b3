"""
C{svcbroker replay}: stored events at the pace at which they were published.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import click

from ._arguments import Decimal, options
from ._command import Console, Exit
from ._connection import clientCommand
from ._events import FORMAT_OPTIONS, Erasures, beginning, formatOf, show
from ._progress import counted, progressBar
from .sub import COUNT, FROM, SINCE, TAG

if TYPE_CHECKING:
    from ..client import Client, Event


@clientCommand(
    """\
    Show stored events at the pace at which they were published, up to the end of the log.

    PATTERN is a topic, or a pattern as MQTT has them. The times are those of the events' blocks.

    \b
    svcbroker replay 'weather/#' --since 1h --speed 60
    """
)
@options(
    click.argument("pattern"),
    FROM,
    SINCE,
    TAG,
    COUNT,
    click.option(
        "--speed",
        type=Decimal(min=0.001, max=1e9),
        default=1.0,
        show_default=True,
        metavar="FACTOR",
        help="How many times as fast.",
    ),
    *FORMAT_OPTIONS,
)
def command(
    console: Console,
    client: Client,
    pattern: str,
    offset: str | None,
    since: str | None,
    tag: str | None,
    count: int | None,
    speed: float,
    asJson: bool,
    template: str | None,
    erased: str,
) -> int:
    """Read, wait, and show each event."""
    after = beginning(offset, since, "OFFSET_FIRST")
    format = formatOf(asJson, template, Erasures(client))
    events = client.events(pattern, after=after, tag=tag, tombstones=erased == "show")
    shown = paced(events, speed, time.monotonic, time.sleep)
    with progressBar(console, "replaying", "events", isResultShown=True) as report:
        show(counted(shown, report, count), format, console, count)
    return Exit.GOOD


def paced(
    events: Iterable[Event],
    speed: float,
    now: Callable[[], float],
    sleep: Callable[[float], None],
) -> Iterator[Event]:
    """The same events, each at its time after the first one."""
    start: tuple[float, int] | None = None
    for event in events:
        if event.timestamp is not None:
            if start is None:
                start = now(), event.timestamp
            due = start[0] + (event.timestamp - start[1]) / 1000 / speed
            sleep(max(0.0, due - now()))
        yield event
