"""
C{svcbroker admin subscription}: the durable subscriptions and MQTT sessions of a running daemon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from .arguments import jsonOption, options
from .commandline import Command
from .operatorcommand import Daemon, listRecords, operatorCommand
from .terminal import CommandError, Console, counted, quoted, showRecord, showTable

TYPES: Final = ("STOMP", "MQTT")

_DELETED_AT_ONCE: Final = 50
"""The most ids of a call: a client id may be long, and the body of a call is bounded."""

_AS_JSON: Final = jsonOption("Show the daemon's answers as they are.")
_OWNER: Final = click.option(
    "--owner", metavar="OWNER", help="Only those that this account or address has made."
)
_TYPE: Final = click.Choice(TYPES, case_sensitive=False)
_TYPE_HELP: Final = """\
    TYPE is STOMP, and an ID that of a durable subscription; or it is MQTT, and an ID the client id
    of a session.
"""


@operatorCommand("List durable subscriptions and MQTT sessions, with and without a client.")
@options(_OWNER, _AS_JSON)
def _list(console: Console, daemon: Daemon, owner: str | None, asJson: bool) -> None:
    records = [*_records(daemon, TYPES, owner)]
    if asJson:
        console.sayJson(records)
    elif records:
        showTable(console, _COLUMNS, map(_cells, records), map(describe, records))
    else:
        console.say("no durable subscriptions")


@operatorCommand(
    f"""\
    Have a durable subscription or a session resume at an OFFSET.

{_TYPE_HELP}
    An OFFSET is OFFSET_FIRST, OFFSET_LAST, an event id (it resumes after it) or a block's height.
    One that a client uses is not reset.
    """
)
@options(
    click.argument("type", type=_TYPE),
    click.argument("id"),
    click.argument("offset"),
    _AS_JSON,
)
def _reset(console: Console, daemon: Daemon, type: str, id: str, offset: str, asJson: bool) -> None:
    answer = daemon.call(
        "subscriptions/reset", groupId=daemon.group, interfaceType=type, id=id, offset=offset
    )
    showRecord(console, answer, ["reset"], asJson)


@operatorCommand(
    f"""\
    Delete durable subscriptions and sessions that no client uses.

{_TYPE_HELP}
    With --owner, all that one account or address has made.
    """
)
@options(
    click.argument("type", type=_TYPE, required=False),
    click.argument("ids", metavar="[ID...]", nargs=-1),
    _OWNER,
    _AS_JSON,
)
def _delete(
    console: Console,
    daemon: Daemon,
    type: str | None,
    ids: tuple[str, ...],
    owner: str | None,
    asJson: bool,
) -> None:
    if bool(ids) == (owner is not None):
        raise CommandError("give either TYPE ID... or --owner OWNER")
    chosen: dict[str, list[str]] = {} if type is None else {type: list(ids)}
    if owner is not None:
        chosen = {each: [] for each in TYPES}
        for record in _records(daemon, TYPES if type is None else (type,), owner):
            if not record["live"]:
                chosen[record["interfaceType"]].append(record["id"])
    count = 0
    for each, those in chosen.items():
        for first in range(0, len(those), _DELETED_AT_ONCE):
            count += daemon.call(
                "subscriptions/delete",
                groupId=daemon.group,
                interfaceType=each,
                ids=those[first : first + _DELETED_AT_ONCE],
            )
    showRecord(console, count, [f"deleted: {count}"], asJson)


def _records(
    daemon: Daemon, types: Sequence[str], owner: str | None
) -> Iterator[Mapping[str, Any]]:
    """All that are asked for, page by page."""
    for type in types:
        listed = listRecords(daemon, "subscriptions/list", "subscriptions", interfaceType=type)
        for each in listed:
            if owner in (None, each["owner"]):
                yield each


def describe(record: Mapping[str, Any]) -> str:
    """A record in a line for people."""
    state = "live" if record["live"] else f"last used {record['usedTimeStamp']} UTC"
    block = "" if record["blockNumber"] is None else f", resumes in block {record['blockNumber']}"
    owner = f", of {quoted(record['owner'])}" if record["owner"] else ""
    count = counted(record["subscriptions"], "subscription")
    many = f", {count}" if record["interfaceType"] == "MQTT" else ""
    return f"{record['interfaceType']} {quoted(record['id'])}: {state}{many}{block}{owner}"


_COLUMNS: Final = ("type", "id", "last used", "subscriptions", "resumes in block", "owner")


def _cells(record: Mapping[str, Any]) -> Sequence[str]:
    block = record["blockNumber"]
    return (
        record["interfaceType"],
        quoted(record["id"]),
        "live" if record["live"] else f"{record['usedTimeStamp']} UTC",
        str(record["subscriptions"]),
        "" if block is None else str(block),
        quoted(record["owner"]),
    )


HELP: Final = (
    "Without an action they are listed. One that a client uses is neither reset nor deleted. For "
    "webhooks see: svcbroker webhook."
)
DEFAULT: Final = "list"
COMMANDS: Final = (
    Command.of("list", _list, "svcbroker admin subscription list --data-dir /var/lib/svcbroker"),
    Command.of("reset", _reset, "svcbroker admin subscription reset MQTT dashboard OFFSET_FIRST"),
    Command.of("delete", _delete, "svcbroker admin subscription delete --owner 10.0.0.7"),
)
