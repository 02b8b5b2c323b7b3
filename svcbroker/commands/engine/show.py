"""
C{svcbroker engine show}: show a change or a join request.
"""

from __future__ import annotations

from pathlib import Path

from ...ledgers.changing import MAX_DOCUMENT
from .._command import Console, Exit
from .._options import CommandOptions
from ._files import describeChange, loadChange, loadJoinRequest, readBounded
from .init import describeJoinRequest


class Options(CommandOptions):
    """
    The options of C{svcbroker engine show}.
    """

    synopsis = "FILE"
    longdesc = "Every signature in it is checked."

    def parseArgs(self, file: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["file"] = Path(file)


def run(options: Options, console: Console) -> int:
    """Show the file."""
    path: Path = options["file"]
    if b'"svcbroker-join-request"' in readBounded(path, MAX_DOCUMENT)[:100]:
        lines = describeJoinRequest(loadJoinRequest(path))
    else:
        lines = [*describeChange(loadChange(path))]
    for line in lines:
        console.say(line)
    return Exit.GOOD
