"""
Copying a data directory, also while a broker runs on it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import mkdtemp

from attrs import frozen

from ..chain import CertificateInvalid, Malformed
from ..files import readFile, writeNew
from ..proofs import Checkpoint
from ..storage import (
    Snapshot,
    StorageDamaged,
    StorageError,
    Store,
    findLostWrites,
    readTip,
    readWrites,
    syncFile,
    writeWrites,
)
from ._audit import auditMetadata
from ._findings import Findings, Report, noReport
from ._layout import (
    BROKER_FILES,
    COPY_NAME,
    KEYS_NAME,
    METADATA_NAME,
    STORE_NAME,
    KeyFile,
    groupDirectories,
    readKeyFiles,
    writeKeyFiles,
)
from ._replay import StoredChain, checkEnd, decidedByEngine, loadChain, setRoundsAside


class BackupRefused(Exception):
    """
    The data directory or the target of a backup cannot be used. The text is one line.
    """


@frozen(kw_only=True)
class BackedUp:
    """
    The result of a backup.

    @ivar chains: the last copied block of each group's chain.
    @ivar findings: damage and notes about the copy.
    """

    chains: Mapping[str, Checkpoint]
    findings: Findings


def backUp(
    dataDir: Path,
    target: Path,
    *,
    reporting: Callable[[str], AbstractContextManager[Report]] | None = None,
) -> BackedUp:
    """
    Copy a data directory: the metadata store, chains and keys. The target appears complete,
    checked and on stable storage, or not at all.

    The metadata store is copied first, so that no subscription's position is beyond the end of
    the copied chains. The copied keys are those of the validators that decide the next block.

    @param dataDir: the data directory; a broker may be using it.
    @param target: absent, or an empty directory.
    @param reporting: returns the callback that is told how much of a file is copied.
    @raise BackupRefused: there is no chain, the target exists, or keys changed while they were
        copied.
    @raise StorageError: a file cannot be read or written, or is damaged.
    @raise OSError: a file cannot be read or written.
    """
    target = target.absolute()
    reporting = reporting or (lambda what: nullcontext(noReport))
    groups = groupDirectories(dataDir)
    if not groups:
        raise BackupRefused(f"{dataDir} has no chain")
    if target.is_symlink() or (target.exists() and not _isEmptyDirectory(target)):
        raise BackupRefused(f"{target} exists already: choose another target")
    if target.resolve().is_relative_to(dataDir.resolve()):
        raise BackupRefused(f"{target} is in the data directory: choose another target")
    try:
        unfinished = Path(mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise BackupRefused(f"{target} cannot be made: {error.strerror}") from None
    try:
        findings = Findings("")
        source = dataDir / METADATA_NAME
        known = readWrites(source)
        writes: int | None = 0
        if source.exists():
            with reporting("metadata") as report, Snapshot.ofMetadata(source) as metadata:
                metadata.copyTo(unfinished / METADATA_NAME, report)
            writes = auditMetadata(unfinished / METADATA_NAME, findings)
        if writes is not None:
            lost = findLostWrites(source, known, writes)
            if lost:
                findings.damage(METADATA_NAME, lost)
            if writes:
                # So that a copy which is put in the place of the original is not behind.
                writeWrites(unfinished / METADATA_NAME, writes)
        chains = {}
        for group in groups:
            with reporting(f"group {group.name}") as report:
                chains[group.name] = _copyGroup(group, unfinished / group.name, report, findings)
        syncFile(unfinished)
        unfinished.rename(target)
        syncFile(target.parent)
    except BaseException as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, StorageError) and str(unfinished) in str(error):
            # The operator knows the target, and the unfinished directory is gone.
            raise type(error)(str(error).replace(str(unfinished), str(target))) from None
        raise
    return BackedUp(chains=chains, findings=findings)


def _isEmptyDirectory(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _copyGroup(source: Path, target: Path, report: Report, findings: Findings) -> Checkpoint:
    target.mkdir(mode=0o700)
    keys = _readKeys(source / KEYS_NAME)
    tip = readTip(source / STORE_NAME)
    with Snapshot.ofLedger(source / STORE_NAME) as snapshot:
        snapshot.copyTo(target / STORE_NAME, report)
    # Read again: a key change may have come between, and the copied chain may need the new keys.
    keys |= _readKeys(source / KEYS_NAME)
    chain = _finish(target / STORE_NAME)
    if tip is not None and tip.height > chain.head.height:
        raise StorageDamaged(
            f"{source / STORE_NAME} ends at block {chain.head.height}, and block {tip.height} had "
            "been stored: audit it"
        )
    if keys:
        validators = chain.state.validators.keys
        for index, key in enumerate(validators):
            if key not in keys:
                raise BackupRefused(
                    f"{source / KEYS_NAME} has no key of replica {index}: either the replicas got "
                    "new keys meanwhile, then try again, or it is lost"
                )
        writeKeyFiles(target / KEYS_NAME, validators, keys)
    elif not _copyFiles(source, target, BROKER_FILES):
        findings.note(f"{source.name}/{KEYS_NAME}", "there are no keys, so none were copied")
    _copyFiles(source, target, [COPY_NAME])
    syncFile(target)
    return Checkpoint.of(chain.head)


def _copyFiles(source: Path, target: Path, names: Sequence[str]) -> bool:
    """
    Copy those of some files that there are.

    @return: whether there are any.
    """
    found = [name for name in names if (source / name).exists()]
    for name in found:
        mode = (source / name).stat().st_mode & 0o777
        writeNew(target / name, readFile(source / name), mode)
    return bool(found)


def _finish(path: Path) -> StoredChain:
    """
    Check a copied chain as a broker does when it starts, and reserve rounds for its replicas.
    """
    store = Store.open(path)
    try:
        chain = loadChain(store)
        checkEnd(store, chain)
        if not decidedByEngine(store):
            setRoundsAside(store, chain.head.height)
    except (Malformed, CertificateInvalid, ValueError) as error:
        raise StorageDamaged(f"the chain is damaged ({error}): audit it") from None
    finally:
        store.close()
    return chain


def _readKeys(directory: Path) -> dict[bytes, KeyFile]:
    return {each.key: each for each in readKeyFiles(directory) if each.key is not None}
