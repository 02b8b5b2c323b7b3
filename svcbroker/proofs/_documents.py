"""
Documents of proofs: reading JSON of which no part can be read in two ways; and checkpoints,
published or kept by third parties, so that rewriting a chain before them is noticed.

B{Frozen}: what is read, and what is refused, is pinned by C{docs/vectors/proofs.json}.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from typing import Any, Final, NoReturn, TypeVar

import msgspec
from attrs import frozen

from ..chain import Genesis, Header, Malformed
from ._format import GenesisFields

_TEXT = re.compile(r"(0|[1-9][0-9]{0,18}):([0-9a-f]{64})", re.ASCII)


T = TypeVar("T")

MAX_PROOF_SIZE: Final = 1 << 28
"""Bytes of the longest proof that is looked at."""


@frozen
class Checkpoint:
    """
    The height and hash of a block.

    @ivar height: its height.
    @ivar hash: its hash: 32 bytes.
    """

    height: int
    hash: bytes

    def __str__(self) -> str:
        """The textual form: C{HEIGHT:HASH}."""
        return f"{self.height}:{self.hash.hex()}"

    @classmethod
    def of(cls, header: Header) -> Checkpoint:
        """The checkpoint that a header is."""
        return cls(header.height, header.hash)

    @classmethod
    def parse(cls, text: str) -> Checkpoint:
        """
        Read what C{str} wrote.

        @raise ValueError: it is something else.
        """
        found = _TEXT.fullmatch(text.strip())
        if found is None:
            raise ValueError("a checkpoint is HEIGHT:HASH, with 64 hexadecimal digits")
        return cls(int(found[1]), bytes.fromhex(found[2]))


class ProofInvalid(ValueError):
    """A proof that does not prove what it says. The text says why, in one line."""


def checkTrusted(chain: bytes | None, checkpoint: Checkpoint | None) -> None:
    """
    Check that a verifier trusts something, before it reads a proof.

    @raise ProofInvalid: it does not.
    """
    if chain is None and checkpoint is None:
        raise ProofInvalid("nothing is trusted: give the chain's genesis or a checkpoint")


def checkChain(proved: bytes, trusted: bytes | None) -> None:
    """
    Check that a proof is of the trusted chain, if one is trusted.

    @raise ProofInvalid: it is of another one.
    """
    if trusted is not None and proved != trusted:
        raise ProofInvalid(f"it is of chain {proved.hex()}, which is not the trusted one")


def readFields(type: type[T], data: bytes, what: str) -> T:
    """
    Read a document of a proof's kind: bare, as REST answers it, or in the response of JSON-RPC.

    @param what: what it ought to be, for the reader.
    @raise ProofInvalid: it is not one.
    """
    try:
        return msgspec.convert(readDocument(data, what), type)
    except msgspec.ValidationError as error:
        raise ProofInvalid(f"this is not {what}: {error}") from None


def formatOf(data: bytes) -> str:
    """
    The format that a proof names: its member C{format}.

    @raise ProofInvalid: it says nothing.
    """
    document = readDocument(data, "a proof")
    found = document.get("format") if isinstance(document, dict) else None
    if not isinstance(found, str):
        raise ProofInvalid("this is not a proof: it names no format")
    return found


def readGenesis(data: bytes) -> Genesis:
    """
    Read a genesis file, as C{svcbroker chain genesis} writes it.

    @raise ProofInvalid: it is not one.
    """
    try:
        return readFields(GenesisFields, data, "a genesis").genesis()
    except Malformed as error:
        raise ProofInvalid(str(error)) from None


def readCheckpoint(data: bytes) -> Checkpoint:
    """
    Read a checkpoint: C{HEIGHT:HASH}, or what the operation
    C{checkpoint} answered.

    @raise ProofInvalid: it is not one.
    """
    text: Any = None
    if data.lstrip()[:1] == b"{":
        document = readDocument(data, "a checkpoint")
        if isinstance(document, dict):
            text = document.get("checkpoint")
    else:
        text = data[:200].decode("ascii", "replace")
    try:
        return Checkpoint.parse(text)
    except (ValueError, TypeError, AttributeError):
        raise ProofInvalid("this is not a checkpoint: HEIGHT:HASH") from None


def readDocument(data: bytes, what: str) -> Any:
    """
    Read JSON: bare, or the result in the response of JSON-RPC.

    @param what: what it ought to be, for the reader.
    @raise ProofInvalid: it is not JSON, or a broker's refusal.
    """
    if len(data) > MAX_PROOF_SIZE:
        raise ProofInvalid(f"{what} is never as long as {len(data)} bytes")
    try:
        document = json.loads(
            data.decode("utf-8"), object_pairs_hook=_members, parse_constant=_refuse
        )
        if b"\\u" in data:
            # An escape can be half of a surrogate pair, which no text is.
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except ProofInvalid:
        raise
    except (ValueError, RecursionError) as error:
        raise ProofInvalid(f"this is not {what}: {error}") from None
    if isinstance(document, dict) and "jsonrpc" in document:
        document = document.get("result", document.get("error"))
    if isinstance(document, dict) and isinstance(document.get("message"), str):
        raise ProofInvalid(f"this is a broker's refusal: {document['message']}")
    return document


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    # What one reader takes for the content another must not read over.
    if len(members) != len(pairs):
        raise ProofInvalid("an object has a member twice")
    return members


def _refuse(constant: str) -> NoReturn:
    raise ProofInvalid(f"{constant} is not a number")


def base64url(data: bytes) -> str:
    """URL-safe Base64 without padding, as documents of JOSE and COSE have it."""
    return urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
