"""
C{svcbroker net engine}: the engines of a CometBFT network of several organisations.
"""

from __future__ import annotations

from typing import Final

from ....commands.commandline import Command

_NODE: Final = "--name alba --p2p alba.example:26656 --data-dir /var/lib/svcbroker"

COMMANDS: Final[tuple[Command, ...]] = tuple(
    Command(
        name,
        summary,
        place=f".ledgers.cometbft.enginecommands.ceremonies:{name}Command",
        example=f"svcbroker net engine {name} {example}",
    )
    for name, summary, example in (
        (
            "init",
            "Make a node's keys, and its join request for the others.",
            f"/var/lib/engine --chain consortium {_NODE}",
        ),
        (
            "genesis",
            "Assemble the genesis from the join requests of all first nodes.",
            "/var/lib/engine bern.json corner.json",
        ),
        (
            "join",
            "Make the home of a new node of an existing network.",
            f"/var/lib/engine bern.json --genesis genesis.json {_NODE}",
        ),
        (
            "attest",
            "Let a broker send to the chain: sign an attestation of it.",
            "/var/lib/engine corner.json --output attestation.json",
        ),
        (
            "propose",
            "Propose a change of the validators.",
            "/var/lib/engine --add corner.json --output change.json",
        ),
        (
            "sign",
            "Sign a change of the validators, with this node's key.",
            "/var/lib/engine change.json",
        ),
        (
            "merge",
            "Put the signatures of several copies of a change together.",
            "alba.json bern.json --output change.json",
        ),
        (
            "show",
            "Show a change or a join request, and who has signed.",
            "change.json",
        ),
        (
            "submit",
            "Submit a change with enough signatures to a running daemon.",
            "change.json --data-dir /var/lib/svcbroker",
        ),
    )
)
"""The commands about engines, in the order in which a network needs them."""


HELP: Final = (
    "A HOME is an engine's home directory. Private keys stay in it; what these commands print and "
    "write elsewhere is public."
)
