"""
What is done with stored chains: proofs are made from them, they are audited, exported, imported
and backed up. Nothing here decides anything or waits for anybody; no Twisted.

To check a data directory takes three lines::

    from svcbroker.archive import audit
    for finding in audit(Path("svcbroker-data")).all():
        print(finding)
"""

from ._audit import Audited, audit, auditGroup
from ._backup import BackedUp, BackupRefused, backUp
from ._chain import AuditedChain, auditChain
from ._export import RangeUnknown, exportChain
from ._findings import Finding, Findings, Report
from ._history import storedHistory
from ._import import Imported, ImportRefused, importChain
from ._layout import BROKER_FILES, KEYS_NAME, NOTES_NAME, STORE_NAME, groupsIn
from ._loading import StoredChain, loadChain
from ._prover import NotCertified, Prover
from ._reading import groupDirectory, readChain
from ._rows import appendOf
from ._stream import Begin, End, StreamBroken, StreamedBlock, StreamReader, StreamWriter

__all__ = [
    "BROKER_FILES",
    "KEYS_NAME",
    "NOTES_NAME",
    "STORE_NAME",
    "Audited",
    "AuditedChain",
    "BackedUp",
    "BackupRefused",
    "Begin",
    "End",
    "Finding",
    "Findings",
    "ImportRefused",
    "Imported",
    "NotCertified",
    "Prover",
    "RangeUnknown",
    "Report",
    "StoredChain",
    "StreamBroken",
    "StreamReader",
    "StreamWriter",
    "StreamedBlock",
    "appendOf",
    "audit",
    "auditChain",
    "auditGroup",
    "backUp",
    "exportChain",
    "groupDirectory",
    "groupsIn",
    "importChain",
    "loadChain",
    "readChain",
    "storedHistory",
]
