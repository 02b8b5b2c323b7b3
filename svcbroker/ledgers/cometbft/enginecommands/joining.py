"""
Joining a network: the home of a new node.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins
from twisted.internet.defer import Deferred, TimeoutError

from ....commands.arguments import PATH, ParsedType, jsonOption, makeCommand, options
from ....commands.clientcommand import runReactor
from ....commands.terminal import CommandError, Console, Exit, showRecord
from ..provisioning import (
    GENESIS,
    Address,
    EngineGenesis,
    StateSync,
    TrustMissing,
    askTrust,
    connectEngine,
    layOutJoining,
)
from .genesisceremony import describeJoinRequest, planHome, writeJoinRequest
from .networkfiles import (
    ADDRESS,
    HOME,
    JOIN_REQUEST_NAME,
    LISTEN_OPTIONS,
    NODE_OPTIONS,
    REQUESTS,
    loadGenesis,
    loadJoinRequest,
    tried,
)

_TRUST = re.compile(r"([1-9][0-9]{0,18}):([0-9a-fA-F]{64})")
_ANSWER = 10.0
_ALL = 60.0


def _trust(text: str) -> tuple[int, bytes]:
    found = _TRUST.fullmatch(text)
    if found is None:
        raise ValueError("is not HEIGHT:HASH with 64 hexadecimal digits")
    return int(found[1]), bytes.fromhex(found[2])


@makeCommand(
    """\
    Make the home of a new node of an existing network.

    REQUESTs are the join requests of nodes that the new one connects to. It follows the network,
    and votes once it has been made a validator (svcbroker net engine propose). Its broker may send
    once a validator has attested it (svcbroker net engine attest).
    """
)
@options(
    HOME,
    REQUESTS,
    click.option(
        "--genesis",
        "genesisFile",
        type=PATH,
        required=True,
        metavar="FILE",
        help="The network's genesis file, as the others have it. It is needed.",
    ),
    *NODE_OPTIONS,
    *LISTEN_OPTIONS,
    click.option(
        "--state-sync",
        "servers",
        type=ADDRESS,
        metavar="HOST:PORT",
        multiple=True,
        help="Start from a snapshot, verified by the RPC of this engine; give it at least twice.",
    ),
    click.option(
        "--trust",
        type=ParsedType("block", _trust),
        metavar="HEIGHT:HASH",
        help="A trusted block. [default: the first block, which the genesis proves]",
    ),
    jsonOption(),
)
def joinCommand(
    console: Console,
    home: Path,
    requests: tuple[Path, ...],
    genesisFile: Path,
    name: str,
    p2p: Address,
    data_dir: Path,
    group: str,
    listen: Address | None,
    rpc: Address,
    servers: tuple[Address, ...],
    trust: tuple[int, bytes] | None,
    asJson: bool,
) -> int:
    """Lay out the home."""
    if not requests:
        raise CommandError("the join request of at least one node to connect to is needed")
    if len(servers) == 1:
        raise CommandError("--state-sync: two engines must agree: give another one")
    if (home / GENESIS).exists():
        raise CommandError(f"{home} is the home of an engine already")
    data, genesis = loadGenesis(genesisFile)
    members = [loadJoinRequest(path) for path in requests]
    for request in members:
        if request.chain != genesis.chainId:
            raise CommandError(
                f"the join request of {request.name} is for {request.chain}, not {genesis.chainId}"
            )
    sync = _stateSync(servers, trust, genesis)
    timeouts = {request.timeouts for request in members}
    if len(timeouts) > 1:
        raise CommandError(f"the join requests have several timeouts: {', '.join(timeouts)}")
    own = writeJoinRequest(
        home,
        chain=genesis.chainId,
        timeouts=timeouts.pop(),
        topics=genesis.topics,
        name=name,
        p2p=p2p,
        dataDir=data_dir,
        group=group,
    )
    peers = [request.peer for request in members]
    plan = planHome(home, own.name, own.peer.address, listen=listen, rpc=rpc)
    tried(lambda: layOutJoining(plan, data, peers, os.urandom, stateSync=sync, tuning=own.tuning))
    lines = describeJoinRequest(own)
    if sync is not None:
        lines.append(f"trusts     block {sync.height}, {sync.hash.hex()}")
    lines.append(f"Send {home / JOIN_REQUEST_NAME} to a validator, which attests the broker.")
    trusted = None if sync is None else f"{sync.height}:{sync.hash.hex()}"
    showRecord(console, {**to_builtins(own), "trusted": trusted}, lines, asJson)
    return Exit.GOOD


def _stateSync(
    servers: tuple[Address, ...], trust: tuple[int, bytes] | None, genesis: EngineGenesis
) -> StateSync | None:
    if not servers:
        return None
    height, hash = trust or _ask(genesis, servers)
    return StateSync(servers=servers, height=height, hash=hash)


def _ask(genesis: EngineGenesis, servers: Sequence[Address]) -> tuple[int, bytes]:
    """Ask a network that runs for its genesis, and check it."""

    async def ask(reactor: Any) -> tuple[int, bytes]:
        engines = [connectEngine(reactor, f"http://{each}", _ANSWER) for each in servers]
        asking = Deferred.fromCoroutine(askTrust(genesis, engines))
        trust = await asking.addTimeout(_ALL, reactor)
        return trust.height, trust.hash

    try:
        return runReactor(ask)
    except TrustMissing as error:
        raise CommandError(f"--state-sync: {error}", Exit.BAD) from None
    except TimeoutError:
        raise CommandError("--state-sync: the engines do not answer") from None
