"""
What SQLite itself says of a file.
"""

from __future__ import annotations

from typing import Final

from ..storage import Snapshot, StorageError
from ._findings import Findings, show

_SHOWN: Final = 20


def auditStructure(snapshot: Snapshot, name: str, findings: Findings) -> bool:
    """
    Check that the file has the tables that it should, and that SQLite finds them whole.

    @param name: the file's name, for the findings.
    @return: whether there is any use in reading it.
    """
    try:
        trouble = snapshot.logTrouble()
        if trouble:
            findings.damage(f"{name}-wal", trouble)
        with snapshot.moment():
            missing, added = snapshot.compareContents()
            for each in missing:
                findings.damage(name, f"{show(each)} is not the one that svcbroker makes")
            for each in added:
                findings.damage(name, f"{show(each)} should not be there")
            for problem in snapshot.problems(_SHOWN):
                findings.damage(name, f"SQLite finds: {problem}")
    except (StorageError, OSError) as error:
        findings.damage(name, f"it cannot be read: {error}")
        return False
    return not missing
