"""
C{svcbroker engine sign}: sign a change of the validators.
"""

from __future__ import annotations

from pathlib import Path

from ...ledgers.cometbft.provisioning import writeFile
from .._command import CommandError, Console, Exit
from .._options import CommandOptions
from ._files import chainOf, describeChange, loadChange, seedOf, tried


class Options(CommandOptions):
    """
    The options of C{svcbroker engine sign}.
    """

    synopsis = "HOME FILE"
    longdesc = (
        "Adds the signature of this node's validator to the change in FILE: its approval if it is "
        "in the current set, and its acceptance if it is in the following set. Read the change "
        "before you sign it: svcbroker engine show"
    )

    def parseArgs(self, home: str, file: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["home"], self["file"] = Path(home).absolute(), Path(file)


def run(options: Options, console: Console) -> int:
    """Sign the change."""
    document = loadChange(options["file"])
    chain = chainOf(options["home"])
    if document.chain != chain:
        raise CommandError(
            f"it is a change of chain {document.chain.hex()}, this node is on {chain.hex()}",
            Exit.BAD,
        )
    signed = tried(lambda: document.sign(seedOf(options["home"])))
    writeFile(options["file"], signed.encode())
    for line in describeChange(signed):
        console.say(line)
    return Exit.GOOD
