"""
C{svcbroker net testnet}: a CometBFT network on this machine, for trying it out.
"""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import click

from ....commands.arguments import Decimal, Whole, jsonOption, makeCommand, options
from ....commands.terminal import CommandError, Console, Exit, showRecord
from ....model import TopicRule
from ..enginechecks import ENGINE_VARIABLE, EngineNotFound, findEngine
from ..enginecommands.networkfiles import HOME_TYPE, TIMEOUTS, TOPICS
from .blueprint import (
    MAX_NODES,
    STRIDE,
    TestNetwork,
    checkPorts,
    describeLedger,
    holding,
    layOut,
    readNetwork,
)
from .daemons import recordOf, runNetwork

DEFAULT_NODES = 4


@makeCommand(
    """\
    Run a whole CometBFT network on this machine, to try it out.

    Lays out a network in DIR: engines that decide blocks together, each with a broker beside it.
    Starts it, prints its addresses, and stops it on Ctrl-C. A network that exists in DIR is
    started again.
    """
)
@options(
    click.argument("directory", metavar="DIR", type=HOME_TYPE),
    click.option(
        "--nodes",
        type=Whole(1, MAX_NODES),
        metavar="COUNT",
        help=f"The number of nodes of a new network. [default: {DEFAULT_NODES}]",
    ),
    click.option(
        "--engine",
        "program",
        metavar="PROGRAM",
        help=f"The cometbft program. [default: ${ENGINE_VARIABLE}, or cometbft on the PATH]",
    ),
    click.option(
        "--base-port",
        type=Whole(1024, 65536 - STRIDE),
        metavar="PORT",
        help=f"The first port of a new network; each node uses the next {STRIDE}. "
        "[default: free ports]",
    ),
    TIMEOUTS,
    TOPICS,
    click.option(
        "--timeout",
        type=Decimal(0, 3600, min_open=True),
        default=120.0,
        show_default=True,
        metavar="SECONDS",
        help="Seconds that the start may take.",
    ),
    click.option(
        "--lay-out-only",
        is_flag=True,
        help="Start nothing, and print the command line of each node.",
    ),
    jsonOption("Show the nodes as a line of JSON, as soon as they are ready."),
)
def command(
    console: Console,
    directory: Path,
    nodes: int | None,
    program: str | None,
    base_port: int | None,
    timeouts: str,
    topics: TopicRule,
    timeout: float,
    lay_out_only: bool,
    asJson: bool,
) -> int:
    """Lay out the network if it does not exist, and run it."""
    if (base_port or 0) + STRIDE * (nodes or DEFAULT_NODES) > 65536:
        raise CommandError("--base-port: there are no ports above 65535")
    try:
        engine = findEngine(program, os.environ)
    except EngineNotFound as error:
        raise CommandError(str(error)) from None
    with holding(directory):
        network = _network(directory, nodes, base_port, engine, timeouts, topics)
        if lay_out_only:
            commands = [f"{node.name}: {shlex.join(node.command())}" for node in network.nodes]
            units = f"A systemd unit for each node is in {directory}."
            showRecord(console, recordOf(network), [*commands, units], asJson)
            return Exit.GOOD
        checkPorts(network)
        ledgers = [describeLedger(node.home, node.ports["rpc"], engine) for node in network.nodes]
        runNetwork(network, ledgers, console, timeout, asJson=asJson)
    return Exit.GOOD


def _network(
    directory: Path,
    nodes: int | None,
    basePort: int | None,
    engine: Path,
    timeouts: str,
    topics: TopicRule,
) -> TestNetwork:
    known = readNetwork(directory)
    if known is None:
        return layOut(
            directory,
            nodes or DEFAULT_NODES,
            engine,
            basePort,
            timeouts=timeouts,
            topics=topics,
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
