"""
Change documents: a change of a chain's validator set, which organisations pass on until enough have
signed.

A document names the current and the following set, and carries signatures over both. Every reader
verifies all of it, so the channel need not be trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec
from attrs import evolve, frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from ..chain import (
    MAX_VALIDATORS,
    Malformed,
    ValidatorChange,
    ValidatorSet,
    changePayload,
    quorum,
    verifySignature,
)

MAX_DOCUMENT: Final = 256 * 1024
"""The most bytes of a document."""


class DocumentInvalid(Exception):
    """A change document that cannot be used. The text is one line for the operator."""


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The file of a document. Keys and signatures are in hexadecimal digits.

    @ivar generation: the generation of the current set.
    @ivar signatures: by the signers' keys.
    """

    kind: Literal["svcbroker-change"] = "svcbroker-change"
    chain: str
    generation: int
    current: list[str]
    following: list[str]
    signatures: dict[str, str]


@frozen(kw_only=True)
class ChangeDocument:
    """
    A change of the validator set that is being signed.

    @ivar chain: the chain's id.
    @ivar current: the set before the change.
    @ivar following: the set after the change.
    @ivar signatures: valid signatures, by public key. A validator of the current set approves by
        its signature, one of the following set accepts.
    """

    chain: bytes
    current: ValidatorSet
    following: ValidatorSet
    signatures: Mapping[bytes, bytes]

    @property
    def added(self) -> Sequence[bytes]:
        """The keys that are added."""
        return [key for key in self.following.keys if key not in self.current.keys]

    @property
    def removed(self) -> Sequence[bytes]:
        """The keys that are removed."""
        return [key for key in self.current.keys if key not in self.following.keys]

    @property
    def approvals(self) -> int:
        """The number of approvals by the current set."""
        return sum(key in self.signatures for key in self.current.keys)

    @property
    def neededApprovals(self) -> int:
        """The number of approvals that are required."""
        return quorum(len(self.current.keys))

    @property
    def missing(self) -> Sequence[bytes]:
        """The keys of the following set that have not accepted."""
        return [key for key in self.following.keys if key not in self.signatures]

    @property
    def isComplete(self) -> bool:
        """Whether the chain will accept it."""
        return self.approvals >= self.neededApprovals and not self.missing

    @property
    def payload(self) -> bytes:
        """The bytes that are signed."""
        return changePayload(self.chain, self.current, self.following)

    def sign(self, seed: bytes) -> ChangeDocument:
        """
        Add a signature.

        @param seed: the private key of a validator of one of the sets.
        @raise DocumentInvalid: the key is in neither set.
        """
        signer = Ed25519PrivateKey.from_private_bytes(seed)
        key = signer.public_key().public_bytes_raw()
        if key not in self.current.keys and key not in self.following.keys:
            raise DocumentInvalid(
                f"{key.hex()} is neither in the current set nor in the following one"
            )
        return evolve(self, signatures={**self.signatures, key: signer.sign(self.payload)})

    def toChange(self) -> ValidatorChange:
        """
        The change as the chain accepts it.

        @raise DocumentInvalid: signatures are missing.
        """
        if not self.isComplete:
            more = max(0, self.neededApprovals - self.approvals)
            missing = ", ".join(key.hex()[:12] for key in self.missing)
            raise DocumentInvalid(
                f"it is not complete: {more} more of the current set must approve, and these of "
                f"the following set must accept: {missing or 'none'}"
            )
        return ValidatorChange(
            following=self.following,
            approvals=[
                (index, self.signatures[key])
                for index, key in enumerate(self.current.keys)
                if key in self.signatures
            ],
            acceptances=[self.signatures[key] for key in self.following.keys],
        )

    def encode(self) -> bytes:
        """The file of the document."""
        file = _File(
            chain=self.chain.hex(),
            generation=self.current.generation,
            current=[key.hex() for key in self.current.keys],
            following=[key.hex() for key in self.following.keys],
            signatures={key.hex(): self.signatures[key].hex() for key in sorted(self.signatures)},
        )
        return msgspec.json.format(msgspec.json.encode(file), indent=2) + b"\n"


def proposeChange(
    chain: bytes,
    current: ValidatorSet,
    *,
    add: Collection[bytes],
    remove: Collection[bytes],
    order: Callable[[Iterable[bytes]], tuple[bytes, ...]],
) -> ChangeDocument:
    """
    Make a document without signatures.

    @param chain: the chain's id.
    @param add: public keys of validators to add.
    @param remove: public keys of validators to remove.
    @param order: sorts the keys of a set into the ledger's order.
    @raise DocumentInvalid: the change is impossible.
    """
    for key in add:
        if key in current.keys:
            raise DocumentInvalid(f"{key.hex()} is in the set already")
    for key in remove:
        if key not in current.keys:
            raise DocumentInvalid(f"{key.hex()} is not in the set")
    keys = order({*current.keys, *add} - {*remove})
    if keys == current.keys:
        raise DocumentInvalid("nothing would change")
    if not 1 <= len(keys) <= MAX_VALIDATORS:
        raise DocumentInvalid(f"a set has 1 to {MAX_VALIDATORS} validators, not {len(keys)}")
    following = ValidatorSet(current.generation + 1, keys)
    return ChangeDocument(chain=chain, current=current, following=following, signatures={})


def readChange(data: bytes) -> ChangeDocument:
    """
    Decode a document, and verify all its signatures.

    @raise DocumentInvalid: it is malformed, or was changed.
    """
    if len(data) > MAX_DOCUMENT:
        raise DocumentInvalid(f"it is larger than {MAX_DOCUMENT} bytes")
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise DocumentInvalid(f"it is not a change: {error}") from None
    if not 0 <= file.generation < 2**63:
        raise DocumentInvalid("it is a change of no set")
    document = ChangeDocument(
        chain=_digits(file.chain, 32),
        current=_setOf(file.generation, file.current),
        following=_setOf(file.generation + 1, file.following),
        signatures={_digits(key, 32): _digits(each, 64) for key, each in file.signatures.items()},
    )
    if {*document.current.keys} == {*document.following.keys}:
        raise DocumentInvalid("it changes nothing")
    concerned = {*document.current.keys, *document.following.keys}
    for key, signature in document.signatures.items():
        if key not in concerned or not verifySignature(key, document.payload, signature):
            raise DocumentInvalid(f"the signature of {key.hex()} does not hold: it was changed")
    return document


def mergeChanges(documents: Sequence[ChangeDocument]) -> ChangeDocument:
    """
    Merge the signatures of copies of a document.

    @raise DocumentInvalid: they are different changes.
    """
    first, *others = documents
    signatures = dict(first.signatures)
    for other in others:
        if other.payload != first.payload:
            raise DocumentInvalid("they are different changes, or of different chains")
        signatures |= other.signatures
    return evolve(first, signatures=signatures)


def _digits(text: str, size: int) -> bytes:
    try:
        value = bytes.fromhex(text)
    except ValueError:
        value = b""
    if len(value) != size:
        raise DocumentInvalid(f"{text[:80]!r} has no {size} bytes in hexadecimal digits")
    return value


def _setOf(generation: int, keys: Sequence[str]) -> ValidatorSet:
    made = ValidatorSet(generation, tuple(_digits(key, 32) for key in keys[: MAX_VALIDATORS + 1]))
    try:
        # The same rules as on the chain.
        return ValidatorSet.decode(made.encoded)
    except Malformed as error:
        raise DocumentInvalid(str(error)) from None
