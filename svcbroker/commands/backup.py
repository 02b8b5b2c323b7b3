"""
C{svcbroker backup}: a copy of a data directory.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

import click

from ..archive import BackupRefused, Report, audit, backUp
from ..storage import StorageError
from ._arguments import DATA_DIR, PATH, PROGRESS, jsonOption, makeCommand, options
from ._command import CommandError, Console, Exit
from ._progress import progressBar


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
def command(
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
        console.say(json.dumps({"groups": chains, "audited": isAudited, "good": isGood}))
    elif isAudited:
        say(f"{target} is {'good' if isGood else 'NOT GOOD'}")
    return Exit.GOOD if isGood else Exit.BAD
