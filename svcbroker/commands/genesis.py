"""
C{svcbroker genesis}: the beginning of a chain, for those who check its proofs.
"""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.json import encode, format

from ._arguments import makeCommand, options
from ._chain import CHAIN_OPTIONS, openedChain
from ._command import Console, Exit


@makeCommand(
    """\
    Write the genesis of a chain, against which its proofs are checked.

    Writes JSON to standard output, for svcbroker verify --genesis. A broker may be running on the
    directory. Who has the file, or only its hash, from a source of which they know that it is
    yours, need not trust the broker for anything else.
    """
)
@options(
    *CHAIN_OPTIONS,
    click.option(
        "--hash",
        "isHash",
        is_flag=True,
        help="Write only its hash, which is the id of the chain.",
    ),
)
def command(console: Console, directory: Path, group: str, isHash: bool) -> int:
    """Write the genesis."""
    with openedChain(directory, group) as prover:
        genesis = prover.genesis()
    console.say(genesis.chain if isHash else format(encode(genesis)).decode())
    return Exit.GOOD
