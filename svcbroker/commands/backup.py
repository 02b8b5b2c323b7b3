"""
C{svcbroker backup}: a copy of a data directory.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from ..archive import BackupRefused, Report, audit, backUp
from ..storage import StorageError
from ._command import CommandError, Console, Exit
from ._options import ProgressOptions
from ._progress import progressBar


class Options(ProgressOptions):
    """
    The options of C{svcbroker backup}.
    """

    synopsis = "[options] DATA-DIR TARGET"
    longdesc = (
        "Copies chains, keys and notes to TARGET, which must not be there, or be empty. It comes "
        "into its place whole, or not at all. A broker may be running on DATA-DIR. The copy has "
        "private keys: keep it as safe as the original."
    )
    optFlags = [["audit", None, "Audit the copy: all blocks, not only the latest ones."]]

    def parseArgs(self, dataDir: str, target: str) -> None:  # type: ignore[override]
        """See C{usage.Options}."""
        self["data-dir"] = Path(dataDir)
        self["target"] = Path(target)


def run(options: Options, console: Console) -> int:
    """Copy, and tell up to where."""

    def copying(what: str) -> AbstractContextManager[Report]:
        return progressBar(console, options, f"copy {what}", "pages")

    def auditing(group: str) -> AbstractContextManager[Report]:
        return progressBar(console, options, f"audit group {group}")

    target = options["target"]
    try:
        done = backUp(options["data-dir"], target, reporting=copying)
    except BackupRefused as error:
        raise CommandError(str(error)) from None
    except StorageError as error:
        raise CommandError(f"nothing was copied: {error}", Exit.BAD) from None
    for finding in done.findings.kept:
        console.warn(str(finding))
    for group, tip in done.chains.items():
        console.say(f"group {group}: copied up to block {tip}")
    isGood = not done.findings.damageCount
    if options["audit"]:
        audited = audit(target, reporting=auditing)
        for found in audited.all():
            console.say(str(found))
        isGood = isGood and audited.isGood
        console.say(f"{target} is {'good' if isGood else 'NOT GOOD'}")
    return Exit.GOOD if isGood else Exit.BAD
