"""
Addresses of topics and accounts: 20 bytes, derived from names.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256

ADDRESS_SIZE = 20


def _derive(tag: bytes, chain: bytes, name: str) -> bytes:
    return sha256(tag + chain + name.encode("utf-8")).digest()[-ADDRESS_SIZE:]


@lru_cache(maxsize=4096)
def topicAddress(chain: bytes, name: str) -> bytes:
    """
    The address of a topic on a chain.

    @param chain: the chain's id: the hash of its genesis.
    """
    return _derive(b"svcbroker/topic\x00", chain, name)


@lru_cache(maxsize=4096)
def accountAddress(chain: bytes, name: str) -> bytes:
    """
    The address of an account that has no key of its own, but a name.

    @param chain: the chain's id: the hash of its genesis.
    """
    return _derive(b"svcbroker/account\x00", chain, name)


@lru_cache(maxsize=4096)
def keyAddress(chain: bytes, key: bytes) -> bytes:
    """
    The address of an account that has a key.

    @param chain: the chain's id: the hash of its genesis.
    @param key: its Ed25519 public key: 32 bytes.
    """
    return sha256(b"svcbroker/key\x00" + chain + key).digest()[-ADDRESS_SIZE:]
