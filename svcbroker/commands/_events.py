"""
What the commands share that show events: as lines for people, as JSON for programs, or as a
template says.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import click

from ._arguments import jsonOption
from ._command import CommandError, Console, didYouMean
from ._words import quoted, timeText

if TYPE_CHECKING:
    from ..client import Event

Format = Callable[["Event"], str]
"""Makes the text of an event, without the end of its line."""

_FIELDS: Final[dict[str, Format]] = {
    "topic": lambda event: event.topic,
    "content": lambda event: event.content.decode("utf-8", "replace"),
    "base64": lambda event: b64encode(event.content).decode("ascii"),
    "eventId": lambda event: event.eventId,
    "author": lambda event: event.author or "",
    "sequence": lambda event: str(event.sequence),
    "height": lambda event: str(event.height),
    "timestamp": lambda event: "" if event.timestamp is None else str(event.timestamp),
    "time": lambda event: "" if event.timestamp is None else timeText(event.timestamp),
}
_NAME: Final = re.compile(r"\{([A-Za-z0-9-]+)\}")
_ESCAPES: Final = {r"\n": "\n", r"\t": "\t", r"\\": "\\"}
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}

FORMAT_OPTIONS: Final = (
    jsonOption("Show each event as a line of JSON."),
    click.option(
        "--template",
        metavar="TEXT",
        help=r"Show each event so: '{topic} {content}\n'; beside these there are eventId, base64, "
        "sequence, height, timestamp, time, author, and the names of extensions. A template is "
        "followed by the end of the line.",
    ),
)


def formatOf(asJson: bool, template: str | None) -> Format:
    """
    How events are shown.

    @raise CommandError: the template has an unknown field.
    """
    if asJson and template is not None:
        raise CommandError("give --json or --template, not both")
    if asJson:
        return jsonText
    if template is None:
        return lineText
    for name in _NAME.findall(template):
        if name not in _FIELDS and not name.startswith("svc-"):
            hint = didYouMean(name, list(_FIELDS))
            raise CommandError(f"--template: there is no field {name!r}{hint}")
    text = re.sub(r"\\[nt\\]", lambda found: _ESCAPES[found[0]], template)

    def fill(event: Event) -> str:
        def value(found: re.Match[str]) -> str:
            known = _FIELDS.get(found[1])
            return event.extensions.get(found[1], "") if known is None else known(event)

        return _NAME.sub(value, text)

    return fill


def jsonText(event: Event) -> str:
    """An event as the call C{events} answers it, in one line. From C{getEvent} it has no time."""
    import msgspec

    fields = {
        **msgspec.structs.asdict(event),
        "blockNumber": event.height,
        "sequenceNumber": event.sequence,
    }
    # An unsigned event has no author, one that was not erased no C{erased}. Zero stays.
    known = {k: value for k, value in fields.items() if value is not None and value is not False}
    return msgspec.json.encode(known).decode("utf-8")


def lineText(event: Event) -> str:
    """An event in a line for people."""
    try:
        content = quoted(event.content.decode("utf-8"))
    except UnicodeDecodeError:
        content = f"binary, {len(event.content)} bytes"
    words = [event.eventId, quoted(event.topic), content]
    if event.timestamp is not None:
        words.insert(0, timeText(event.timestamp))
    words += [f"{quoted(name)}={quoted(each)}" for name, each in sorted(event.extensions.items())]
    return "  ".join(words)


def show(events: Iterable[Event], format: Format, console: Console, count: int | None) -> int:
    """
    Show events as they come.

    @param count: how many, at most; C{None} for all.
    @return: how many there were.
    """
    shown = 0
    for event in events:
        console.say(format(event))
        console.output.flush()
        shown += 1
        if shown == count:
            break
    return shown


def sinceTime(text: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> datetime:
    """
    The time that C{--since} says: so long ago, or a time of ISO 8601.

    @raise CommandError: it is neither.
    """
    found = _DURATION.fullmatch(text)
    try:
        if found is not None:
            return now() - timedelta(seconds=int(found[1]) * _UNITS[found[2]])
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise CommandError(
            f"--since: {text!r} is neither a time such as 2027-01-31T12:00 nor 90s, 5m, 1h or 2d"
        ) from None


def beginning(offset: str | None, since: str | None, default: str) -> str | datetime:
    """Where reading begins, as C{--from} and C{--since} say."""
    if offset is not None and since is not None:
        raise CommandError("give --from or --since, not both")
    return sinceTime(since) if since is not None else default if offset is None else offset
