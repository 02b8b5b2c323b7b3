"""
The distributed ledger: a network of CometBFT engines, each beside a broker of its own.

The engines replicate the same state machine that the embedded ledger runs. This package is what
runs beside one engine: its ABCI application, its supervision and its RPC client.
L{provisioning<svcbroker.ledgers.cometbft.provisioning>} makes engines' homes, for the command
line; nothing here imports it. See C{docs/cometbft.rst}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ...interfaces import ILedger, LedgerContext
from ...net.bounds import within
from ...net.findings import Finding
from .._storedledger import PENDING, STORED_HOLDERS, storedMemory
from ._batch import KNOWN_BYTES
from ._cometledger import CometLedger
from ._cometsettings import SETTINGS, SUMMARY, readSettings
from ._engine import checkEngine, readEngineFacts
from ._outbox import BATCH_BYTES, WINDOW
from ._rpc import MAX_ANSWER
from .abci import MAX_CONNECTIONS, MAX_FRAME, READ_AHEAD

HOLDERS: Mapping[str, Sequence[str]] = {
    **STORED_HOLDERS,
    PENDING: (
        *STORED_HOLDERS[PENDING],
        *within("svcbroker.ledgers.replicated.PendingTransactions", "_queue", "_waiting"),
        "svcbroker.ledgers.cometbft._outbox.Outbox._sent",
    ),
    "parsed batches": ["svcbroker.ledgers.cometbft._batch.ChainMachine._known"],
}
"""The attributes with what L{memory} tells of, by its name."""


def configure(settings: Mapping[str, str]) -> Callable[[LedgerContext], ILedger]:
    """
    See L{ILedgerFactory.configure<svcbroker.interfaces.ILedgerFactory.configure>}.
    """
    return partial(CometLedger, settings=readSettings(settings))


def memory(settings: Mapping[str, str]) -> Mapping[str, int]:
    """
    See L{IBoundedLedgerFactory.memory<svcbroker.interfaces.IBoundedLedgerFactory.memory>}.
    """
    made = readSettings(settings)
    return {
        **storedMemory(made.mempool, BATCH_BYTES * WINDOW),
        "parsed batches": KNOWN_BYTES,
        "requests of the engine": READ_AHEAD * MAX_CONNECTIONS + MAX_FRAME,
        "an answer of the engine": MAX_ANSWER,
    }


def checks(group: str, settings: Mapping[str, str]) -> Iterator[Finding]:
    """See L{LedgerPlugin.checks<svcbroker.ledgers.LedgerPlugin.checks>}."""
    return checkEngine(readEngineFacts(group, settings))
