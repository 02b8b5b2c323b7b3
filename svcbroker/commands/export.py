"""
C{svcbroker export}: a chain as a stream.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import click

from ..archive import RangeUnknown, exportChain, groupDirectory, groupsIn
from ..files import newFile
from ..proofs import Checkpoint
from ..storage import StorageError, StorageUnknown
from ._arguments import DATA_DIR, HEIGHT, PROGRESS, makeCommand, options
from ._command import CommandError, Console, Exit
from ._progress import progressBar


@makeCommand(
    """\
    Write a chain as a stream of blocks with their certificates.

    Writes the genesis and the blocks with their certificates; no keys, and nothing that follows
    from the blocks. FILE is made, and must not be there; - is standard output. A broker may be
    running on DATA-DIR. An export that was cut off is gone on with by --from, into another file.
    """
)
@options(
    DATA_DIR,
    click.argument("name", metavar="FILE"),
    click.option("--group", metavar="ID", help="The group. [default: the only one that there is]"),
    click.option(
        "--from",
        "first",
        type=HEIGHT,
        default=1,
        show_default=True,
        metavar="HEIGHT",
        help="The height of the first block.",
    ),
    click.option(
        "--to",
        "last",
        type=HEIGHT,
        metavar="HEIGHT",
        help="The height of the last block. [default: the latest one]",
    ),
    PROGRESS,
)
def command(
    console: Console,
    directory: Path,
    name: str,
    group: str | None,
    first: int,
    last: int | None,
    isProgressShown: bool,
) -> int:
    """Write the stream."""
    group = group or onlyGroup(directory)
    if group not in groupsIn(directory):
        raise CommandError(f"{directory} has no chain of group {group!r}")

    def write(file: BinaryIO) -> Checkpoint:
        try:
            with progressBar(console, f"group {group}", isWanted=isProgressShown) as report:
                source = groupDirectory(directory, group)
                return exportChain(source, file, first=first, last=last, report=report)
        except RangeUnknown as error:
            raise CommandError(str(error)) from None
        except StorageError as error:
            isUnknown = isinstance(error, StorageUnknown)
            raise CommandError(str(error), Exit.USAGE if isUnknown else Exit.BAD) from None

    if name == "-":
        tip = write(console.output.buffer)
    else:
        with newFile(name) as file:
            try:
                tip = write(file)
            except CommandError:
                if not file.tell():
                    # Nothing of a chain is in it, and it would be in the way of the next try.
                    os.unlink(name)
                raise
            file.flush()
            os.fsync(file.fileno())
    console.warn(f"group {group}: exported up to block {tip}")
    return Exit.GOOD


def onlyGroup(directory: Path) -> str:
    """
    The group of a data directory that has one.

    @raise CommandError: it has none, or several.
    """
    groups = groupsIn(directory)
    if not groups:
        raise CommandError(f"{directory} has no chain")
    if len(groups) > 1:
        raise CommandError(f"{directory} has several groups: give --group")
    return groups[0]
