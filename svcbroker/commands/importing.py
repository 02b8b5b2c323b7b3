"""
C{svcbroker import}: a chain from a stream.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import BinaryIO

import click
from attrs import asdict

from ..archive import Imported, ImportRefused, StreamBroken, importChain
from ..daemon.directory import DataDirectoryError, lockDataDirectory
from ..files import openFile
from ..storage import StorageError
from ._arguments import DATA_DIR, PROGRESS, jsonOption, makeCommand, options
from ._command import CommandError, Console, Exit
from ._progress import Report, progressBar
from ._words import counted


@makeCommand(
    """\
    Import a chain from a stream, and check every block of it.

    Checks every block as a node checks it, and appends it to the chain of its group, which is
    begun where there is none. Blocks that are there already are compared, so an import that was
    cut off is gone on with by doing it again. FILE may be - for standard input. No broker may be
    running on DATA-DIR. Exit codes: 0 imported, 1 something does not hold, 2 wrong usage.
    """
)
@options(
    click.argument("name", metavar="FILE"),
    DATA_DIR,
    click.option(
        "--group", metavar="ID", help="The group that the stream must be of. [default: any]"
    ),
    jsonOption("Write what was imported as a line of JSON."),
    PROGRESS,
)
def command(
    console: Console,
    name: str,
    directory: Path,
    group: str | None,
    asJson: bool,
    isProgressShown: bool,
) -> int:
    """Import the stream."""

    def read(file: BinaryIO) -> Imported:
        with progressBar(console, "import", isWanted=isProgressShown) as report:
            return _import(file, directory, group, report)

    if name == "-":
        imported = read(sys.stdin.buffer)
    else:
        with openFile(name) as stream:
            imported = read(stream)
    if asJson:
        console.say(json.dumps({**asdict(imported), "tip": str(imported.tip)}))
        return Exit.BAD if imported.missing else Exit.GOOD
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


def _import(file: BinaryIO, directory: Path, group: str | None, report: Report) -> Imported:
    try:
        lock = lockDataDirectory(directory)
    except DataDirectoryError as error:
        raise CommandError(str(error)) from None
    try:
        return importChain(file, directory, group=group, report=report)
    except (StreamBroken, ImportRefused, StorageError) as error:
        raise CommandError(str(error), Exit.BAD) from None
    finally:
        lock.release()
