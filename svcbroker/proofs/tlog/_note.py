"""
Signed notes: texts with the signatures of named keys (c2sp.org/signed-note).
"""

from __future__ import annotations

import importlib
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Self

from attrs import frozen
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ...chain import Malformed, isUsableKey, verifySignature

MAX_NOTE_SIZE: Final = 64 * 1024
"""No note is longer, in bytes."""
MAX_SIGNATURES: Final = 64
"""No note has more signatures."""
EXECUTED: Final = "/executed"
"""
The end of the names of keys whose witnesses cosign only what they have executed. A name cannot have
a plus sign, with which the parts of a vkey are joined.
"""
KEY_ID_SIZE: Final = 4
KEY_SIZE: Final = 32
ML_DSA_KEY_SIZE: Final = 1312

_ML_DSA_SEED: Final = b"svcbroker witness ML-DSA-44\x00"
_STAMP_SIZE: Final = 8
_SIGNATURE_LINE: Final = re.compile(r"\u2014 ([^\s+]+) ([A-Za-z0-9+/]+=*)")
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")
_NAME: Final = re.compile(r"[^\s+\x00-\x1f]+")
_KEY_ID: Final = re.compile(r"[0-9a-f]{8}")


class KeyType(IntEnum):
    """
    The kinds of signatures, by the identifiers of the specification. A cosignature is of Ed25519 or
    of ML-DSA-44.
    """

    ED25519 = 1
    COSIGNATURE = 4
    ML_DSA_COSIGNATURE = 6


class SignatureRefused(Exception):
    """A note whose signatures are not those that are wanted. The text says why."""


def checkName(name: str) -> str:
    """
    The name of a key, or the origin of a log.

    @raise Malformed: it is empty, or has spaces, plus signs or control characters.
    """
    if not _NAME.fullmatch(name) or not name.isprintable():
        raise Malformed(f"{name[:80]!r} is no name: it is empty, or has a space or a plus sign")
    return name


def keyId(name: str, type: KeyType, key: bytes) -> bytes:
    """The id that stands in the signatures of a public key."""
    return sha256(b"%b\n%c%b" % (name.encode(), type, key)).digest()[:KEY_ID_SIZE]


def decodeBase64(text: str) -> bytes:
    """
    Bytes in standard base64, in their only encoding.

    @raise Malformed: they are in another one.
    """
    try:
        data = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise Malformed(f"{text[:80]!r} is not base64") from None
    if b64encode(data).decode("ascii") != text:
        raise Malformed(f"{text[:80]!r} is not the only base64 of its bytes")
    return data


@frozen
class NoteSignature:
    """
    A signature of a note.

    @ivar name: the key's name.
    @ivar keyId: the key's id: 4 bytes.
    @ivar signature: what follows the id; its meaning depends on the key's type.
    """

    name: str
    keyId: bytes
    signature: bytes

    @property
    def line(self) -> str:
        """The line of it, with the newline."""
        data = b64encode(self.keyId + self.signature).decode("ascii")
        return f"\N{EM DASH} {self.name} {data}\n"

    @classmethod
    def parse(cls, line: str) -> NoteSignature:
        """
        Read a line, without its newline.

        @raise Malformed: it is none.
        """
        match = _SIGNATURE_LINE.fullmatch(line)
        if match is None:
            raise Malformed(f"{line[:80]!r} is not the line of a signature")
        data = decodeBase64(match[2])
        if len(data) <= KEY_ID_SIZE:
            raise Malformed(f"{line[:80]!r} has no signature")
        return cls(match[1], data[:KEY_ID_SIZE], data[KEY_ID_SIZE:])


