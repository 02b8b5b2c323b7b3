"""
The transparency log of a group: its chain as a log that strangers follow by tiles and checkpoints.

Entry C{n} of the log is the hash of the header of block C{n}, genesis included. So a log of size
C{n} has the root that the header of block C{n} holds as its history, and nothing is stored for it.
"""

from ._certification import LOG, LOG_TOPIC, Certification, LogCertification, LogKeyRecord
from ._checkpoint import LogCheckpoint
from ._cosigned import CosignedCheckpoints
from ._log import TransparencyLog, logGroup
from ._serving import Transparency, WitnessAnswer, WitnessesAnswer
from ._witness import IWitnessClient, LogWitness, WitnessFailed
from ._witnessing import Witnessing, WitnessingRule, checkWitnesses

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
