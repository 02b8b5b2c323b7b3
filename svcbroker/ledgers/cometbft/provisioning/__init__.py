"""
Provisioning for commands: keys, configuration and genesis of a network of engines.

No broker needs to run for it, and no module beside a running node imports it.
"""

from __future__ import annotations

from ....proofs.cometbft import Instant, engineOrder
from .._batch import (
    ATTESTATION_NAME,
    Attestation,
    IdentityMissing,
    attest,
    brokerSeed,
    encodeAttestation,
)
from .._home import (
    GENESIS,
    EngineGenesis,
    EngineKeys,
    KeyFileDamaged,
    LayoutError,
    decodeGenesis,
    publicKey,
    readGenesis,
    readKeys,
    readValidatorSeed,
)
from .._rpc import connectEngine
from ._ceremony import (
    MAX_JOIN_REQUEST,
    GenesisCeremony,
    JoinRequest,
    JoinRequestInvalid,
    assembleGenesis,
    encodeJoinRequest,
    makeJoinRequest,
    ourGenesis,
    readJoinRequest,
)
from ._engineconfig import (
    DEFAULT_PROFILE,
    PROFILES,
    Address,
    ConfigInvalid,
    Peer,
    StateSync,
    Tuning,
    parseAddress,
)
from ._homelayout import (
    NetworkPlan,
    NodePlan,
    TrustMissing,
    askTrust,
    layOutJoining,
    layOutNetwork,
    makeKeys,
)

__all__ = [
    "ATTESTATION_NAME",
    "DEFAULT_PROFILE",
    "GENESIS",
    "MAX_JOIN_REQUEST",
    "PROFILES",
    "Address",
    "Attestation",
    "ConfigInvalid",
    "EngineGenesis",
    "EngineKeys",
    "GenesisCeremony",
    "IdentityMissing",
    "Instant",
    "JoinRequest",
    "JoinRequestInvalid",
    "KeyFileDamaged",
    "LayoutError",
    "NetworkPlan",
    "NodePlan",
    "Peer",
    "StateSync",
    "TrustMissing",
    "Tuning",
    "askTrust",
    "assembleGenesis",
    "attest",
    "brokerSeed",
    "connectEngine",
    "decodeGenesis",
    "encodeAttestation",
    "encodeJoinRequest",
    "engineOrder",
    "layOutJoining",
    "layOutNetwork",
    "makeJoinRequest",
    "makeKeys",
    "ourGenesis",
    "parseAddress",
    "publicKey",
    "readGenesis",
    "readJoinRequest",
    "readKeys",
    "readValidatorSeed",
]
