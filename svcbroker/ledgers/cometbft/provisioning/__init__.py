"""
Provisioning for commands: keys, configuration and genesis of a network of engines.

No broker needs to run for it, and no module beside a running node imports it.
"""

from __future__ import annotations

from ....proofs.cometbft import Instant, engineOrder
from .._batch import ATTESTATION_NAME, IdentityMissing, attest, brokerSeed, encodeAttestation
from .._home import (
    GENESIS,
    EngineGenesis,
    EngineKeys,
    KeyFileDamaged,
    LayoutError,
    decodeGenesis,
    publicKey,
    readValidatorSeed,
)
from .._rpc import connectEngine
from ._engineconfig import (
    DEFAULT_PROFILE,
    PROFILES,
    Address,
    ConfigInvalid,
    StateSync,
    parseAddress,
)
from ._homelayout import (
    MAX_JOIN_REQUEST,
    JoinRequest,
    JoinRequestInvalid,
    NetworkPlan,
    NodePlan,
    TrustMissing,
    askTrust,
    assembleGenesis,
    encodeJoinRequest,
    layOutJoining,
    layOutNetwork,
    makeJoinRequest,
    makeKeys,
    ourGenesis,
    readJoinRequest,
)
