"""
Auditing the other files of a data directory: keys, the metadata store, and unknown files.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

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
from ._findings import Findings, show
from ._layout import (
    BROKER_FILES,
    COPY_NAME,
    KEY_SUFFIX,
    KEYS_NAME,
    METADATA_NAME,
    STORE_NAME,
    groupDirectories,
    readKeyFiles,
    refusedName,
    unknownFiles,
)
from ._tables import auditStructure

_SQLITE: Final = ("", "-wal", "-shm")
_DATA_DIRECTORY: Final = (
    "lock",
    "operator.json",
    *(METADATA_NAME + end for end in (*_SQLITE, LAST_SUFFIX)),
)
_GROUP: Final[tuple[str, ...]] = (
    KEYS_NAME,
    COPY_NAME,
    *(STORE_NAME + end for end in (*_SQLITE, TIP_SUFFIX)),
)


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
            known += BROKER_FILES
        else:
            _auditKeys(directory / KEYS_NAME, validators, earlier, findings)
        for name in unknownFiles(directory, known):
            findings.note(show(name), _kindOf(name))
    except OSError as error:
        findings.damage(str(error.filename), f"it cannot be read: {error.strerror}")


def _kindOf(name: str) -> str:
    """What a file beside a chain is."""
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
