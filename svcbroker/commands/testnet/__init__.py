"""
C{svcbroker testnet}: a CometBFT network on this machine, for trying it out.
"""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path
from typing import Any

from twisted.python import usage

from ...daemon.settings import Seconds, WholeNumber
from .._command import CommandError, Console, Exit
from .._engines import ENGINE_VARIABLE, describeLedger, findEngine
from .._options import CommandOptions
from ..engine.init import TIMEOUTS, profile
from ._plan import MAX_NODES, STRIDE, TestNetwork, checkPorts, holding, layOut, readNetwork
from ._running import runNetwork

DEFAULT_NODES = 4


class Options(CommandOptions):
    """
    The options of C{svcbroker testnet}.
    """

    synopsis = "[options] DIR"
    longdesc = (
        "Lays out a network in DIR: engines that decide blocks together, each with a broker beside "
        "it. Starts it, prints its addresses, and stops it on Ctrl-C. A network that exists in "
        "DIR is started again."
    )
    optParameters: list[list[Any]] = [
        ["nodes", None, None, f"The number of nodes of a new network. [default: {DEFAULT_NODES}]"],
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
            f"The first port of a new network; each node uses the next {STRIDE}. "
            "[default: free ports]",
        ],
        TIMEOUTS,
        ["timeout", None, "120", "Seconds that the start may take."],
    ]
    optFlags = [["lay-out-only", None, "Start nothing, and print the command line of each node."]]

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
        self["timeouts"] = profile(self["timeouts"])
        last = (self["base-port"] or 0) + STRIDE * (self["nodes"] or DEFAULT_NODES)
        if last > 65536:
            raise usage.UsageError("--base-port: there are no ports above 65535")


def run(options: Options, console: Console) -> int:
    """Lay out the network if it does not exist, and run it."""
    directory: Path = options["directory"]
    engine = findEngine(options["engine"], os.environ)
    with holding(directory):
        network = _network(options, engine)
        if options["lay-out-only"]:
            for node in network.nodes:
                console.say(f"{node.name}: {shlex.join(node.command())}")
            console.say(f"A systemd unit for each node is in {directory}.")
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
            timeouts=options["timeouts"],
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
