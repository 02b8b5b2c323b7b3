"""
Signed Statements, their receipts, and Transparent Statements, which are both in one (RFC 9943).

A receipt proves that a statement is in the tree of a service: it is the service's signature over
the root to which the path from the statement leads (RFC 9942). A consistency receipt proves
that a later tree of the service has everything that an earlier one has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, BinaryIO, Final

from attrs import evolve, frozen

from ...chain import Malformed, leafHash, rootOfGrowth, rootOfPath
from .._documents import ProofInvalid
from ._cose import KID, MAX_MESSAGE, CoseKey, CoseMessage, decodeCbor
from ._envelopes import HashEnvelope

MAX_RECEIPTS: Final = 32
"""The most receipts of a Transparent Statement that are looked at."""

_CLAIMS: Final = 15
_RECEIPTS: Final = 394
_TREE_KIND: Final = 395
_PROOFS: Final = 396
_RFC9162: Final = 1
_INCLUSION: Final = -1
_CONSISTENCY: Final = -2
_MAX_CLAIM: Final = 8192
_MAX_SIZE: Final = 2**63


class KeyUnknown(ProofInvalid):
    """A message is signed by none of the keys that are trusted."""


@frozen(kw_only=True)
class Claims:
    """
    What a signed header says of its message.

    @ivar issuer: who has issued it.
    @ivar subject: what it is about.
    @ivar issuedAt: when, in seconds since the epoch, where it says so.
    """

    issuer: str
    subject: str
    issuedAt: int | None = None

    @property
    def fields(self) -> Mapping[int, Any]:
        """The CWT claims of a header, as L{of} reads them."""
        fields: dict[int, Any] = {1: self.issuer, 2: self.subject}
        return fields | ({} if self.issuedAt is None else {6: self.issuedAt})

    @classmethod
    def of(cls, header: Mapping[Any, Any], what: str) -> Claims:
        """
        Read those of a header.

        @raise ProofInvalid: they are malformed.
        """
        claims = header.get(_CLAIMS)
        if not isinstance(claims, dict):
            raise ProofInvalid(f"{what} has no claims: who has issued it, and what it is about")
        issuer, subject = claims.get(1), claims.get(2)
        if not (isinstance(issuer, str) and isinstance(subject, str)):
            raise ProofInvalid(f"{what} does not say who has issued it, and what it is about")
        if not 1 <= len(issuer) <= _MAX_CLAIM:
            raise ProofInvalid(f"the issuer of {what} has no name, or a too long one")
        issuedAt = claims.get(6)
        return cls(
            issuer=issuer,
            subject=subject,
            issuedAt=issuedAt if type(issuedAt) is int else None,
        )


@frozen(kw_only=True)
class SignedStatement:
    """
    A statement of an issuer.

    @ivar message: the message that it is.
    @ivar claims: who says it, and of what.
    @ivar envelope: where its payload is the hash of its content: what it says of that.
    """

    message: CoseMessage
    claims: Claims
    envelope: HashEnvelope | None = None

    @classmethod
    def decode(cls, data: bytes) -> SignedStatement:
        """
        Read a statement; its signature is not verified.

        @raise ProofInvalid: it is none.
        """
        message = CoseMessage.decode(data, "the statement")
        claims = Claims.of(message.header, "the statement")
        return cls(message=message, claims=claims, envelope=HashEnvelope.of(message))

    def checkContent(self, content: BinaryIO) -> None:
        """
        Check that a content is that of the statement: its payload, or what its payload is the hash
        of.

        @param content: a file that was opened.
        @raise ProofInvalid: it is not, or the hash is not known here.
        """
        if self.message.payload is None:
            raise ProofInvalid("the statement does not have its payload")
        if self.envelope is None:
            said = content.read(MAX_MESSAGE + 1)
        else:
            said = self.envelope.digest(content)
        if said != self.message.payload:
            raise ProofInvalid("the content is not that of the statement")

    def withReceipts(self, receipts: Sequence[bytes]) -> bytes:
        """The Transparent Statement with these receipts, and with nothing else that is unsigned."""
        return evolve(self.message, unprotected={_RECEIPTS: [*receipts]}).encode()

    def verify(self, keys: Sequence[CoseKey]) -> None:
        """
        Verify the issuer's signature.

        @param keys: the keys that are trusted for this issuer. One alone need not have the name
            that the statement gives it.
        @raise ProofInvalid: it is by none of them.
        """
        what = "the statement"
        key = keys[0] if len(keys) == 1 else _keyOf(self.message, keys, what)
        self.message.verify(key, what)


@frozen(kw_only=True)
class InclusionReceipt:
    """
    A receipt that proves that an entry is in a tree.

    @ivar size: the number of leaves of the tree.
    @ivar index: the number of the entry's leaf, from 0.
    @ivar path: the hashes that lead from it to the root.
    @ivar claims: who has issued it and what about; C{None} where it does not say so.
    """

    message: CoseMessage
    size: int
    index: int
    path: Sequence[bytes]
    claims: Claims | None

    @classmethod
    def decode(cls, data: bytes) -> InclusionReceipt:
        """
        Read a receipt; its signature is not verified.

        @raise ProofInvalid: it is none, of another kind of tree, or has several proofs.
        """
        message, claims = _decodeReceipt(data, "the receipt")
        size, index, path = _proofOf(message, "the receipt", _INCLUSION, "inclusion")
        if not 0 <= index < size <= _MAX_SIZE:
            raise ProofInvalid("the proof of the receipt has no leaf of a tree")
        return cls(message=message, size=size, index=index, path=path, claims=claims)

    def verify(self, entry: bytes, keys: Sequence[CoseKey]) -> VerifiedReceipt:
        """
        Verify that an entry is in the tree.

        Services differ in what a leaf is: the entry, or its SHA-256. The signature tells which.

        @param keys: the keys that are trusted for this service.
        @raise ProofInvalid: it does not prove it.
        """
        key = _keyOf(self.message, keys, "the receipt")
        error = ProofInvalid("the receipt proves nothing")
        for isHashed, leaf in ((False, entry), (True, sha256(entry).digest())):
            try:
                root = rootOfPath(leafHash(leaf), self.index, self.size, self.path)
                self.message.verify(key, "the receipt", root)
            except Malformed as found:
                raise ProofInvalid(f"the path of the receipt leads nowhere: {found}") from None
            except ProofInvalid as found:
                error = found
            else:
                return VerifiedReceipt(receipt=self, root=root, isHashed=isHashed, key=key)
        raise error


@frozen(kw_only=True)
class VerifiedReceipt:
    """
    A receipt that was verified.

    @ivar root: the root of the tree that the service has signed.
    @ivar isHashed: whether the leaf is the hash of the statement.
    @ivar key: the key by which it was verified.
    """

    receipt: InclusionReceipt
    root: bytes
    isHashed: bool
    key: CoseKey


@frozen(kw_only=True)
class ConsistencyReceipt:
    """
    A receipt that proves that a tree has grown from a smaller one, of which nothing was changed.

    @ivar older: the number of leaves of the smaller tree.
    @ivar newer: the number of leaves of the larger one.
    @ivar path: the hashes that lead from one to the other.
    @ivar claims: who has issued it; C{None} where it does not say so.
    """

    message: CoseMessage
    older: int
    newer: int
    path: Sequence[bytes]
    claims: Claims | None

    @classmethod
    def decode(cls, data: bytes) -> ConsistencyReceipt:
        """
        Read a receipt; its signature is not verified.

        @raise ProofInvalid: it is none, of another kind of tree, or has several proofs.
        """
        what = "the consistency receipt"
        message, claims = _decodeReceipt(data, what)
        older, newer, path = _proofOf(message, what, _CONSISTENCY, "consistency")
        if not 0 < older < newer <= _MAX_SIZE:
            raise ProofInvalid("the proof of the consistency receipt has no tree that has grown")
        return cls(message=message, older=older, newer=newer, path=path, claims=claims)

    def verify(self, root: bytes, keys: Sequence[CoseKey]) -> bytes:
        """
        Verify that the larger tree has everything that the smaller one has.

        @param root: the root of the smaller one, which a verified receipt has.
        @param keys: the keys that are trusted for this service.
        @return: the root of the larger one, which the service has signed.
        @raise ProofInvalid: it does not prove it.
        """
        what = "the consistency receipt"
        key = _keyOf(self.message, keys, what)
        try:
            newerRoot = rootOfGrowth(self.older, root, self.newer, self.path)
        except Malformed as found:
            raise ProofInvalid(f"the path of {what} leads nowhere: {found}") from None
        self.message.verify(key, what, newerRoot)
        return newerRoot


def verifyGrowth(
    found: Sequence[VerifiedReceipt],
    data: bytes,
    keys: Sequence[CoseKey],
    service: str | None = None,
) -> tuple[ConsistencyReceipt, bytes]:
    """
    Verify that a later tree has everything that the tree of a verified receipt has.

    @param found: the verified receipts, one of which is of the smaller tree.
    @param data: the consistency receipt.
    @param keys: the keys of the service.
    @param service: the name that it has in its receipts, where that is known.
    @return: the receipt, and the root of the larger tree.
    @raise ProofInvalid: it does not prove it, or begins at a tree that none of them is of.
    """
    receipt = ConsistencyReceipt.decode(data)
    claims = receipt.claims
    if service is not None and (claims is None or claims.issuer != service):
        raise ProofInvalid("the consistency receipt is not issued in the name of that service")
    for each in found:
        if each.receipt.size == receipt.older:
            return receipt, receipt.verify(each.root, keys)
    raise ProofInvalid(
        f"the consistency receipt begins at a tree of {receipt.older}, of which there is no receipt"
    )


def receiptsOf(statement: SignedStatement) -> Sequence[bytes]:
    """
    The receipts in a Transparent Statement; none in a statement that has none.

    @raise ProofInvalid: they are malformed, or too many.
    """
    receipts = statement.message.unprotected.get(_RECEIPTS, [])
    if not isinstance(receipts, list) or not all(isinstance(x, bytes) for x in receipts):
        raise ProofInvalid("the receipts of the statement are malformed")
    if len(receipts) > MAX_RECEIPTS:
        raise ProofInvalid(f"the statement has more than {MAX_RECEIPTS} receipts")
    return receipts


def verifyReceipts(
    statement: SignedStatement,
    receipts: Sequence[bytes],
    keys: Sequence[CoseKey],
    service: str | None = None,
) -> Sequence[VerifiedReceipt]:
    """
    Verify the receipts of a statement that are signed by keys that are trusted.

    @param keys: the keys of the service.
    @param service: the name that it has in its receipts, where that is known.
    @return: those that were verified. Receipts of others are left out.
    @raise ProofInvalid: one of them is wrong, or there is none.
    """
    entry, found = statement.message.withoutUnprotected(), []
    for data in receipts:
        receipt = InclusionReceipt.decode(data)
        try:
            verified = receipt.verify(entry, keys)
        except KeyUnknown:
            continue
        claims = receipt.claims
        if service is not None and (claims is None or claims.issuer != service):
            raise ProofInvalid("the receipt is not issued in the name of that service")
        if claims is not None and claims.subject != statement.claims.subject:
            raise ProofInvalid("the receipt is about something else than the statement")
        found.append(verified)
    if not found:
        raise KeyUnknown("the statement has no receipt that is signed by a key given")
    return found


def _decodeReceipt(data: bytes, what: str) -> tuple[CoseMessage, Claims | None]:
    """A receipt of a tree of RFC 9162, whatever it proves, and its claims if it has any."""
    message = CoseMessage.decode(data, what)
    header = message.header
    if type(kind := header.get(_TREE_KIND)) is not int or kind != _RFC9162:
        raise ProofInvalid(f"{what} is not of a tree of RFC 9162")
    if message.payload is not None:
        raise ProofInvalid(f"{what} has a root in it, which would prove nothing")
    return message, Claims.of(header, what) if _CLAIMS in header else None


def _proofOf(
    message: CoseMessage, what: str, label: int, name: str
) -> tuple[int, int, Sequence[bytes]]:
    """The one proof of a receipt: two numbers and a path."""
    # Nobody has signed what else there is, so nothing else may be there.
    proofs = message.unprotected.get(_PROOFS)
    if len(message.unprotected) != 1 or not isinstance(proofs, dict) or len(proofs) != 1:
        raise ProofInvalid(f"{what} has not one proof alone in its unprotected header")
    given = proofs.get(label)
    if not isinstance(given, list) or [*map(type, given)] != [bytes]:
        raise ProofInvalid(f"{what} does not have one proof of {name}")
    proof = decodeCbor(given[0], f"the proof of {what}")
    if not isinstance(proof, list) or [*map(type, proof)] != [int, int, list]:
        raise ProofInvalid(f"the proof of {what} is not two numbers and a path")
    first, second, path = proof
    if not all(isinstance(each, bytes) and len(each) == 32 for each in path):
        raise ProofInvalid(f"the path of {what} is not of hashes")
    return first, second, path


def _keyOf(message: CoseMessage, keys: Sequence[CoseKey], what: str) -> CoseKey:
    """
    The key that a message names.

    @raise KeyUnknown: it is not trusted.
    """
    kid = message.header.get(KID)
    if kid is None and len(keys) == 1:
        return keys[0]
    for each in keys:
        if isinstance(kid, bytes) and each.kid == kid:
            return each
    raise KeyUnknown(f"{what} is signed by a key that is not among those given")
