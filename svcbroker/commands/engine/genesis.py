"""
C{svcbroker engine genesis}: the genesis ceremony.
"""

from __future__ import annotations

import os
import time
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
from .._command import CommandError, Console, Exit
from .._options import CommandOptions
from ._files import JOIN_REQUEST_NAME, loadJoinRequest, tried
from .init import address

DEFAULT_RPC = "127.0.0.1:26657"
_CLOCK_TOLERANCE = 60.0


class ListenOptions(CommandOptions):
    """
    Options of commands that write an engine's configuration.
    """

    optParameters: list[list[Any]] = [
        [
            "listen",
            None,
            None,
            "Where the engine listens for peers. [default: 0.0.0.0, own port]",
        ],
        ["rpc", None, DEFAULT_RPC, "Where its RPC listens, for its broker alone."],
    ]

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        super().postOptions()
        for name in ("listen", "rpc"):
            if self[name] is not None:
                self[name] = address(self[name], name)

    def plan(self, home: Path, name: str, p2p: Address) -> NodePlan:
        """
        The plan of the engine's home.

        @param p2p: the address that its peers use.
        """
        own = Address(host="0.0.0.0", port=p2p.port)
        return NodePlan(
            home=home, name=name, rpc=self["rpc"], p2p=self["listen"] or own, external=p2p
        )


class Options(ListenOptions):
    """
    The options of C{svcbroker engine genesis}.
    """

    synopsis = "[options] HOME REQUEST..."
    longdesc = (
        "Every organisation runs this with the join requests of all, in any order, and "
        "compares the output with the others: the network can begin when it is the same. "
        "Writes the genesis and the configuration of the engine into HOME."
    )

    def parseArgs(self, home: str, *requests: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["home"] = Path(home).absolute()
        self["requests"] = [Path(request) for request in requests]


def run(options: Options, console: Console) -> int:
    """Assemble the genesis, and lay out the home."""
    home: Path = options["home"]
    if not (home / JOIN_REQUEST_NAME).exists():
        raise CommandError(f"{home} has no {JOIN_REQUEST_NAME}: see svcbroker engine init")
    own = loadJoinRequest(home / JOIN_REQUEST_NAME)
    requests = [own, *map(loadJoinRequest, options["requests"])]
    ceremony = tried(lambda: assembleGenesis(requests))
    plan = options.plan(home, own.name, own.peer.address)
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
    console.say(f"chain      {genesis.chainId}, {ourGenesis(genesis).chain.hex()}")
    console.say(f"genesis    SHA-256 {sha256(ceremony.genesis).hexdigest()}")
    for request in ceremony.requests:
        mark = ", this node" if request == own else ""
        console.say(f"validator  {request.validator} {request.name}, {request.p2p}{mark}")
    console.say("All of this must be the same at every organisation, except the mark of this node.")
    return Exit.GOOD