@frozen
class Note:
    """
    A text with signatures, of which none is verified yet.

    @ivar text: the text, which ends in a newline.
    @ivar signatures: in their order.
    """

    text: str
    signatures: Sequence[NoteSignature] = ()

    @classmethod
    def decode(cls, data: bytes) -> Note:
        """
        Read a note.

        @raise Malformed: it is none, or longer than L{MAX_NOTE_SIZE}, or has more than
            L{MAX_SIGNATURES}.
        """
        if len(data) > MAX_NOTE_SIZE:
            raise Malformed(f"the note is longer than {MAX_NOTE_SIZE} bytes")
        try:
            whole = data.decode("utf-8")
        except UnicodeDecodeError:
            raise Malformed("the note is not UTF-8") from None
        if _CONTROL.search(whole):
            raise Malformed("the note has control characters")
        text, separator, rest = whole.rpartition("\n\n")
        if not separator or not rest.endswith("\n"):
            raise Malformed("the note has no signatures")
        lines = rest[:-1].split("\n")
        if len(lines) > MAX_SIGNATURES:
            raise Malformed(f"the note has more than {MAX_SIGNATURES} signatures")
        return cls(text + "\n", tuple(NoteSignature.parse(line) for line in lines))

    def encode(self) -> bytes:
        """The bytes of the note."""
        return (self.text + "\n" + "".join(each.line for each in self.signatures)).encode()

    def signedBy(self, *signatures: NoteSignature) -> Note:
        """The note with more signatures; those that it has already are left out."""
        added = [each for each in signatures if each not in self.signatures]
        return Note(self.text, (*self.signatures, *added))

    def verified(self, keys: Iterable[VerifierKey]) -> Sequence[tuple[VerifierKey, NoteSignature]]:
        """
        The signatures of known keys, each of which is verified. Those of other keys are ignored.

        @raise SignatureRefused: the signature of a known key is not valid.
        """
        known = {(key.name, key.id): key for key in keys}
        found = []
        for each in self.signatures:
            key = known.get((each.name, each.keyId))
            if key is None:
                continue
            if not key.isValid(self.text, each.signature):
                raise SignatureRefused(f"the signature of {key.name} is not valid")
            found.append((key, each))
        return found


@frozen
class VerifierKey:
    """
    A public key with its name: a vkey.

    @ivar name: the name.
    @ivar type: what its signatures are.
    @ivar key: the public key: 32 bytes of Ed25519, or 1,312 of ML-DSA-44.
    """

    name: str
    type: KeyType
    key: bytes

    @property
    def id(self) -> bytes:
        """The id that stands in its signatures: 4 bytes."""
        return keyId(self.name, self.type, self.key)

    @property
    def isExecuting(self) -> bool:
        """Whether it is a key of a witness that cosigns only what it has executed, by its name."""
        return self.isWitness and self.name.endswith(EXECUTED)

    @property
    def isWitness(self) -> bool:
        """Whether its signatures are cosignatures."""
        return self.type is not KeyType.ED25519

    @property
    def text(self) -> str:
        """The vkey."""
        data = b64encode(bytes((self.type,)) + self.key).decode("ascii")
        return f"{self.name}+{self.id.hex()}+{data}"

    @classmethod
    def parse(cls, text: str) -> VerifierKey:
        """
        Read a vkey.

        @raise Malformed: it is none, or one of an algorithm that is not supported.
        """
        name, _, rest = text.partition("+")
        id, _, encoded = rest.partition("+")
        checkName(name)
        data = decodeBase64(encoded)
        if not _KEY_ID.fullmatch(id) or not data:
            raise Malformed(f"{text[:120]!r} is not a key: NAME+ID+BASE64 is one")
        try:
            type = KeyType(data[0])
        except ValueError:
            raise Malformed(f"keys of type {data[0]} are not supported: {text[:120]!r}") from None
        key = cls(name, type, data[1:])
        isMlDsa = type is KeyType.ML_DSA_COSIGNATURE
        size = ML_DSA_KEY_SIZE if isMlDsa else KEY_SIZE
        if len(key.key) != size:
            raise Malformed(f"{text[:120]!r} has not {size} bytes")
        if isMlDsa and _mlDsa() is None:
            raise Malformed(f"the key of {name} is of ML-DSA-44, which {_NEEDED} has")
        if not isMlDsa and not isUsableKey(key.key):
            raise Malformed(f"{text[:120]!r} is not a usable Ed25519 key")
        if key.id.hex() != id:
            raise Malformed(f"the id in {text[:120]!r} is not that of its name and key")
        return key

    def isValid(self, text: str, signature: bytes) -> bool:
        """Whether a signature of a note, without its key's id, is one of this key's."""
        if self.type is KeyType.ED25519:
            return verifySignature(self.key, text.encode(), signature)
        stamp, signed = signature[:_STAMP_SIZE], signature[_STAMP_SIZE:]
        if self.type is KeyType.ML_DSA_COSIGNATURE:
            return self._isMlDsaValid(text, stamp, signed)
        if len(signed) != 64:
            return False
        return verifySignature(self.key, cosignedText(text, stamp), signed)

    def _isMlDsaValid(self, text: str, stamp: bytes, signature: bytes) -> bool:
        library = _mlDsa()
        if library is None:
            return False
        try:
            public = library.MLDSA44PublicKey.from_public_bytes(self.key)
            public.verify(signature, cosignedTree(self.name, text, stamp))
        except (InvalidSignature, ValueError):
            return False
        return True

    def timeOf(self, signature: NoteSignature) -> int:
        """
        The time at which a cosignature was made, in seconds since the epoch.
        """
        return int.from_bytes(signature.signature[:_STAMP_SIZE], "big")


