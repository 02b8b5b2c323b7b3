"""
COSE: messages with one signature, and public keys (RFC 9052), of which no part can be read in two
ways.

What is read is encoded again and compared, so that one message has one form: its hash is that of a
leaf of somebody's tree. Sizes are checked before anything is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NoReturn

import cbor2
from attrs import evolve, frozen
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from nacl.bindings import crypto_core_ed25519_is_valid_point, crypto_sign_open
from nacl.exceptions import BadSignatureError

from .._documents import ProofInvalid

MAX_MESSAGE: Final = 2 * 1024 * 1024
"""Bytes of the longest message that is looked at."""

MAX_HEADER: Final = 64 * 1024
"""Bytes of the longest protected header, and of a file with keys."""

_TAGGED: Final = b"\xd2\x84"
"""The beginning of a message: tag 18, and an array of four."""

MAX_ITEMS: Final = 10_000
"""The most items of a message, a header or a set of keys: decoding more takes tens of
milliseconds."""

_MAX_DEPTH: Final = 8
_DECODED_TAGS: Final = (
    *(0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100),
    *(256, 258, 260, 261, 1004, 43000, 55799),
)
"""The tags that the library would make objects of."""

ALG: Final = 1
CRIT: Final = 2
KID: Final = 4


@frozen
class _Algorithm:
    """The signature of a kind of key, by its numbers in COSE."""

    names: Sequence[int]
    kind: int
    curve: int
    size: int
    coordinates: int
    verify: Callable[[Sequence[bytes], bytes, bytes], None]


def _refuseTag(decoder: object, tag: object = None) -> NoReturn:
    raise ValueError("a tag")


def decodeCbor(data: bytes, what: str) -> Any:
    """
    Decode one item of CBOR without tags, in its shortest form.

    @param what: what it is, for the error.
    @raise ProofInvalid: it is malformed, too deep or of too many items, or in another form.
    """
    if _hasManyItems(data):
        raise ProofInvalid(f"{what} has more than {MAX_ITEMS} items of CBOR")
    try:
        value = cbor2.loads(
            data,
            tag_hook=_refuseTag,
            semantic_decoders=dict.fromkeys(_DECODED_TAGS, _refuseTag),
            max_depth=_MAX_DEPTH,
            allow_indefinite=False,
            allow_duplicate_keys=False,
        )
        isWhole = cbor2.dumps(value) == data
    except (cbor2.CBORError, ValueError, TypeError, OverflowError, RecursionError):
        raise ProofInvalid(f"{what} is not CBOR that is read in one way alone") from None
    if not (isWhole and _hasPlainKeys(value)):
        raise ProofInvalid(f"{what} is not in the shortest form of CBOR, or has more behind it")
    return value


def _hasManyItems(data: bytes) -> bool:
    """
    Whether there are more items than L{MAX_ITEMS}: heads are counted, and strings skipped. What is
    malformed is left to the decoder.
    """
    place = count = 0
    while place < len(data):
        kind, length = data[place] >> 5, data[place] & 31
        place += 1
        if 24 <= length <= 27:
            size = 1 << length - 24
            length = int.from_bytes(data[place : place + size], "big")
            place += size
        if kind in (2, 3):
            place += length
        count += 1
        if count > MAX_ITEMS:
            return True
    return False


def _hasPlainKeys(value: Any) -> bool:
    """
    Whether no map has keys other than integers and strings: Python takes C{true} and 1.0 for 1, and
    others do not.
    """
    if isinstance(value, dict):
        isPlain = all(type(each) in (int, str, bytes) for each in value)
        return isPlain and all(map(_hasPlainKeys, value.values()))
    return all(map(_hasPlainKeys, value)) if isinstance(value, list) else True


@frozen
class CoseMessage:
    """
    A message with one signature: COSE_Sign1.

    @ivar protected: the signed header as it was sent.
    @ivar header: what it says.
    @ivar unprotected: the header that anybody may change.
    @ivar payload: what is signed; C{None} where it is not in the message.
    """

    protected: bytes
    header: Mapping[Any, Any]
    unprotected: Mapping[Any, Any]
    payload: bytes | None
    signature: bytes

    @classmethod
    def decode(cls, data: bytes, what: str) -> CoseMessage:
        """
        Read a message.

        @param what: what it is, for errors.
        @raise ProofInvalid: it is none.
        """
        if len(data) > MAX_MESSAGE:
            raise ProofInvalid(f"{what} has more than {MAX_MESSAGE} bytes")
        if not data.startswith(_TAGGED):
            raise ProofInvalid(f"{what} is no COSE_Sign1 with the tag 18")
        parts: Any = decodeCbor(data[1:], what)
        kinds = [type(each) for each in parts] if isinstance(parts, list) else []
        if kinds not in ([bytes, dict, kind, bytes] for kind in (bytes, type(None))):
            raise ProofInvalid(f"{what} has not the four parts of a COSE_Sign1")
        protected, unprotected, payload, signature = parts
        if len(protected) > MAX_HEADER:
            raise ProofInvalid(f"the header of {what} has more than {MAX_HEADER} bytes")
        header = decodeCbor(protected, f"the header of {what}")
        if not isinstance(header, dict):
            raise ProofInvalid(f"the header of {what} is no map")
        if CRIT in header:
            raise ProofInvalid(f"{what} has critical headers, which are not understood here")
        return cls(protected, header, unprotected, payload, signature)

    def withoutUnprotected(self) -> bytes:
        """
        The bytes of the message with an empty unprotected header: the entry of a statement in the
        tree of a service (RFC 9943, 6.3).
        """
        return evolve(self, unprotected={}).encode()

    def encode(self) -> bytes:
        """The message."""
        parts: list[Any] = [self.protected, self.unprotected, self.payload, self.signature]
        return _TAGGED[:1] + cbor2.dumps(parts)

    def verify(self, key: CoseKey, what: str, payload: bytes | None = None) -> None:
        """
        Verify the signature.

        @param what: what it is, for errors.
        @param payload: what is signed, where it is not in the message.
        @raise ProofInvalid: it is not that of the key.
        """
        if self.payload is not None:
            payload = self.payload
        if payload is None:
            raise ProofInvalid(f"{what} does not have what it signs")
        algorithm = self.header.get(ALG)
        if type(algorithm) is not int or algorithm not in key.algorithm.names:
            raise ProofInvalid(f"{what} is signed by another kind of key than the one trusted")
        if key.only not in (None, algorithm):
            raise ProofInvalid(f"{what} is signed in a way that is not its key's")
        signed = cbor2.dumps(["Signature1", self.protected, b"", payload])
        try:
            if len(self.signature) != key.algorithm.size:
                raise ValueError
            key.algorithm.verify(key.coordinates, signed, self.signature)
        except (InvalidSignature, BadSignatureError, ValueError):
            raise ProofInvalid(f"the signature of {what} is wrong") from None


@frozen
class CoseKey:
    """
    A public key that signatures are verified by.

    @ivar kid: its name: bytes that whoever uses it has chosen.
    @ivar only: the one algorithm that it is for, where it says so.
    """

    kid: bytes
    coordinates: Sequence[bytes]
    algorithm: _Algorithm
    only: int | None = None

    @property
    def thumbprint(self) -> bytes:
        """SHA-256 over the parts that are the key (RFC 9679)."""
        # All labels are of one byte, whose order is that of RFC 8949, 4.2.1.
        return sha256(cbor2.dumps(self._parts)).digest()

    @property
    def _parts(self) -> dict[int, Any]:
        """The parts that are the key."""
        parts: dict[int, Any] = {1: self.algorithm.kind, -1: self.algorithm.curve}
        return parts | {-2 - place: value for place, value in enumerate(self.coordinates)}

    @property
    def fields(self) -> Mapping[int, Any]:
        """The COSE_Key before it is encoded: L{make} makes the same key of it."""
        named: dict[int, Any] = {1: self.algorithm.kind, 2: self.kid}
        return named | ({} if self.only is None else {3: self.only}) | self._parts

    def encode(self) -> bytes:
        """The COSE_Key."""
        return cbor2.dumps(self.fields)

    @classmethod
    def make(cls, fields: Any) -> CoseKey:
        """
        Make one of a decoded COSE_Key.

        @raise ProofInvalid: it is none, or of a kind that is not known, or weak.
        """
        if not isinstance(fields, dict):
            raise ProofInvalid("a key is no map")
        for algorithm in _ALGORITHMS:
            if (fields.get(1), fields.get(-1)) == (algorithm.kind, algorithm.curve):
                break
        else:
            raise ProofInvalid("a key is neither of Ed25519, nor of P-256 or P-384")
        labels = (-2, -3)[: 1 + (algorithm.kind == _EC2)]
        coordinates = [fields.get(label) for label in labels]
        only = fields.get(3)
        if not all(isinstance(x, bytes) and len(x) == algorithm.coordinates for x in coordinates):
            raise ProofInvalid("a key has not the coordinates of its curve")
        if only is not None and only not in algorithm.names:
            raise ProofInvalid("a key is for an algorithm that is not of its curve")
        made = cls(b"", [x for x in coordinates if isinstance(x, bytes)], algorithm, only)
        if algorithm.kind == _EC2:
            _publicKey(made.coordinates)
        elif not crypto_core_ed25519_is_valid_point(made.coordinates[0]):
            raise ProofInvalid("a key of Ed25519 is weak: everything has a signature of it")
        kid = fields.get(2, made.thumbprint)
        if not isinstance(kid, bytes):
            raise ProofInvalid("the name of a key is not of bytes")
        return cls(kid, made.coordinates, algorithm, only)


def readKeys(data: bytes) -> Sequence[CoseKey]:
    """
    Read public keys: a COSE_KeySet as services have it at C{/.well-known/scitt-keys}, one COSE_Key,
    or one key in PEM, whose name is its thumbprint.

    @raise ProofInvalid: it is something else, or two keys have one name.
    """
    if len(data) > MAX_HEADER:
        raise ProofInvalid(f"the keys have more than {MAX_HEADER} bytes")
    fields = [_ofPem(data)] if data.startswith(b"-----BEGIN") else decodeCbor(data, "the keys")
    keys = [CoseKey.make(each) for each in (fields if isinstance(fields, list) else [fields])]
    if not keys:
        raise ProofInvalid("there is no key")
    if len({each.kid for each in keys}) < len(keys):
        raise ProofInvalid("two keys have one name")
    return keys


def encodeKeys(keys: Iterable[CoseKey]) -> bytes:
    """The COSE_KeySet of keys, as L{readKeys} reads it."""
    return cbor2.dumps([each.fields for each in keys])


def _ofPem(data: bytes) -> Mapping[int, Any]:
    """The fields of a key in PEM."""
    try:
        key = load_pem_public_key(data)
    except ValueError:
        raise ProofInvalid("the PEM has no public key") from None
    return fieldsOf(key)


def fieldsOf(key: object) -> Mapping[int, Any]:
    """
    The COSE_Key of a public key of C{cryptography}, as L{CoseKey.make} reads it.

    @raise ProofInvalid: it is of a kind that is not known.
    """
    if isinstance(key, Ed25519PublicKey):
        return {1: _OKP, -1: 6, -2: key.public_bytes_raw()}
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in _CURVES:
        raise ProofInvalid("a key is neither of Ed25519, nor of P-256 or P-384")
    numbers, size = key.public_numbers(), key.key_size // 8
    x, y = (each.to_bytes(size, "big") for each in (numbers.x, numbers.y))
    return {1: _EC2, -1: _CURVES[key.curve.name], -2: x, -3: y}


def _publicKey(coordinates: Sequence[bytes]) -> ec.EllipticCurvePublicKey:
    curve = ec.SECP256R1() if len(coordinates[0]) == 32 else ec.SECP384R1()
    point = b"\x04" + b"".join(coordinates)
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(curve, point)
    except ValueError:
        raise ProofInvalid("a key is not on its curve") from None


def _verifyEdDsa(coordinates: Sequence[bytes], signed: bytes, signature: bytes) -> None:
    # libsodium refuses what is of low order, for which anything verifies.
    crypto_sign_open(signature + signed, coordinates[0])


def _verifyEcDsa(coordinates: Sequence[bytes], signed: bytes, signature: bytes) -> None:
    half = len(signature) // 2
    r, s = (int.from_bytes(each, "big") for each in (signature[:half], signature[half:]))
    digest = hashes.SHA256() if half == 32 else hashes.SHA384()
    _publicKey(coordinates).verify(encode_dss_signature(r, s), signed, ec.ECDSA(digest))


_OKP: Final = 1
_EC2: Final = 2
_CURVES: Final = {"secp256r1": 1, "secp384r1": 2}
# EdDSA, ES256 and ES384, each with the name that RFC 9864 gives it.
_ALGORITHMS: Final = (
    _Algorithm((-8, -19), _OKP, 6, 64, 32, _verifyEdDsa),
    _Algorithm((-7, -9), _EC2, 1, 64, 32, _verifyEcDsa),
    _Algorithm((-35, -51), _EC2, 2, 96, 48, _verifyEcDsa),
)
