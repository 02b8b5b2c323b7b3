"""
The genesis that all simulated chains of a size share. Their keys need not be secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256

from svcbroker.chain import Genesis
from svcbroker.ledgers.pbft._keys import publicKey

NOW = 1_700_000_000.0
"""The time at which all runs start: seconds since the epoch."""


@lru_cache(maxsize=64)
def seedsOf(nodes: int) -> Sequence[bytes]:
    """The private keys of a replica set."""
    return [sha256(b"node %d" % index).digest() for index in range(nodes)]


@lru_cache(maxsize=64)
def genesisOf(nodes: int) -> Genesis:
    """The genesis of a replica set's chain."""
    keys = tuple(publicKey(seed) for seed in seedsOf(nodes))
    return Genesis(group="1", created=int(NOW * 1000), validators=keys)
