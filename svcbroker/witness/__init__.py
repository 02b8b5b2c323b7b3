"""
A witness of transparency logs, which partners of an operator run.

It cosigns the checkpoints of logs that have only grown, and refuses forks and roll-backs.
"""

from ._site import WitnessSite, describe
from ._state import LAST_NAME, STATE_NAME, Seen, WitnessError
from ._witness import KEY_NAME, Witness, makeWitness, resumeWitness

__all__ = [
    "KEY_NAME",
    "LAST_NAME",
    "STATE_NAME",
    "Seen",
    "Witness",
    "WitnessError",
    "WitnessSite",
    "describe",
    "makeWitness",
    "resumeWitness",
]
