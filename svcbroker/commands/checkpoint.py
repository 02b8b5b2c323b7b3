"""
C{svcbroker checkpoint}: a block's height and hash, to be published or kept elsewhere.
"""

from __future__ import annotations

from typing import Any

from twisted.python import usage

from ._chain import ChainOptions, openedChain
from ._command import Console, Exit


class Options(ChainOptions):
    """
    The options of C{svcbroker checkpoint}.
    """

    longdesc = (
        "Writes HEIGHT:HASH. A broker may be running on the directory. With this line one can "
        "tell later whether the chain before it was changed."
    )
    optParameters: list[list[Any]] = [
        ["height", None, None, "The block's height. [default: that of the latest one]"]
    ]

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        height = self["height"]
        if height is not None:
            if not (height.isascii() and height.isdigit() and len(height) <= 18):
                raise usage.UsageError(f"--height: {height!r} is not a height")
            self["height"] = int(height)


def run(options: Options, console: Console) -> int:
    """Write the checkpoint."""
    with openedChain(options) as prover:
        checkpoint = prover.checkpoint(options["height"])
    console.say(str(checkpoint))
    return Exit.GOOD
