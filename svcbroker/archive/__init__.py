"""
Stored chains: making proofs from them, auditing, exporting, importing and backing them up. Nothing
here takes part in consensus; no Twisted.

To check a data directory takes three lines::

    from svcbroker.archive import audit
    for finding in audit(Path("svcbroker-data")).all():
        print(finding)
"""

from ._audit import Audited, audit, auditGroup
from ._backup import BackedUp, BackupRefused, backUp
from ._chain import AuditedChain, auditChain
from ._erasing import Eraser, Erasing
from ._export import RangeUnknown, exportChain
from ._exported import ExportedHeaders
from ._files import auditDataDirectoryFiles, auditGroupFiles
from ._findings import Finding, Findings, Report
from ._import import Imported, ImportRefused, importChain
from ._keys import StoredKeys
from ._layout import (
    BROKER_FILES,
    KEYS_NAME,
    METADATA_NAME,
    STORE_NAME,
    groupDirectory,
    groupsIn,
)
from ._prover import Certificates, NotCertified, Prover, readChain
from ._replay import ROUNDS_ASIDE, Replay, StoredChain, appendOf, loadChain, storedHistory
from ._stream import Begin, End, StreamBroken, StreamedBlock, StreamReader, StreamWriter

__all__ = [
    "BROKER_FILES",
    "KEYS_NAME",
    "METADATA_NAME",
    "ROUNDS_ASIDE",
    "STORE_NAME",
    "Audited",
    "AuditedChain",
    "BackedUp",
    "BackupRefused",
    "Begin",
    "Certificates",
    "End",
    "Eraser",
    "Erasing",
    "ExportedHeaders",
    "Finding",
    "Findings",
    "ImportRefused",
    "Imported",
    "NotCertified",
    "Prover",
    "RangeUnknown",
    "Replay",
    "Report",
    "StoredChain",
    "StoredKeys",
    "StreamBroken",
    "StreamReader",
    "StreamWriter",
    "StreamedBlock",
    "appendOf",
    "audit",
    "auditChain",
    "auditDataDirectoryFiles",
    "auditGroup",
    "auditGroupFiles",
    "backUp",
    "exportChain",
    "groupDirectory",
    "groupsIn",
    "importChain",
    "loadChain",
    "readChain",
    "storedHistory",
]
