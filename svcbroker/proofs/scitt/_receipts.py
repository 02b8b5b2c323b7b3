"""
Signed Statements, their receipts, and Transparent Statements, which are both in one (RFC 9943).

A receipt proves that a statement is in the tree of a service: it is the service's signature over
the root to which the path from the statement leads (RFC 9942).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from attrs import frozen

from ...chain import Malformed, leafHash, rootOfPath
from .._documents import ProofInvalid
from ._cose import KID, CoseKey, CoseMessage, decodeCbor

MAX_RECEIPTS: Final = 32
"""The most receipts of a Transparent Statement that are looked at."""

_CLAIMS: Final = 15
_RECEIPTS: Final = 394
_TREE_KIND: Final = 395
_PROOFS: Final = 396
_RFC9162: Final = 1
_INCLUSION: Final = -1
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
    """

    message: CoseMessage
    claims: Claims

    @classmethod
    def decode(cls, data: bytes) -> SignedStatement:
        """
        Read a statement; its signature is not verified.

        @raise ProofInvalid: it is none.
        """
        message = CoseMessage.decode(data, "the statement")
        return cls(message=message, claims=Claims.of(message.header, "the statement"))

    def verify(self, keys: Sequence[CoseKey]) -> None:
        """
        Verify the issuer's signature.

        @param keys: the keys that are trusted for this issuer.
        @raise ProofInvalid: it is by none of them.
        """
        what = "the statement"
        self.message.verify(_keyOf(self.message, keys, what), what)


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
        message = CoseMessage.decode(data, "the receipt")
        header = message.header
        if type(kind := header.get(_TREE_KIND)) is not int or kind != _RFC9162:
            raise ProofInvalid("the receipt is not of a tree of RFC 9162")
        if message.payload is not None:
            raise ProofInvalid("the receipt has a root in it, which would prove nothing")
        # Nobody has signed what else there is, so nothing else may be there.
        proofs = message.unprotected.get(_PROOFS)
        if len(message.unprotected) != 1 or not isinstance(proofs, dict) or len(proofs) != 1:
            raise ProofInvalid("the receipt has not one proof alone in its unprotected header")
        inclusion = proofs.get(_INCLUSION)
        if (
            not isinstance(inclusion, list)
            or len(inclusion) != 1
            or type(inclusion[0]) is not bytes
        ):
            raise ProofInvalid("the receipt does not have one proof of inclusion")
        proof = decodeCbor(inclusion[0], "the proof of the receipt")
        if not isinstance(proof, list) or [*map(type, proof)] != [int, int, list]:
            raise ProofInvalid("the proof of the receipt is not a size, an index and a path")
        size, index, path = proof
        if not 0 <= index < size <= _MAX_SIZE:
            raise ProofInvalid("the proof of the receipt has no leaf of a tree")
        if not all(isinstance(each, bytes) and len(each) == 32 for each in path):
            raise ProofInvalid("the path of the receipt is not of hashes")
        claims = Claims.of(header, "the receipt") if _CLAIMS in header else None
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
