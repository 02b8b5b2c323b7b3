"""
C{svcbroker engine submit}: submit a change of the validators.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from .._arguments import jsonOption, options
from .._command import Console, Exit
from .._daemon import DAEMON, Daemon, operatorCommand
from .._tables import showRecord
from .._words import counted
from ._files import loadChange, tried
from ._parameters import FILE


@operatorCommand(
    """\
    Submit a change with enough signatures to a running daemon.

    Any broker of the network can submit it, also more than once: it is executed once. The engines
    use the new set from the second block after it.
    """
)
@options(DAEMON, FILE, jsonOption("Show the daemon's answer as it is."))
def command(console: Console, daemon: Daemon, path: Path, asJson: bool) -> int:
    """Submit the change."""
    change = tried(loadChange(path).toChange)
    answer = daemon.call(
        "validators/submit",
        groupId=daemon.group,
        change=b64encode(change.encode()).decode("ascii"),
    )
    nodes, changes = counted(len(answer["nodes"]), "validator"), answer["changes"]
    lines = [
        f"{nodes}, after {counted(changes, 'change')}",
        *(node["nodeId"] for node in answer["nodes"]),
    ]
    showRecord(console, answer, lines, asJson)
    return Exit.GOOD
