"""
C{svcbroker fault}: bad days for a running daemon.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, TypeAlias

from twisted.python import usage

from ._command import Console, Exit
from ._daemon import DaemonClient, DaemonOptions, askDaemon

Call: TypeAlias = tuple[str, Mapping[str, object]]

_LINK = re.compile(r"([0-9]{1,3}):([0-9]{1,3})")
_ISLAND = re.compile(r"[0-9]{1,3}(,[0-9]{1,3})*")


class Options(DaemonOptions):
    """
    The options of C{svcbroker fault}. After parsing, C{self["call"]} is the operator call.
    """

    synopsis = (
        "[options] DATA-DIR|URL show | stop NODE | start NODE | cut ISLAND|LINK... | "
        "slow [SHORTEST-]LONGEST | lose SHARE | duplicate SHARE | heal"
    )
    longdesc = (
        "The daemon must have been started with --faults. Nodes are numbered from 0. An ISLAND "
        "is nodes with commas between them: nothing passes between islands, and nodes on none "
        "are together on one more. A LINK is FROM:TO: nothing passes in that direction. Times "
        "are in seconds, a SHARE of messages is from 0 to 1."
    )
    optFlags = [["json", None, "Show the daemon's answer as it is."]]

    def parseArgs(  # type: ignore[override]
        self, dataDir: str, action: str, *values: str
    ) -> None:
        """See C{usage.Options}."""
        if action not in _ACTIONS:
            raise usage.UsageError(f"{action!r} is none of: {', '.join(_ACTIONS)}")
        read, isFitting = _ACTIONS[action]
        if not isFitting(len(values)):
            raise usage.UsageError(f"{action}: wrong number of arguments; see --help")
        try:
            self["call"] = read(values)
        except ValueError as error:
            raise usage.UsageError(f"{action}: {error}") from None
        self.setDaemon(dataDir)


def _node(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3):
        raise ValueError(f"{text!r} is not a node's number")
    return int(text)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not isfinite(value):
        raise ValueError(f"{text!r} is not a number")
    return value


def _slow(values: Sequence[str]) -> Call:
    shortest, dash, longest = values[0].rpartition("-")
    high = _number(longest)
    return "faults/network", {"delay": [_number(shortest) if dash else 0.0, high]}


def _cut(values: Sequence[str]) -> Call:
    islands, links = [], []
    for value in values:
        link = _LINK.fullmatch(value)
        if link is not None:
            links.append([int(link[1]), int(link[2])])
        elif _ISLAND.fullmatch(value):
            islands.append([int(node) for node in value.split(",")])
        else:
            raise ValueError(f"{value!r} is neither an island such as 0,1 nor a link such as 0:1")
    return "faults/network", {"islands": islands, "links": links}


def _exactly(wanted: int) -> Callable[[int], bool]:
    return lambda count: count == wanted


_ACTIONS: Mapping[str, tuple[Callable[[Sequence[str]], Call], Callable[[int], bool]]] = {
    "show": (lambda values: ("faults/show", {}), _exactly(0)),
    "stop": (lambda values: ("faults/stop", {"node": _node(values[0])}), _exactly(1)),
    "start": (lambda values: ("faults/start", {"node": _node(values[0])}), _exactly(1)),
    "cut": (_cut, lambda count: count > 0),
    "slow": (_slow, _exactly(1)),
    "lose": (lambda values: ("faults/network", {"loss": _number(values[0])}), _exactly(1)),
    "duplicate": (
        lambda values: ("faults/network", {"duplication": _number(values[0])}),
        _exactly(1),
    ),
    "heal": (lambda values: ("faults/heal", {}), _exactly(0)),
}
"""How the arguments of each action become an operator call, and how many there may be."""


def run(options: Options, console: Console) -> int:
    """Make the fault, and show how things are then."""
    name, parameters = options["call"]

    async def ask(daemon: DaemonClient) -> Any:
        return await daemon.call(name, groupId=options["group"], **parameters)

    report = askDaemon(options, ask)
    for line in [json.dumps(report)] if options["json"] else describe(report):
        console.say(line)
    return Exit.GOOD


def describe(report: Mapping[str, Any]) -> Iterator[str]:
    """A report in lines for people."""
    for node in report["nodes"]:
        state = "stopped" if not node["running"] else "leads" if node["leader"] else "runs"
        yield f"node {node['index']}: {state:8}view {node['pbftView']}, block {node['blockNumber']}"
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
