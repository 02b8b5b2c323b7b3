"""
C{svcbroker engine attest}: a validator's attestation of a broker.
"""

from __future__ import annotations

from pathlib import Path

import click

from ...chain import isUsableKey
from ...files import writeNew
from ...ledgers.cometbft.provisioning import ATTESTATION_NAME, GENESIS, attest, encodeAttestation
from .._arguments import PATH, makeCommand, options
from .._command import CommandError, Console, Exit
from ._files import chainOf, hexKey, loadGenesis, loadJoinRequest, seedOf
from ._parameters import HOME


@makeCommand(
    f"""\
    Let a broker send to the chain: sign an attestation of it.

    REQUEST is the join request of the broker's node, KEY the broker's public key; a broker without
    an attestation tells its key in its log and in readyz. Put the output into the broker's data
    directory, in the group's directory, as {ATTESTATION_NAME}. It is valid as long as this node is
    a validator.
    """
)
@options(
    HOME,
    click.argument("broker", metavar="REQUEST|KEY"),
    click.option(
        "--output",
        "-o",
        type=PATH,
        metavar="FILE",
        help="Write it to a new file. [default: standard output]",
    ),
)
def command(console: Console, home: Path, broker: str, output: Path | None) -> int:
    """Sign the attestation."""
    chain = chainOf(home)
    key = hexKey(broker)
    if key is None:
        request = loadJoinRequest(Path(broker))
        name = loadGenesis(home / GENESIS)[1].chainId
        if request.chain != name:
            raise CommandError(
                f"the join request is for the chain {request.chain}, not {name}", Exit.BAD
            )
        key = bytes.fromhex(request.broker)
    if not isUsableKey(key):
        raise CommandError(f"the broker's key {key.hex()} is not a usable Ed25519 key")
    data = encodeAttestation(attest(seedOf(home), chain, key))
    if output is None:
        console.say(data.decode("ascii").rstrip("\n"))
    else:
        writeNew(output, data, 0o644)
    return Exit.GOOD
