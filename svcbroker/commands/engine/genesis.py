"""
C{svcbroker engine genesis}: the genesis ceremony.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...ledgers.cometbft.provisioning import (
    Address,
    NodePlan,
    assembleGenesis,
    decodeGenesis,
    layOutJoining,
    ourGenesis,
)
from .._arguments import jsonOption, makeCommand, options
from .._command import CommandError, Console, Exit
from .._tables import showRecord
from ._files import JOIN_REQUEST_NAME, loadJoinRequest, tried
from ._parameters import HOME, LISTEN_OPTIONS, REQUESTS

_CLOCK_TOLERANCE = 60.0


def planHome(
    home: Path, name: str, p2p: Address, *, listen: Address | None, rpc: Address
) -> NodePlan:
    """
    The plan of an engine's home.

    @param p2p: the address that its peers use.
    """
    own = Address(host="0.0.0.0", port=p2p.port)
    return NodePlan(home=home, name=name, rpc=rpc, p2p=listen or own, external=p2p)


@makeCommand(
    """\
    Assemble the genesis from the join requests of all first nodes.

    Every organisation runs this with the join requests of all, in any order, and compares the
    output with the others: the network can begin when it is the same. Writes the genesis and the
    configuration of the engine into HOME.
    """
)
@options(HOME, REQUESTS, *LISTEN_OPTIONS, jsonOption())
def command(
    console: Console,
    home: Path,
    requests: tuple[Path, ...],
    listen: Address | None,
    rpc: Address,
    asJson: bool,
) -> int:
    """Assemble the genesis, and lay out the home."""
    if not (home / JOIN_REQUEST_NAME).exists():
        raise CommandError(f"{home} has no {JOIN_REQUEST_NAME}: see svcbroker engine init")
    own = loadJoinRequest(home / JOIN_REQUEST_NAME)
    given = [own, *map(loadJoinRequest, requests)]
    ceremony = tried(lambda: assembleGenesis(given))
    plan = planHome(home, own.name, own.peer.address, listen=listen, rpc=rpc)
    peers = [request.peer for request in ceremony.requests if request != own]
    keys = tried(
        lambda: layOutJoining(plan, ceremony.genesis, peers, os.urandom, tuning=own.tuning)
    )
    if keys.validator != own.key or keys.nodeId != own.nodeId:
        raise CommandError(
            f"{home / JOIN_REQUEST_NAME} is not the join request of the keys in {home}", Exit.BAD
        )
    genesis = decodeGenesis(ceremony.genesis)
    if genesis.genesisTime / 1e9 > time.time() + _CLOCK_TOLERANCE:
        console.warn(
            f"the engine will wait until {genesis.genesisTime}: the clock of a node that made a "
            "join request is ahead"
        )
    record = {
        "chain": genesis.chainId,
        "chainId": ourGenesis(genesis).chain.hex(),
        "genesis": sha256(ceremony.genesis).hexdigest(),
        "validators": [
            {
                "key": request.validator,
                "name": request.name,
                "p2p": request.p2p,
                "isThisNode": request == own,
            }
            for request in ceremony.requests
        ],
    }
    showRecord(console, record, _describe(record), asJson)
    return Exit.GOOD


def _describe(record: Mapping[str, Any]) -> Iterator[str]:
    """What was assembled, in lines for people."""
    yield f"chain      {record['chain']}, {record['chainId']}"
    yield f"genesis    SHA-256 {record['genesis']}"
    for each in record["validators"]:
        mark = ", this node" if each["isThisNode"] else ""
        yield f"validator  {each['key']} {each['name']}, {each['p2p']}{mark}"
    yield "All of this must be the same at every organisation, except the mark of this node."
