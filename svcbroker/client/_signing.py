"""
Signing events with an author's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from ..files import readFile


class PassphraseMissing(ValueError):
    """The key's file is encrypted, and no passphrase was given."""


@frozen
class AuthorKey:
    """
    An author's private key: Ed25519.

    @ivar public: the public key, 32 bytes: who the author is to readers.
    @ivar statement: the highest version of statements that it signs: 2, or 1 for networks that do
        not have format 4 yet. Version 2 is for events with an expected sequence number, which one
        of version 1 leaves open.
    """

    public: bytes
    _private: Any
    statement: int = 2

    @classmethod
    def read(cls, path: str | Path, password: bytes | None = None, statement: int = 2) -> AuthorKey:
        """
        Read a key in PEM, as C{openssl genpkey -algorithm ed25519} makes it.

        @param password: that of an encrypted file.
        @param statement: see L{AuthorKey}.
        @raise OSError: the file cannot be read.
        @raise PassphraseMissing: it is encrypted, and there is no password.
        @raise ValueError: it is not such a key, or the password is wrong; C{statement} is neither
            1 nor 2.
        """
        # Clients that sign nothing do without cryptography.
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        if statement not in (1, 2):
            raise ValueError("statement: is neither 1 nor 2")
        data = readFile(path)
        isEncrypted = b"ENCRYPTED" in data
        if isEncrypted and password is None:
            raise PassphraseMissing(f"{path} is encrypted: its passphrase is needed")
        try:
            private: Any = load_pem_private_key(data, password if isEncrypted else None)
        except (TypeError, ValueError, UnsupportedAlgorithm):
            if isEncrypted:
                raise ValueError(f"{path}: the passphrase is not the right one") from None
            private = None
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError(f"{path} has no Ed25519 private key")
        return cls(private.public_key().public_bytes_raw(), private, statement)

    def sign(
        self,
        *,
        chain: bytes,
        topic: str,
        content: bytes,
        extensions: Mapping[str, str],
        idempotencyKey: str | None,
        signedAt: int,
        expectedSequence: int | None = None,
    ) -> dict[str, Any]:
        """
        Sign an event.

        @param chain: the id of the chain that it is published to.
        @param signedAt: the time, in milliseconds since the epoch.
        @param expectedSequence: the sequence number that the topic must have.
        @return: the parameters of the publish that say so.
        """
        from ..chain import statement

        signed = statement(
            chain,
            topic,
            content,
            signedAt,
            idempotencyKey,
            extensions,
            1 if expectedSequence is None else self.statement,
            expectedSequence,
        )
        return {
            "author": self.public.hex(),
            "signature": self._private.sign(signed).hex(),
            "signedAt": signedAt,
        }
