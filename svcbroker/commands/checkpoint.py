"""
C{svcbroker checkpoint}: a block's height and hash, to be published or kept elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import click

from ._arguments import HEIGHT, makeCommand, options
from ._chain import CHAIN_OPTIONS, openedChain
from ._command import Console, Exit


@makeCommand(
    """\
    Print a block's hash, to be kept outside of the broker's reach.

    Writes HEIGHT:HASH. A broker may be running on the directory. With this line one can tell later
    whether the chain before it was changed.
    """
)
@options(
    *CHAIN_OPTIONS,
    click.option(
        "--height",
        type=HEIGHT,
        metavar="HEIGHT",
        help="The block's height. [default: that of the latest one]",
    ),
)
def command(console: Console, directory: Path, group: str, height: int | None) -> int:
    """Write the checkpoint."""
    with openedChain(directory, group) as prover:
        checkpoint = prover.checkpoint(height)
    console.say(str(checkpoint))
    return Exit.GOOD
