"""
The private key of a transparency service: it signs receipts, and the statements of the service
itself, with ES256 or EdDSA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256, sha512
from typing import Any, Final, Literal, TypeAlias

import cbor2
from attrs import field, frozen
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from ._cose import CoseKey
from ._receipts import Claims

Signing: TypeAlias = Literal["ES256", "EdDSA"]
"""The ways in which a service signs."""

_ES256: Final = -7
_EDDSA: Final = -8
_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of P-256."""


@frozen
class ServiceKey:
    """
    A private key of P-256 or Ed25519.

    @ivar public: its public key, whose name is its thumbprint (RFC 9679).
    """

    _signer: Callable[[bytes], bytes] = field(repr=False, eq=False)
    public: CoseKey

    @classmethod
    def derive(cls, seed: bytes, signing: Signing = "ES256") -> ServiceKey:
        """
        The key that follows from a secret.

        @param seed: 32 bytes that cannot be guessed.
        """
        if signing == "EdDSA":
            secret = sha256(b"svcbroker Ed25519 " + seed).digest()
            signer = Ed25519PrivateKey.from_private_bytes(secret)
            raw = signer.public_key().public_bytes_raw()
            return cls(signer.sign, CoseKey.make({1: 1, 3: _EDDSA, -1: 6, -2: raw}))
        # 512 bits, so that no number is likelier than another.
        number = int.from_bytes(sha512(b"svcbroker P-256 " + seed).digest(), "big")
        private = ec.derive_private_key(number % (_ORDER - 1) + 1, ec.SECP256R1())
        point = private.public_key().public_numbers()
        x, y = (each.to_bytes(32, "big") for each in (point.x, point.y))

        def sign(data: bytes) -> bytes:
            r, s = decode_dss_signature(private.sign(data, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")

        return cls(sign, CoseKey.make({1: 2, 3: _ES256, -1: 1, -2: x, -3: y}))

    def statement(self, claims: Claims, contentType: str, payload: bytes) -> bytes:
        """Sign a statement."""
        return self.sign(self._header(claims) | {3: contentType}, payload)

    def sign(self, header: Mapping[int, Any], payload: bytes) -> bytes:
        """Sign a statement with any protected header."""
        return self._message(header, {}, payload, payload)

    def inclusion(
        self, claims: Claims, index: int, size: int, path: Sequence[bytes], root: bytes
    ) -> bytes:
        """
        Sign a receipt that a leaf is in a tree (RFC 9942).

        @param index: the number of the leaf, from 0.
        @param size: the number of leaves.
        @param path: the hashes that lead from the leaf to the root.
        """
        return self._receipt(claims, {-1: [cbor2.dumps([size, index, [*path]])]}, root)

    def consistency(
        self, claims: Claims, older: int, newer: int, path: Sequence[bytes], root: bytes
    ) -> bytes:
        """
        Sign a receipt that a tree has grown from a smaller one (RFC 9942).

        @param older: the number of leaves of the smaller one.
        @param newer: the number of leaves of the larger one.
        @param path: the hashes that lead from one to the other.
        @param root: the root of the larger one.
        """
        return self._receipt(claims, {-2: [cbor2.dumps([older, newer, [*path]])]}, root)

    def _header(self, claims: Claims) -> dict[int, Any]:
        return {1: self.public.only, 4: self.public.kid, 15: claims.fields}

    def _receipt(self, claims: Claims, proofs: Mapping[int, Any], root: bytes) -> bytes:
        return self._message(self._header(claims) | {395: 1}, {396: proofs}, None, root)

    def _message(
        self,
        header: Mapping[int, Any],
        unprotected: Mapping[int, Any],
        payload: bytes | None,
        signed: bytes,
    ) -> bytes:
        protected = cbor2.dumps(header)
        data = cbor2.dumps(["Signature1", protected, b"", signed])
        return b"\xd2" + cbor2.dumps([protected, unprotected, payload, self._signer(data)])
