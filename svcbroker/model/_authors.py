"""
Authors: the signature of an event's author, and the sets of authors that topics may have.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen
from msgspec import Struct

AUTHOR_KEY_SIZE: Final = 32
"""Bytes of an Ed25519 public key."""
SIGNATURE_SIZE: Final = 64
"""Bytes of an Ed25519 signature."""
MAX_AUTHORS: Final = 64
"""The most authors that a topic may have."""
MAX_ADMINS: Final = 16
"""The most keys that may change them."""
MAX_KEY_LENGTH: Final = 64
"""The most characters that an idempotency key may have."""


_IDEMPOTENCY_KEY = re.compile(rf"[!-~]{{1,{MAX_KEY_LENGTH}}}", re.ASCII)


def isIdempotencyKey(text: str) -> bool:
    """
    Whether a text can be an idempotency key: 1 to L{MAX_KEY_LENGTH} characters from U+0021 to
    U+007E.
    """
    return _IDEMPOTENCY_KEY.fullmatch(text) is not None


class Authorship(Struct, frozen=True, kw_only=True):
    """
    The author's signature of an event.

    @ivar key: the author's Ed25519 public key: 32 bytes.
    @ivar signedAt: the author's own time in milliseconds since the epoch.
    @ivar signature: the signature of the statement: 64 bytes; empty where it was erased with the
        content.
    @ivar statement: the version of the statement that is signed, 1 or 2. One of version 1 leaves
        the expected sequence number open.
    """

    key: bytes
    signedAt: int
    signature: bytes
    statement: int = 1


@frozen(kw_only=True)
class AuthorSet:
    """
    The authors who may publish to a topic.

    @ivar generation: how many sets there were before it.
    @ivar authors: the Ed25519 public keys (32 bytes each) of those who may publish, rising.
    @ivar admins: the public keys of those who may change the set, rising.
    """

    generation: int = 0
    authors: tuple[bytes, ...]
    admins: tuple[bytes, ...] = ()


@frozen(kw_only=True)
class AuthorChange:
    """
    A signed change of a topic's authors.

    @ivar following: the new set.
    @ivar admin: the public key of an admin of the current set.
    @ivar signature: its signature of the change.
    """

    following: AuthorSet
    admin: bytes
    signature: bytes
