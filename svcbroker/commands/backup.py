"""
C{svcbroker chain backup} and C{svcbroker chain restore}: copies of data directories, and a chain
from such a copy up to a height.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from pathlib import Path

import click

from ..archive import (
    BackupRefused,
    Imported,
    ImportRefused,
    RangeUnknown,
    Report,
    StreamBroken,
    audit,
    backUp,
    groupDirectory,
    groupsIn,
    markCopy,
    transferChain,
)
from ..daemon.directory import DataDirectoryError, lockDataDirectory
from ..storage import StorageError
from .arguments import DATA_DIR, HEIGHT, PATH, PROGRESS, jsonOption, makeCommand, options
from .terminal import CommandError, Console, Exit, ReportProgress, counted, progressBar, showRecord


@makeCommand(
    """\
    Copy a data directory, also while a broker runs on it.

    Copies chains, keys and notes to TARGET, which must not be there, or be empty. It comes into
    its place whole, or not at all. The copy has private keys: keep it as safe as the original.
    """
)
@options(
    DATA_DIR,
    click.argument("target", type=PATH),
    click.option(
        "--audit",
        "isAudited",
        is_flag=True,
        help="Audit the copy: all blocks, not only the latest ones.",
    ),
    jsonOption("Write what was copied as a line of JSON."),
    PROGRESS,
)
def backupCommand(
    console: Console,
    directory: Path,
    target: Path,
    isAudited: bool,
    asJson: bool,
    isProgressShown: bool,
) -> int:
    """Copy, and tell up to where."""

    def copying(what: str) -> AbstractContextManager[Report]:
        return progressBar(console, f"copy {what}", "pages", isWanted=isProgressShown)

    def auditing(group: str) -> AbstractContextManager[Report]:
        return progressBar(console, f"audit group {group}", isWanted=isProgressShown)

    try:
        done = backUp(directory, target, reporting=copying)
    except BackupRefused as error:
        raise CommandError(str(error)) from None
    except StorageError as error:
        raise CommandError(f"nothing was copied: {error}", Exit.BAD) from None
    for finding in done.findings.kept:
        console.warn(str(finding))
    say = console.warn if asJson else console.say
    if not asJson:
        for group, tip in done.chains.items():
            say(f"group {group}: copied up to block {tip}")
    isGood = not done.findings.damageCount
    if isAudited:
        audited = audit(target, reporting=auditing)
        for found in audited.all():
            say(str(found))
        isGood = isGood and audited.isGood
    if asJson:
        chains = {group: str(tip) for group, tip in done.chains.items()}
        console.sayJson({"groups": chains, "audited": isAudited, "good": isGood})
    elif isAudited:
        say(f"{target} is {'good' if isGood else 'NOT GOOD'}")
    return Exit.GOOD if isGood else Exit.BAD


@makeCommand(
    """\
    Restore a chain from a backup, up to a height.

    Takes the blocks of a backup, or of any data directory, into DATA-DIR, which must not have the
    chain yet. Every block is checked, and no keys are taken: the chain can be read, audited and
    exported. To continue it is to decide heights again that have been decided: see svcbroker
    chain promote. Exit codes: 0 restored, 1 something does not hold, or contents are missing that
    only a later block has erased, 2 wrong usage.
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
def restoreCommand(
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
    lines = [f"group {group}: restored up to block {restored.tip}; svcbroker chain audit says more"]
    if restored.missing:
        lines.append(
            f"group {group}: {counted(restored.missing, 'event')} came without content, and "
            "nothing up to this block has erased them, but a later one: restore up to that, or "
            "erase them again once a broker goes on with this chain"
        )
    record = {"group": group, "tip": str(restored.tip), "missing": restored.missing}
    showRecord(console, record, lines, asJson)
    return Exit.BAD if restored.missing else Exit.GOOD


def _restore(source: Path, target: Path, last: int | None, report: ReportProgress) -> Imported:
    target.mkdir(mode=0o700)
    try:
        # Before the chain: the embedded ledger must not go on with it.
        markCopy(target, str(source.absolute()))
        return transferChain(source, target.parent, group=target.name, last=last, report=report)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
