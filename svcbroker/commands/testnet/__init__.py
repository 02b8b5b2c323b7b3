"""
C{svcbroker testnet}: a whole CometBFT network on this machine, for trying it out.
"""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Any

from twisted.python import usage

from ...daemon.settings import Seconds, WholeNumber
from .._command import CommandError, CommandOptions, Console, Exit
from .._engines import ENGINE_VARIABLE, describeLedger, findEngine
from ._plan import MAX_NODES, STRIDE, TestNetwork, checkPorts, holding, layOut, readNetwork
from ._running import runNetwork

DEFAULT_NODES = 4


class Options(CommandOptions):
    """
    The options of C{svcbroker testnet}.
    """

    synopsis = "[options] DIR"
    longdesc = (
        "Makes DIR with a network in it: engines that decide blocks together, and beside each of "
        "them a broker. Starts all of it, tells where it is, and stops it on Ctrl-C. Where DIR has "
        "a network already, that one goes on."
    )
    optParameters: list[list[Any]] = [
        ["nodes", None, None, f"How many nodes a new network has. [default: {DEFAULT_NODES}]"],
        [
            "engine",
            None,
            None,
            f"The cometbft program. [default: ${ENGINE_VARIABLE}, or cometbft on the PATH]",
        ],
        [
            "base-port",
            None,
            None,
            f"The first port of a new network; each node has its own from the next {STRIDE}. "
            "[default: some that are free]",
        ],
        ["timeout", None, "120", "How many seconds the start may take."],
    ]
    optFlags = [["lay-out-only", None, "Start nothing, but tell what starts each node."]]

    def parseArgs(self, directory: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["directory"] = Path(directory).absolute()

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        highest = 65536 - STRIDE
        for name, kind in (
            ("nodes", WholeNumber(metavar="COUNT", minimum=1, maximum=MAX_NODES)),
            ("base-port", WholeNumber(metavar="PORT", minimum=1024, maximum=highest)),
            ("timeout", Seconds(maximum=3600)),
        ):
            if self[name] is not None:
                try:
                    self[name] = kind.parse(self[name])
                except ValueError as error:
                    raise usage.UsageError(f"--{name}: {error}") from None
        last = (self["base-port"] or 0) + STRIDE * (self["nodes"] or DEFAULT_NODES)
        if last > 65536:
            raise usage.UsageError("--base-port: there are no ports above 65535")


def run(options: Options, console: Console) -> int:
    """Lay the network out where that was not done, and run it."""
    directory: Path = options["directory"]
    engine = findEngine(options["engine"], os.environ)
    with holding(directory):
        network = _network(options, engine)
        if options["lay-out-only"]:
            for node in network.nodes:
                console.say(f"{node.name}: {shlex.join(node.command())}")
            console.say(f"A unit of systemd for each is in {directory}, too.")
            return Exit.GOOD
        checkPorts(network)
        ledgers = [describeLedger(node.home, node.ports["rpc"], engine) for node in network.nodes]
        runNetwork(network, ledgers, console, options["timeout"])
    return Exit.GOOD


def _network(options: Options, engine: Path) -> TestNetwork:
    directory, nodes, basePort = options["directory"], options["nodes"], options["base-port"]
    known = readNetwork(directory)
    if known is None:
        return layOut(
            directory,
            nodes or DEFAULT_NODES,
            engine,
            basePort,
            now=time.time,
            entropy=os.urandom,
        )
    if nodes not in (None, len(known.nodes)):
        raise CommandError(f"{directory} is a network of {len(known.nodes)} nodes, not {nodes}")
    if basePort not in (None, known.nodes[0].basePort):
        raise CommandError(
            f"{directory} is a network with ports from {known.nodes[0].basePort} on, not {basePort}"
        )
    return known
