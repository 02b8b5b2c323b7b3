"""
The transparency log of a group: its chain as a log that strangers follow by tiles and checkpoints.

Entry C{n} of the log is the hash of the header of block C{n}, genesis included. So a log of size
C{n} has the root that the header of block C{n} holds as its history, and nothing is stored for it.
"""

from ._logservice import Transparency
from ._transparencylog import LOG_TOPIC, CheckpointLines, LogKeyRecord
