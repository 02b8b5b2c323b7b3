"""
Stored chains: making proofs from them, auditing, exporting, importing and backing them up. Nothing
here takes part in consensus; no Twisted.

To check a data directory takes three lines::

    from svcbroker.archive import audit
    for finding in audit(Path("svcbroker-data")).all():
        print(finding)
"""

from ._audit import Audited, audit, auditDataDirectoryFiles, auditGroup, auditGroupFiles
from ._auditchain import AuditedChain, auditChain
from ._backup import BackedUp, BackupRefused, backUp
from ._eraser import ERASURE_BYTES, Eraser, Erasing, ErasureVerifier
from ._export import MAX_PART, ExportedHeaders, RangeUnknown, exportChain, exportPart
from ._findings import Finding, Findings, Report
from ._importer import (
    BlockVerifier,
    Copy,
    Imported,
    ImportRefused,
    PromotionRefused,
    VerifiedBlock,
    importChain,
    isSameBody,
    promote,
    readCopy,
    takeOver,
    transferChain,
)
from ._layout import (
    BROKER_FILES,
    COPY_NAME,
    INDEX_NAME,
    JOURNAL_NAME,
    KEYS_NAME,
    METADATA_NAME,
    STORE_NAME,
    TREES_NAME,
    groupDirectory,
    groupsIn,
    isGroup,
    ledgerOf,
    markCopy,
    readKeyFiles,
    refusedName,
)
from ._logfiles import LogRefused, LogSource, LogUnreadable, exportLog, storedLog
from ._prover import TREE_BYTES, Certificates, NotCertified, Prover, readChain
from ._replay import (
    ROUNDS_ASIDE,
    Replay,
    StoredChain,
    StoredKeys,
    appendOf,
    checkEnd,
    loadChain,
    storedHistory,
)
from ._stream import Begin, End, StreamBroken, StreamedBlock, StreamReader, StreamWriter

__all__ = [
    "BROKER_FILES",
    "COPY_NAME",
    "ERASURE_BYTES",
    "INDEX_NAME",
    "JOURNAL_NAME",
    "KEYS_NAME",
    "MAX_PART",
    "METADATA_NAME",
    "ROUNDS_ASIDE",
    "STORE_NAME",
    "TREES_NAME",
    "TREE_BYTES",
    "Audited",
    "AuditedChain",
    "BackedUp",
    "BackupRefused",
    "Begin",
    "BlockVerifier",
    "Certificates",
    "Copy",
    "End",
    "Eraser",
    "Erasing",
    "ErasureVerifier",
    "ExportedHeaders",
    "Finding",
    "Findings",
    "ImportRefused",
    "Imported",
    "LogRefused",
    "LogSource",
    "LogUnreadable",
    "NotCertified",
    "PromotionRefused",
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
    "VerifiedBlock",
    "appendOf",
    "audit",
    "auditChain",
    "auditDataDirectoryFiles",
    "auditGroup",
    "auditGroupFiles",
    "backUp",
    "checkEnd",
    "exportChain",
    "exportLog",
    "exportPart",
    "groupDirectory",
    "groupsIn",
    "importChain",
    "isGroup",
    "isSameBody",
    "ledgerOf",
    "loadChain",
    "markCopy",
    "promote",
    "readChain",
    "readCopy",
    "readKeyFiles",
    "refusedName",
    "storedHistory",
    "storedLog",
    "takeOver",
    "transferChain",
]
