"""
C{svcbroker nodes}: new keys for the nodes of a running daemon, or another number of nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from twisted.python import usage

from ._command import Console, Exit
from ._daemon import DaemonClient, DaemonOptions, askDaemon
from ._words import counted

_CALL = "validators"


class Options(DaemonOptions):
    """
    The options of C{svcbroker nodes}. After parsing, C{self["action"]} is a coroutine function
    of the daemon's client.
    """

    synopsis = "[options] DATA-DIR|URL [show | rotate NODE... | rotate all | resize COUNT]"
    longdesc = (
        "Nodes are numbered from 0. rotate gives nodes new keys, resize adds nodes or takes the "
        "last ones away. Both are a transaction that a quorum of the nodes before and all nodes "
        "after it sign; old keys are removed, and what was proved before still is."
    )
    optFlags = [["json", None, "Show the daemon's answer as it is."]]

    def parseArgs(  # type: ignore[override]
        self, dataDir: str, action: str = "show", *values: str
    ) -> None:
        """See C{usage.Options}."""
        self.setDaemon(dataDir)
        self["rotate"], self["count"] = (), None
        if action == "rotate" and values:
            self["rotate"] = "all" if values == ("all",) else [_number(value) for value in values]
        elif action == "resize" and len(values) == 1:
            self["count"] = _number(values[0])
        elif action != "show" or values:
            raise usage.UsageError(f"what shall be done? {self.synopsis}")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3):
        raise usage.UsageError(f"{text!r} is neither a node's number nor one of nodes")
    return int(text)


def run(options: Options, console: Console) -> int:
    """Make the change, and show which nodes there are then."""

    async def ask(daemon: DaemonClient) -> Any:
        group, rotate, count = options["group"], options["rotate"], options["count"]
        if rotate == "all":
            known = await daemon.call(_CALL, groupId=group)
            rotate = [node["index"] for node in known["nodes"]]
        return await daemon.call(_CALL, groupId=group, rotate=rotate or None, count=count)

    answer = askDaemon(options, ask)
    for line in [json.dumps(answer)] if options["json"] else describe(answer):
        console.say(line)
    return Exit.GOOD


def describe(answer: Mapping[str, Any]) -> Iterator[str]:
    """The nodes in lines for people."""
    nodes: Sequence[Mapping[str, Any]] = answer["nodes"]
    changes = answer["changes"]
    yield f"{counted(len(nodes), 'node')}, after {counted(changes, 'change')}"
    for node in nodes:
        yield f"node {node['index']}: {node['nodeId']}"
