"""
C{svcbroker reload}: have a running daemon read its files again.
"""

from __future__ import annotations

from ._arguments import options
from ._command import Console, Exit
from ._daemon import DAEMON, Daemon, operatorCommand


@operatorCommand(
    """\
    Have a running daemon read its accounts and certificates again.

    The daemon reads its accounts, with their grants and limits, the secrets of webhooks, its
    certificates and the level of its log again, as it does on SIGHUP. A file with a mistake
    changes nothing.
    """
)
@options(DAEMON)
def command(console: Console, daemon: Daemon) -> int:
    """Ask the daemon, and say what could not be used."""
    problems = daemon.call("reload")["problems"]
    for line in problems or ["reloaded"]:
        console.say(line)
    return Exit.BAD if problems else Exit.GOOD
