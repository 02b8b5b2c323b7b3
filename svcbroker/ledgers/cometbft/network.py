"""
What builds and governs a network of engines, for commands; no broker needs to run for it.
"""

from __future__ import annotations

from ...proofs.cometbft import Instant
from ._config import Address, ConfigInvalid, Peer, StateSync, Tuning
from ._engine import ALONE
from ._governing import checkGoverned, engineOrder
from ._keyfiles import EngineKeys, KeyFileDamaged, writeFile
from ._layout import (
    GENESIS,
    LayoutError,
    NetworkPlan,
    NodePlan,
    layOutJoining,
    layOutNetwork,
    readLayout,
)

__all__ = [
    "ALONE",
    "GENESIS",
    "Address",
    "ConfigInvalid",
    "EngineKeys",
    "Instant",
    "KeyFileDamaged",
    "LayoutError",
    "NetworkPlan",
    "NodePlan",
    "Peer",
    "StateSync",
    "Tuning",
    "checkGoverned",
    "engineOrder",
    "layOutJoining",
    "layOutNetwork",
    "readLayout",
    "writeFile",
]