def cosignedText(text: str, time: bytes) -> bytes:
    """
    The text that a cosignature signs (c2sp.org/tlog-cosignature, Ed25519).

    @param text: the text of the note.
    @param time: the time: 8 bytes, big-endian.
    """
    return f"cosignature/v1\ntime {int.from_bytes(time, 'big')}\n{text}".encode()


def cosignedTree(name: str, text: str, time: bytes) -> bytes:
    """
    The bytes that a cosignature signs (c2sp.org/tlog-cosignature, ML-DSA-44).

    @param name: the witness's name.
    @param text: the text of the note, of which only the first three lines are signed.
    @param time: the time: 8 bytes, big-endian.
    @raise ValueError: it is no checkpoint.
    """
    origin, size, root, *_ = text.split("\n")
    names = [each.encode() for each in (name, origin)]
    digest = decodeBase64(root)
    if not all(0 < len(each) < 256 for each in names) or len(digest) != 32:
        raise ValueError("this is no checkpoint")
    parts = [b"subtree/v1\n\0", *_prefixed(names[0]), time, *_prefixed(names[1])]
    return b"".join([*parts, bytes(8), int(size).to_bytes(8, "big"), digest])


def _prefixed(data: bytes) -> tuple[bytes, bytes]:
    return bytes((len(data),)), data


_NEEDED: Final = "cryptography 48 or later"


@lru_cache(maxsize=1)
def _mlDsa() -> Any:
    """The library's module of ML-DSA; C{None} where it is too old, or made without."""
    try:
        library = importlib.import_module("cryptography.hazmat.primitives.asymmetric.mldsa")
        library.MLDSA44PrivateKey.from_seed_bytes(bytes(KEY_SIZE))
    except (ImportError, AttributeError, UnsupportedAlgorithm):
        return None
    return library


class _Key:
    """
    A private key with its name.

    @ivar verifier: its public half.
    """

    type: KeyType

    def __init__(self, name: str, seed: bytes) -> None:
        """
        @param seed: the Ed25519 private key: 32 bytes.
        @raise Malformed: the name is none.
        """
        self._private = Ed25519PrivateKey.from_private_bytes(seed)
        public = self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.verifier = VerifierKey(checkName(name), self.type, public)


class LogKey(_Key):
    """
    The private key of a log.
    """

    type = KeyType.ED25519

    def sign(self, text: str) -> NoteSignature:
        """Sign the text of a note, which ends in a newline."""
        return NoteSignature(
            self.verifier.name, self.verifier.id, self._private.sign(text.encode())
        )


class WitnessKey(_Key):
    """
    The private key of a witness.
    """

    type = KeyType.COSIGNATURE

    def cosign(self, text: str, time: int) -> NoteSignature:
        """
        Cosign a checkpoint.

        @param text: the text of its note.
        @param time: the time, in seconds since the epoch.
        """
        stamp = time.to_bytes(_STAMP_SIZE, "big")
        signature = self._private.sign(cosignedText(text, stamp))
        return NoteSignature(self.verifier.name, self.verifier.id, stamp + signature)


class MlDsaWitnessKey:
    """
    The private key of ML-DSA-44 of a witness, which follows from its other one: quantum computers
    cannot forge its cosignatures.

    @ivar verifier: its public half.
    """

    def __init__(self, library: Any, name: str, seed: bytes) -> None:
        """
        Private: call L{of}.
        """
        second = sha256(_ML_DSA_SEED + seed).digest()
        self._private = library.MLDSA44PrivateKey.from_seed_bytes(second)
        public = self._private.public_key().public_bytes_raw()
        self.verifier = VerifierKey(checkName(name), KeyType.ML_DSA_COSIGNATURE, public)

    @classmethod
    def of(cls, name: str, seed: bytes) -> Self | None:
        """
        The key of a witness; C{None} where the library has no ML-DSA.

        @param seed: the private key of its L{WitnessKey}.
        @raise Malformed: the name is none.
        """
        library = _mlDsa()
        return None if library is None else cls(library, name, seed)

    def cosign(self, text: str, time: int) -> NoteSignature:
        """See L{WitnessKey.cosign}."""
        stamp = time.to_bytes(_STAMP_SIZE, "big")
        signature = self._private.sign(cosignedTree(self.verifier.name, text, stamp))
        return NoteSignature(self.verifier.name, self.verifier.id, stamp + signature)
