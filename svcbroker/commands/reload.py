"""
C{svcbroker reload}: have a running daemon read its files again.
"""

from __future__ import annotations

from typing import Any

from ._command import Console, Exit
from ._daemon import DaemonClient, DaemonOptions, askDaemon


class Options(DaemonOptions):
    """
    The options of C{svcbroker reload}.
    """

    synopsis = "[options] DATA-DIR|URL"
    longdesc = (
        "The daemon reads its accounts, with their grants and limits, the secrets of webhooks, its "
        "certificates and the level of its log again, as it does on SIGHUP. A file with a mistake "
        "changes nothing."
    )

    def parseArgs(self, dataDir: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self.setDaemon(dataDir)


def run(options: Options, console: Console) -> int:
    """Ask the daemon, and say what could not be used."""

    async def ask(daemon: DaemonClient) -> Any:
        return await daemon.call("reload")

    answer = askDaemon(options, ask)
    for line in answer["problems"] or ["reloaded"]:
        console.say(line)
    return Exit.BAD if answer["problems"] else Exit.GOOD
