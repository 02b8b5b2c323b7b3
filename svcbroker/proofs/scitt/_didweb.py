"""
Issuers whose names are C{did:web}: where such an issuer has its document, and which keys it has in
it for what it asserts.

The document is anybody's who has the web server. It is read once, for a policy: what is registered
later does not depend on it.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from attrs import evolve, frozen
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from .._documents import ProofInvalid
from ._cose import MAX_HEADER, CoseKey, fieldsOf

MAX_KEYS: Final = 100
"""The most keys of a document."""

_HOST: Final = r"(?:[A-Za-z0-9-]+\.)*[A-Za-z0-9-]*[A-Za-z-][A-Za-z0-9-]*"
_DID: Final = re.compile(
    rf"did:web:({_HOST})(?:%3[Aa]([0-9]{{1,5}}))?((?::[A-Za-z0-9._-]*[A-Za-z0-9_-])*)", re.ASCII
)
_DIGITS: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""Those of base58btc."""
_CURVES: Final[Mapping[str, ec.EllipticCurve]] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1()}
_PREFIXES: Final[Mapping[bytes, ec.EllipticCurve | None]] = {
    b"\xed\x01": None,
    b"\x80\x24": _CURVES["P-256"],
    b"\x81\x24": _CURVES["P-384"],
}
"""With what keys in C{publicKeyMultibase} begin, by their curves; C{None} for Ed25519."""


@frozen(kw_only=True)
class DidKeys:
    """
    The keys in a document.

    @ivar keys: each of them under two names: the fragment of its URL, and the URL.
    @ivar leftOut: the URLs of those of other kinds.
    """

    keys: Sequence[CoseKey]
    leftOut: Sequence[str]


def documentUrl(did: str) -> str:
    """
    The URL of the document of an issuer.

    @param did: such as C{did:web:acme.example} or C{did:web:acme.example%3A8443:legal}.
    @raise ProofInvalid: it is none that has one.
    """
    found = _DID.fullmatch(did)
    if found is None or int(found[2] or 1) not in range(1, 65536):
        raise ProofInvalid(
            "an issuer is named as did:web:acme.example or did:web:acme.example%3A8443:legal: a "
            "host's name, and parts of a path of letters, digits and ._-"
        )
    host = found[1] if found[2] is None else f"{found[1]}:{found[2]}"
    path = found[3].replace(":", "/") or "/.well-known"
    return f"https://{host}{path}/did.json"


def keysInDocument(did: str, data: bytes) -> DidKeys:
    """
    Read the keys by which an issuer asserts something.

    @param did: the issuer.
    @param data: its document.
    @raise ProofInvalid: it is not that of the issuer, is malformed, or has no such key.
    """
    if len(data) > MAX_HEADER:
        raise ProofInvalid(f"the document has more than {MAX_HEADER} bytes")
    try:
        fields = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise ProofInvalid("the document is no object in JSON") from None
    if fields.get("id") != did:
        raise ProofInvalid(f"the document is not of {did}")
    methods = {_urlOf(did, each): each for each in _listOf(fields, "verificationMethod")}
    keys: dict[bytes, CoseKey] = {}
    leftOut: list[str] = []
    for each in _listOf(fields, "assertionMethod"):
        url = _urlOf(did, each if isinstance(each, Mapping) else {"id": each})
        method = each if isinstance(each, Mapping) else methods.get(url)
        if method is None:
            raise ProofInvalid(f"the document has no key {url}, which it asserts by")
        key = _keyOf(method, url)
        if key is None:
            leftOut.append(url)
            continue
        for name in (url.partition("#")[2], url):
            if keys.setdefault(name.encode(), key) != key:
                raise ProofInvalid(f"the document has two keys of the name {name}")
    if not keys:
        raise ProofInvalid(
            "the document has no key of Ed25519, P-256 or P-384 for what the issuer asserts "
            "(assertionMethod)"
        )
    return DidKeys(keys=[evolve(key, kid=kid) for kid, key in keys.items()], leftOut=leftOut)


def _listOf(fields: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = fields.get(name, [])
    if not isinstance(value, list) or len(value) > MAX_KEYS:
        raise ProofInvalid(f"{name} of the document is no list of at most {MAX_KEYS}")
    return value


def _urlOf(did: str, method: Any) -> str:
    """The URL of a key, which a document may write without the issuer."""
    url = method.get("id") if isinstance(method, Mapping) else None
    if isinstance(url, str) and url.startswith("#"):
        url = did + url
    if not isinstance(url, str) or not url.startswith(f"{did}#") or url.endswith("#"):
        raise ProofInvalid("a key in the document has no name of this issuer")
    return url


def _keyOf(method: Mapping[str, Any], url: str) -> CoseKey | None:
    """
    The key of a method; C{None} where it is of another kind.

    @raise ProofInvalid: it is malformed.
    """
    jwk, text = method.get("publicKeyJwk"), method.get("publicKeyMultibase")
    try:
        if isinstance(jwk, Mapping):
            fields = _ofJwk(jwk)
        elif isinstance(text, str):
            fields = _ofMultibase(text)
        else:
            return None
        return None if fields is None else CoseKey.make(fields)
    except ProofInvalid as error:
        raise ProofInvalid(f"the key {url} in the document: {error}") from None
    except ValueError:
        raise ProofInvalid(f"the key {url} in the document is malformed") from None


def _ofJwk(jwk: Mapping[str, Any]) -> Mapping[int, Any] | None:
    """The COSE_Key of a JSON Web Key (RFC 7517)."""
    kind, curve = jwk.get("kty"), jwk.get("crv")
    if "d" in jwk:
        raise ValueError("a private key")
    if (kind, curve) == ("OKP", "Ed25519"):
        return fieldsOf(Ed25519PublicKey.from_public_bytes(_ofBase64(jwk.get("x"))))
    known = _CURVES.get(str(curve))
    if kind != "EC" or known is None:
        return None
    point = b"\x04" + _ofBase64(jwk.get("x")) + _ofBase64(jwk.get("y"))
    return fieldsOf(ec.EllipticCurvePublicKey.from_encoded_point(known, point))


def _ofBase64(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError("no text")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _ofMultibase(text: str) -> Mapping[int, Any] | None:
    """The COSE_Key of a key in multibase (base58btc), as C{Multikey} has it."""
    if len(text) > 100:
        return None
    number = 0
    for digit in text.removeprefix("z"):
        number = number * 58 + _DIGITS.index(digit)
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    if not text.startswith("z") or data[:2] not in _PREFIXES:
        return None
    curve = _PREFIXES[data[:2]]
    if curve is None:
        return fieldsOf(Ed25519PublicKey.from_public_bytes(data[2:]))
    return fieldsOf(ec.EllipticCurvePublicKey.from_encoded_point(curve, data[2:]))
