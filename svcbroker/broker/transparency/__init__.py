"""
The transparency log of a group: its chain as a log that strangers follow by tiles and checkpoints.

Entry C{n} of the log is the hash of the header of block C{n}, genesis included. So a log of size
C{n} has the root that the header of block C{n} holds as its history, and nothing is stored for it.
"""

from ._certification import LOG, LOG_TOPIC, Certification, LogCertification
from ._log import LogCheckpoint, TransparencyLog, logGroup
from ._serving import Transparency

__all__ = [
    "LOG",
    "LOG_TOPIC",
    "Certification",
    "LogCertification",
    "LogCheckpoint",
    "Transparency",
    "TransparencyLog",
    "logGroup",
]
