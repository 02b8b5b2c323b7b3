"""
C{svcbroker import}: a chain from a stream.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, BinaryIO

from ..archive import Imported, ImportRefused, StreamBroken, importChain
from ..daemon.directory import DataDirectoryError, lockDataDirectory
from ..storage import StorageError
from ._command import CommandError, Console, Exit
from ._options import ProgressOptions
from ._progress import progressBar
from ._words import counted


class Options(ProgressOptions):
    """
    The options of C{svcbroker import}.
    """

    synopsis = "[options] FILE DATA-DIR"
    longdesc = (
        "Checks every block as a node checks it, and appends it to the chain of its group, which "
        "is begun where there is none. Blocks that are there already are compared, so an import "
        "that was cut off is gone on with by doing it again. FILE may be - for standard input. "
        "No broker may be running on DATA-DIR. Exit codes: 0 imported, 1 something does not "
        "hold, 2 wrong usage."
    )
    optParameters: list[list[Any]] = [
        ["group", None, None, "The group that the stream must be of. [default: any]"]
    ]

    def parseArgs(self, file: str, dataDir: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["file"] = file
        self["data-dir"] = Path(dataDir)


def run(options: Options, console: Console) -> int:
    """Import the stream."""
    if options["file"] == "-":
        imported = _import(options, console, sys.stdin.buffer)
    else:
        with Path(options["file"]).open("rb") as file:
            imported = _import(options, console, file)
    console.say(
        f"group {imported.group}: {imported.added} blocks added, {imported.known} were there "
        f"already; the chain ends at block {imported.tip}"
    )
    if imported.missing:
        console.say(
            f"group {imported.group}: {counted(imported.missing, 'event')} came without content, "
            "and nothing up to this block has erased them: import the blocks after it, or another "
            "export"
        )
        return Exit.BAD
    return Exit.GOOD


def _import(options: Options, console: Console, file: BinaryIO) -> Imported:
    try:
        lock = lockDataDirectory(options["data-dir"])
    except DataDirectoryError as error:
        raise CommandError(str(error)) from None
    try:
        with progressBar(console, options, "import") as report:
            return importChain(file, options["data-dir"], group=options["group"], report=report)
    except (StreamBroken, ImportRefused, StorageError) as error:
        raise CommandError(str(error), Exit.BAD) from None
    finally:
        lock.release()
