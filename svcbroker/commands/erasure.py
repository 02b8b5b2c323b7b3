"""
C{svcbroker admin erase}, C{retain} and C{hold}: erasing the content of events, by a running daemon,
at once or when they are old; and keeping events from being erased, until their case is closed.
"""

from __future__ import annotations

from typing import Any, Final

import click

from ..errors import BrokerError
from ..model import EventId, parseOffset
from .arguments import EVENT, jsonOption, options
from .commandline import Command
from .operatorcommand import Daemon, operatorCommand, takeDaemon
from .terminal import (
    CommandError,
    Console,
    Exit,
    counted,
    progressBar,
    quoted,
    showRecord,
    showTable,
    timeText,
)

_AT_ONCE: Final = 500
"""The most ids of a call: its body is bounded."""
_TIME: Final = "OFFSET_TIME:"
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def _place(text: str) -> str:
    """A place in a topic as the daemon takes it: an event's id, or a time."""
    try:
        if isinstance(parseOffset(text), EventId):
            return text
    except BrokerError:
        pass
    place = _TIME + text.removeprefix(_TIME)
    try:
        parseOffset(place)
    except BrokerError:
        raise CommandError("--before is an event's id, or a time as in RFC 3339") from None
    return place


def _events(context: click.Context, parameter: Any, words: tuple[str, ...]) -> tuple[str, ...]:
    return takeDaemon(context, words)


@operatorCommand(
    """\
    Erase the content of events, for good and on all nodes.

    Content, signature and private extensions of the events are removed for good, on all nodes. The
    chain keeps that they were erased, when, by whom and why, and all proofs stay. Of a topic, the
    events from --first up to --last are erased, which are numbers in the topic, or those before a
    PLACE: an event's id, or a time as in RFC 3339. Copies elsewhere are not reached: backups,
    exports, what readers have read, and the blocks that CometBFT engines keep for a while
    (docs/cometbft.rst). Where a hold keeps one of the events (svcbroker admin hold list), nothing
    is erased, unless with --except-held, which erases the others. --dry-run erases nothing, and
    says what would be erased and what is held.

    \b
    svcbroker admin erase --reason "request 17" 1c168adb-1-2
    svcbroker admin erase --reason "older than a year" --topic orders --before 2026-01-01T00:00:00Z
    """
)
@options(
    click.argument("events", metavar="[EVENT...]", nargs=-1, callback=_events),
    click.option(
        "--reason",
        metavar="TEXT",
        help="Why, as the chain keeps it and readers are shown it. It is needed.",
    ),
    click.option(
        "--topic", metavar="TOPIC", help="Erase events of this topic, which may be closed."
    ),
    click.option(
        "--first",
        type=int,
        metavar="NUMBER",
        help="The number of the first event. [default: 1]",
    ),
    click.option("--last", type=int, metavar="NUMBER", help="The number of the last event."),
    click.option(
        "--before", metavar="PLACE", help="Erase the events before this event or this time."
    ),
    click.option(
        "--except-held", "exceptHeld", is_flag=True, help="Leave out the events that are held."
    ),
    click.option(
        "--dry-run", "isDryRun", is_flag=True, help="Say what would be erased, and what is held."
    ),
    jsonOption(),
)
def eraseCommand(
    console: Console,
    daemon: Daemon,
    events: tuple[str, ...],
    reason: str | None,
    topic: str | None,
    first: int | None,
    last: int | None,
    before: str | None,
    exceptHeld: bool,
    isDryRun: bool,
    asJson: bool,
) -> int:
    """Have the events erased, and say how many they are."""
    if not isDryRun and not (reason or "").strip():
        raise CommandError("--reason is needed: the log keeps it, and everybody can read it")
    _check(events, topic, first, last, before)
    values = {"topic": topic, "first": first, "last": last, "before": before}
    part: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    if before is not None:
        part["before"] = _place(before)
    if isDryRun:
        return _preview(console, daemon, events, part, asJson)
    given: dict[str, Any] = {"groupId": daemon.group, "reason": reason}
    if exceptHeld:
        given["exceptHeld"] = True
    if part:
        count = int(daemon.call("erase", **given, **part))
    else:
        count = 0
        with progressBar(console, "erasing", "events") as report:
            for start in range(0, len(events), _AT_ONCE):
                some = events[start : start + _AT_ONCE]
                count += int(daemon.call("erase", **given, events=list(some)))
                report(start + len(some), len(events))
    showRecord(console, {"erased": count}, [f"{counted(count, 'event')} erased"], asJson)
    return Exit.GOOD


