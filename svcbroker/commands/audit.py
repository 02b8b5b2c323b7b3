"""
C{svcbroker audit}: is everything in a data directory as it was written?
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from twisted.python import usage

from ..archive import Audited, AuditedChain, Finding, Report, audit, groupsIn
from ..storage import StorageError
from ._checkpoints import readCheckpoints
from ._command import CommandError, Console, Exit
from ._options import ProgressOptions
from ._progress import progressBar
from ._words import counted


class Options(ProgressOptions):
    """
    The options of C{svcbroker audit}.
    """

    synopsis = "[options] DATA-DIR"
    longdesc = (
        "Executes each chain from its genesis and compares everything that is stored with what "
        "comes of it. DATA-DIR may be the directory of one group, too, and a broker may be "
        "running on it; nothing is written. --checkpoint may be given more than once; without, a "
        "chain that was rewritten with its true keys looks good. Exit codes: 0 all is good, 1 it "
        "is not, 2 wrong usage."
    )
    optFlags = [["json", None, "Write each finding and the summary as a line of JSON."]]
    optParameters: list[list[Any]] = [
        ["limit", None, "100", "How many findings are shown of each group."]
    ]

    def __init__(self) -> None:
        super().__init__()
        self["checkpoints"] = []
        self["groups"] = []

    def opt_checkpoint(self, value: str) -> None:
        """A block that the chain must have: HEIGHT:HASH, or a file with one to a line."""
        self["checkpoints"].append(value)

    def opt_group(self, value: str) -> None:
        """Only this group's chain. May be given more than once."""
        self["groups"].append(value)

    def parseArgs(self, dataDir: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["data-dir"] = Path(dataDir)

    def postOptions(self) -> None:
        """See C{usage.Options}."""
        if not self["limit"].isascii() or not self["limit"].isdigit():
            raise usage.UsageError("--limit: not a number")
        self["limit"] = int(self["limit"])


def run(options: Options, console: Console) -> int:
    """Audit, and tell what was found."""
    directory, wanted = options["data-dir"], options["groups"]
    groups = groupsIn(directory)
    for group in wanted:
        if group not in groups:
            raise CommandError(f"{directory} has no chain of group {group!r}")
    if not groups:
        raise CommandError(f"{directory} has no chain")

    def reporting(group: str) -> AbstractContextManager[Report]:
        return progressBar(console, options, f"group {group}")

    try:
        audited = audit(
            directory,
            groups=wanted or None,
            checkpoints=readCheckpoints(options["checkpoints"], groups, wanted),
            limit=options["limit"],
            reporting=reporting,
        )
    except StorageError as error:
        raise CommandError(str(error)) from None
    _tell(audited, options, console)
    return Exit.GOOD if audited.isGood else Exit.BAD


def _tell(audited: Audited, options: Mapping[str, Any], console: Console) -> None:
    for finding in audited.all():
        console.say(json.dumps(_findingFields(finding)) if options["json"] else str(finding))
    for chain in audited.chains:
        left = chain.findings.damageCount + chain.findings.noteCount - len(chain.findings.kept)
        if left and not options["json"]:
            console.say(f"group {chain.group}: {left} more findings are not shown (--limit)")
        console.say(json.dumps(_chainFields(chain)) if options["json"] else _summary(chain))
    if not options["json"]:
        console.say("good" if audited.isGood else "NOT GOOD")


def _summary(chain: AuditedChain) -> str:
    verdict = (
        "good" if chain.isGood else f"NOT GOOD: {counted(chain.findings.damageCount, 'finding')}"
    )
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
        return "; no votes of the engine's validators are stored here: nothing shows it to be final"
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
        "damages": chain.findings.damageCount,
        "notes": chain.findings.noteCount,
    }
