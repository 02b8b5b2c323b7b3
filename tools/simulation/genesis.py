"""
The genesis that all simulated chains of a size share. Their keys need not be secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256

from nacl.bindings import crypto_sign, crypto_sign_seed_keypair

from svcbroker.chain import Genesis
from svcbroker.ledgers.pbft._keys import SIGNATURE_SIZE, SignatureVerifier, publicKey

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


def secretOf(seed: bytes) -> bytes:
    """A private key in the form that L{sign} needs."""
    return crypto_sign_seed_keypair(seed)[1]


def sign(secret: bytes, payload: bytes) -> bytes:
    """A signature over a payload."""
    return crypto_sign(payload, secret)[:SIGNATURE_SIZE]


@lru_cache(maxsize=64)
def _secretsOf(nodes: int) -> Sequence[bytes]:
    return [secretOf(seed) for seed in seedsOf(nodes)]


class SigningVerifier(SignatureVerifier):
    """
    Verifies signatures by signing again, which takes a fifth of the time: the simulation has all
    private keys, and Ed25519 signatures are deterministic.
    """

    def __init__(self, nodes: int) -> None:
        super().__init__(genesisOf(nodes).validators)
        self._secrets = _secretsOf(nodes)
        self._signed: dict[tuple[int, bytes], bytes] = {}

    def verify(self, index: int, payload: bytes, signature: bytes) -> bool:
        if not 0 <= index < len(self._secrets):
            return False
        known = self._signed.get((index, payload))
        if known is None:
            known = sign(self._secrets[index], payload)
            self.addSigned(index, payload, known)
        return known == signature

    def addSigned(self, index: int, payload: bytes, signature: bytes) -> None:
        self._signed[index, payload] = signature
