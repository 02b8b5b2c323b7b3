"""
The audit of data directories: chains, keys, the metadata store, and files that do not belong there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from attrs import frozen

from ..proofs import Checkpoint
from ..storage import (
    LAST_SUFFIX,
    METADATA_WRITES,
    TIP_SUFFIX,
    Snapshot,
    StorageDamaged,
    StorageRefused,
    StorageUnknown,
    findLostWrites,
    metadataChecksum,
    readWrites,
)
from ._auditchain import AuditedChain, auditChain
from ._audittables import auditStructure
from ._findings import LIMIT, Finding, FindingKind, Findings, Pause, Report, noPause, noReport, show
from ._layout import (
    BROKER_FILES,
    COPY_NAME,
    INDEX_NAME,
    JOURNAL_NAME,
    KEY_SUFFIX,
    KEYS_NAME,
    METADATA_NAME,
    STORE_NAME,
    TREES_NAME,
    groupDirectories,
    isGroup,
    readKeyFiles,
    refusedName,
    unknownFiles,
)

_SQLITE: Final = ("", "-wal", "-shm")
_DATA_DIRECTORY: Final = (
    "lock",
    ".history",
    ".incidents",
    "operator.json",
    ".running",
    *(METADATA_NAME + end for end in (*_SQLITE, LAST_SUFFIX)),
)
_GROUP: Final[tuple[str, ...]] = (
    KEYS_NAME,
    COPY_NAME,
    INDEX_NAME,
    TREES_NAME,
    *(STORE_NAME + end for end in (*_SQLITE, TIP_SUFFIX)),
)


@frozen(kw_only=True)
class Audited:
    """
    The result of auditing a directory.

    @ivar chains: the result of each group's chain.
    @ivar findings: the findings that concern no group.
    """

    chains: Sequence[AuditedChain]
    findings: Findings

    @property
    def isGood(self) -> bool:
        """Whether all was audited, and there is no damage."""
        return all(each.isGood for each in self._findings())

    @property
    def isDamaged(self) -> bool:
        """Whether there is damage."""
        return any(each.damageCount for each in self._findings())

    def unaudited(self) -> Sequence[str]:
        """Reasons why something could not be audited."""
        return [each.problem for each in self.all() if each.kind is FindingKind.UNAUDITED]

    def _findings(self) -> Sequence[Findings]:
        return [*(chain.findings for chain in self.chains), self.findings]

    def all(self) -> Iterator[Finding]:
        """All kept findings."""
        for each in self._findings():
            yield from each.kept


def audit(
    directory: Path,
    *,
    groups: Collection[str] | None = None,
    checkpoints: Mapping[str, Collection[Checkpoint]] | None = None,
    limit: int = LIMIT,
    reporting: Callable[[str], AbstractContextManager[Report]] | None = None,
    pause: Pause = noPause,
) -> Audited:
    """
    Check everything in a data directory, or in the directory of a group. Nothing is written; a
    broker may be running on it.

    @param groups: only the chains of these groups; C{None} for all, and for the other files.
    @param checkpoints: blocks that the chains must contain, by group.
    @param limit: how many findings are kept for each group.
    @param reporting: returns the callback that is told how many blocks of a group are done.
    @param pause: called between read transactions. Without a pause, a broker that is running
        cannot begin its write-ahead log anew, which grows by all that is published meanwhile.
    @raise OSError: the directory cannot be read.
    @raise StorageFailed: a broker began to use it meanwhile.
    """
    checkpoints = checkpoints or {}
    reporting = reporting or (lambda group: nullcontext(noReport))
    others = Findings("", limit)
    if isGroup(directory):
        directories: Sequence[Path] = [directory.absolute()]
    else:
        directories = groupDirectories(directory)
        if groups is None:
            auditDataDirectoryFiles(directory, others)
    chains = []
    for each in directories:
        group = each.name
        if groups is None or group in groups:
            with reporting(group) as report:
                chains.append(
                    auditGroup(
                        each,
                        checkpoints=checkpoints.get(group, ()),
                        limit=limit,
                        report=report,
                        pause=pause,
                    )
                )
    missing = {*(groups or ()), *checkpoints} - {chain.group for chain in chains}
    for group in sorted(missing):
        others.damage("data directory", f"there is no chain of group {group}")
    return Audited(chains=chains, findings=others)


def auditGroup(
    directory: Path,
    *,
    checkpoints: Collection[Checkpoint] = (),
    limit: int = LIMIT,
    report: Report = noReport,
    pause: Pause = noPause,
) -> AuditedChain:
    """
    Check the chain in a group's directory, and the other files there.

    @param checkpoints: blocks that the chain must contain.
    @param limit: how many findings are kept.
    @param report: called with the number of audited blocks, and of all blocks.
    @param pause: called between read transactions.
    @raise StorageFailed: a broker began to use it meanwhile.
    """
    earlier: list[bytes | None] = []
    # A file that cannot be read is named below.
    with suppress(OSError):
        earlier += [each.key for each in readKeyFiles(directory / KEYS_NAME)]
    try:
        audited = auditChain(
            directory / STORE_NAME,
            group=directory.name,
            checkpoints=checkpoints,
            limit=limit,
            report=report,
            pause=pause,
        )
    except (StorageRefused, StorageDamaged) as error:
        findings = Findings(directory.name, limit)
        if isinstance(error, StorageUnknown):
            findings.unaudited(STORE_NAME, str(error))
        else:
            findings.damage(STORE_NAME, str(error))
        audited = AuditedChain.unread(directory.name, findings)
    auditGroupFiles(
        directory, audited.validators, earlier, audited.findings, hasEngine=audited.hasEngine
    )
    return audited


def auditGroupFiles(
    directory: Path,
    validators: Collection[bytes] | None,
    earlier: Collection[bytes | None],
    findings: Findings,
    *,
    hasEngine: bool = False,
) -> None:
    """
    Check the keys of a group, and report unknown files in its directory.

    @param validators: the public keys that decide the next block; C{None} where unknown.
    @param earlier: the public keys that were there before the chain was read: a key change of the
        running broker may have removed them since.
    @param hasEngine: whether an engine decides, so that the keys are elsewhere.
    """
    known = _GROUP
    try:
        if hasEngine:
            known += (*BROKER_FILES, JOURNAL_NAME)
        else:
            _auditKeys(directory / KEYS_NAME, validators, earlier, findings)
        for name in unknownFiles(directory, known):
            findings.note(show(name), _kindOf(name))
    except OSError as error:
        findings.damage(str(error.filename), f"it cannot be read: {error.strerror}")


def _kindOf(name: str) -> str:
    """The kind of a file beside a chain."""
    if name.startswith(f"{STORE_NAME}.v") and name.endswith(".backup"):
        return "a copy from before an upgrade, which is not looked at"
    if fnmatch(name, refusedName("*")):
        return "blocks that a copy has refused"
    return "the file is unknown"


def _auditKeys(
    directory: Path,
    validators: Collection[bytes] | None,
    earlier: Collection[bytes | None],
    findings: Findings,
) -> None:
    if not directory.is_dir():
        findings.note(KEYS_NAME, "there are no keys: the chain can be read, but not go on")
        return
    found: set[bytes] = set()
    files = 0
    for file in readKeyFiles(directory):
        place = f"{KEYS_NAME}/{file.path.name}"
        files += 1
        if file.key is None:
            findings.damage(place, "it is not a key")
            continue
        if file.key in found:
            findings.note(place, "the same key is in another file, too")
        found.add(file.key)
        if validators is not None and file.key not in validators:
            findings.note(place, "it is the key of no replica that decides the next block")
        if not file.isPrivate:
            findings.note(place, "others than its owner may read it")
    if not files:
        findings.note(KEYS_NAME, "there are no keys: the chain can be read, but not go on")
    else:
        for index, key in enumerate(validators or ()):
            if key not in found and key not in earlier:
                findings.damage(
                    KEYS_NAME,
                    f"no file has the key of replica {index}, whose public one is {key.hex()}",
                )
    for entry in sorted(directory.iterdir()):
        if not entry.name.endswith(KEY_SUFFIX):
            findings.note(f"{KEYS_NAME}/{entry.name}", "the file is unknown")


def auditDataDirectoryFiles(dataDir: Path, findings: Findings) -> None:
    """
    Check the metadata store of a data directory, and report unknown files in it.
    """
    path = dataDir / METADATA_NAME
    known = readWrites(path)
    writes = auditMetadata(path, findings) if path.exists() else 0
    lost = "" if writes is None else findLostWrites(path, known, writes)
    if lost:
        findings.damage(METADATA_NAME, lost)
    try:
        groups = [directory.name for directory in groupDirectories(dataDir)]
        for name in unknownFiles(dataDir, (*_DATA_DIRECTORY, *groups)):
            what = "directory has no chain" if (dataDir / name).is_dir() else "file is unknown"
            findings.note(show(name), f"this {what}")
    except OSError as error:
        findings.damage(str(error.filename), f"it cannot be read: {error.strerror}")


def auditMetadata(path: Path, findings: Findings) -> int | None:
    """
    Check each row of the metadata store against its checksum.

    @return: how many writes it had; C{None} where that cannot be read.
    @raise StorageFailed: a broker began to use the file meanwhile.
    """
    writes: int | None = None
    try:
        with Snapshot.ofMetadata(path, mayBeOlder=True) as snapshot:
            if auditStructure(snapshot, METADATA_NAME, findings):
                with snapshot.moment():
                    writes = _auditRows(snapshot, findings)
            snapshot.checkUnchanged()
    except StorageUnknown as error:
        findings.unaudited(METADATA_NAME, str(error))
    except (StorageRefused, StorageDamaged) as error:
        findings.damage(METADATA_NAME, str(error))
    return writes


def _auditRows(snapshot: Snapshot, findings: Findings) -> int | None:
    """
    @return: how many writes there were; C{None} where that cannot be read.
    """
    writes: int | None = 0
    for kind, name, value, checksum in snapshot.rows(
        "SELECT kind, name, value, checksum FROM note"
    ):
        isEntry = isinstance(kind, str) and isinstance(name, str) and isinstance(value, bytes)
        isGood = isEntry and metadataChecksum(kind, name, value) == checksum
        if not isGood:
            findings.damage(
                f"{METADATA_NAME}, note {show(kind)} {show(name)}", "it is not what was written"
            )
        if (kind, name) == METADATA_WRITES:
            writes = int(value) if isGood and value.isdigit() else None
    return writes
