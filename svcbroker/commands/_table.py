"""
The table of all commands.
"""

from __future__ import annotations

from typing import Final

from ._command import Command

COMMANDS: Final[tuple[Command, ...]] = (
    Command("verify", "Check a proof, offline, with nothing but what one trusts already."),
    Command("audit", "Check everything in a data directory, and say exactly where it breaks."),
    Command("genesis", "Write the beginning of a chain, from which its proofs are checked."),
    Command("checkpoint", "Tell a block's hash, to be kept where nobody can change it."),
    Command("export", "Write a chain as a stream of blocks with their certificates."),
    Command(
        "import",
        "Take a chain from a stream, and check every block of it.",
        module=f"{__package__}.importing",
    ),
    Command("backup", "Copy a data directory, also while a broker runs on it."),
    Command("nodes", "Give a running daemon's nodes new keys, or change how many there are."),
    Command("testnet", "Run a whole CometBFT network on this machine, to try it out."),
    Command("engine", "Found, join and govern a CometBFT network of several organisations."),
    Command("fault", "Stop nodes of a running daemon, and cut or slow down their network."),
)
"""Every command, in the order in which the help text shows them."""
