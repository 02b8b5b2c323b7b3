"""
The chain once more, from C{docs/chain.rst} alone: slow, plain, and without a line of the
package. The tests hold the package against it, and both against the vectors.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import define, evolve, field
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

VECTORS_PATH = Path(__file__).resolve().parents[2] / "docs" / "vectors" / "chain.json"
VECTORS: Mapping[str, Any] = json.loads(VECTORS_PATH.read_text("ascii"))

KINDS = {"OPEN": 1, "CLOSE": 2, "PUBLISH": 3, "VALIDATORS": 4, "AUTHORS": 5, "ERASE": 6}
KINDS |= {"HOLD": 7, "RELEASE": 8}
EXECUTIONS = {
    name: number
    for number, name in enumerate(
        [
            "DONE",
            "TOPIC_NOT_FOUND",
            "REPEATED",
            "REFUSED",
            "PUBLISHED_BEFORE",
            "KEY_IN_USE",
            "OTHER_SEQUENCE",
            "NO_AUTHOR",
        ]
    )
}
PHASES = {"PROPOSE": 1, "PREPARE": 2, "COMMIT": 3, "ROUND_CHANGE": 4}


def digest(*parts: bytes) -> bytes:
    """SHA-256."""
    return sha256(b"".join(parts)).digest()


def address(of: str, chain: bytes, name: str | bytes) -> bytes:
    """The address of a topic, an account or a key."""
    data = name if isinstance(name, bytes) else name.encode()
    return digest(b"svcbroker/", of.encode(), b"\0", chain, data)[12:]


def root(hashes: Sequence[bytes]) -> bytes:
    """The Merkle tree hash as RFC 6962 defines it, by recursion, over leaf hashes."""
    if not hashes:
        return digest()
    if len(hashes) == 1:
        return hashes[0]
    k = 1
    while 2 * k < len(hashes):
        k *= 2
    return digest(b"\1", root(hashes[:k]), root(hashes[k:]))


def path(hashes: Sequence[bytes], index: int) -> list[bytes]:
    """The audit path of a leaf as RFC 6962 defines it, by recursion, over leaf hashes."""
    if len(hashes) == 1:
        return []
    k = 1
    while 2 * k < len(hashes):
        k *= 2
    if index < k:
        return [*path(hashes[:k], index), root(hashes[k:])]
    return [*path(hashes[k:], index - k), root(hashes[:k])]


def history(hashes: Sequence[bytes]) -> bytes:
    """The root over the hashes of headers, from that of height 0 on."""
    return root([digest(b"\0", hash) for hash in hashes])


PRIVATE = "svc-private-"


def pairs(extensions: Mapping[str, str]) -> bytes:
    """Extensions: how many, and each by its key."""
    encoded = len(extensions).to_bytes(2, "big")
    for key in sorted(extensions, key=str.encode):
        pair = key.encode(), extensions[key].encode()
        encoded += b"".join(len(part).to_bytes(2, "big") for part in pair) + b"".join(pair)
    return encoded


@define
class Sent:
    """
    A transaction, as its author means it. What follows C{timestamp} is for versions 2 and 3 only.

    @ivar owner: of an idempotency key without an author.
    @ivar commitment: what the head says of a content that was erased; then C{content}, C{salt} and
        C{signature} are empty, and C{extensions} has the public ones.
    @ivar hadPrivate: whether there were private extensions that were erased.
    @ivar statement: the version of the statement that the author has signed.
    """

    kind: str
    sender: bytes
    nonce: int
    topic: str
    content: bytes = b""
    extensions: Mapping[str, str] = field(factory=dict)
    timestamp: int = 0
    version: int = 1
    salt: bytes = b""
    author: bytes | None = None
    signedAt: int = 0
    signature: bytes = b""
    owner: bytes = b""
    key: str | None = None
    expected: int | None = None
    commitment: bytes | None = None
    hadPrivate: bool = False
    statement: int = 1

    @classmethod
    def read(cls, vector: Mapping[str, Any]) -> Sent:
        """From a vector."""
        sent = cls(
            kind=vector["kind"],
            sender=bytes.fromhex(vector["sender"]),
            nonce=vector["nonce"],
            topic=vector["topic"],
            content=bytes.fromhex(vector["content"]),
            extensions=vector["extensions"],
            timestamp=vector["timestamp"],
        )
        if vector.get("version", 1) != 1:
            author = vector["author"]
            sent.version = vector["version"]
            sent.salt = bytes.fromhex(vector["salt"])
            sent.owner = bytes.fromhex(vector["owner"])
            sent.key = vector["idempotencyKey"]
            sent.expected = vector["expectedSequence"]
            if author is not None:
                sent.author = bytes.fromhex(author["key"])
                sent.signedAt = author["signedAt"]
                sent.signature = bytes.fromhex(author["signature"])
                sent.statement = author.get("statement", 1)
        return sent

    @property
    def private(self) -> Mapping[str, str]:
        """The extensions that are erased with the content."""
        return {
            key: value
            for key, value in self.extensions.items()
            if self.version != 1 and key.startswith(PRIVATE)
        }

    @property
    def options(self) -> int:
        """The parts of a head from version 2 on."""
        return (
            (self.author is not None)
            + 2 * (self.key is not None)
            + 4 * (self.expected is not None)
            + 8 * (self.hadPrivate or bool(self.private))
            + 16 * (self.statement - 1)
        )

    @property
    def seal(self) -> bytes:
        """The bytes between head and content."""
        if self.version == 1 or self.kind != "PUBLISH":
            return b""
        return self.salt + self.signature + (pairs(self.private) if self.private else b"")

    @property
    def head(self) -> bytes:
        """All but seal and content."""
        name = self.topic.encode()
        commitment = digest(self.content)
        if self.commitment is not None:
            commitment = self.commitment
        elif self.version != 1 and self.kind == "PUBLISH":
            commitment = digest(b"svcbroker/content", self.seal, self.content)
        head = bytes([self.version, KINDS[self.kind]]) + self.sender
        head += self.nonce.to_bytes(8, "big") + self.timestamp.to_bytes(8, "big")
        head += commitment + len(name).to_bytes(2, "big") + name
        if self.version != 1:
            head += bytes([self.options])
            if self.author is not None:
                head += self.author + self.signedAt.to_bytes(8, "big")
            if self.key is not None:
                head += b"" if self.author is not None else self.owner
                head += bytes([len(self.key)]) + self.key.encode()
            if self.expected is not None:
                head += self.expected.to_bytes(8, "big")
        public = {key: self.extensions[key] for key in self.extensions.keys() - self.private.keys()}
        return head + pairs(public)

    @property
    def entry(self) -> bytes:
        """All of it; the head alone where the content was erased."""
        return self.head if self.commitment is not None else self.head + self.seal + self.content

    @property
    def hash(self) -> bytes:
        """The leaf hash of the head."""
        return digest(b"\0", self.head)

    @property
    def erased(self) -> Sent:
        """The same, as it stands in a body when its content is gone."""
        return evolve(
            self,
            commitment=self.head[38:70],
            content=b"",
            salt=b"",
            signature=b"",
            extensions={key: self.extensions[key] for key in self.extensions.keys() - self.private},
            hadPrivate=bool(self.private) or self.hadPrivate,
        )


def body(transactions: Sequence[Sent]) -> bytes:
    """The body of a block."""
    entries = [sent.entry for sent in transactions]
    numbers = [len(entries), *map(len, entries)]
    return b"".join(number.to_bytes(4, "big") for number in numbers) + b"".join(entries)


Receipts = Sequence[tuple[str, int]]


def receipts(ends: Receipts) -> bytes:
    """The receipts of a block."""
    return b"".join(bytes([EXECUTIONS[end]]) + number.to_bytes(8, "big") for end, number in ends)


def receiptRoot(hashes: Sequence[bytes], ends: Receipts) -> bytes:
    """The root over the receipts of a block."""
    return root(
        [digest(b"\0", hash, receipts([end])) for hash, end in zip(hashes, ends, strict=True)]
    )


def isNew(used: set[int], nonce: int) -> bool:
    """Whether a transaction of this nonce is executed, after these."""
    highest = max(used, default=0)
    return nonce > highest or (nonce > 0 and highest - nonce <= 1023 and nonce not in used)


def account(used: set[int]) -> bytes:
    """The encoding of an account."""
    highest = max(used, default=0)
    window = sum(1 << (highest - nonce) for nonce in used if highest - nonce < 1024)
    return highest.to_bytes(8, "big") + window.to_bytes(128, "big")


P = 2**255 - 19
EIGHTH = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
LOW_ORDER = (0, 1, P - 1, EIGHTH, P - EIGHTH)


def isSigned(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether an Ed25519 signature holds."""
    y = int.from_bytes(key, "little") % 2**255
    if y >= P or y in LOW_ORDER:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


