"""
What builds and governs a network of engines, for commands; no broker needs to run for it.
"""

from __future__ import annotations

from ...proofs.cometbft import Instant
from ._card import (
    MAX_CARD,
    Card,
    CardInvalid,
    Founding,
    encodeCard,
    found,
    makeCard,
    ourGenesis,
    parseAddress,
    readCard,
)
from ._config import Address, ConfigInvalid, Peer, StateSync, Tuning
from ._engine import ALONE
from ._genesis import Genesis, decodeGenesis
from ._governing import checkGoverned, engineOrder
from ._identity import (
    VOUCHER_NAME,
    IdentityMissing,
    Voucher,
    brokerSeed,
    encodeVoucher,
    vouch,
)
from ._joining import TrustMissing, askTrust, makeRpc
from ._keyfiles import (
    EngineKeys,
    KeyFileDamaged,
    makeKeys,
    publicKey,
    readKeys,
    readValidatorSeed,
    writeFile,
)
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
    "MAX_CARD",
    "VOUCHER_NAME",
    "Address",
    "Card",
    "CardInvalid",
    "ConfigInvalid",
    "EngineKeys",
    "Founding",
    "Genesis",
    "IdentityMissing",
    "Instant",
    "KeyFileDamaged",
    "LayoutError",
    "NetworkPlan",
    "NodePlan",
    "Peer",
    "StateSync",
    "TrustMissing",
    "Tuning",
    "Voucher",
    "askTrust",
    "brokerSeed",
    "checkGoverned",
    "decodeGenesis",
    "encodeCard",
    "encodeVoucher",
    "engineOrder",
    "found",
    "layOutJoining",
    "layOutNetwork",
    "makeCard",
    "makeKeys",
    "makeRpc",
    "ourGenesis",
    "parseAddress",
    "publicKey",
    "readCard",
    "readKeys",
    "readLayout",
    "readValidatorSeed",
    "vouch",
    "writeFile",
]
