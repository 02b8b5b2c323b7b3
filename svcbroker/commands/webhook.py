"""
C{svcbroker webhook}: the webhooks of a running daemon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from .arguments import EVENT, ParsedType, jsonOption, options
from .commandline import Command
from .operatorcommand import Daemon, listRecords, operatorCommand
from .terminal import Console, Exit, counted, quoted, showRecord, showTable, timeText

_ACTIONS: Final = (
    ("pause", "paused", "Send nothing, also after restarts, until they are resumed."),
    ("resume", "resumed", "Send again."),
    ("retry", "tried again", "Make the next attempt now."),
    ("delete", "deleted", "End webhooks for good."),
)
"""The actions that need nothing but ids, how their success is told, and their help."""

_AS_JSON: Final = jsonOption("Show the daemon's answers as they are.")
_IDS: Final = click.argument("ids", metavar="ID...", nargs=-1, required=True)


@operatorCommand("List webhooks, their errors and what waits.")
@options(click.argument("ids", metavar="[ID...]", nargs=-1), _AS_JSON)
def _list(console: Console, daemon: Daemon, ids: tuple[str, ...], asJson: bool) -> None:
    records = [*_records(daemon, ids)]
    if asJson:
        console.sayJson(records)
    elif records:
        showTable(console, _COLUMNS, map(_cells, records), map(describe, records))
    else:
        console.say("no webhooks")


def _records(daemon: Daemon, ids: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    for id in ids or (None,):
        yield from listRecords(daemon, "webhooks/list", "webhooks", subscriptionId=id)


def _change(
    console: Console,
    daemon: Daemon,
    action: str,
    done: str,
    ids: Sequence[str],
    event: str | None,
    asJson: bool,
) -> int:
    for id in ids:
        daemon.call(f"webhooks/{action}", subscriptionId=id, eventId=event)
    showRecord(console, ids, [f"{done}: {id}" for id in ids], asJson)
    return Exit.GOOD


def _makeAction(action: str, done: str, help: str) -> click.Command:
    def change(console: Console, daemon: Daemon, ids: tuple[str, ...], asJson: bool) -> int:
        return _change(console, daemon, action, done, ids, None, asJson)

    return operatorCommand(help)(options(_IDS, _AS_JSON)(change))


@operatorCommand(
    """\
    Have a webhook go on after its oldest event.

    EVENT must be the oldest event that waits. It stays in the log, and the receiver does not
    get it.
    """
)
@options(click.argument("id"), click.argument("event", type=EVENT), _AS_JSON)
def _skip(console: Console, daemon: Daemon, id: str, event: str, asJson: bool) -> int:
    return _change(console, daemon, "skip", "skipped", (id,), event, asJson)


@operatorCommand(
    """\
    Send the events of dead letters to their webhook once more.

    An EVENT is the id of a dead letter; the topic of the dead letters has them. The first one that
    the receiver does not acknowledge ends the command with 1.
    """
)
@options(
    click.argument("id"), click.argument("events", type=EVENT, nargs=-1, required=True), _AS_JSON
)
def _replay(
    console: Console, daemon: Daemon, id: str, events: tuple[str, ...], asJson: bool
) -> int:
    taken = []
    for event in events:
        if not daemon.call("webhooks/replay", subscriptionId=id, eventId=event):
            break
        taken.append(event)
    lines = [f"acknowledged: {each}" for each in taken]
    if len(taken) < len(events):
        lines.append(
            f"not acknowledged: {events[len(taken)]}; svcbroker webhook list {id} says why"
        )
    showRecord(console, taken, lines, asJson)
    return Exit.GOOD if len(taken) == len(events) else Exit.BAD


def _overlap(text: str) -> int:
    from ..net.settings import UNITS, secondsOf

    seconds = 0 if text == "0" else secondsOf(text)
    if seconds is None:
        raise ValueError(f"{text!r} is neither 0 nor a length of time such as 7d ({UNITS})")
    return seconds


@operatorCommand(
    """\
    Sign requests with another key of the broker's own from now on.

    Until the overlap has passed, those before it sign too, and /.well-known/webhook-keys has all of
    them: receivers that keep keys take the new one until then. With 0 those before it sign no more
    at once, as one that somebody else may have.
    """
)
@options(
    click.option(
        "--overlap",
        type=ParsedType("time", _overlap),
        metavar="TIME",
        default="7d",
        show_default=True,
        help="How long the keys before it sign too.",
    ),
    _AS_JSON,
)
def _rotateKey(console: Console, daemon: Daemon, overlap: int, asJson: bool) -> None:
    keys = daemon.call("webhooks/rotateKey", groupId=daemon.group, overlap=overlap)
    lines = [
        f"{each['key']}, certified by event {each['eventId']}"
        + (f", until {timeText(each['until'])}" if each["until"] is not None else "")
        for each in keys
    ]
    showRecord(console, keys, lines, asJson)


def describe(record: Mapping[str, Any]) -> str:
    """A record in a line for people."""
    owner = f", of {quoted(record['owner'])}" if record["owner"] else ""
    parts = [
        f"{record['subscriptionId']}: {quoted(','.join(record['topics']))} "
        f"to {quoted(record['receiver'])}{owner}"
    ]
    if record["paused"]:
        parts.append("paused")
    if record["failures"]:
        parts.append(_failures(record))
    if record["oldestEventId"] is not None:
        age = counted(record["oldestEventAge"], "second")
        parts.append(f"event {record['oldestEventId']} waits for {age}")
    return "; ".join(parts)


def _failures(record: Mapping[str, Any]) -> str:
    again = record["nextAttemptTimestamp"]
    return (
        f"{counted(record['failures'], 'failure')}, the last at "
        f"{timeText(record['lastErrorTimestamp'])}: {quoted(record['lastError'])}"
        + (f", again at {timeText(again)}" if again is not None else "")
    )


_COLUMNS: Final = ("id", "topics", "receiver", "owner", "state", "oldest event")


def _cells(record: Mapping[str, Any]) -> Sequence[str]:
    state = [*(["paused"] if record["paused"] else [])]
    if record["failures"]:
        state.append(_failures(record))
    waits = ""
    if record["oldestEventId"] is not None:
        waits = f"{record['oldestEventId']}, {counted(record['oldestEventAge'], 'second')}"
    return (
        record["subscriptionId"],
        quoted(",".join(record["topics"])),
        quoted(record["receiver"]),
        quoted(record["owner"]),
        "; ".join(state) or "sends",
        waits,
    )


HELP: Final = (
    "An ID is that of a webhook's subscription. Without an action the webhooks are listed."
)
DEFAULT: Final = "list"
COMMANDS: Final = (
    Command.of("list", _list, "svcbroker webhook list --data-dir /var/lib/svcbroker"),
    *(
        Command.of(action, _makeAction(action, done, help), f"svcbroker webhook {action} 9b1f2c")
        for action, done, help in _ACTIONS
    ),
    Command.of("skip", _skip, "svcbroker webhook skip 9b1f2c 7ba3f518-1-2"),
    Command.of("replay", _replay, "svcbroker webhook replay 9b1f2c 4f1d6a02-1-9"),
    Command.of("rotate", _rotateKey, "svcbroker webhook rotate --overlap 30d"),
)
