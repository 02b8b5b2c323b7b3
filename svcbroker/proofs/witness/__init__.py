"""
A witness of transparency logs, which partners of an operator run.

It cosigns the checkpoints of logs that have only grown, and refuses forks and roll-backs. One that
executes follows a log in a verified copy, and cosigns only what it has executed and found right.
"""

from ._executing import ExecutedCopy
from ._site import WitnessSite, describe
from ._statefile import Seen, WitnessError
from ._witness import KEY_NAME, Witness, makeWitness, resumeWitness
