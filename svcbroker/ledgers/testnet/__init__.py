"""
C{svcbroker net testnet}: a network on this machine, of CometBFT engines or on an EVM chain, for
trying it out.
"""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import click

from ...commands.arguments import Decimal, Whole, jsonOption, makeCommand, options
from ...commands.terminal import CommandError, Console, showRecord
from ...model import TopicRule
from ..cometbft._engine import ENGINE_VARIABLE, EngineNotFound, findEngine
from ..cometbft.enginecommands.networkfiles import HOME_TYPE, TIMEOUTS, TOPICS
from .blueprint import (
    ENGINES,
    MAX_NODES,
    STRIDE,
    TestNetwork,
    checkPorts,
    describeLedger,
    holding,
    layOut,
    readNetwork,
)
from .daemons import ANVIL, IBFT, TestChain, findProgram, makeChain, recordOf, runNetwork

DEFAULT_NODES = 4


@makeCommand(
    """\
    Run a whole network on this machine, to try it out.

    Lays out a network in DIR: CometBFT engines that decide blocks together, each with a broker
    beside it; or, with --evm, validators of an EVM chain with IBFT (polygon-edge); or, with
    --anvil, one node of such a chain for all brokers.

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
        "--evm",
        "kind",
        flag_value=IBFT,
        help="Put the log of a new network on an EVM chain, with a validator for each broker.",
    ),
    click.option(
        "--anvil",
        "kind",
        flag_value=ANVIL,
        help="Put the log of a new network on an EVM chain of one node.",
    ),
    click.option(
        "--engine",
        "program",
        metavar="PROGRAM",
        help="The program of the engines: cometbft, polygon-edge or anvil. "
        f"[default: ${ENGINE_VARIABLE}, $SVCBROKER_POLYGON_EDGE, $SVCBROKER_ANVIL, or that on the "
        "PATH]",
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
    kind: str | None,
    program: str | None,
    base_port: int | None,
    timeouts: str,
    topics: TopicRule,
    timeout: float,
    lay_out_only: bool,
    asJson: bool,
) -> None:
    """Lay out the network if it does not exist, and run it."""
    if (base_port or 0) + STRIDE * (nodes or DEFAULT_NODES) > 65536:
        raise CommandError("--base-port: there are no ports above 65535")
    with holding(directory):
        known = readNetwork(directory)
        if known is not None:
            _compare(known, nodes, kind, base_port)
        kind = kind or (ENGINES if known is None else known.kind)
        chain = None
        if kind == ENGINES:
            engine = _engine(program)
            network = known or layOut(
                directory,
                nodes or DEFAULT_NODES,
                engine,
                base_port,
                timeouts=timeouts,
                topics=topics,
                now=time.time,
                entropy=os.urandom,
            )
            ledgers: list[str | None] = [
                describeLedger(node.home, node.ports["rpc"], engine) for node in network.nodes
            ]
        else:
            found = findProgram(kind, program, os.environ)
            chain = (
                makeChain(
                    directory,
                    nodes or DEFAULT_NODES,
                    base_port,
                    kind=kind,
                    program=found,
                    topics=topics,
                    entropy=os.urandom,
                )
                if known is None
                else TestChain(network=known, program=found)
            )
            network = chain.network
            ledgers = [None] * len(network.nodes)
        if lay_out_only:
            commands = [f"{node.name}: {shlex.join(node.command())}" for node in network.nodes]
            units = f"A systemd unit for each node is in {directory}."
            showRecord(console, recordOf(network, chain), [*commands, units], asJson)
            return
        checkPorts(network)
        runNetwork(network, ledgers, console, timeout, asJson=asJson, chain=chain)


def _engine(program: str | None) -> Path:
    try:
        return findEngine(program, os.environ)
    except EngineNotFound as error:
        raise CommandError(str(error)) from None


def _compare(known: TestNetwork, nodes: int | None, kind: str | None, basePort: int | None) -> None:
    """
    Compare what was asked for with the network that is there.

    @raise CommandError: it is another one.
    """
    directory = known.directory
    if nodes not in (None, len(known.nodes)):
        raise CommandError(f"{directory} is a network of {len(known.nodes)} nodes, not {nodes}")
    if kind not in (None, known.kind):
        raise CommandError(f"{directory} is a network on {known.kind}, not on {kind}")
    if basePort not in (None, known.nodes[0].basePort):
        raise CommandError(
            f"{directory} is a network with ports from {known.nodes[0].basePort} on, not {basePort}"
        )
