"""
C{svcbroker export}: a chain as a stream.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

from twisted.python import usage

from ..archive import RangeUnknown, exportChain, groupDirectory, groupsIn
from ..proofs import Checkpoint
from ..storage import StorageError
from ._command import CommandError, Console, Exit
from ._options import ProgressOptions
from ._progress import progressBar


class Options(ProgressOptions):
    """
    The options of C{svcbroker export}.
    """

    synopsis = "[options] DATA-DIR FILE"
    longdesc = (
        "Writes the genesis and the blocks with their certificates; no keys, and nothing that "
        "follows from the blocks. FILE is made, and must not be there; - is standard output. "
        "A broker may be running on DATA-DIR. An export that was cut off is gone on with by "
        "--from, into another file."
    )
    optParameters: list[list[Any]] = [
        ["group", None, None, "The group. [default: the only one that there is]"],
        ["from", None, "1", "The height of the first block."],
        ["to", None, None, "The height of the last block. [default: the latest one]"],
    ]

    def parseArgs(self, dataDir: str, file: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["data-dir"] = Path(dataDir)
        self["file"] = file

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        for name in ("from", "to"):
            text = self[name]
            if text is not None:
                if not (text.isascii() and text.isdigit() and len(text) <= 18):
                    raise usage.UsageError(f"--{name}: not a height")
                self[name] = int(text)


def run(options: Options, console: Console) -> int:
    """Write the stream."""
    directory = options["data-dir"]
    group = options["group"] or onlyGroup(directory)
    if group not in groupsIn(directory):
        raise CommandError(f"{directory} has no chain of group {group!r}")
    name = options["file"]
    if name == "-":
        tip = _export(options, console, group, console.output.buffer)
    else:
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            try:
                tip = _export(options, console, group, file)
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


def _export(options: Options, console: Console, group: str, file: BinaryIO) -> Checkpoint:
    try:
        with progressBar(console, options, f"group {group}") as report:
            return exportChain(
                groupDirectory(options["data-dir"], group),
                file,
                first=options["from"],
                last=options["to"],
                report=report,
            )
    except RangeUnknown as error:
        raise CommandError(str(error)) from None
    except StorageError as error:
        raise CommandError(str(error), Exit.BAD) from None
