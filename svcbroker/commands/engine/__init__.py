"""
C{svcbroker net engine}: the engines of a CometBFT network of several organisations.
"""

from __future__ import annotations

from typing import Final

from ..commandline import Command

COMMANDS: Final[tuple[Command, ...]] = tuple(
    Command(name, summary, place=f"engine.{module}:{name}Command")
    for module, name, summary in (
        ("genesisceremony", "init", "Make a node's keys, and its join request for the others."),
        (
            "genesisceremony",
            "genesis",
            "Assemble the genesis from the join requests of all first nodes.",
        ),
        ("joining", "join", "Make the home of a new node of an existing network."),
        ("genesisceremony", "attest", "Let a broker send to the chain: sign an attestation of it."),
        ("governing", "propose", "Propose a change of the validators."),
        ("governing", "sign", "Sign a change of the validators, with this node's key."),
        ("governing", "merge", "Put the signatures of several copies of a change together."),
        ("governing", "show", "Show a change or a join request, and who has signed."),
        ("governing", "submit", "Submit a change with enough signatures to a running daemon."),
    )
)
"""The commands about engines, in the order in which a network needs them."""


HELP: Final = (
    "A HOME is an engine's home directory. Private keys stay in it; what these commands print and "
    "write elsewhere is public."
)
