"""
Chains of which one has all keys and all time: whatever is published is decided at once, and every
run gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from svcbroker.archive import Prover, appendOf
from svcbroker.chain import (
    Candidate,
    Certificate,
    ChainState,
    Claims,
    Genesis,
    Header,
    Kind,
    Phase,
    Transaction,
    accountAddress,
    encodeAuthors,
    encodeBody,
    proposeBlock,
    quorum,
    statement,
    votePayload,
)
from svcbroker.ledgers.pbft._keys import publicKey, signChange
from svcbroker.model import AuthorSet, Authorship, EventId, TopicRule, topicPrefix
from svcbroker.storage import Store

CREATED = 1_700_000_000_000
STEP = 250
"""Milliseconds between blocks."""


def seedOf(name: str) -> bytes:
    """A private key that everybody can know."""
    return sha256(f"svcbroker/example/{name}".encode()).digest()


def authorKey(name: str) -> Ed25519PrivateKey:
    """The private key of an author, which everybody can know."""
    return Ed25519PrivateKey.from_private_bytes(seedOf(name))


def publicKeyOf(name: str) -> bytes:
    """The public key of an author."""
    return authorKey(name).public_key().public_bytes_raw()


class SignedChain:
    """
    A chain in a directory, decided by whoever holds this object.

    @ivar head: the header of its last block.
    @ivar prover: makes proofs of it.
    @ivar owner: the address that owns the idempotency keys of events without author.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int = 4,
        *,
        group: str = "1",
        name: str = "node",
        topics: TopicRule = TopicRule.PUBLISHED,
    ) -> None:
        """
        @param directory: an empty one.
        @param name: begins the names of its keys: another one gives another chain.
        """
        self._seeds = [seedOf(f"{name} {index}") for index in range(nodes)]
        self.genesis = Genesis(
            group=group,
            created=CREATED,
            validators=tuple(map(publicKey, self._seeds)),
            topics=topics,
        )
        self.store = Store.create(
            directory / "ledger.sqlite",
            chainId=self.genesis.chain,
            genesis=self.genesis.encoded,
        )
        self.head = self.genesis.header()
        self.prover = Prover(self.genesis, self.store)
        self._state = self.genesis.state()
        self._sender = accountAddress(self.genesis.chain, "broker")
        self.owner = accountAddress(self.genesis.chain, "publisher:")
        self._nonce = 0

    @property
    def seeds(self) -> Sequence[bytes]:
        """The private keys of the nodes that decide the next block."""
        return self._seeds

    @property
    def state(self) -> ChainState:
        """The state after its last block."""
        return self._state

    def close(self) -> None:
        """Close its store."""
        self.store.close()

    def decide(
        self,
        transactions: Sequence[Transaction] = (),
        *,
        later: int = 0,
        erased: Collection[int] = (),
    ) -> Header:
        """
        Make a block of transactions.

        @param later: how many milliseconds more than usual after the last one.
        @param erased: the indexes of publishes that are stored without their content.
        """
        candidate = self._propose(transactions, later, erased)
        certificate = self.certify(candidate.header)
        self.store.append(appendOf(candidate, certificate.encode()))
        self._state.apply(candidate.outcome, candidate.history)
        self.head = candidate.header
        return self.head

    def _propose(
        self, transactions: Sequence[Transaction], later: int, erased: Collection[int]
    ) -> Candidate:
        """The next block, with the body that is stored of it."""
        time = self.head.timestamp + STEP + later
        candidate = proposeBlock(self._state, self.head, 0, time, transactions)
        if not erased:
            return candidate
        body, offsets = encodeBody(
            [
                Transaction.decode(each.head, mayBeErased=True) if index in erased else each
                for index, each in enumerate(transactions)
            ]
        )
        return replace(candidate, body=body, offsets=offsets)

    def certify(
        self, header: Header, signers: Sequence[int] | None = None, round: int = 0
    ) -> Certificate:
        """
        Signatures under any header by the nodes that decide now.

        @param signers: their indexes; by default the first that are a quorum.
        """
        payload = votePayload(Phase.COMMIT, header.chain, header.height, round, header.hash)
        chosen = range(quorum(len(self._seeds))) if signers is None else signers
        return Certificate(
            round=round,
            signatures=[
                (index, Ed25519PrivateKey.from_private_bytes(self._seeds[index]).sign(payload))
                for index in chosen
            ],
        )

    def transaction(
        self,
        kind: Kind,
        topic: str = "",
        content: bytes = b"",
        extensions: Mapping[str, str] | None = None,
    ) -> Transaction:
        """The broker's next transaction."""
        self._nonce += 1
        return Transaction.create(
            kind,
            self._sender,
            self._nonce,
            self.head.timestamp + STEP // 2,
            topic,
            content,
            extensions,
        )

    def say(
        self,
        topic: str,
        content: bytes,
        *,
        author: str | None = None,
        key: str | None = None,
        expected: int | None = None,
        extensions: Mapping[str, str] | None = None,
        isSigned: bool = True,
        statementVersion: int = 1,
        version: int = 2,
    ) -> Transaction:
        """
        The broker's next publish, of version 2 or 3.

        @param author: the name of the key of its author.
        @param isSigned: whether the signature is that author's.
        @param statementVersion: the version of the statement that is signed.
        @param version: the least version of the transaction.
        """
        self._nonce += 1
        time = self.head.timestamp + STEP // 2
        authorship = None
        if author is not None:
            signed = statement(
                self.genesis.chain,
                topic,
                content,
                time,
                key,
                extensions or {},
                statementVersion,
                expected,
            )
            authorship = Authorship(
                key=publicKeyOf(author),
                signedAt=time,
                signature=authorKey(author).sign(signed) if isSigned else bytes(64),
                statement=statementVersion,
            )
        owner = self.owner if key is not None and author is None else None
        claims = Claims(author=authorship, key=key, owner=owner, expected=expected)
        return Transaction.publish(
            self._sender,
            self._nonce,
            time,
            topic,
            content,
            extensions,
            sha256(b"salt %d" % self._nonce).digest(),
            None if claims == Claims() else claims,
            version,
        )

    def make(self, kind: Kind, topic: str, content: bytes = b"", version: int = 2) -> Transaction:
        """The broker's next transaction of version 2, or 3, that is not a publish."""
        self._nonce += 1
        time = self.head.timestamp + STEP // 2
        return Transaction.make(kind, self._sender, self._nonce, time, topic, content, version)

    def openFor(self, topic: str, *authors: str, admins: Sequence[str] = ()) -> Header:
        """Open a topic for authors, by the names of their keys."""
        some = AuthorSet(
            authors=tuple(sorted(map(publicKeyOf, authors))),
            admins=tuple(sorted(map(publicKeyOf, admins))),
        )
        return self.decide([self.make(Kind.OPEN, topic, encodeAuthors(some))])

    def open(self, *topics: str) -> Header:
        """Open topics, in one block."""
        return self.decide([self.transaction(Kind.OPEN, topic) for topic in topics])

    def publish(
        self, topic: str, *contents: bytes, extensions: Mapping[str, str] | None = None
    ) -> Sequence[EventId]:
        """Publish events to an open topic, in one block."""
        known = self._state.topic(topic)
        assert known is not None
        first = known.sequence + 1
        header = self.decide(
            [self.transaction(Kind.PUBLISH, topic, content, extensions) for content in contents]
        )
        prefix = topicPrefix(topic)
        return [EventId(prefix, first + number, header.height) for number in range(len(contents))]

    def changeNodes(self, *names: str) -> Header:
        """Have nodes with the keys of these names decide from the next block on."""
        seeds = [seedOf(name) for name in names]
        change = signChange(
            self.genesis.chain,
            self._state.validators,
            list(map(publicKey, seeds)),
            [*self._seeds, *seeds],
        )
        header = self.decide([self.transaction(Kind.VALIDATORS, content=change.encode())])
        self._seeds = seeds
        return header
