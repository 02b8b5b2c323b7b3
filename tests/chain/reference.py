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

from attrs import define, field
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

VECTORS_PATH = Path(__file__).resolve().parents[2] / "docs" / "vectors" / "chain.json"
VECTORS: Mapping[str, Any] = json.loads(VECTORS_PATH.read_text("ascii"))

KINDS = {"OPEN": 1, "CLOSE": 2, "PUBLISH": 3, "VALIDATORS": 4}
EXECUTIONS = {"DONE": 0, "TOPIC_NOT_FOUND": 1, "REPEATED": 2, "REFUSED": 3}
PHASES = {"PROPOSE": 1, "PREPARE": 2, "COMMIT": 3, "ROUND_CHANGE": 4}


def digest(*parts: bytes) -> bytes:
    """SHA-256."""
    return sha256(b"".join(parts)).digest()


def address(of: str, chain: bytes, name: str) -> bytes:
    """The address of a topic or an account."""
    return digest(b"svcbroker/", of.encode(), b"\0", chain, name.encode())[12:]


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


@define
class Sent:
    """A transaction, as its author means it."""

    kind: str
    sender: bytes
    nonce: int
    topic: str
    content: bytes = b""
    extensions: Mapping[str, str] = field(factory=dict)
    timestamp: int = 0

    @classmethod
    def read(cls, vector: Mapping[str, Any]) -> Sent:
        """From a vector."""
        return cls(
            kind=vector["kind"],
            sender=bytes.fromhex(vector["sender"]),
            nonce=vector["nonce"],
            topic=vector["topic"],
            content=bytes.fromhex(vector["content"]),
            extensions=vector["extensions"],
            timestamp=vector["timestamp"],
        )

    @property
    def head(self) -> bytes:
        """All but the content."""
        name = self.topic.encode()
        head = bytes([1, KINDS[self.kind]]) + self.sender
        head += self.nonce.to_bytes(8, "big") + self.timestamp.to_bytes(8, "big")
        head += digest(self.content) + len(name).to_bytes(2, "big") + name
        head += len(self.extensions).to_bytes(2, "big")
        for key in sorted(self.extensions, key=str.encode):
            pair = key.encode(), self.extensions[key].encode()
            head += b"".join(len(part).to_bytes(2, "big") for part in pair) + b"".join(pair)
        return head

    @property
    def hash(self) -> bytes:
        """The leaf hash of the head."""
        return digest(b"\0", self.head)


def body(transactions: Sequence[Sent]) -> bytes:
    """The body of a block."""
    entries = [sent.head + sent.content for sent in transactions]
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


@define
class Entry:
    """A topic in the state."""

    name: str
    address: bytes
    sender: bytes
    created: int
    isOpen: bool = False
    sequence: int = 0
    height: int = 0

    @property
    def leaf(self) -> bytes:
        """Its leaf hash."""
        name = self.name.encode()
        return digest(
            b"\0",
            len(name).to_bytes(2, "big") + name + self.address + self.sender,
            struct.pack(">QBQQ", self.created, self.isOpen, self.sequence, self.height),
        )


def isSigned(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether an Ed25519 signature holds."""
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
        """What stands in headers."""
        return digest(b"svcbroker/validators\0", self.encoded)

    @property
    def quorum(self) -> int:
        """How many must agree."""
        return len(self.keys) - (len(self.keys) - 1) // 3


def agreement(chain: bytes, current: Nodes, following: Nodes) -> bytes:
    """What is signed for a change of the set."""
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


class Conflict(Exception):
    """A block publishes to two topics of one prefix."""


@define
class State:
    """Topics and accounts in plain dictionaries, in the order of their appearance."""

    chain: bytes
    nodes: Nodes = field(factory=lambda: Nodes(0, [bytes(32)]))
    topics: dict[str, Entry] = field(factory=dict)
    accounts: dict[bytes, set[int]] = field(factory=dict)
    deciding: Nodes | None = None

    def execute(self, block: Sequence[Sent], height: int, timestamp: int) -> Receipts:
        """Change the state. After a L{Conflict} it is worth nothing any more."""
        ends: list[tuple[str, int]] = []
        self.deciding = self.nodes
        prefixes: dict[str, str] = {}
        for sent in block:
            ends.append(self.one(sent, height, timestamp))
            if ends[-1][1]:
                prefix = sha256(sent.topic.encode()).hexdigest()[:8]
                if prefixes.setdefault(prefix, sent.topic) != sent.topic:
                    raise Conflict
        return ends

    def one(self, sent: Sent, height: int, timestamp: int) -> tuple[str, int]:
        """Execute a transaction."""
        if not isNew(self.accounts.get(sent.sender, set()), sent.nonce):
            return "REPEATED", 0
        self.accounts.setdefault(sent.sender, set()).add(sent.nonce)
        if sent.kind == "VALIDATORS":
            nodes = following(sent.content, self.chain, self.nodes)
            if nodes is None or self.nodes is not self.deciding:
                return "REFUSED", 0
            self.nodes = nodes
            return "DONE", 0
        topic = self.topics.get(sent.topic)
        if sent.kind == "OPEN":
            if topic is None:
                where = address("topic", self.chain, sent.topic)
                topic = Entry(sent.topic, where, sent.sender, timestamp)
                self.topics[sent.topic] = topic
            topic.isOpen = True
            return "DONE", 0
        if topic is None or not topic.isOpen:
            return "TOPIC_NOT_FOUND", 0
        if sent.kind == "CLOSE":
            topic.isOpen = False
            return "DONE", 0
        topic.sequence += 1
        topic.height = height
        return "DONE", topic.sequence

    @property
    def topicRoot(self) -> bytes:
        """The root over the topics."""
        return root([topic.leaf for topic in self.topics.values()])

    @property
    def accountRoot(self) -> bytes:
        """The root over the accounts."""
        return root([digest(b"\0", where, account(used)) for where, used in self.accounts.items()])

    @property
    def root(self) -> bytes:
        """The root over all of it."""
        return digest(
            b"svcbroker/state\1",
            len(self.topics).to_bytes(8, "big"),
            self.topicRoot,
            len(self.accounts).to_bytes(8, "big"),
            self.accountRoot,
        )


def genesis(group: str, created: int, keys: Sequence[bytes]) -> bytes:
    """The encoding of a genesis."""
    name = group.encode()
    return (
        b"svcbroker/genesis\1"
        + struct.pack(f">H{len(name)}sQH", len(name), name, created, len(keys))
        + b"".join(keys)
    )


def header(fields: Mapping[str, Any]) -> bytes:
    """The encoding of a header."""
    return b"".join(
        [
            b"svcbroker/header\2",
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
    """What is signed for a vote."""
    return b"svcbroker/vote" + struct.pack(">B32sQQ", PHASES[phase], chain, height, round) + what


def certificate(round: int, signatures: Sequence[tuple[int, bytes]]) -> bytes:
    """The encoding of a certificate."""
    return struct.pack(">QH", round, len(signatures)) + b"".join(
        index.to_bytes(2, "big") + signature for index, signature in signatures
    )
