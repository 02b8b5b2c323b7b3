"""
C{svcbroker admin hold}: keeping events from being erased, until their case is closed.
"""

from __future__ import annotations

from typing import Any, Final

import click

from .arguments import EVENT, jsonOption, options
from .commandline import Command
from .operatorcommand import Daemon, operatorCommand
from .terminal import CommandError, Console, Exit, counted, quoted, showRecord, showTable, timeText

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
