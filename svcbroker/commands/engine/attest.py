"""
C{svcbroker engine attest}: a validator's attestation of a broker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...ledgers.cometbft.provisioning import ATTESTATION_NAME, GENESIS, attest, encodeAttestation
from .._command import CommandError, Console, Exit
from .._options import CommandOptions
from ._files import chainOf, hexKey, loadGenesis, loadJoinRequest, seedOf, writeNew


class Options(CommandOptions):
    """
    The options of C{svcbroker engine attest}.
    """

    synopsis = "[options] HOME REQUEST|KEY"
    longdesc = (
        "REQUEST is the join request of the broker's node, KEY the broker's public key; a broker "
        "without an attestation tells its key in its log and in readyz. Put the output into the "
        f"broker's data directory, in the group's directory, as {ATTESTATION_NAME}. It is valid as "
        "long as this node is a validator."
    )
    optParameters: list[list[Any]] = [
        ["output", "o", None, "Write it to a new file. [default: standard output]"],
    ]

    def parseArgs(self, home: str, broker: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["home"], self["broker"] = Path(home).absolute(), broker


def run(options: Options, console: Console) -> int:
    """Sign the attestation."""
    home: Path = options["home"]
    chain = chainOf(home)
    key = hexKey(options["broker"])
    if key is None:
        request = loadJoinRequest(Path(options["broker"]))
        name = loadGenesis(home / GENESIS)[1].chainId
        if request.chain != name:
            raise CommandError(
                f"the join request is for the chain {request.chain}, not {name}", Exit.BAD
            )
        key = bytes.fromhex(request.broker)
    data = encodeAttestation(attest(seedOf(home), chain, key))
    if options["output"] is None:
        console.say(data.decode("ascii").rstrip("\n"))
    else:
        writeNew(Path(options["output"]), data)
    return Exit.GOOD
