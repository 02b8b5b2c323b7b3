"""
C{svcbroker net nodes} and C{svcbroker admin reload}: new keys for the nodes of a running daemon, or
another number of nodes; and its files read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from .arguments import NODE, jsonOption, options
from .commandline import Command
from .operatorcommand import DAEMON, Daemon, operatorCommand
from .terminal import Console, Exit, counted, showRecord, showTable, timeText

_CALL: Final = "validators"
_AS_JSON: Final = jsonOption("Show the daemon's answer as it is.")


@operatorCommand("Show the nodes and their keys.")
@options(_AS_JSON)
def _show(console: Console, daemon: Daemon, asJson: bool) -> None:
    _tell(console, daemon.call(_CALL, groupId=daemon.group), asJson)


@operatorCommand(
    """\
    Give nodes new keys.

    It is a transaction that a quorum of the nodes before and all nodes after it sign; the old keys
    are removed, and what was proved before still is.
    """
)
@options(click.argument("nodes", metavar="NODE...|all", nargs=-1, required=True), _AS_JSON)
def _rotate(console: Console, daemon: Daemon, nodes: tuple[str, ...], asJson: bool) -> None:
    if nodes == ("all",):
        known = daemon.call(_CALL, groupId=daemon.group)
        rotate = [node["index"] for node in known["nodes"]]
    else:
        rotate = [NODE.convert(node, None, click.get_current_context()) for node in nodes]
    _tell(console, daemon.call(_CALL, groupId=daemon.group, rotate=rotate), asJson)


@operatorCommand(
    """\
    Change the number of nodes.

    New ones are added, or the last ones taken away. It is a transaction that a quorum of the nodes
    before and all nodes after it sign.
    """
)
@options(click.argument("count", type=NODE), _AS_JSON)
def _resize(console: Console, daemon: Daemon, count: int, asJson: bool) -> None:
    _tell(console, daemon.call(_CALL, groupId=daemon.group, count=count), asJson)


def _tell(console: Console, answer: Mapping[str, Any], asJson: bool) -> None:
    if asJson:
        console.sayJson(answer)
        return
    head, *lines = describe(answer)
    console.say(head)
    rows = [(str(node["index"]), node["nodeId"]) for node in answer["nodes"]]
    showTable(console, ("node", "key"), rows, lines)


def describe(answer: Mapping[str, Any]) -> Iterator[str]:
    """The nodes in lines for people."""
    nodes: Sequence[Mapping[str, Any]] = answer["nodes"]
    changes = answer["changes"]
    yield f"{counted(len(nodes), 'node')}, after {counted(changes, 'change')}"
    for node in nodes:
        yield f"node {node['index']}: {node['nodeId']}"


HELP: Final = "Nodes are numbered from 0. Without an action they are shown."
DEFAULT: Final = "show"
COMMANDS: Final = (
    Command.of("show", _show, "svcbroker net nodes show --data-dir /var/lib/svcbroker"),
    Command.of("rotate", _rotate, "svcbroker net nodes rotate all --data-dir /var/lib/svcbroker"),
    Command.of("resize", _resize, "svcbroker net nodes resize 7 --data-dir /var/lib/svcbroker"),
)


@operatorCommand(
    """\
    Have a running daemon read its accounts and certificates again.

    The daemon reads its accounts, with their grants and limits, the secrets of webhooks, its
    certificates and the level of its log again, as it does on SIGHUP. A file with a mistake
    changes nothing.
    """
)
@options(
    DAEMON,
    click.option("--preview", is_flag=True, help="Show what would change, and change nothing."),
    jsonOption(),
)
def reloadCommand(console: Console, daemon: Daemon, preview: bool, asJson: bool) -> int:
    """Ask the daemon, and say what could not be used."""
    if preview:
        found = daemon.call("reload/preview")
        showRecord(console, found, [*_differenceLines(found)] or ["nothing would change"], asJson)
        return Exit.BAD if found["problems"] else Exit.GOOD
    problems = daemon.call("reload")["problems"]
    showRecord(console, {"problems": problems}, problems or ["reloaded"], asJson)
    return Exit.BAD if problems else Exit.GOOD


def _differenceLines(found: Mapping[str, Any]) -> Iterator[str]:
    """The changes that a reload would make, in lines."""
    yield from found["problems"]
    for each in found["settings"]:
        before, after = (", ".join(each[side]) or "nothing" for side in ("before", "after"))
        note = " (takes a restart)" if each["needsRestart"] else ""
        yield f"{each['name']}: {before} -> {after}{note}"
    for each in found["accounts"]:
        name = f"account {each['account']}" if each["account"] else "accounts without own limits"
        parts = f": {', '.join(each['parts'])}" if each["parts"] else ""
        yield f"{name}: {each['kind']}{parts}"
    for each in found["certificates"]:
        yield f"certificates of {each['port']}: valid until {timeText(each['validUntil'])}"
