"""
C{svcbroker chain audit}: checks everything in a data directory, and names the place of any damage.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final

import click

from ..archive import Audited, AuditedChain, Finding, Report, audit, groupsIn
from ..storage import StorageError
from .arguments import COUNT, DATA_DIR, PROGRESS, jsonOption, makeCommand, options
from .inputs import readCheckpoints
from .terminal import CommandError, Console, Exit, counted, progressBar, showRecord

PAUSE: Final = 0.02
"""
Seconds between two batches of blocks. A running broker that commits twice in them begins its
write-ahead log anew; without them it grew by 3 MB a second for as long as an audit took.
"""

BACKGROUND_PAUSE: Final = 0.2
"""The same where the audit has no hurry."""

_LEAST_PRIORITY: Final = 19


@makeCommand(
    """\
    Check everything in a data directory, and name the place of any damage.

    Executes each chain from its genesis and compares everything that is stored with what comes of
    it. DATA-DIR may be the directory of one group, too, and a broker may be running on it; nothing
    is written. Without --checkpoint, a chain that was rewritten with its true keys looks good.
    Chains that earlier releases have written are read as they are, without an upgrade. Exit codes:
    0 all is good, 1 it is not, 2 it could not be audited, or wrong usage.
    """
)
@options(
    DATA_DIR,
    click.option(
        "--checkpoint",
        "checkpoints",
        metavar="CHECKPOINT",
        multiple=True,
        help="A block that the chain must have: HEIGHT:HASH, or a file with one to a line. May "
        "come again.",
    ),
    click.option(
        "--group",
        "wanted",
        metavar="ID",
        multiple=True,
        help="Only this group's chain. May come again.",
    ),
    click.option(
        "--limit",
        type=COUNT,
        default=100,
        show_default=True,
        metavar="NUMBER",
        help="How many findings are shown of each group.",
    ),
    click.option(
        "--background",
        "isInBackground",
        is_flag=True,
        help="Run with the least priority, beside a busy broker.",
    ),
    jsonOption("Write each finding and the summary as a line of JSON."),
    PROGRESS,
)
def command(
    console: Console,
    directory: Path,
    checkpoints: tuple[str, ...],
    wanted: tuple[str, ...],
    limit: int,
    isInBackground: bool,
    asJson: bool,
    isProgressShown: bool,
) -> int:
    """Audit, and tell what was found."""
    if isInBackground:
        # Linux has the priority of reads and writes follow from this one. A sandbox may forbid it.
        with suppress(OSError):
            os.nice(_LEAST_PRIORITY)
    groups = groupsIn(directory)
    for group in wanted:
        if group not in groups:
            raise CommandError(f"{directory} has no chain of group {group!r}")
    if not groups:
        raise CommandError(f"{directory} has no chain")

    def reporting(group: str) -> AbstractContextManager[Report]:
        return progressBar(console, f"group {group}", isWanted=isProgressShown)

    try:
        audited = audit(
            directory,
            groups=wanted or None,
            checkpoints=readCheckpoints(checkpoints, groups, wanted),
            limit=limit,
            reporting=reporting,
            pause=lambda: time.sleep(BACKGROUND_PAUSE if isInBackground else PAUSE),
        )
    except StorageError as error:
        raise CommandError(str(error)) from None
    _tell(audited, asJson, console)
    if audited.isGood or audited.isDamaged:
        return Exit.GOOD if audited.isGood else Exit.BAD
    raise CommandError("; ".join(audited.unaudited()))


def _tell(audited: Audited, asJson: bool, console: Console) -> None:
    for finding in audited.all():
        showRecord(console, _findingFields(finding), [str(finding)], asJson)
    for chain in audited.chains:
        left = chain.findings.count - len(chain.findings.kept)
        if left and not asJson:
            console.say(f"group {chain.group}: {left} more findings are not shown (--limit)")
        showRecord(console, _chainFields(chain), [_summary(chain)], asJson)
    if not asJson:
        console.say(
            "good" if audited.isGood else "NOT GOOD" if audited.isDamaged else "NOT AUDITED"
        )


def _summary(chain: AuditedChain) -> str:
    damages = chain.findings.damageCount
    verdict = "good" if chain.isGood else "NOT AUDITED"
    if damages:
        verdict = f"NOT GOOD: {counted(damages, 'finding')}"
    if chain.tip is None:
        return f"group {chain.group}: {verdict}"
    topics = "" if chain.topics is None else f", {counted(chain.topics, 'topic')}"
    erased = f", {counted(chain.erased, 'event')} erased" if chain.erased else ""
    return (
        f"group {chain.group}: {counted(chain.tip.height, 'block')}, "
        f"{counted(chain.transactions, 'transaction')}"
        f"{topics}{erased}: {verdict}; checkpoint {chain.tip}{_finality(chain)}"
    )


def _finality(chain: AuditedChain) -> str:
    """Up to where votes are here; where the nodes' own certificates are needed, they all are."""
    if not chain.hasEngine:
        return ""
    if not chain.final:
        return "; no votes of validators are stored here: nothing shows it to be final"
    return f"; final up to block {chain.final} by the votes of the engine's validators"


def _findingFields(finding: Finding) -> Mapping[str, object]:
    return {
        "group": finding.group or None,
        "block": finding.height,
        "transaction": finding.transaction,
        "place": finding.place,
        "problem": finding.problem,
        "damage": finding.isDamage,
    }


def _chainFields(chain: AuditedChain) -> Mapping[str, object]:
    return {
        "group": chain.group,
        "good": chain.isGood,
        "chain": None if chain.genesis is None else chain.genesis.chain.hex(),
        "checkpoint": None if chain.tip is None else str(chain.tip),
        "engine": chain.hasEngine,
        "final": chain.final,
        "transactions": chain.transactions,
        "topics": chain.topics,
        "erased": chain.erased,
        "audited": not chain.findings.unauditedCount,
        "damages": chain.findings.damageCount,
        "notes": chain.findings.noteCount,
    }
