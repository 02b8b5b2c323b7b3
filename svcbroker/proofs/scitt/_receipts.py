"""
Signed Statements, their receipts, and Transparent Statements, which are both in one (RFC 9943); and
the private key of a service, which signs receipts and the service's own statements.

A receipt proves that a statement is in the tree of a service: it is the service's signature over
the root to which the path from the statement leads (RFC 9942). A consistency receipt proves
that a later tree of the service has everything that an earlier one has.

The payload of a Hash Envelope (RFC 9995) is the hash of a content that is elsewhere, so that the
content can be forgotten and the statement stays.

A line of a checkpoint has the tree of a topic's statements: the log of a chain signs it beside the
root of its blocks, and witnesses see it. So a receipt leads to blocks and witnesses.

B{Frozen bytes}: that line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256, sha512
from typing import Any, BinaryIO, Final, Literal, TypeAlias

import cbor2
from attrs import evolve, field, frozen
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from ...chain import Malformed, leafHash, rootOfGrowth, rootOfPath
from .._documents import ProofInvalid
from ..tlog import (
    KeyType,
    Note,
    Policy,
    SignatureRefused,
    TreeHead,
    Witnessed,
    encodeHash,
    parseHash,
    parseNumber,
)
from ._cose import KID, MAX_MESSAGE, CoseKey, CoseMessage, decodeCbor

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
    The claims of a signed header about its message.

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


_TREE_LINE: Final = "svcbroker/scitt"


@frozen
class TreeLine:
    """
    The tree of a topic's statements, as a checkpoint says it.

    @ivar topic: the topic, which has no spaces.
    @ivar size: the number of its entries, all of which are in blocks of the checkpoint.
    @ivar root: its root.
    """

    topic: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The line, without its end."""
        return f"{_TREE_LINE} {self.topic} {self.size} {encodeHash(self.root)}"

    @classmethod
    def parse(cls, line: str) -> TreeLine | None:
        """
        Read a line.

        @return: C{None} where it is one of another kind.
        @raise Malformed: it begins as one of these, and is none.
        """
        name, *parts = line.split(" ")
        if name != _TREE_LINE:
            return None
        if len(parts) != 3:
            raise Malformed(f"{line[:80]!r} has not a topic, a size and a root")
        return cls(parts[0], parseNumber(parts[1]), parseHash(parts[2]))


@frozen
class WitnessedTree:
    """
    The tree of a receipt in a checkpoint that a policy accepts.

    @ivar line: what the checkpoint says of it.
    """

    line: TreeLine
    witnessed: Witnessed


def verifyWitnessedTree(
    found: Sequence[VerifiedReceipt],
    grown: tuple[ConsistencyReceipt, bytes] | None,
    checkpoint: bytes,
    policy: Policy,
) -> WitnessedTree:
    """
    Verify that the tree of a receipt is in a checkpoint.

    @param found: the verified receipts.
    @param grown: the verified consistency receipt from one of them, and the root of the later tree.
    @param checkpoint: the signed note.
    @param policy: which logs and witnesses are trusted.
    @raise ProofInvalid: it is not, or the policy does not accept the checkpoint.
    """
    witnessed, lines = readTrees(checkpoint, policy)
    trees = {(each.receipt.size, each.root) for each in found}
    if grown is not None:
        trees.add((grown[0].newer, grown[1]))
    for line in lines:
        if (line.size, line.root) in trees:
            return WitnessedTree(line, witnessed)
    sizes = {size for size, _ in trees}
    if any(line.size in sizes for line in lines):
        raise ProofInvalid("the checkpoint has another tree of this size than the receipt")
    shown = " and ".join(f"of {line.size}" for line in lines) or "none"
    raise ProofInvalid(
        f"the checkpoint does not have the tree of a receipt; its trees of statements: {shown}"
    )


def readTrees(checkpoint: bytes, policy: Policy) -> tuple[Witnessed, Sequence[TreeLine]]:
    """
    The trees of statements in a checkpoint that a policy accepts.

    Cosignatures of ML-DSA-44 do not count: they cover the root of the blocks, and no further lines.

    @raise ProofInvalid: the policy does not accept it, or a line is malformed.
    """
    lines, note = treesOf(checkpoint), Note.decode(checkpoint)
    keys = [each.key for each in policy.witnesses.values()]
    partial = {(each.name, each.id) for each in keys if each.type is KeyType.ML_DSA_COSIGNATURE}
    whole = [each for each in note.signatures if (each.name, each.keyId) not in partial]
    try:
        return policy.check(Note(note.text, whole)), lines
    except SignatureRefused as error:
        left = " (of ML-DSA-44 they do not cover the tree)" if partial else ""
        raise ProofInvalid(f"{error}{left}") from None


def treesOf(checkpoint: bytes) -> Sequence[TreeLine]:
    """
    The trees of statements in a checkpoint, of which no signature is verified.

    @raise ProofInvalid: it is none, or a line is malformed.
    """
    try:
        lines = map(TreeLine.parse, TreeHead.parse(Note.decode(checkpoint).text).extensions)
        return [each for each in lines if each is not None]
    except Malformed as error:
        raise ProofInvalid(f"the checkpoint: {error}") from None
