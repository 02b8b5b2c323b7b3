"""
Chains of which one has all keys and all time: whatever is published is decided at once, and every
run gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svcbroker.archive import Prover, appendOf
from svcbroker.chain import (
    Certificate,
    ChainState,
    Genesis,
    Header,
    Kind,
    Phase,
    Transaction,
    accountAddress,
    proposeBlock,
    quorum,
    votePayload,
)
from svcbroker.ledgers.pbft._keys import publicKey, signChange
from svcbroker.model import EventId, topicPrefix
from svcbroker.storage import Store

CREATED = 1_700_000_000_000
STEP = 250
"""Milliseconds between blocks."""


def seedOf(name: str) -> bytes:
    """A private key that everybody can know."""
    return sha256(f"svcbroker/example/{name}".encode()).digest()


class SignedChain:
    """
    A chain in a directory, decided by whoever holds this object.

    @ivar head: the header of its last block.
    @ivar prover: makes proofs of it.
    """

    def __init__(
        self, directory: Path, nodes: int = 4, *, group: str = "1", name: str = "node"
    ) -> None:
        """
        @param directory: an empty one.
        @param name: begins the names of its keys: another one gives another chain.
        """
        self._seeds = [seedOf(f"{name} {index}") for index in range(nodes)]
        self.genesis = Genesis(
            group=group, created=CREATED, validators=tuple(map(publicKey, self._seeds))
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

    def decide(self, transactions: Sequence[Transaction] = (), *, later: int = 0) -> Header:
        """
        Make a block of transactions.

        @param later: how many milliseconds more than usual after the last one.
        """
        time = self.head.timestamp + STEP + later
        candidate = proposeBlock(self._state, self.head, 0, time, transactions)
        certificate = self.certify(candidate.header)
        self.store.append(appendOf(candidate, certificate.encode()))
        self._state.apply(candidate.outcome, candidate.history)
        self.head = candidate.header
        return self.head

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
