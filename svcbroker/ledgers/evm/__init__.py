"""
The ledger on an EVM chain: a contract there keeps the batches of transactions in one order, and
each broker executes them. It needs the extra C{evm}.

The chain only orders: what an event is, and every proof of it, is as on the other ledgers. See
C{docs/evm.rst}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from ...interfaces import ILedger, InvalidDescription, LedgerContext
from ...net.bounds import within
from .._storedledger import PENDING, STORED_HOLDERS, storedMemory
from ._ethereum import checkInstalled
from ._evmbatch import BLOCK_BYTES, MAX_BATCH
from ._evmledger import EvmLedger
from ._evmrpc import MAX_ANSWER
from ._evmsettings import SETTINGS, SUMMARY, readSettings

_UNDER_WAY: Final = "transactions under way"

HOLDERS: Mapping[str, Sequence[str]] = {
    **STORED_HOLDERS,
    PENDING: (
        *STORED_HOLDERS[PENDING],
        *within("svcbroker.ledgers.replicated.PendingTransactions", "_queue", "_waiting"),
    ),
    _UNDER_WAY: (
        *within("svcbroker.ledgers.evm._sender.Sender", "_sent", "_others"),
        "svcbroker.ledgers.evm._evmledger.Attestations._waiting",
        "svcbroker.ledgers.evm._evmbatch.BatchSource._marks",
    ),
}
"""The attributes with what L{memory} tells of, by its name."""


def configure(settings: Mapping[str, str]) -> Callable[[LedgerContext], ILedger]:
    """
    See L{ILedgerFactory.configure<svcbroker.interfaces.ILedgerFactory.configure>}.
    """
    missing = checkInstalled()
    if missing:
        raise InvalidDescription(missing)
    return partial(EvmLedger, settings=readSettings(settings))


def memory(settings: Mapping[str, str]) -> Mapping[str, int]:
    """
    See L{IBoundedLedgerFactory.memory<svcbroker.interfaces.IBoundedLedgerFactory.memory>}.
    """
    missing = checkInstalled()
    if missing:
        raise InvalidDescription(missing)
    made = readSettings(settings)
    return {
        **storedMemory(made.mempool, BLOCK_BYTES),
        # As bytes for the journal, and as the call that may be signed again.
        _UNDER_WAY: 2 * made.window * MAX_BATCH,
        # As text, and as bytes.
        "an answer of the chain": 3 * MAX_ANSWER,
    }
