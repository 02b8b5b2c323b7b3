"""
C{svcbroker net fault}: inject faults into a running daemon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, Final

import click

from .arguments import NODE, ParsedType, jsonOption, options
from .commandline import Command
from .operatorcommand import Daemon, operatorCommand
from .terminal import Console, showTable

_LINK = re.compile(r"([0-9]{1,3}):([0-9]{1,3})")
_ISLAND = re.compile(r"[0-9]{1,3}(,[0-9]{1,3})*")

_AS_JSON: Final = jsonOption("Show the daemon's answer as it is.")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not isfinite(value):
        raise ValueError(f"{text!r} is not a number")
    return value


def _delay(text: str) -> list[float]:
    shortest, dash, longest = text.rpartition("-")
    high = _number(longest)
    return [_number(shortest) if dash else 0.0, high]


def _cut(text: str) -> tuple[str, list[int]]:
    """The parameter of the call that has it, and the nodes."""
    link = _LINK.fullmatch(text)
    if link is not None:
        return "links", [int(link[1]), int(link[2])]
    if _ISLAND.fullmatch(text):
        return "islands", [int(node) for node in text.split(",")]
    raise ValueError(f"{text!r} is neither an island such as 0,1 nor a link such as 0:1")


def _ask(console: Console, daemon: Daemon, asJson: bool, name: str, **parameters: object) -> None:
    """Make the fault, and show how things are then."""
    report = daemon.call(f"faults/{name}", groupId=daemon.group, **parameters)
    if asJson:
        console.sayJson(report)
        return
    nodes = report["nodes"]
    rows = [
        (str(node["index"]), _state(node), str(node["pbftView"]), str(node["blockNumber"]))
        for node in nodes
    ]
    lines = [*describe(report)]
    showTable(console, ("node", "state", "view", "block"), rows, lines[: len(nodes)])
    for line in lines[len(nodes) :]:
        console.say(line)


def _state(node: Mapping[str, Any]) -> str:
    return "stopped" if not node["running"] else "leads" if node["leader"] else "runs"


@operatorCommand("Show the nodes, the network, and contradictions.")
@options(_AS_JSON)
def _show(console: Console, daemon: Daemon, asJson: bool) -> None:
    _ask(console, daemon, asJson, "show")


@operatorCommand("Stop a node.")
@options(click.argument("node", type=NODE), _AS_JSON)
def _stop(console: Console, daemon: Daemon, node: int, asJson: bool) -> None:
    _ask(console, daemon, asJson, "stop", node=node)


@operatorCommand("Have a stopped node go on.")
@options(click.argument("node", type=NODE), _AS_JSON)
def _start(console: Console, daemon: Daemon, node: int, asJson: bool) -> None:
    _ask(console, daemon, asJson, "start", node=node)


@operatorCommand(
    """\
    Cut the network.

    An ISLAND is nodes with commas between them: nothing passes between islands, and nodes on none
    are together on one more. A LINK is FROM:TO: nothing passes in that direction.

    \b
    svcbroker net fault cut 0,1 2,3
    svcbroker net fault cut 0:1
    """
)
@options(
    click.argument(
        "cuts",
        metavar="ISLAND|LINK...",
        nargs=-1,
        required=True,
        type=ParsedType("cut", _cut),
    ),
    _AS_JSON,
)
def _cutNetwork(
    console: Console, daemon: Daemon, cuts: tuple[tuple[str, list[int]], ...], asJson: bool
) -> None:
    parameters: dict[str, list[list[int]]] = {"islands": [], "links": []}
    for name, nodes in cuts:
        parameters[name].append(nodes)
    _ask(console, daemon, asJson, "network", **parameters)


@operatorCommand("Slow messages down.\n\nEach takes from SHORTEST (0) to LONGEST seconds.")
@options(
    click.argument("delay", metavar="[SHORTEST-]LONGEST", type=ParsedType("delay", _delay)),
    _AS_JSON,
)
def _slow(console: Console, daemon: Daemon, delay: list[float], asJson: bool) -> None:
    _ask(console, daemon, asJson, "network", delay=delay)


_SHARE: Final = click.argument("share", type=ParsedType("share", _number))


@operatorCommand("Lose a share of all messages.\n\nA SHARE is from 0 to 1.")
@options(_SHARE, _AS_JSON)
def _lose(console: Console, daemon: Daemon, share: float, asJson: bool) -> None:
    _ask(console, daemon, asJson, "network", loss=share)


@operatorCommand("Deliver a share of all messages twice.\n\nA SHARE is from 0 to 1.")
@options(_SHARE, _AS_JSON)
def _duplicate(console: Console, daemon: Daemon, share: float, asJson: bool) -> None:
    _ask(console, daemon, asJson, "network", duplication=share)


@operatorCommand("Have all nodes run, on the network of the start.")
@options(_AS_JSON)
def _heal(console: Console, daemon: Daemon, asJson: bool) -> None:
    _ask(console, daemon, asJson, "heal")


def describe(report: Mapping[str, Any]) -> Iterator[str]:
    """A report in lines for people."""
    for node in report["nodes"]:
        place = f"view {node['pbftView']}, block {node['blockNumber']}"
        yield f"node {node['index']}: {_state(node):8}{place}"
    shortest, longest = report["delay"]
    yield (
        f"network: delay {shortest:g}-{longest:g} s, loss {report['loss']:g}, "
        f"duplication {report['duplication']:g}"
    )
    cut = " ".join(f"{sender}:{target}" for sender, target in report["cut"])
    yield f"cut: {cut or 'nothing'}"
    for each in report["evidence"]:
        yield (
            f"node {each['node']} contradicted itself at block {each['blockNumber']}, "
            f"round {each['round']}"
        )


HELP: Final = (
    "The daemon must have been started with --faults. Nodes are numbered from 0. Every action "
    "shows how things are then."
)
DEFAULT: Final = ""
COMMANDS: Final = (
    Command.of("show", _show, "svcbroker net fault show --data-dir /var/lib/svcbroker"),
    Command.of("stop", _stop, "svcbroker net fault stop 3"),
    Command.of("start", _start, "svcbroker net fault start 3"),
    Command.of("cut", _cutNetwork),
    Command.of("slow", _slow, "svcbroker net fault slow 0.1-0.5"),
    Command.of("lose", _lose, "svcbroker net fault lose 0.2"),
    Command.of("duplicate", _duplicate, "svcbroker net fault duplicate 0.5"),
    Command.of("heal", _heal, "svcbroker net fault heal --data-dir /var/lib/svcbroker"),
)
