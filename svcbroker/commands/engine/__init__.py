"""
C{svcbroker engine}: the engines of a CometBFT network of several organisations.
"""

from __future__ import annotations

from typing import Final

from .._command import Command

COMMANDS: Final[tuple[Command, ...]] = tuple(
    Command(name, summary, module=f"{__package__}.{name}")
    for name, summary in (
        ("init", "Make a node's keys, and its join request for the others."),
        ("genesis", "Assemble the genesis from the join requests of all first nodes."),
        ("join", "Make the home of a new node of an existing network."),
        ("attest", "Let a broker send to the chain: sign an attestation of it."),
        ("propose", "Propose a change of the validators."),
        ("sign", "Sign a change of the validators, with this node's key."),
        ("merge", "Put the signatures of several copies of a change together."),
        ("show", "Show a change or a join request, and who has signed."),
        ("submit", "Submit a change with enough signatures to a running daemon."),
    )
)
"""What there is to be done with engines, in the order in which a network needs it."""


HELP: Final = (
    "A HOME is an engine's home directory. Private keys stay in it; what these commands print and "
    "write elsewhere is public."
)
