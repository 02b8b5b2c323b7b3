"""
Commands that read events: C{sub}, C{events} and C{get}, and the formats in which they show an
event: a line for people, JSON for programs, or a template.
"""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from functools import wraps
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final

import click
from attrs import frozen

from ..errors import BrokerError, EventErased
from .arguments import EVENT, Decimal, RenamedOption, Whole, jsonOption, options
from .clientcommand import IDENTITY, clientCommand
from .receipts import RECEIPT_OPTIONS, makeReceipts
from .terminal import (
    CommandError,
    Console,
    Exit,
    didYouMean,
    erasedText,
    progressBar,
    quoted,
    reported,
    timeText,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ..client import Client, Event, Receipts


Format = Callable[["Event"], str]
"""Makes the text of an event, without the end of its line."""

_FIELDS: Final[dict[str, Format]] = {
    "topic": lambda event: event.topic,
    "content": lambda event: closedText(event) or event.content.decode("utf-8", "replace"),
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
_TOPICS: Final = 1000
"""The most topics of which an erasure is remembered."""
_DURATION: Final = re.compile(r"([0-9]{1,9})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}

FORMAT_OPTIONS: Final = (
    jsonOption("Show each event as a line of JSON."),
    click.option(
        "--template",
        metavar="TEXT",
        help=r"Show each event so: '{topic} {content}\n'; beside these there are eventId, base64, "
        "sequence, height, timestamp, time, author, erased (when, by whom and why; empty of an "
        "event that is not), and the names of extensions. A template is followed by the end of the "
        "line.",
    ),
    click.option(
        "--erased",
        type=click.Choice(["show", "hide"]),
        default="show",
        show_default=True,
        help="Whether erased events are shown, which have no content.",
    ),
)


class Erasures:
    """
    Asks the broker when, by whom and why events were erased. Of the consecutive events of a topic
    that were erased together, it asks for the first one only.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._found: dict[str, EventErased] = {}

    def describe(self, event: Event) -> str:
        """
        The erasure of an event in words; empty of an event that was not erased. Where the broker
        does not tell about it, C{erased} alone.
        """
        if not event.erased:
            return ""
        found = self._found.get(event.topic)
        if found is None or not found.first <= event.sequence <= found.last:
            try:
                self._client.getEvent(event.eventId)
                return erasedText(0, "", "")
            except EventErased as error:
                found = error
            except BrokerError:
                # The line of the event matters more than the reason.
                return erasedText(0, "", "")
            if len(self._found) >= _TOPICS:
                self._found.clear()
            self._found[event.topic] = found
        return erasedText(found.time, found.account, found.reason)


def formatOf(asJson: bool, template: str | None, erasures: Erasures) -> Format:
    """
    Choose the format of events.

    @param erasures: tells about those that were erased.
    @raise CommandError: the template has an unknown field.
    """
    if asJson and template is not None:
        raise CommandError("give --json or --template, not both")
    if asJson:
        return jsonText
    if template is None:
        return lambda event: lineText(event, erasures.describe(event))
    fields: dict[str, Format] = {**_FIELDS, "erased": erasures.describe}
    for name in _NAME.findall(template):
        if name not in fields and not name.startswith("svc-"):
            hint = didYouMean(name, list(fields))
            raise CommandError(f"--template: there is no field {name!r}{hint}")
    text = re.sub(r"\\[nt\\]", lambda found: _ESCAPES[found[0]], template)

    def fill(event: Event) -> str:
        def value(found: re.Match[str]) -> str:
            known = fields.get(found[1])
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
    if "reason" in known:
        known["closed"] = known.pop("reason")
    return msgspec.json.encode(known).decode("utf-8")


def lineText(event: Event, erasure: str) -> str:
    """
    An event in a line for people.

    @param erasure: what stands in the place of an erased content; empty where there is a content.
    """
    try:
        content = erasure or closedText(event) or quoted(event.content.decode("utf-8"))
    except UnicodeDecodeError:
        content = f"binary, {len(event.content)} bytes"
    words = [event.eventId, quoted(event.topic), content]
    if event.timestamp is not None:
        words.insert(0, timeText(event.timestamp))
    words += [f"{quoted(name)}={quoted(each)}" for name, each in sorted(event.extensions.items())]
    return "  ".join(words)


def closedText(event: Event) -> str:
    """The line for a content that is closed, and why it was not opened; empty for any other."""
    reason = getattr(event, "reason", None)
    return "" if reason is None else f"closed, {len(event.content)} bytes: {reason}"


def sinceTime(
    text: str,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    option: str = "--since",
) -> datetime:
    """
    The time that C{--since} says: so long ago, or a time of ISO 8601.

    @param option: the option that says it.
    @raise CommandError: it is neither.
    """
    found = _DURATION.fullmatch(text)
    try:
        if found is not None:
            return now() - timedelta(seconds=int(found[1]) * _UNITS[found[2]])
        return datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise CommandError(
            f"{option}: {text!r} is neither a time such as 2027-01-31T12:00 nor 90s, 5m, 1h or 2d"
        ) from None


def beginning(offset: str | None, since: str | None, default: str) -> str | datetime:
    """The position at which reading begins, as C{--from} and C{--since} say."""
    if offset is not None and since is not None:
        raise CommandError("give --from or --since, not both")
    return sinceTime(since) if since is not None else default if offset is None else offset


LIMIT = click.option(
    "--limit",
    cls=RenamedOption,
    old=["--count"],
    type=Whole(min=1),
    metavar="NUMBER",
    help="End after so many events.",
)
FROM = click.option(
    "--from",
    "offset",
    metavar="OFFSET",
    help="Begin after this EVENT, with the block of this height, or at OFFSET_FIRST.",
)
SINCE = click.option(
    "--since", metavar="TIME", help="Begin so long ago: 90s, 5m, 1h, 2d; or at a time."
)
TAG = click.option("--tag", metavar="TAG", help="Only events whose extension svc-tag is this.")


@frozen(kw_only=True)
class EventReader:
    """
    The core of the commands that read the events of a pattern.

    @ivar pattern: a topic, or a pattern as MQTT has them.
    @ivar tag: only events with it; C{None} for all.
    @ivar isErasedShown: whether erased events are shown.
    @ivar format: makes the texts of events.
    """

    console: Console
    client: Client
    pattern: str
    tag: str | None
    isErasedShown: bool
    format: Format

    def stored(
        self, after: str | datetime, limit: int | None = None, isReverse: bool = False
    ) -> Iterator[Event]:
        """Stored events, up to an end of the log."""
        return self.client.events(
            self.pattern,
            after=after,
            limit=limit,
            tag=self.tag,
            reverse=isReverse,
            tombstones=self.isErasedShown,
        )

    def followed(self, after: str | datetime) -> Iterator[Event]:
        """Events as they are published, without an end."""
        return self.client.follow(
            self.pattern, after=after, tag=self.tag, tombstones=self.isErasedShown
        )

    def show(self, events: Iterable[Event]) -> None:
        """Show events as they come."""
        for event in events:
            self.console.say(self.format(event))
            self.console.output.flush()


def readerCommand(summary: str, *own: Any) -> Callable[[Callable[..., object]], click.Command]:
    """
    Make a command of a function that is called with an L{EventReader} and the parameters of its own
    options.

    @param summary: the help text.
    """

    def decorate(function: Callable[..., object]) -> click.Command:
        @wraps(function)
        def call(
            console: Console,
            client: Client,
            /,
            pattern: str,
            tag: str | None,
            asJson: bool,
            template: str | None,
            erased: str,
            **given: Any,
        ) -> int:
            reader = EventReader(
                console=console,
                client=client,
                pattern=pattern,
                tag=tag,
                isErasedShown=erased == "show",
                format=formatOf(asJson, template, Erasures(client)),
            )
            function(reader, **given)
            return Exit.GOOD

        return clientCommand(summary)(
            options(click.argument("pattern"), *own, TAG, IDENTITY, *FORMAT_OPTIONS)(call)
        )

    return decorate


@readerCommand(
    """\
    Show events as they are published.

    PATTERN is a topic, or a pattern as MQTT has them. When the connection is lost, it resumes
    after the last event by itself. With --from, --since or --last stored events come first.

    \b
    svcbroker sub 'weather/#'
    svcbroker sub 'weather/#' --last 100
    svcbroker sub 'weather/#' --since 1h --until-end --pace 60
    svcbroker sub 'weather/#' --from OFFSET_FIRST --limit 1 --template '{topic} {content}'
    """,
    FROM,
    SINCE,
    click.option(
        *("-n", "--last"),
        type=Whole(min=1, max=100_000),
        metavar="NUMBER",
        help="Begin with so many stored events.",
    ),
    click.option(
        "--until-end",
        "isBounded",
        is_flag=True,
        help="Show stored events only, from the first one on where nothing says another.",
    ),
    click.option(
        "--pace",
        cls=RenamedOption,
        old=["--speed"],
        type=Decimal(min=0.001, max=1e9),
        metavar="FACTOR",
        help="Show events as far apart as they were published, or FACTOR times as fast: the times "
        "are those of their blocks.",
    ),
    LIMIT,
    *RECEIPT_OPTIONS,
)
def subCommand(
    reader: EventReader,
    offset: str | None,
    since: str | None,
    last: int | None,
    isBounded: bool,
    pace: float | None,
    limit: int | None,
    keyFile: Path | None,
    every: tuple[int, float] | None,
    means: str,
    receiptsTopic: str,
) -> None:
    """Follow, and show each event."""
    if keyFile is not None:
        if reader.tag is not None or any(
            each is not None for each in (offset, since, last, pace, limit)
        ):
            raise CommandError(
                "--receipts is for all events of a topic: it begins after the last receipt, and "
                "goes with none of --from, --since, --last, --pace, --limit and --tag"
            )
        _showWithReceipts(reader, makeReceipts(keyFile, receiptsTopic, means, every), isBounded)
        return
    if last is not None and (offset is not None or since is not None):
        raise CommandError("give --last, --from or --since, not several")
    after = beginning(offset, since, "OFFSET_FIRST" if isBounded else "OFFSET_LAST")
    # To follow has no end, also where no broker has ever answered: this finds one.
    stored = list(reader.stored("OFFSET_LAST", last or 1, isReverse=True))[::-1]
    if last is None:
        events = reader.stored(after) if isBounded else reader.followed(after)
    else:
        after = stored[-1].eventId if stored else "OFFSET_FIRST"
        events = chain(stored, () if isBounded else reader.followed(after))
    if pace is not None:
        events = paced(events, pace, time.monotonic, time.sleep)
    events = islice(events, limit)
    if not isBounded:
        reader.show(events)
        return
    with progressBar(reader.console, "reading", "events", isResultShown=True) as report:
        reader.show(reported(events, report, limit))


def _showWithReceipts(reader: EventReader, receipts: Receipts, isBounded: bool) -> None:
    """Show events, and sign receipts for those that were shown."""
    client, pattern, tombstones = reader.client, reader.pattern, reader.isErasedShown
    # To follow has no end, also where no broker has ever answered: this finds one.
    client.checkpoint()
    if isBounded:
        events = client.events(pattern, tombstones=tombstones, receipts=receipts)
    else:
        events = client.follow(pattern, tombstones=tombstones, receipts=receipts)
    reader.show(events)


@readerCommand(
    """\
    Show stored events, from the first one on, up to the end of the log.

    PATTERN is a topic, or a pattern as MQTT has them.

    \b
    svcbroker events 'weather/#' --since 1h --json
    svcbroker events weather/zurich --reverse --limit 10
    """,
    FROM,
    SINCE,
    LIMIT,
    click.option("--reverse", is_flag=True, help="Begin with the last one, and go backwards."),
)
def eventsCommand(
    reader: EventReader, offset: str | None, since: str | None, limit: int | None, reverse: bool
) -> None:
    """Read, and show each event."""
    after = beginning(offset, since, "OFFSET_LAST" if reverse else "OFFSET_FIRST")
    events = reader.stored(after, limit, reverse)
    with progressBar(reader.console, "reading", "events", isResultShown=True) as report:
        for event in reported(events, report, limit):
            reader.console.say(reader.format(event))


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


@clientCommand(
    """\
    Show an event.

    \b
    svcbroker get 7ba3f518-1-1 --content > reading.bin
    """
)
@options(
    click.argument("event", type=EVENT),
    click.option("--content", is_flag=True, help="Write its content alone, byte by byte."),
    IDENTITY,
    *FORMAT_OPTIONS,
)
def getCommand(
    console: Console,
    client: Client,
    event: str,
    content: bool,
    asJson: bool,
    template: str | None,
    erased: str,
) -> None:
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


def _readErased(client: Client, eventId: str, error: EventErased) -> Event:
    """
    Read the tombstone of an erased event.

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