@define
class Nodes:
    """A validator set."""

    generation: int
    keys: Sequence[bytes]

    @property
    def encoded(self) -> bytes:
        """Its encoding."""
        return struct.pack(">QH", self.generation, len(self.keys)) + b"".join(self.keys)

    @property
    def hash(self) -> bytes:
        """The hash that stands in headers."""
        return digest(b"svcbroker/validators\0", self.encoded)

    @property
    def quorum(self) -> int:
        """The number that must agree."""
        return len(self.keys) - (len(self.keys) - 1) // 3


def agreement(chain: bytes, current: Nodes, following: Nodes) -> bytes:
    """The bytes that are signed for a change of the set."""
    return b"svcbroker/validators-change" + chain + current.hash + following.hash


def following(content: bytes, chain: bytes, current: Nodes) -> Nodes | None:
    """The set that a change leads to, or nothing where it is refused or is no change."""
    if len(content) < 10:
        return None
    generation, count = struct.unpack(">QH", content[:10])
    keys = [content[10 + 32 * index :][:32] for index in range(count)]
    accepted = content[10 + 32 * count : 10 + 96 * count]
    approved = content[12 + 96 * count :]
    claimed = int.from_bytes(content[10 + 96 * count : 12 + 96 * count], "big")
    isWhole = len(content) >= 12 + 96 * count and len(approved) == 66 * claimed
    if not (1 <= count <= 256 and isWhole and len(set(keys)) == count):
        return None
    nodes = Nodes(generation, keys)
    payload = agreement(chain, current, nodes)
    signers = []
    for start in range(0, len(approved), 66):
        index = int.from_bytes(approved[start : start + 2], "big")
        signature = approved[start + 2 : start + 66]
        if index >= len(current.keys) or not isSigned(current.keys[index], payload, signature):
            return None
        signers.append(index)
    if (
        generation != current.generation + 1
        or signers != sorted(set(signers))
        or len(signers) < current.quorum
        or not all(
            isSigned(key, payload, accepted[64 * index :][:64]) for index, key in enumerate(keys)
        )
    ):
        return None
    return nodes


