"""
Hash Envelopes (RFC 9995): the payload of a statement is the hash of a content that is elsewhere, so
that the content can be forgotten and the statement stays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from attrs import frozen

from .._documents import ProofInvalid
from ._cose import CoseMessage

_CONTENT_TYPE: Final = 3
_ALGORITHM: Final = 258
_TYPE: Final = 259
_LOCATION: Final = 260

_PIECE: Final = 1024 * 1024

_HASHES: Final[dict[int, tuple[str, Callable[[], Any]]]] = {
    -16: ("SHA-256", hashlib.sha256),
    -43: ("SHA-384", hashlib.sha384),
    -44: ("SHA-512", hashlib.sha512),
}


@frozen(kw_only=True)
class HashEnvelope:
    """
    The signed description of a content that is elsewhere.

    @ivar algorithm: the hash, by its number in COSE.
    @ivar contentType: the media type of the content, or its number in CoAP; C{None} where it is not
        said.
    @ivar location: where the content is, such as a URL; C{None} where it is not said.
    """

    algorithm: int
    contentType: str | int | None = None
    location: str | None = None

    @property
    def hashName(self) -> str | None:
        """The name of the hash; C{None} for one that is not known here."""
        return _HASHES[self.algorithm][0] if self.algorithm in _HASHES else None

    @classmethod
    def of(cls, message: CoseMessage) -> HashEnvelope | None:
        """
        Read that of a statement.

        @return: C{None} where its payload is the content itself.
        @raise ProofInvalid: it is malformed.
        """
        header, unsigned = message.header, message.unprotected
        if any(each in unsigned for each in (_ALGORITHM, _TYPE, _LOCATION)):
            raise ProofInvalid("the statement describes its content in its unsigned header")
        if _ALGORITHM not in header:
            if _TYPE in header or _LOCATION in header:
                raise ProofInvalid("the statement describes a content, and does not say its hash")
            return None
        if _CONTENT_TYPE in header or _CONTENT_TYPE in unsigned:
            raise ProofInvalid("the statement has a hash, and a type of what is not in it")
        algorithm, kind, location = (header.get(x) for x in (_ALGORITHM, _TYPE, _LOCATION))
        if type(algorithm) is not int:
            raise ProofInvalid("the hash of the statement is not named by its number")
        if not (kind is None or isinstance(kind, str) or (type(kind) is int and kind >= 0)):
            raise ProofInvalid("the type of the content is neither a text nor a number")
        if not (location is None or isinstance(location, str)):
            raise ProofInvalid("the location of the content is no text")
        found = cls(algorithm=algorithm, contentType=kind, location=location)
        if algorithm in _HASHES and message.payload is not None:
            name, make = _HASHES[algorithm]
            if len(message.payload) != make().digest_size:
                raise ProofInvalid(f"the payload of the statement is no {name}")
        return found

    def digest(self, content: BinaryIO) -> bytes:
        """
        The hash of a content of any size.

        @param content: a file that was opened.
        @raise ProofInvalid: this hash is not known here.
        """
        if self.algorithm not in _HASHES:
            raise ProofInvalid(f"the hash {self.algorithm} of the statement is not known here")
        made = _HASHES[self.algorithm][1]()
        while piece := content.read(_PIECE):
            made.update(piece)
        digest: bytes = made.digest()
        return digest
