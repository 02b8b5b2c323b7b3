"""
The engine of CometBFT ledgers, as far as a proof of theirs has to do with it: its headers, votes
and validators, what it hashes and signs, and what makes a block of it final.

Nothing here needs a network or Twisted.
"""

from ._light import (
    MARK,
    MAX_MEMBERS,
    LightBlock,
    LightBlockInvalid,
    Trust,
    makeLightBlock,
    membersOf,
    verifyLightBlock,
)
from ._values import (
    ED25519,
    BadAnswer,
    Base64,
    BlockFlag,
    Commit,
    EngineHeader,
    Hex,
    Instant,
    Member,
    Natural,
    Power,
    PublicKey,
    Validator,
    Wire,
    addressOf,
    engineOrder,
    headerHash,
    inOrder,
    makeDecoder,
    validatorsHash,
)
