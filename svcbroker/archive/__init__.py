"""
What is done with stored chains: proofs are made from them, they are audited, exported, imported
and backed up. Nothing here decides anything or waits for anybody; no Twisted.
"""

from ._history import storedHistory
from ._prover import Prover

__all__ = ["Prover", "storedHistory"]