def _check(
    events: tuple[str, ...],
    topic: str | None,
    first: int | None,
    last: int | None,
    before: str | None,
) -> None:
    """
    @raise CommandError: it is not said which events, or in a way that nothing takes.
    """
    isPart = any(value is not None for value in (topic, first, last, before))
    if bool(events) == isPart or (isPart and topic is None):
        raise CommandError("give either EVENT... or --topic")
    if isPart and (last is None) == (before is None):
        raise CommandError("with --topic give either --last or --before")
    if first is not None and last is not None and last < first:
        raise CommandError(f"--last {last} is before --first {first}")
    for event in events:
        try:
            EventId.parse(event)
        except BrokerError as error:
            raise CommandError(f"{event!r}: {error.message}") from None


def _preview(
    console: Console,
    daemon: Daemon,
    events: tuple[str, ...],
    part: dict[str, Any],
    asJson: bool,
) -> int:
    """Say what would be erased, and what is held: then the exit code is 1."""
    asked = [part] if part else []
    for start in range(0, len(events), _AT_ONCE):
        asked.append({"events": list(events[start : start + _AT_ONCE])})
    found: dict[str, Any] = {"erasable": 0, "held": 0, "holds": []}
    for each in asked:
        preview = daemon.call("erase/preview", groupId=daemon.group, **each)
        for name in found:
            found[name] += preview[name]
    lines = [
        f"{counted(found['erasable'], 'event')} would be erased",
        *([f"{counted(found['held'], 'event')} held:"] if found["held"] else ()),
        *(
            f"  case {quoted(each['case'])}: {quoted(each['topicName'])} "
            f"{each['first']} to {each['last']}"
            for each in found["holds"]
        ),
    ]
    showRecord(console, found, lines, asJson)
    return Exit.BAD if found["held"] else Exit.GOOD


@operatorCommand(
    """\
    Show how long the contents of events are kept, and how far older ones are erased.

    The rules are the settings --retain of the daemon. A rule has erased all events that are too
    old up to the block that is shown. Where several rules match a topic, the shortest age counts;
    topics that begin with $ are matched by patterns that begin so, too.
    """
)
@options(jsonOption("Show the daemon's answer as it is."))
def retainCommand(console: Console, daemon: Daemon, asJson: bool) -> int:
    """Show the rules of the group."""
    found = daemon.call("retention/list", groupId=daemon.group)
    if asJson:
        console.sayJson(found)
        return Exit.GOOD
    if not found:
        console.say("contents are kept for ever: the daemon has no --retain")
        return Exit.GOOD
    rows = [
        (
            " ".join(each["patterns"]),
            ageText(each["seconds"]),
            f"{each['blockNumber']:,}",
            f"{each['erasedCount']:,}",
            each["problem"],
        )
        for each in found
    ]
    lines = [
        f"{topics}  kept {age}; searched up to block {height}; {erased} erased since the start"
        + (f"; FAILED: {problem}" if problem else "")
        for topics, age, height, erased, problem in (map(quoted, row) for row in rows)
    ]
    columns = ("topics", "kept", "searched up to block", "erased since the start", "problem")
    showTable(console, columns, [tuple(map(quoted, row)) for row in rows], lines)
    return Exit.BAD if any(each["problem"] for each in found) else Exit.GOOD


def ageText(seconds: int) -> str:
    """An age in the largest unit that it is a whole number of, as C{--retain} takes it."""
    size, unit = next(each for each in _UNITS if seconds % each[0] == 0)
    return f"{seconds // size}{unit}"


_PAGE: Final = 100
_CASE: Final = click.argument("case")
_COLUMNS: Final = ("case", "since", "by", "holds", "reason")


def _reason(what: str) -> Any:
    return click.option("--reason", metavar="TEXT", help=f"Why {what}, as the chain keeps it.")


def _checked(reason: str | None) -> str:
    if not (reason or "").strip():
        raise CommandError("--reason is needed: the log keeps it")
    assert reason is not None
    return reason


@operatorCommand(
    """\
    Keep events from being erased, until the hold is released.

    CASE is what the hold is called: 1 to 64 characters without spaces. It holds the events that are
    named, or all events of the topics that match a PATTERN, later ones too. Every node refuses to
    erase them, by hand or by age, and several holds may hold one event. It takes the grant hold.

    \b
    svcbroker admin hold add case-17 --topic 'invoices/#' --reason "court order 17/2026"
    svcbroker admin hold add case-18 1c168adb-1-2 --reason "complaint of a customer"
    """
)
@options(
    _CASE,
    click.argument("events", metavar="[EVENT...]", type=EVENT, nargs=-1),
    click.option(
        "--topic",
        "topics",
        metavar="PATTERN",
        multiple=True,
        help="Hold all events of the topics that match. It may come up to 16 times.",
    ),
    _reason("they are held"),
    jsonOption(),
)
def _add(
    console: Console,
    daemon: Daemon,
    case: str,
    events: tuple[str, ...],
    topics: tuple[str, ...],
    reason: str | None,
    asJson: bool,
) -> None:
    if bool(events) == bool(topics):
        raise CommandError("give either EVENT... or --topic")
    what: dict[str, Any] = {"events": list(events)} if events else {"topics": list(topics)}
    made = daemon.call(
        "holds/add", groupId=daemon.group, case=case, reason=_checked(reason), **what
    )
    held = counted(len(events), "event") if events else ", ".join(topics)
    line = f"held in case {case}: {held}; block {made['blockNumber']}, {made['transHash']}"
    showRecord(console, {"case": case, **made}, [quoted(line)], asJson)


