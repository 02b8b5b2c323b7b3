"""
The distributed ledger: CometBFT engines decide, each beside a broker of its own.

The engine replicates the same state machine that the embedded ledger runs; here is its ABCI
application, what keeps the engine running, and what asks it. See C{docs/cometbft.rst}.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ...interfaces import ILedger, LedgerContext
from ._ledger import CometLedger
from ._settings import SETTINGS, SUMMARY, CometSettings, readSettings

__all__ = ["SETTINGS", "SUMMARY", "CometLedger", "CometSettings", "configure"]


def configure(settings: Mapping[str, str]) -> Callable[[LedgerContext], ILedger]:
    """
    See L{ILedgerFactory.configure<svcbroker.interfaces.ILedgerFactory.configure>}.
    """
    return partial(CometLedger, settings=readSettings(settings))
