"""
The transparency log of a group: its chain as a log that strangers follow by tiles and checkpoints.

Entry C{n} of the log is the hash of the header of block C{n}, genesis included. So a log of size
C{n} has the root that the header of block C{n} holds as its history, and nothing is stored for it.
"""

from ._cosigning import (
    IWitnessClient,
    LogWitness,
    WitnessFailed,
    Witnessing,
    WitnessingRule,
    checkWitnesses,
)
from ._logservice import Transparency, WitnessAnswer, WitnessesAnswer
from ._transparencylog import (
    LOG,
    LOG_TOPIC,
    Certification,
    CosignedCheckpoints,
    LogCertification,
    LogCheckpoint,
    LogKeyRecord,
    TransparencyLog,
    logGroup,
)

__all__ = [
    "LOG",
    "LOG_TOPIC",
    "Certification",
    "CosignedCheckpoints",
    "IWitnessClient",
    "LogCertification",
    "LogCheckpoint",
    "LogKeyRecord",
    "LogWitness",
    "Transparency",
    "TransparencyLog",
    "WitnessAnswer",
    "WitnessFailed",
    "WitnessesAnswer",
    "Witnessing",
    "WitnessingRule",
    "checkWitnesses",
    "logGroup",
]