@operatorCommand(
    """\
    Release a hold, so that its events may be erased again.

    Events that another hold names stay held. The chain keeps both, the hold and its release. It
    takes the grant hold.

    \b
    svcbroker admin hold release case-17 --reason "the case is closed"
    """
)
@options(_CASE, _reason("they are released"), jsonOption())
def _release(console: Console, daemon: Daemon, case: str, reason: str | None, asJson: bool) -> None:
    made = daemon.call("holds/release", groupId=daemon.group, case=case, reason=_checked(reason))
    line = f"released: case {case}; block {made['blockNumber']}, {made['transHash']}"
    showRecord(console, {"case": case, **made}, [quoted(line)], asJson)


@operatorCommand(
    """\
    List the holds that are in force.

    With a CASE only that one, with the events that it names. With --released also those that were
    released: when, by whom and why.
    """
)
@options(
    click.argument("case", required=False),
    click.option(
        "--released", "isAll", is_flag=True, help="List the holds that were released, too."
    ),
    jsonOption("Show the daemon's answers as they are."),
)
def _list(console: Console, daemon: Daemon, case: str | None, isAll: bool, asJson: bool) -> int:
    holds = _inForce(daemon, case)
    if isAll:
        holds += _released(daemon, case)
    if asJson:
        console.sayJson(holds)
        return Exit.GOOD
    if not holds:
        what = "was ever held" if isAll else "is held"
        which = "there was no hold {}" if isAll else "no hold {} is in force"
        console.say(f"nothing {what}" if case is None else which.format(quoted(case)))
        return Exit.GOOD if case is None else Exit.BAD
    rows = [tuple(map(quoted, _cells(each))) for each in holds]
    lines = [
        f"{name}  since {since}" + (f" by {account}" if account else "") + f": {held}; {reason}"
        f"{released and f'; released {released}'}"
        for name, since, account, held, reason, released in rows
    ]
    if isAll:
        showTable(console, (*_COLUMNS, "released"), rows, lines)
    else:
        showTable(console, _COLUMNS, [row[:-1] for row in rows], lines)
    for hold in holds if case is not None else ():
        for event in hold["events"]:
            console.say(quoted(f"{event['topicName']} {event['sequence']}"))
    return Exit.GOOD


def _inForce(daemon: Daemon, case: str | None) -> list[dict[str, Any]]:
    holds: list[dict[str, Any]] = []
    total = 1
    while len(holds) < total:
        page = daemon.call(
            "holds/list", groupId=daemon.group, case=case, offset=len(holds), limit=_PAGE
        )
        holds += page["holds"]
        total = page["total"] if page["holds"] else 0
    return holds


def _released(daemon: Daemon, case: str | None) -> list[dict[str, Any]]:
    holds: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        page = daemon.call(
            "holds/released", groupId=daemon.group, case=case, after=after, limit=_PAGE
        )
        holds += page["holds"]
        after = page["next"]
        if after is None:
            return holds


def _cells(hold: dict[str, Any]) -> tuple[str, str, str, str, str, str]:
    held = " ".join(hold["topics"]) or counted(hold["eventCount"], "event")
    release = hold["release"]
    ended = ""
    if release is not None:
        by = f" by {release['account']}" if release["account"] else ""
        ended = f"{timeText(release['timestamp'])}{by}: {release['reason']}"
    since = timeText(hold["timestamp"])
    return hold["case"], since, hold["account"], held, hold["reason"], ended


HELP: Final = (
    "A hold keeps events from being erased, on all nodes, until it is released. Without an action "
    "the holds in force are listed."
)
DEFAULT: Final = "list"
COMMANDS: Final = (
    Command.of("list", _list, "svcbroker admin hold list --data-dir /var/lib/svcbroker"),
    Command.of(
        "add", _add, "svcbroker admin hold add case-17 --topic 'invoices/#' --reason 'order 17'"
    ),
    Command.of("release", _release, "svcbroker admin hold release case-17 --reason 'case closed'"),
)
