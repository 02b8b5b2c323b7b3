"""
C{svcbroker engine genesis}: a network out of its first nodes' cards.
"""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...ledgers.cometbft.network import (
    Address,
    NodePlan,
    decodeGenesis,
    found,
    layOutJoining,
    ourGenesis,
)
from .._command import CommandError, CommandOptions, Console, Exit
from ._files import CARD_NAME, loadCard, tried
from .init import address

DEFAULT_RPC = "127.0.0.1:26657"
_PATIENCE = 60.0


class ListenOptions(CommandOptions):
    """
    Options of commands that write an engine's configuration.
    """

    optParameters: list[list[Any]] = [
        ["listen", None, None, "Where the engine listens for others. [default: 0.0.0.0, own port]"],
        ["rpc", None, DEFAULT_RPC, "Where it listens for its broker: nobody else may reach that."],
    ]

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        super().postOptions()
        for name in ("listen", "rpc"):
            if self[name] is not None:
                self[name] = address(self[name], name)

    def plan(self, home: Path, name: str, p2p: Address) -> NodePlan:
        """
        Where the engine will live.

        @param p2p: where others reach it.
        """
        own = Address(host="0.0.0.0", port=p2p.port)
        return NodePlan(
            home=home, name=name, rpc=self["rpc"], p2p=self["listen"] or own, external=p2p
        )


class Options(ListenOptions):
    """
    The options of C{svcbroker engine genesis}.
    """

    synopsis = "[options] HOME CARD..."
    longdesc = (
        "Every organisation runs this with the cards of all, in any order, and compares "
        "what is printed with the others: the network can begin when they agree. "
        "Writes the genesis and the configuration of the engine into HOME."
    )

    def parseArgs(self, home: str, *cards: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["home"] = Path(home).absolute()
        self["cards"] = [Path(card) for card in cards]


def run(options: Options, console: Console) -> int:
    """Found the network."""
    home: Path = options["home"]
    if not (home / CARD_NAME).exists():
        raise CommandError(f"{home} has no {CARD_NAME}: see svcbroker engine init")
    own = loadCard(home / CARD_NAME)
    founding = tried(lambda: found([own, *(loadCard(path) for path in options["cards"])]))
    plan = options.plan(home, own.name, own.peer.address)
    peers = [card.peer for card in founding.cards if card != own]
    keys = tried(lambda: layOutJoining(plan, founding.genesis, peers, os.urandom))
    if keys.validator != own.key or keys.nodeId != own.nodeId:
        raise CommandError(f"{home / CARD_NAME} is not the card of the keys in {home}", Exit.BAD)
    genesis = decodeGenesis(founding.genesis)
    if genesis.genesisTime / 1e9 > time.time() + _PATIENCE:
        console.warn(
            f"the engine will wait until {genesis.genesisTime}: a clock of those who made the "
            "cards is ahead"
        )
    console.say(f"chain      {genesis.chainId}, {ourGenesis(genesis).chain.hex()}")
    console.say(f"genesis    SHA-256 {sha256(founding.genesis).hexdigest()}")
    for card in founding.cards:
        mark = ", this node" if card == own else ""
        console.say(f"validator  {card.validator} {card.name}, {card.p2p}{mark}")
    console.say("All of this must be the same at all organisations, but for who this node is.")
    return Exit.GOOD