def genesis(group: str, created: int, keys: Sequence[bytes], isUtf8: bool = False) -> bytes:
    """The encoding of a genesis."""
    name = group.encode()
    return (
        (b"svcbroker/genesis\2" if isUtf8 else b"svcbroker/genesis\1")
        + struct.pack(f">H{len(name)}sQH", len(name), name, created, len(keys))
        + b"".join(keys)
        + (b"\1" if isUtf8 else b"")
    )


def header(fields: Mapping[str, Any]) -> bytes:
    """The encoding of a header."""
    return b"".join(
        [
            b"svcbroker/header",
            bytes([fields.get("version", 2)]),
            bytes.fromhex(fields["chain"]),
            fields["height"].to_bytes(8, "big"),
            bytes.fromhex(fields["parent"]),
            bytes.fromhex(fields["history"]),
            fields["view"].to_bytes(8, "big"),
            fields["proposer"].to_bytes(2, "big"),
            fields["timestamp"].to_bytes(8, "big"),
            bytes.fromhex(fields["transactionRoot"]),
            bytes.fromhex(fields["receiptRoot"]),
            bytes.fromhex(fields["stateRoot"]),
            bytes.fromhex(fields["validators"]),
            bytes.fromhex(fields["nextValidators"]),
            fields["transactionCount"].to_bytes(4, "big"),
            fields["transactionTotal"].to_bytes(8, "big"),
        ]
    )


def payload(phase: str, chain: bytes, height: int, round: int, what: bytes) -> bytes:
    """The bytes that are signed for a vote."""
    return b"svcbroker/vote" + struct.pack(">B32sQQ", PHASES[phase], chain, height, round) + what


def certificate(round: int, signatures: Sequence[tuple[int, bytes]]) -> bytes:
    """The encoding of a certificate."""
    return struct.pack(">QH", round, len(signatures)) + b"".join(
        index.to_bytes(2, "big") + signature for index, signature in signatures
    )
