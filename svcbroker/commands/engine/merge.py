"""
C{svcbroker engine merge}: merge the signatures of copies of a change.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.python import usage

from ...ledgers.changing import mergeChanges
from .._command import Console, Exit
from .._options import CommandOptions
from ._files import describeChange, loadChange, tried, writeNew


class Options(CommandOptions):
    """
    The options of C{svcbroker engine merge}.
    """

    synopsis = "--output FILE FILE..."
    longdesc = "All FILEs must be copies of the same change, with any signatures."
    optParameters: list[list[Any]] = [
        ["output", "o", None, "The new file to write."],
    ]

    def parseArgs(self, *files: str) -> None:
        """See C{usage.Options}."""
        if not files:
            raise usage.UsageError("at least one FILE is needed")
        self["files"] = [Path(file) for file in files]

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        if not self["output"]:
            raise usage.UsageError("--output is needed")


def run(options: Options, console: Console) -> int:
    """Merge the copies."""
    merged = tried(lambda: mergeChanges([loadChange(path) for path in options["files"]]))
    writeNew(Path(options["output"]), merged.encode())
    for line in describeChange(merged):
        console.say(line)
    return Exit.GOOD
