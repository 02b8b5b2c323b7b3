"""
C{svcbroker genesis}: the beginning of a chain, for those who check its proofs.
"""

from __future__ import annotations

from msgspec.json import encode, format

from ._chain import ChainOptions, openedChain
from ._command import Console, Exit


class Options(ChainOptions):
    """
    The options of C{svcbroker genesis}.
    """

    longdesc = (
        "Writes JSON to standard output, for svcbroker verify --genesis. A broker may be running "
        "on the directory. Who has the file, or only its hash, from a source of which they know "
        "that it is yours, need not trust the broker for anything else."
    )
    optFlags = [["hash", None, "Write only its hash, which is the id of the chain."]]


def run(options: Options, console: Console) -> int:
    """Write the genesis."""
    with openedChain(options) as prover:
        genesis = prover.genesis()
    console.say(genesis.chain if options["hash"] else format(encode(genesis)).decode())
    return Exit.GOOD
