"""
C{svcbroker engine submit}: submit a change of the validators.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

from .._command import Console, Exit
from .._daemon import DaemonClient, DaemonOptions, askDaemon
from ._files import loadChange, tried


class Options(DaemonOptions):
    """
    The options of C{svcbroker engine submit}.
    """

    synopsis = "[options] DATA-DIR|URL FILE"
    longdesc = (
        "Any broker of the network can submit it, also more than once: it is executed once. The "
        "engines use the new set from the second block after it."
    )

    def parseArgs(self, dataDir: str, file: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self.setDaemon(dataDir)
        self["file"] = Path(file)


def run(options: Options, console: Console) -> int:
    """Submit the change."""
    change = tried(loadChange(options["file"]).toChange)

    async def ask(daemon: DaemonClient) -> Any:
        return await daemon.call(
            "validators/submit",
            groupId=options["group"],
            change=b64encode(change.encode()).decode("ascii"),
        )

    answer = askDaemon(options, ask)
    console.say(f"{len(answer['nodes'])} validators, after {answer['changes']} changes")
    for node in answer["nodes"]:
        console.say(node["nodeId"])
    return Exit.GOOD
