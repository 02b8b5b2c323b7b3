"""
Commands that write a chain of a data directory elsewhere, or read it from there: C{export},
C{import}, C{genesis} and C{checkpoint}; copies of data directories: C{backup} and C{restore}; and
C{audit}, which checks everything in one, and names the place of any damage.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import click
from attrs import asdict
from msgspec.json import encode, format

from ..archive import (
    Audited,
    AuditedChain,
    AuditFinding,
    BackupRefused,
    Imported,
    ImportRefused,
    Prover,
    RangeUnknown,
    Report,
    StreamBroken,
    audit,
    backUp,
    exportChain,
    groupDirectory,
    groupsIn,
    importChain,
    markCopy,
    readChain,
    transferChain,
)
from ..chain import Malformed
from ..daemon.directory import DataDirectoryError, lockDataDirectory
from ..errors import BrokerError
from ..files import newFile, openFile
from ..proofs import Checkpoint
from ..storage import StorageError, StorageUnknown
from .arguments import COUNT, DATA_DIR, HEIGHT, PATH, PROGRESS, jsonOption, makeCommand, options
from .inputs import readCheckpoints
from .terminal import CommandError, Console, Exit, ReportProgress, counted, progressBar, showRecord

CHAIN_OPTIONS: Final = (
    DATA_DIR,
    click.option(
        "--group",
        default="1",
        show_default=True,
        metavar="ID",
        help="The group whose chain is meant.",
    ),
)
"""Options of a command that reads the chain of a group."""


@contextmanager
def openedChain(dataDir: Path, group: str) -> Iterator[Prover]:
    """
    The chain of a group, for as long as the context lasts.

    @raise CommandError: it cannot be read.
    """
    directory = groupDirectory(dataDir, group)
    try:
        with readChain(directory) as prover:
            yield prover
    except StorageError as error:
        raise CommandError(str(error)) from None
    except Malformed as error:
        raise CommandError(
            f"{directory} is damaged ({error}): svcbroker chain audit says more"
        ) from None
    except BrokerError as error:
        raise CommandError(error.message) from None


@makeCommand(
    """\
    Write a chain as a stream of blocks with their certificates.

    Writes the genesis and the blocks with their certificates; no keys, and nothing that follows
    from the blocks. FILE is made, and must not be there; - is standard output. A broker may be
    running on DATA-DIR. To continue an export that was cut off, give --from and another file.
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
def exportCommand(
    console: Console,
    directory: Path,
    name: str,
    group: str | None,
    first: int,
    last: int | None,
    isProgressShown: bool,
) -> None:
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


@makeCommand(
    """\
    Import a chain from a stream, and check every block of it.

    Checks every block as a node checks it, and appends it to the chain of its group, which is
    begun where there is none. Blocks that are there already are compared, so an import that was
    cut off is continued by the same command. FILE may be - for standard input. No broker may be
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
def importCommand(
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
        console.sayJson({**asdict(imported), "tip": str(imported.tip)})
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


def _import(file: BinaryIO, directory: Path, group: str | None, report: ReportProgress) -> Imported:
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


@makeCommand(
    """\
    Write the genesis of a chain, against which its proofs are checked.

    Writes JSON to standard output, for svcbroker verify --genesis. A broker may be running on the
    directory. Who has the file, or only its hash, from a source of which they know that it is
    yours, need not trust the broker for anything else.
    """
)
@options(
    *CHAIN_OPTIONS,
    click.option(
        "--hash",
        "isHash",
        is_flag=True,
        help="Write only its hash, which is the id of the chain.",
    ),
)
def genesisCommand(console: Console, directory: Path, group: str, isHash: bool) -> None:
    """Write the genesis."""
    with openedChain(directory, group) as prover:
        genesis = prover.genesis()
    console.say(genesis.chain if isHash else format(encode(genesis)).decode())


@makeCommand(
    """\
    Print a block's hash, to be kept outside of the broker's reach.

    Writes HEIGHT:HASH. A broker may be running on the directory. With this line one can tell later
    whether the chain before it was changed.
    """
)
@options(
    *CHAIN_OPTIONS,
    click.option(
        "--height",
        type=HEIGHT,
        metavar="HEIGHT",
        help="The block's height. [default: that of the latest one]",
    ),
    jsonOption(),
)
def checkpointCommand(
    console: Console, directory: Path, group: str, height: int | None, asJson: bool
) -> None:
    """Write the checkpoint."""
    with openedChain(directory, group) as prover:
        checkpoint = prover.checkpoint(height)
    showRecord(console, {"group": group, "checkpoint": str(checkpoint)}, [str(checkpoint)], asJson)


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
def auditCommand(
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


def _findingFields(finding: AuditFinding) -> Mapping[str, object]:
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
