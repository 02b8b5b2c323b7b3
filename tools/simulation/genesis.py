"""
The beginning that all chains of a size have in common. Keys do not matter to what is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256

from svcbroker.chain import Genesis
from svcbroker.ledgers.pbft._keys import publicKey

NOW = 1_700_000_000.0
"""When all runs begin: seconds since the epoch."""


@lru_cache(maxsize=64)
def seedsOf(nodes: int) -> Sequence[bytes]:
    """The private keys of a set of nodes."""
    return [sha256(b"node %d" % index).digest() for index in range(nodes)]


@lru_cache(maxsize=64)
def genesisOf(nodes: int) -> Genesis:
    """The beginning of a chain of a set of nodes."""
    keys = tuple(publicKey(seed) for seed in seedsOf(nodes))
    return Genesis(group="1", created=int(NOW * 1000), validators=keys)
