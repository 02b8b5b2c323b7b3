"""
C{svcbroker engine sign}: sign a change of the validators.
"""

from __future__ import annotations

from pathlib import Path

from ...storage import writeFile
from .._arguments import jsonOption, makeCommand, options
from .._command import CommandError, Console, Exit
from ._files import chainOf, loadChange, seedOf, showChange, tried
from ._parameters import FILE, HOME


@makeCommand(
    """\
    Sign a change of the validators, with this node's key.

    Adds the signature of this node's validator to the change in FILE: its approval if it is in the
    current set, and its acceptance if it is in the following set. Read the change before you sign
    it: svcbroker engine show
    """
)
@options(HOME, FILE, jsonOption())
def command(console: Console, home: Path, path: Path, asJson: bool) -> int:
    """Sign the change."""
    document = loadChange(path)
    chain = chainOf(home)
    if document.chain != chain:
        raise CommandError(
            f"it is a change of chain {document.chain.hex()}, this node is on {chain.hex()}",
            Exit.BAD,
        )
    signed = tried(lambda: document.sign(seedOf(home)))
    writeFile(path, signed.encode())
    showChange(console, signed, asJson)
    return Exit.GOOD
