"""
What is done with stored chains: proofs are made from them, they are audited, exported, imported
and backed up. Nothing here decides anything or waits for anybody; no Twisted.

To check a data directory takes three lines::

    from svcbroker.archive import audit
    for finding in audit(Path("svcbroker-data")).all():
        print(finding)
"""

from ._audit import Audited, audit, auditGroup
from ._chain import AuditedChain, auditChain
from ._findings import Finding, Findings, Report
from ._history import storedHistory
from ._layout import KEYS_NAME, NOTES_NAME, STORE_NAME
from ._loading import StoredChain, loadChain
from ._prover import Prover
from ._reading import groupDirectory, readChain
from ._rows import appendOf

__all__ = [
    "KEYS_NAME",
    "NOTES_NAME",
    "STORE_NAME",
    "Audited",
    "AuditedChain",
    "Finding",
    "Findings",
    "Prover",
    "Report",
    "StoredChain",
    "appendOf",
    "audit",
    "auditChain",
    "auditGroup",
    "groupDirectory",
    "loadChain",
    "readChain",
    "storedHistory",
]
