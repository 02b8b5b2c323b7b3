"""
The execution of transactions once more, from C{docs/chain.rst} alone.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256

from attrs import define, field

from .reference import (
    Nodes,
    Receipts,
    Sent,
    account,
    address,
    digest,
    following,
    isNew,
    isSigned,
    root,
)
from .reference_reading import (
    Authors,
    authorsStatement,
    readAuthorChange,
    readErasure,
    readHold,
    readRelease,
    statement,
)

IN_FORCE = 2**20
"""The number of its latest uses of keys that an owner can count on."""


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
    authors: Authors | None = None

    @property
    def leaf(self) -> bytes:
        """Its leaf hash."""
        name = self.name.encode()
        return digest(
            b"\0",
            len(name).to_bytes(2, "big") + name + self.address + self.sender,
            struct.pack(">QBQQ", self.created, self.isOpen, self.sequence, self.height),
            b"" if self.authors is None else self.authors.encoded,
        )


@define
class Use:
    """A use of an idempotency key."""

    number: int
    topic: str
    sequence: int
    height: int
    digest: bytes | None


def matches(pattern: Sequence[str], levels: Sequence[str]) -> bool:
    """Whether the pattern of a hold matches the levels of a name."""
    if not pattern:
        return not levels
    if list(pattern) == ["#"]:
        return True
    if not levels or pattern[0] not in ("+", levels[0]):
        return False
    return matches(pattern[1:], levels[1:])


class Conflict(Exception):
    """A block publishes to two topics of one prefix."""


@define
class State:
    """Topics and accounts in plain dictionaries, in the order of their appearance."""

    chain: bytes
    nodes: Nodes = field(factory=lambda: Nodes(0, [bytes(32)]))
    topics: dict[str, Entry] = field(factory=dict)
    accounts: dict[bytes, set[int]] = field(factory=dict)
    uses: dict[tuple[bytes, str], Use] = field(factory=dict)
    counts: dict[bytes, int] = field(factory=dict)
    erased: set[tuple[str, int]] = field(factory=set)
    inForce: int = IN_FORCE
    deciding: Nodes | None = None
    holds: dict[str, tuple[Sequence[str], Sequence[tuple[bytes, int]]]] = field(factory=dict)

    def execute(
        self,
        block: Sequence[Sent],
        height: int,
        timestamp: int,
        stored: Receipts | None = None,
        format: int = 3,
    ) -> Receipts:
        """
        Change the state. After a L{Conflict} it is worth nothing any more.

        @param stored: the receipts of a block that is executed again, with contents missing.
        @param format: the block's format.
        """
        ends: list[tuple[str, int]] = []
        self.deciding = self.nodes
        prefixes: dict[str, str] = {}
        for position, sent in enumerate(block):
            known = None if stored is None else stored[position]
            ends.append(self.one(sent, height, timestamp, known, format))
            if sent.kind == "PUBLISH" and ends[-1][0] == "DONE":
                prefix = sha256(sent.topic.encode()).hexdigest()[:8]
                if prefixes.setdefault(prefix, sent.topic) != sent.topic:
                    raise Conflict
        return ends

    def one(
        self, sent: Sent, height: int, timestamp: int, known: tuple[str, int] | None, format: int
    ) -> tuple[str, int]:
        """
        Execute a transaction.

        @param known: its stored receipt, if there is one.
        """
        if not isNew(self.accounts.get(sent.sender, set()), sent.nonce):
            return "REPEATED", 0
        self.accounts.setdefault(sent.sender, set()).add(sent.nonce)
        if sent.kind == "VALIDATORS":
            nodes = following(sent.content, self.chain, self.nodes)
            if nodes is None or self.nodes is not self.deciding:
                return "REFUSED", 0
            self.nodes = nodes
            return "DONE", 0
        if sent.kind == "HOLD":
            return self.hold(sent)
        if sent.kind == "RELEASE":
            case = readRelease(sent.content)[0]
            return ("REFUSED" if self.holds.pop(case, None) is None else "DONE"), 0
        if sent.kind == "PUBLISH":
            return self.publish(sent, height, known, format)
        topic = self.topics.get(sent.topic)
        if sent.kind == "OPEN":
            return self.open(sent, topic, timestamp)
        if topic is None or not (topic.isOpen or sent.kind == "ERASE"):
            return "TOPIC_NOT_FOUND", 0
        if sent.kind == "CLOSE":
            topic.isOpen = False
            return "DONE", 0
        if sent.kind == "AUTHORS":
            return self.changeAuthors(sent, topic)
        ranges = readErasure(sent.content)
        if ranges[-1][1] > topic.sequence:
            return "REFUSED", 0
        if any(
            self.isHeld(topic, number)
            for first, last in ranges
            for number in range(first, last + 1)
        ):
            return "HELD", 0
        for first, last in ranges:
            self.erased |= {(topic.name, number) for number in range(first, last + 1)}
        return "DONE", 0

    def hold(self, sent: Sent) -> tuple[str, int]:
        """Execute a hold."""
        (case, _, _), patterns, events = readHold(sent.content)
        if case in self.holds or len(self.holds) >= 1000:
            return "REFUSED", 0
        topics = {topic.address: topic for topic in self.topics.values()}
        for where, number in events:
            topic = topics.get(where)
            if topic is None or number > topic.sequence or (topic.name, number) in self.erased:
                return "REFUSED", 0
        self.holds[case] = patterns, events
        return "DONE", 0

    def isHeld(self, topic: Entry, number: int) -> bool:
        """Whether an event is held."""
        return any(
            (topic.address, number) in events
            or any(matches(pattern.split("/"), topic.name.split("/")) for pattern in patterns)
            for patterns, events in self.holds.values()
        )

    def open(self, sent: Sent, topic: Entry | None, timestamp: int) -> tuple[str, int]:
        """Execute an open."""
        # Terms have authors alone, behind one byte.
        encoded = sent.content if sent.version == 2 else sent.content[1:]
        authors = Authors.read(encoded) if encoded else None
        if topic is None:
            where = address("topic", self.chain, sent.topic)
            topic = Entry(sent.topic, where, sent.sender, timestamp, authors=authors)
            self.topics[sent.topic] = topic
        elif authors is not None and (
            topic.authors is None
            or topic.authors.authors != authors.authors
            or topic.authors.admins != authors.admins
        ):
            return "REFUSED", 0
        topic.isOpen = True
        return "DONE", 0

    def changeAuthors(self, sent: Sent, topic: Entry) -> tuple[str, int]:
        """Execute a change of an open topic's authors."""
        authors, admin, signature = readAuthorChange(sent.content)
        current = topic.authors
        if (
            current is None
            or authors.generation != current.generation + 1
            or admin not in current.admins
            or not isSigned(admin, authorsStatement(self.chain, topic.name, authors), signature)
        ):
            return "REFUSED", 0
        topic.authors = authors
        return "DONE", 0

    def publish(
        self, sent: Sent, height: int, known: tuple[str, int] | None, format: int
    ) -> tuple[str, int]:
        """Execute a publish."""
        isMissing = sent.commitment is not None
        if sent.author is not None:
            said = statement(
                self.chain,
                sent.topic,
                sent.content,
                sent.signedAt,
                sent.key,
                sent.extensions,
                sent.statement,
                sent.expected,
            )
            isAuthors = isSigned(sent.author, said, sent.signature) if sent.signature else False
            if known is not None and known[0] == "REFUSED" if isMissing else not isAuthors:
                return "REFUSED", 0
        used = None if isMissing else digest(sent.content)
        owner = sent.owner if sent.author is None else address("key", self.chain, sent.author)
        count = self.counts.get(owner, 0)
        use = None if sent.key is None else self.uses.get((owner, sent.key))
        if use is not None and use.number > count - self.inForce:
            isErased = (use.topic, use.sequence) in self.erased
            if use.topic != sent.topic:
                return "KEY_IN_USE", 0
            if isErased and format > 3:
                return "KEY_IN_USE", use.sequence
            isSame = use.digest == used
            if None in (use.digest, used) and not isErased:
                assert known is not None
                isSame = known[0] == "PUBLISHED_BEFORE"
            return ("PUBLISHED_BEFORE", use.sequence) if isSame or isErased else ("KEY_IN_USE", 0)
        topic = self.topics.get(sent.topic)
        if topic is None or not topic.isOpen:
            return "TOPIC_NOT_FOUND", 0
        if topic.authors is not None and sent.author not in topic.authors.authors:
            return "NO_AUTHOR", 0
        if sent.expected not in (None, topic.sequence):
            return "OTHER_SEQUENCE", topic.sequence
        topic.sequence += 1
        topic.height = height
        if sent.key is not None:
            self.counts[owner] = count + 1
            self.uses[owner, sent.key] = Use(count + 1, topic.name, topic.sequence, height, used)
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
