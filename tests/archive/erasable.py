"""
Chains with authors, idempotency keys and erasures, and what is left of them in files.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svcbroker.archive import Eraser, Erasing, loadChain
from svcbroker.chain import (
    Claims,
    Erasure,
    Header,
    Kind,
    Transaction,
    decodeBody,
    decodeReceipts,
    encodeAuthors,
    statement,
)
from svcbroker.model import AuthorSet, Authorship, Execution, topicPrefix
from svcbroker.storage import Store
from tools.signedchain import STEP, SignedChain, seedOf

OWNER = b"o" * 20


def authorKey(name: str) -> Ed25519PrivateKey:
    """The private key of an author that everybody can know."""
    return Ed25519PrivateKey.from_private_bytes(seedOf(f"author {name}"))


def publicKeyOf(name: str) -> bytes:
    """The public key of an author."""
    return authorKey(name).public_key().public_bytes_raw()


def canary(*parts: object) -> bytes:
    """Bytes that are nowhere else."""
    return sha256(repr(parts).encode()).hexdigest().encode()


class ErasableChain(SignedChain):
    """
    A chain with transactions of version 2.
    """

    def say(
        self,
        topic: str,
        content: bytes,
        *,
        key: str | None = None,
        author: str | None = None,
        expected: int | None = None,
        extensions: dict[str, str] | None = None,
        isSigned: bool = True,
    ) -> Transaction:
        """
        A publish of version 2.

        @param author: the name of its author.
        @param isSigned: whether the signature is that author's.
        """
        self._nonce += 1
        time = self.head.timestamp + STEP // 2
        claims = None
        if (key, author, expected) != (None, None, None):
            authorship = None
            if author is not None:
                signed = statement(self.genesis.chain, topic, content, time, key, extensions or {})
                signature = authorKey(author).sign(signed) if isSigned else bytes(64)
                authorship = Authorship(key=publicKeyOf(author), signedAt=time, signature=signature)
            owner = OWNER if key is not None and author is None else None
            claims = Claims(author=authorship, key=key, owner=owner, expected=expected)
        salt = canary("salt", self._nonce)[:32]
        return Transaction.publish(
            self._sender, self._nonce, time, topic, content, extensions, salt, claims
        )

    def erasure(self, topic: str, *ranges: tuple[int, int]) -> Transaction:
        """An erasure of some events."""
        content = Erasure(account="operator", reason="asked for", ranges=ranges).encode()
        return self.make(Kind.ERASE, topic, content)

    def make(self, kind: Kind, topic: str, content: bytes = b"") -> Transaction:
        """A transaction of version 2 that is not a publish."""
        self._nonce += 1
        time = self.head.timestamp + STEP // 2
        return Transaction.make(kind, self._sender, self._nonce, time, topic, content)

    def openFor(self, topic: str, *names: str) -> Header:
        """Open a topic for authors."""

        authors = AuthorSet(authors=tuple(sorted(map(publicKeyOf, names))))
        return self.decide([self.make(Kind.OPEN, topic, encodeAuthors(authors))])

    def erase(self, topic: str, *ranges: tuple[int, int]) -> Header:
        """Erase events, in a block alone."""
        return self.decide([self.erasure(topic, *ranges)])


def filesWith(directory: Path, wanted: bytes) -> Sequence[str]:
    """The names of the files below a directory in which some bytes are."""
    return [
        str(path.relative_to(directory))
        for path in sorted(directory.rglob("*"))
        if path.is_file() and wanted in path.read_bytes()
    ]


def eventsIn(store: Store) -> dict[tuple[str, int], bytes | None]:
    """
    The content of each event by topic and sequence number, C{None} where it is missing; found in
    the body of its block, and at the place that the index of its topic names.
    """
    events: dict[tuple[str, int], bytes | None] = {}
    for height in range(1, store.height + 1):
        row = store.block(height)
        assert row is not None
        transactions = decodeBody(row.body, mayBeErased=True)
        for transaction, receipt in zip(transactions, decodeReceipts(row.receipts), strict=True):
            if transaction.kind is not Kind.PUBLISH or receipt.execution is not Execution.DONE:
                continue
            prefix, sequence = topicPrefix(transaction.topic), receipt.sequence
            [place] = store.eventPlaces(prefix, height, sequence)
            assert place is not None
            entry = store.bodySlice(height, place.offset, place.length)
            found = Transaction.decode(entry, mayBeErased=True)
            assert found == transaction, (height, sequence)
            content = None if found.isErased else found.content
            events[transaction.topic, sequence] = content
    return events


def makeErasable(directory: Path, *, isRemoved: bool = True) -> ErasableChain:
    """
    A chain that has a bit of everything: both versions, topics with authors, uses of keys,
    publishes that were refused, and three erased events. It is open.

    @param directory: that of the group.
    @param isRemoved: whether the contents of the erased events are removed.
    """
    directory.mkdir(parents=True, mode=0o700)
    chain = ErasableChain(directory)
    chain.open("a", "b")
    chain.publish("a", canary("old"), b"", canary("old kept"))
    chain.openFor("by", "ann", "bob")
    chain.decide(
        [
            chain.say("a", canary("gone"), key="one", extensions={"svc-private-note": "x"}),
            chain.say("b", canary("kept"), key="two"),
            chain.say("by", canary("gone by"), author="ann", key="one"),
            chain.say("by", canary("refused"), author="ann", isSigned=False),
            chain.say("by", canary("refused, too"), author="carol"),
        ]
    )
    chain.decide(
        [
            chain.erasure("a", (1, 1), (4, 4)),
            chain.erasure("by", (1, 1)),
            # Of a use whose event is erased, and of one whose is not.
            chain.say("a", canary("another"), key="one"),
            chain.say("b", canary("kept"), key="two"),
            chain.say("b", canary("other"), key="two"),
        ]
    )
    chain.publish("a", canary("after"))
    if isRemoved:
        assert Eraser(chain.store).run() is Erasing.DONE
    return chain


def reopened(path: Path) -> Store:
    """A store that was closed, with its state checked."""
    store = Store.open(path)
    loadChain(store)
    return store
