"""
C{svcbroker net nodes}: new keys for the nodes of a running daemon, or another number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from .arguments import NODE, jsonOption, options
from .commandline import Command
from .operatorcommand import Daemon, operatorCommand
from .terminal import Console, counted, showTable

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
