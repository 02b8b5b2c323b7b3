"""
The embedded ledger: a set of PBFT replicas in this process, with their blocks on this disk.

The replicas are real: they exchange signed pre-prepares, prepares, commits and view changes, and a
block is final with the signatures of a quorum. Their separation is simulated: one process runs them
all, and one operator holds all keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...interfaces import ILedger, LedgerContext
from ...net.bounds import within
from .._storedledger import PENDING, STORED_HOLDERS, storedMemory
from ._keys import EVIDENCE_NAME, VERIFIED_BYTES
from ._pbftledger import SETTINGS, SUMMARY, PbftLedger, readSettings

HOLDERS: Mapping[str, Sequence[str]] = {
    **STORED_HOLDERS,
    PENDING: (
        *STORED_HOLDERS[PENDING],
        *within("svcbroker.ledgers.pbft._producer.TransactionPool", "_waiting", "_claims"),
    ),
    "votes that were verified": (
        *within("svcbroker.ledgers.pbft._keys.SignatureVerifier", "verified", "_signatures"),
        "svcbroker.ledgers.pbft._replica.Replica._verified",
    ),
    "blocks being decided": (
        *within(
            "svcbroker.ledgers.pbft._replica.Replica",
            *("_broadcasts", "_candidates", "_effects", "_own", "_reached", "_rounds"),
        ),
        *within("svcbroker.ledgers.pbft._protocol.SimulatedNetwork", "_arrived", "_inFlight"),
    ),
}
"""The attributes with what L{memory} tells of, by its name."""


def configure(settings: Mapping[str, str]) -> Callable[[LedgerContext], ILedger]:
    """
    See L{ILedgerFactory.configure<svcbroker.interfaces.ILedgerFactory.configure>}.
    """
    return partial(PbftLedger, settings=readSettings(settings))


def memory(settings: Mapping[str, str]) -> Mapping[str, int]:
    """
    See L{IBoundedLedgerFactory.memory<svcbroker.interfaces.IBoundedLedgerFactory.memory>}.
    """
    made = readSettings(settings)
    return {
        **storedMemory(made.mempool, made.block),
        # Those of all replicas are one.
        "votes that were verified": VERIFIED_BYTES,
    }
