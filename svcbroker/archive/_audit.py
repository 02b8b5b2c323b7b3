"""
Auditing whole data directories.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from attrs import frozen

from ..proofs import Checkpoint
from ..storage import StorageDamaged, StorageRefused, StorageUnknown
from ._chain import AuditedChain, auditChain
from ._files import auditDataDirectoryFiles, auditGroupFiles
from ._findings import LIMIT, Finding, FindingKind, Findings, Pause, Report, noPause, noReport
from ._layout import KEYS_NAME, STORE_NAME, groupDirectories, isGroup, readKeyFiles


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
