"""
The distributed ledger: a network of CometBFT engines, each beside a broker of its own.

The engines replicate the same state machine that the embedded ledger runs. This package is what
runs beside one engine: its ABCI application, its supervision and its RPC client.
L{provisioning<svcbroker.ledgers.cometbft.provisioning>} makes engines' homes, for the command
line; nothing here imports it. See C{docs/cometbft.rst}.
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
