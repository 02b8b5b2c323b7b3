"""
C{svcbroker engine vouch}: a validator's word for a broker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...ledgers.cometbft.network import GENESIS, VOUCHER_NAME, encodeVoucher, vouch
from .._command import CommandError, CommandOptions, Console, Exit
from ._files import chainOf, hexKey, loadCard, loadGenesis, seedOf, writeNew


class Options(CommandOptions):
    """
    The options of C{svcbroker engine vouch}.
    """

    synopsis = "[options] HOME CARD|KEY"
    longdesc = (
        "KEY is a broker's public key; a broker that nobody vouches for tells it in its log and in "
        "readyz. What is written goes into the broker's data directory, into the group's "
        f"directory, as {VOUCHER_NAME}. It holds as long as this node is a validator."
    )
    optParameters: list[list[Any]] = [
        ["output", "o", None, "Write it to a new file. [default: standard output]"],
    ]

    def parseArgs(self, home: str, broker: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["home"], self["broker"] = Path(home).absolute(), broker


def run(options: Options, console: Console) -> int:
    """Vouch for the broker."""
    home: Path = options["home"]
    chain = chainOf(home)
    key = hexKey(options["broker"])
    if key is None:
        card = loadCard(Path(options["broker"]))
        name = loadGenesis(home / GENESIS)[1].chainId
        if card.chain != name:
            raise CommandError(f"that is a card for the chain {card.chain}, not {name}", Exit.BAD)
        key = bytes.fromhex(card.broker)
    data = encodeVoucher(vouch(seedOf(home), chain, key))
    if options["output"] is None:
        console.say(data.decode("ascii").rstrip("\n"))
    else:
        writeNew(Path(options["output"]), data)
    return Exit.GOOD
