"""
An issuer of tokens for tests.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

AUDIENCE = "broker"
ISSUER = "https://id.example.org"

_CURVES: dict[str, Any] = {
    "ES256": ec.SECP256R1,
    "ES384": ec.SECP384R1,
    "ES512": ec.SECP521R1,
    "ES256K": ec.SECP256K1,
}


class Key:
    """
    A key of the issuer.

    @ivar private: the key.
    """

    def __init__(self, keyId: str | None, algorithm: str, bits: int = 2048) -> None:
        self.keyId, self.algorithm = keyId, algorithm
        self.private: Any
        if algorithm in _CURVES:
            self.private = ec.generate_private_key(_CURVES[algorithm]())
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = rsa.generate_private_key(public_exponent=65537, key_size=bits)

    def public(self, **more: Any) -> dict[str, Any]:
        """Its public half, as a key set has it."""
        methods: Any = get_default_algorithms()[self.algorithm]
        made: dict[str, Any] = json.loads(methods.to_jwk(self.private.public_key()))
        made.pop("key_ops", None)
        return {**made, **({"kid": self.keyId} if self.keyId else {}), **more}

    def sign(self, algorithm: str | None = None, headers: Any = None, **claims: Any) -> str:
        """A token; a claim that is C{None} is left out."""
        all_ = {"sub": "ann", "aud": AUDIENCE, "iss": ISSUER, "exp": 1000, **claims}
        header = {"kid": self.keyId} if self.keyId else {}
        return jwt.encode(
            {name: value for name, value in all_.items() if value is not None},
            self.private,
            algorithm or self.algorithm,
            {**header, **(headers or {})},
        )


@cache
def someKey(keyId: str, algorithm: str) -> Key:
    """A key that all tests of this process share."""
    return Key(keyId, algorithm)


def keySet(*keys: Key | dict[str, Any]) -> bytes:
    """A key set."""
    listed = [each.public() if isinstance(each, Key) else each for each in keys]
    return json.dumps({"keys": listed}).encode()
