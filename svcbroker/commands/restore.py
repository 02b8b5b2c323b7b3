"""
C{svcbroker restore}: a chain from a backup, up to a height.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from ..archive import (
    Imported,
    ImportRefused,
    RangeUnknown,
    StreamBroken,
    groupDirectory,
    groupsIn,
    markCopy,
    transferChain,
)
from ..daemon.directory import DataDirectoryError, lockDataDirectory
from ..storage import StorageError
from ._arguments import DATA_DIR, HEIGHT, PATH, PROGRESS, jsonOption, makeCommand, options
from ._command import CommandError, Console, Exit
from ._progress import Report, progressBar
from ._tables import showRecord
from ._words import counted


@makeCommand(
    """\
    Restore a chain from a backup, up to a height.

    Takes the blocks of a backup, or of any data directory, into DATA-DIR, which must not have the
    chain yet. Every block is checked, and no keys are taken: the chain can be read, audited and
    exported. To go on with it is to decide heights again that have been decided: see svcbroker
    promote. Exit codes: 0 restored, 1 something does not hold, or contents are missing that only a
    later block has erased, 2 wrong usage.
    """
)
@options(
    click.argument("backup", metavar="BACKUP", type=PATH),
    DATA_DIR,
    click.option("--group", metavar="ID", help="The group. [default: the only one that there is]"),
    click.option(
        "--height",
        type=HEIGHT,
        metavar="HEIGHT",
        help="The height of the last block. [default: the latest one]",
    ),
    jsonOption(),
    PROGRESS,
)
def command(
    console: Console,
    backup: Path,
    directory: Path,
    group: str | None,
    height: int | None,
    asJson: bool,
    isProgressShown: bool,
) -> int:
    """Restore the chain."""
    if group is None:
        groups = groupsIn(backup)
        if len(groups) != 1:
            raise CommandError(f"{backup} has {len(groups)} groups: give --group")
        (group,) = groups
    try:
        lock = lockDataDirectory(directory)
    except DataDirectoryError as error:
        raise CommandError(str(error)) from None
    target = directory / group
    try:
        if target.exists():
            raise CommandError(f"{target} exists already: choose another data directory")
        with progressBar(console, "restore", isWanted=isProgressShown) as report:
            restored = _restore(groupDirectory(backup, group), target, height, report)
    except RangeUnknown as error:
        raise CommandError(str(error)) from None
    except (StreamBroken, ImportRefused, StorageError) as error:
        raise CommandError(f"nothing was restored: {error}", Exit.BAD) from None
    finally:
        lock.release()
    lines = [f"group {group}: restored up to block {restored.tip}; svcbroker audit says more"]
    if restored.missing:
        lines.append(
            f"group {group}: {counted(restored.missing, 'event')} came without content, and "
            "nothing up to this block has erased them, but a later one: restore up to that, or "
            "erase them again once a broker goes on with this chain"
        )
    record = {"group": group, "tip": str(restored.tip), "missing": restored.missing}
    showRecord(console, record, lines, asJson)
    return Exit.BAD if restored.missing else Exit.GOOD


def _restore(source: Path, target: Path, last: int | None, report: Report) -> Imported:
    target.mkdir(mode=0o700)
    try:
        # Before the chain: the embedded ledger must not go on with it.
        markCopy(target, str(source.absolute()))
        return transferChain(source, target.parent, group=target.name, last=last, report=report)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
