"""
Auditing what lies around chains: key files, notes, and files that nobody knows.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from ..storage import Snapshot, StorageDamaged, StorageRefused, noteChecksum
from ._findings import Findings, show
from ._keyfiles import readKeyFiles
from ._layout import (
    BROKER_FILES,
    KEY_SUFFIX,
    KEYS_NAME,
    NOTES_NAME,
    STORE_NAME,
    groupDirectories,
    strangers,
)
from ._structure import auditStructure

_BESIDE: Final = ("", "-wal", "-shm")
_DATA_DIRECTORY: Final = ("lock", "operator.json", *(NOTES_NAME + end for end in _BESIDE))
_GROUP: Final[tuple[str, ...]] = (KEYS_NAME, *(STORE_NAME + end for end in _BESIDE))


def auditGroupFiles(
    directory: Path,
    validators: Collection[bytes] | None,
    earlier: Collection[bytes | None],
    findings: Findings,
    *,
    hasEngine: bool = False,
) -> None:
    """
    Check the keys of a group, and look for files that are nobody's.

    @param validators: the public keys of the nodes that decide the next block, where known.
    @param earlier: the public keys of those that were there before the chain was looked at:
        a change of the nodes may have put them out of use since.
    @param hasEngine: whether the keys are an engine's, and not here.
    """
    known = _GROUP
    try:
        if hasEngine:
            known += BROKER_FILES
        else:
            _auditKeys(directory / KEYS_NAME, validators, earlier, findings)
        for name in strangers(directory, known):
            kept = name.startswith(f"{STORE_NAME}.v") and name.endswith(".backup")
            findings.note(
                show(name),
                "a copy from before an upgrade, which is not looked at"
                if kept
                else "nobody knows this file",
            )
    except OSError as error:
        findings.damage(str(error.filename), f"it cannot be read: {error.strerror}")


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
            findings.note(place, "it is the key of no node that decides the next block")
        if not file.isPrivate:
            findings.note(place, "others than its owner may read it")
    if not files:
        findings.note(KEYS_NAME, "there are no keys: the chain can be read, but not go on")
    else:
        for index, key in enumerate(validators or ()):
            if key not in found and key not in earlier:
                findings.damage(
                    KEYS_NAME,
                    f"no file has the key of node {index}, whose public one is {key.hex()}",
                )
    for entry in sorted(directory.iterdir()):
        if not entry.name.endswith(KEY_SUFFIX):
            findings.note(f"{KEYS_NAME}/{entry.name}", "nobody knows this file")


def auditDataDirectoryFiles(dataDir: Path, findings: Findings) -> None:
    """
    Check the notes of a data directory, and look for files that are nobody's.
    """
    if (dataDir / NOTES_NAME).exists():
        auditNotes(dataDir / NOTES_NAME, findings)
    try:
        groups = [directory.name for directory in groupDirectories(dataDir)]
        for name in strangers(dataDir, (*_DATA_DIRECTORY, *groups)):
            what = "directory has no chain" if (dataDir / name).is_dir() else "file is unknown"
            findings.note(show(name), f"this {what}")
    except OSError as error:
        findings.damage(str(error.filename), f"it cannot be read: {error.strerror}")


def auditNotes(path: Path, findings: Findings) -> None:
    """
    Check that each note is the one that was written.

    @raise StorageFailed: a broker began to use the file meanwhile.
    """
    try:
        with Snapshot.ofNotes(path) as snapshot:
            if auditStructure(snapshot, NOTES_NAME, findings):
                with snapshot.moment():
                    _auditRows(snapshot, findings)
            snapshot.checkUnchanged()
    except (StorageRefused, StorageDamaged) as error:
        findings.damage(NOTES_NAME, str(error))


def _auditRows(snapshot: Snapshot, findings: Findings) -> None:
    for kind, name, value, checksum in snapshot.rows(
        "SELECT kind, name, value, checksum FROM note"
    ):
        isNote = isinstance(kind, str) and isinstance(name, str) and isinstance(value, bytes)
        if not isNote or noteChecksum(kind, name, value) != checksum:
            findings.damage(
                f"{NOTES_NAME}, note {show(kind)} {show(name)}", "it is not what was written"
            )
