"""
Signing events with an author's key.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen


@frozen
class AuthorKey:
    """
    An author's private key: Ed25519.

    @ivar public: the public key, 32 bytes: who the author is to readers.
    """

    public: bytes
    _private: Any

    @classmethod
    def read(cls, path: str | Path, password: bytes | None = None) -> AuthorKey:
        """
        Read a key in PEM, as C{openssl genpkey -algorithm ed25519} makes it.

        @param password: that of an encrypted file.
        @raise OSError: the file cannot be read.
        @raise ValueError: it is not such a key.
        """
        # Clients that sign nothing do without cryptography.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            private = load_pem_private_key(Path(path).read_bytes(), password)
        except TypeError as error:
            raise ValueError(f"{path}: {error}") from None
        if not isinstance(private, Ed25519PrivateKey):
            raise ValueError(f"{path} is not an Ed25519 key")
        return cls(private.public_key().public_bytes_raw(), private)

    def sign(
        self,
        *,
        chain: bytes,
        topic: str,
        content: bytes,
        extensions: Mapping[str, str],
        idempotencyKey: str | None,
        signedAt: int,
    ) -> dict[str, Any]:
        """
        Sign an event.

        @param chain: the id of the chain that it is published to.
        @param signedAt: the time, in milliseconds since the epoch.
        @return: the parameters of the publish that say so.
        """
        from ..chain import statement

        signed = statement(chain, topic, content, signedAt, idempotencyKey, extensions)
        return {
            "author": self.public.hex(),
            "signature": self._private.sign(signed).hex(),
            "signedAt": signedAt,
        }
