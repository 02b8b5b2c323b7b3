"""
Tests of transactions of version 2: authors, idempotency keys, expected numbers and erasure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from unittest.mock import patch

from attrs import evolve
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    MAX_HEAD_SIZE,
    Candidate,
    ChainState,
    Claims,
    ErasedRange,
    Erasure,
    InvalidBlock,
    KeyUse,
    Kind,
    Malformed,
    MemoryKeys,
    Transaction,
    authorsStatement,
    checkBlock,
    decodeBody,
    encodeAuthorChange,
    encodeAuthors,
    encodeBody,
    proposeBlock,
    statement,
    transactionHashes,
)
from svcbroker.model import RESERVED_NAMES, AuthorChange, AuthorSet, Authorship, Execution

from .support import GENESIS, few, names, texts

ALICE, BOB, CAROL = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2, 3))
SENDER = b"s" * 20
OWNER, OTHER_OWNER = b"o" * 20, b"p" * 20
SALT = b"salt" * 8


def keyOf(key: Ed25519PrivateKey) -> bytes:
    """Its public key."""
    return key.public_key().public_bytes_raw()


def setOf(*authors: Ed25519PrivateKey, admins: Sequence[Ed25519PrivateKey] = ()) -> AuthorSet:
    """A set of authors."""
    return AuthorSet(
        authors=tuple(sorted(map(keyOf, authors))), admins=tuple(sorted(map(keyOf, admins)))
    )


def signed(
    key: Ed25519PrivateKey,
    content: bytes,
    idempotencyKey: str | None = None,
    extensions: Mapping[str, str] | None = None,
    topic: str = "t",
    version: int = 1,
    expected: int | None = None,
) -> Authorship:
    """The authorship of an event, signed."""
    text = statement(
        GENESIS.chain, topic, content, 99, idempotencyKey, extensions or {}, version, expected
    )
    signature = key.sign(text)
    return Authorship(key=keyOf(key), signedAt=99, signature=signature, statement=version)


class ChainTestCase(SynchronousTestCase):
    """
    Executes blocks, each of which is also executed from its bytes.
    """

    def setUp(self) -> None:
        """A chain with the open topic C{t}."""
        self.state, self.again = GENESIS.state(), GENESIS.state()
        self.head = GENESIS.header()
        self.nonce = 0
        self.blocks: list[Candidate] = []
        self.run_(self.make(Kind.OPEN, "t"))

    def make(self, kind: Kind, topic: str, content: bytes = b"", version: int = 2) -> Transaction:
        """A transaction that is no publish."""
        self.nonce += 1
        return Transaction.make(kind, SENDER, self.nonce, 0, topic, content, version)

    def publish(
        self,
        content: bytes = b"x",
        topic: str = "t",
        extensions: Mapping[str, str] | None = None,
        author: Authorship | None = None,
        key: str | None = None,
        owner: bytes = OWNER,
        expected: int | None = None,
    ) -> Transaction:
        """A publish."""
        claims = None
        if (author, key, expected) != (None, None, None):
            kept = owner if author is None and key is not None else None
            claims = Claims(author=author, key=key, owner=kept, expected=expected)
        self.nonce += 1
        return Transaction.publish(SENDER, self.nonce, 0, topic, content, extensions, SALT, claims)

    def run_(self, *transactions: Transaction) -> Sequence[tuple[Execution, int]]:
        """Execute a block; what its receipts say."""
        made = proposeBlock(self.state, self.head, 0, 0, list(transactions))
        read = decodeBody(made.body)
        self.assertEqual(list(read), list(transactions))
        self.assertEqual(checkBlock(self.again, self.head, made.header, read), made)
        for state in (self.state, self.again):
            state.apply(made.outcome, made.history)
        self.head = made.header
        self.blocks.append(made)
        return [(each.execution, each.sequence) for each in made.outcome.receipts]

    def erase(self, *ranges: tuple[int, int], topic: str = "t", version: int = 2) -> Transaction:
        """An erasure."""
        content = Erasure(account="ops", reason="asked", ranges=ranges).encode()
        return self.make(Kind.ERASE, topic, content, version)

    def replay(self, isErased: bool = True) -> ChainState:
        """Execute all blocks anew from bodies without any content of a publish."""
        state, parent = GENESIS.state(), GENESIS.header()
        for block in self.blocks:
            kept = [
                each.withoutContent() if each.kind is Kind.PUBLISH and isErased else each
                for each in block.transactions
            ]
            transactions = decodeBody(encodeBody(kept)[0], mayBeErased=True)
            receipts = block.outcome.receipts
            made = checkBlock(state, parent, block.header, transactions, receipts)
            self.assertEqual(made.outcome.receipts, receipts)
            state.apply(made.outcome, made.history)
            parent = block.header
        self.assertEqual(state.root, self.state.root)
        return state


class EncodingTests(ChainTestCase):
    """
    Heads, seals and bodies.
    """

    @few
    @given(
        st.builds(
            dict,
            content=st.binary(max_size=50),
            topic=names,
            extensions=st.dictionaries(
                st.builds(
                    lambda a, b: a + b, st.sampled_from(["svc-", "svc-private-", "svc-p"]), texts
                ).filter(lambda key: key not in RESERVED_NAMES),
                texts,
                max_size=4,
            ),
            isSigned=st.booleans(),
            key=st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1),
            expected=st.none() | st.integers(0, 2**64 - 1),
        )
    )
    def test_publishSurvivesItsEncoding(self, made: dict[str, object]) -> None:
        """A publish with any options is read as it was written, whole and erased."""
        isSigned = made.pop("isSigned")
        key = made["key"] = made["key"] and str(made["key"])[:64]
        if isSigned:
            made["author"] = Authorship(key=keyOf(ALICE), signedAt=2**64 - 1, signature=b"s" * 64)
        transaction = self.publish(**made)  # type: ignore[arg-type]
        self.assertLess(len(transaction.head), MAX_HEAD_SIZE)
        entry = transaction.head + transaction.seal + transaction.content
        read = Transaction.decode(entry)
        self.assertEqual(read, transaction)
        self.assertEqual((read.version, read.isErased), (2, False))
        self.assertEqual(read.claims and read.claims.key, key)
        erased = Transaction.decode(transaction.head, mayBeErased=True)
        self.assertTrue(erased.isErased)
        self.assertEqual((erased.hash, erased.content, erased.seal), (read.hash, b"", b""))
        self.assertFalse(any(each.startswith("svc-private-") for each in erased.extensions))
        self.assertRaises(Malformed, Transaction.decode, transaction.head)
        body, offsets = encodeBody([transaction, self.make(Kind.OPEN, "o"), transaction])
        self.assertEqual(
            transactionHashes(body, offsets)[::2], [transaction.hash, transaction.hash]
        )
        other = transaction.withNonce(2**63)
        self.assertEqual(Transaction.decode(other.head + other.seal + other.content), other)
        same = (other.nonce, other.size, replace(other, nonce=transaction.nonce).head[30:])
        self.assertEqual(same, (2**63, transaction.size, transaction.head[30:]))
        self.assertEqual(other.withNonce(transaction.nonce), transaction)

    def test_changedByteIsAnotherTransaction(self) -> None:
        """No byte of an entry can be changed without changing the transaction's hash."""
        made = self.publish(
            b"content",
            extensions={"svc-a": "1", "svc-private-b": "2"},
            author=signed(ALICE, b"content", "k"),
            key="k",
            expected=7,
        )
        entry = made.head + made.seal + made.content
        for at in range(len(entry)):
            for bit in (1, 128):
                changed = entry[:at] + bytes([entry[at] ^ bit]) + entry[at + 1 :]
                try:
                    read = Transaction.decode(changed, mayBeErased=True)
                except Malformed:
                    continue
                self.assertNotEqual(read.hash, made.hash, at)

    def test_malformedEntriesAreRefused(self) -> None:
        """Entries that break a rule are refused."""
        open = self.make(Kind.OPEN, "t", encodeAuthors(setOf(ALICE)))
        bad = [
            self.make(Kind.OPEN, "t", encodeAuthors(evolve(setOf(ALICE), generation=1))),
            self.make(Kind.OPEN, "t", b"x"),
            self.make(Kind.CLOSE, "t", b"x"),
            self.make(Kind.AUTHORS, "t", b""),
            self.make(Kind.ERASE, "t", b""),
            self.make(Kind.ERASE, "", self.erase((1, 2)).content),
            self.make(Kind.VALIDATORS, "t"),
            self.publish(key="a b"),
            self.publish(key="k" * 65),
            self.publish(key=""),
            self.publish(extensions={"x-a": ""}),
            self.publish(extensions={"svc-private-a": "b" * 4096, "svc-a": "b" * 4096}),
        ]
        self.assertEqual(Transaction.decode(open.head + open.content), open)
        for each in bad:
            with self.assertRaises(Malformed):
                Transaction.decode(each.head + each.seal + each.content)

    def test_authorsAreCanonical(self) -> None:
        """A set of authors has rising keys, and as many as are allowed."""
        keys = [bytes([number]) * 32 for number in range(65)]
        for authors, admins in (
            (keys[:64], keys[:16]),
            (keys[:1], []),
        ):
            made = AuthorSet(authors=tuple(authors), admins=tuple(admins))
            opening = self.make(Kind.OPEN, "t", encodeAuthors(made))
            self.assertEqual(Transaction.decode(opening.head + opening.content), opening)
        for authors, admins in (
            ([], keys[:1]),
            (keys[:65], []),
            (keys[:1], keys[:17]),
            ([keys[1], keys[0]], []),
            ([keys[0], keys[0]], []),
        ):
            made = AuthorSet(authors=tuple(authors), admins=tuple(admins))
            opening = self.make(Kind.OPEN, "t", encodeAuthors(made))
            self.assertRaises(Malformed, Transaction.decode, opening.head + opening.content)

    def test_erasuresAreCanonical(self) -> None:
        """The ranges of an erasure rise, and name a bounded number of events."""
        for ranges in (((1, 65536),), ((1, 1), (2, 2)), tuple((n, n) for n in range(1, 1025))):
            made = Erasure(account="a", reason="r" * 1024, ranges=ranges)
            self.assertEqual(Erasure.decode(made.encode()), made)
        for ranges in (
            (),
            ((0, 1),),
            ((2, 1),),
            ((1, 2), (2, 3)),
            ((3, 4), (1, 2)),
            ((1, 65537),),
            tuple((n, n) for n in range(1, 1026)),
        ):
            made = Erasure(account="a", reason="", ranges=ranges)
            self.assertRaises(Malformed, Erasure.decode, made.encode())
        long = Erasure(account="", reason="r" * 1025, ranges=((1, 1),))
        self.assertRaises(Malformed, Erasure.decode, long.encode())


class FormatTests(ChainTestCase):
    """
    From format 2 to format 3.
    """

    def test_firstTransactionOfVersion2ChangesTheFormat(self) -> None:
        """A chain has format 2 up to its first transaction of version 2, and then 3."""
        state, parent = GENESIS.state(), GENESIS.header()
        old = Transaction.create(Kind.OPEN, SENDER, 1, 0, "t")
        new = Transaction.make(Kind.OPEN, SENDER, 2, 0, "t")
        last = Transaction.create(Kind.PUBLISH, SENDER, 3, 0, "t", b"x")
        for transactions, version in (([], 2), ([old], 2), ([new], 3), ([], 3), ([last], 3)):
            made = proposeBlock(state, parent, 0, 0, transactions)
            self.assertEqual(made.header.version, version)
            other = replace(made.header, version=5 - version)
            self.assertRaises(InvalidBlock, checkBlock, state, parent, other, transactions)
            state.apply(made.outcome, made.history)
            parent = made.header


class AuthorTests(ChainTestCase):
    """
    Signed events, and topics with authors.
    """

    def test_onlySignedStatementsAreExecuted(self) -> None:
        """A publish with an author is executed only if the statement has the author's signature."""
        good = signed(ALICE, b"x", "k", {"svc-a": "1", "svc-private-b": "2"})
        extensions = {"svc-private-b": "2", "svc-a": "1"}
        refused = (Execution.REFUSED, 0)
        for author, content, key, sent in (
            (signed(BOB, b"x", "k", extensions), b"x", "k", extensions),
            (good, b"y", "k", extensions),
            (good, b"x", "other", extensions),
            (good, b"x", None, extensions),
            (good, b"x", "k", {"svc-a": "1"}),
            (good, b"x", "k", {"svc-a": "1", "svc-private-b": "3"}),
            (structs.replace(good, signedAt=98), b"x", "k", extensions),
        ):
            author = structs.replace(author, key=keyOf(ALICE))
            publish = self.publish(content, author=author, key=key, extensions=sent)
            self.assertEqual(self.run_(publish), [refused])
        publish = self.publish(b"x", author=good, key="k", extensions=extensions)
        self.assertEqual(self.run_(publish), [(Execution.DONE, 1)])

    def test_statementIsText(self) -> None:
        """A statement is the text that the specification shows."""
        text = statement(b"\xab" * 32, "a b", b"", 12, "k", {"svc-b": "ä", "svc-a": ""})
        self.assertEqual(
            text.decode("utf-8"),
            f"svcbroker/statement/1\nchain={'ab' * 32}\ntopic=a b\n"
            "content=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"
            "time=12\nkey=k\nextension=7376632d61:\nextension=7376632d62:c3a4\n",
        )

    def test_topicWithAuthorsTakesOnlyTheirEvents(self) -> None:
        """An event that none of a topic's authors has signed is refused, of either version."""
        authors = encodeAuthors(setOf(ALICE))
        self.run_(self.make(Kind.OPEN, "a", authors))
        self.assertEqual(self.state.topic("a"), self.again.topic("a"))
        byBob, byAlice = (signed(key, b"x", topic="a") for key in (BOB, ALICE))
        old = Transaction.create(Kind.PUBLISH, SENDER, 900, 0, "a", b"x")
        self.assertEqual(
            self.run_(
                self.publish(topic="a"),
                self.publish(topic="a", author=byBob),
                self.publish(topic="a", author=byAlice),
                old,
            ),
            [
                (Execution.NO_AUTHOR, 0),
                (Execution.NO_AUTHOR, 0),
                (Execution.DONE, 1),
                (Execution.NO_AUTHOR, 0),
            ],
        )
        self.replay()

    def test_openKeepsAuthors(self) -> None:
        """An open topic keeps its authors; opening it with others is refused."""
        alice, bob = encodeAuthors(setOf(ALICE)), encodeAuthors(setOf(BOB))
        done, refused = (Execution.DONE, 0), (Execution.REFUSED, 0)
        for name, content, result in (
            ("a", alice, done),
            ("a", alice, done),
            ("a", b"", done),
            ("a", bob, refused),
            ("t", alice, refused),
        ):
            self.assertEqual(self.run_(self.make(Kind.OPEN, name, content)), [result])
        topic = self.state.topic("a")
        assert topic is not None
        self.assertEqual(topic.authors, setOf(ALICE))
        self.run_(self.make(Kind.CLOSE, "a"))
        self.assertEqual(self.run_(self.make(Kind.OPEN, "a", bob)), [refused])
        topic = self.state.topic("a")
        assert topic is not None
        self.assertFalse(topic.isOpen)

    def test_adminsChangeAuthors(self) -> None:
        """Only what an admin of the current set has signed changes the authors, once."""
        self.run_(self.make(Kind.OPEN, "a", encodeAuthors(setOf(ALICE, admins=[CAROL]))))
        following = evolve(setOf(BOB, admins=[CAROL]), generation=1)
        text = authorsStatement(GENESIS.chain, "a", following)
        good = AuthorChange(following=following, admin=keyOf(CAROL), signature=CAROL.sign(text))
        byAlice = evolve(good, admin=keyOf(ALICE), signature=ALICE.sign(text))
        later = evolve(good, following=evolve(following, generation=2))
        for topic, change, result in (
            ("a", byAlice, Execution.REFUSED),
            ("a", evolve(good, signature=BOB.sign(text)), Execution.REFUSED),
            ("a", later, Execution.REFUSED),
            ("t", good, Execution.REFUSED),
            ("unknown", good, Execution.TOPIC_NOT_FOUND),
            ("a", good, Execution.DONE),
            ("a", good, Execution.REFUSED),
        ):
            made = self.make(Kind.AUTHORS, topic, encodeAuthorChange(change))
            self.assertEqual(self.run_(made), [(result, 0)])
        changed = self.state.topic("a")
        assert changed is not None
        self.assertEqual(changed.authors, following)
        self.assertEqual(
            self.run_(
                self.publish(topic="a", author=signed(ALICE, b"x", topic="a")),
                self.publish(topic="a", author=signed(BOB, b"x", topic="a")),
            ),
            [(Execution.NO_AUTHOR, 0), (Execution.DONE, 1)],
        )
        self.replay()


class KeyTests(ChainTestCase):
    """
    Idempotency keys and expected sequence numbers.
    """

    def test_keyPublishesOnce(self) -> None:
        """A key publishes once, in one block and in several; with other content it is refused."""
        done, before, inUse = Execution.DONE, Execution.PUBLISHED_BEFORE, Execution.KEY_IN_USE
        self.run_(self.make(Kind.OPEN, "u"))
        first = self.run_(
            self.publish(b"x"),
            self.publish(b"x", key="k"),
            self.publish(b"x", key="k"),
            self.publish(b"y", key="k"),
            self.publish(b"x", key="k", topic="u"),
            self.publish(b"x", key="k", owner=OTHER_OWNER),
        )
        self.assertEqual(
            first, [(done, 1), (done, 2), (before, 2), (inUse, 0), (inUse, 0), (done, 3)]
        )
        self.assertEqual(self.blocks[-1].outcome.earlier, {2: 3})
        again = self.run_(
            self.publish(b"x", key="k"),
            self.publish(b"y", key="k"),
            self.publish(b"y", key="K"),
        )
        self.assertEqual(again, [(before, 2), (inUse, 0), (done, 4)])
        self.assertEqual(self.blocks[-1].outcome.earlier, {0: 3})
        self.run_(self.make(Kind.CLOSE, "t"))
        self.assertEqual(self.run_(self.publish(b"x", key="k")), [(before, 2)])
        self.replay()

    def test_refusedPublishDoesNotUseItsKey(self) -> None:
        """A key whose publish was refused can still publish."""
        self.assertEqual(
            self.run_(
                self.publish(key="k", topic="unknown"),
                self.publish(key="k", expected=5),
                self.publish(key="k", expected=0),
            ),
            [
                (Execution.TOPIC_NOT_FOUND, 0),
                (Execution.OTHER_SEQUENCE, 0),
                (Execution.DONE, 1),
            ],
        )

    def test_keyOfAuthorBelongsToAuthor(self) -> None:
        """Whoever sends it, a signed publish with a key is executed once."""
        author = signed(ALICE, b"x", "k")
        self.assertEqual(
            self.run_(
                self.publish(key="k", author=author),
                self.publish(key="k"),
                self.publish(key="k", author=author),
            ),
            [(Execution.DONE, 1), (Execution.DONE, 2), (Execution.PUBLISHED_BEFORE, 1)],
        )
        self.replay()

    def test_keysAreForgottenAfterTheWindow(self) -> None:
        """A key is free again once its owner has used as many others as the window holds."""
        with (
            patch("svcbroker.chain._execution.KEY_WINDOW", 3),
            patch("svcbroker.chain._claims.KEY_WINDOW", 3),
        ):
            self.run_(*[self.publish(key=key) for key in "abc"])
            self.assertEqual(self.run_(self.publish(key="a")), [(Execution.PUBLISHED_BEFORE, 1)])
            self.run_(self.publish(key="d"), self.publish(key="x", owner=OTHER_OWNER))
            self.assertEqual(
                self.run_(self.publish(key="b"), self.publish(key="a"), self.publish(key="b")),
                [
                    (Execution.PUBLISHED_BEFORE, 2),
                    (Execution.DONE, 6),
                    (Execution.DONE, 7),
                ],
            )
            self.assertEqual(self.state.keys.count(OWNER), 6)

    def test_expectedSequenceIsThatOfTheTopic(self) -> None:
        """A publish that expects another sequence number is refused with the topic's."""
        self.assertEqual(
            self.run_(
                self.publish(expected=0),
                self.publish(expected=0),
                self.publish(expected=1),
                self.publish(),
            ),
            [
                (Execution.DONE, 1),
                (Execution.OTHER_SEQUENCE, 1),
                (Execution.DONE, 2),
                (Execution.DONE, 3),
            ],
        )


class ErasureTests(ChainTestCase):
    """
    Erased events.
    """

    def test_erasureNamesPublishedEvents(self) -> None:
        """An erasure is executed where its topic has published all of its events."""
        self.run_(self.publish(), self.publish(), self.make(Kind.CLOSE, "t"))
        self.assertEqual(
            self.run_(
                self.erase((1, 2)),
                self.erase((1, 3)),
                self.erase((1, 1), topic="unknown"),
                self.erase((1, 1), (2, 2)),
            ),
            [
                (Execution.DONE, 0),
                (Execution.REFUSED, 0),
                (Execution.TOPIC_NOT_FOUND, 0),
                (Execution.DONE, 0),
            ],
        )
        self.assertEqual(
            self.blocks[-1].outcome.erased[0],
            ErasedRange(topic=0, first=1, last=2, height=3, position=0),
        )

    def test_keyOfErasedEventComparesNothing(self) -> None:
        """In format 3, a key whose event was erased answers that event, whatever the content."""
        self.run_(self.publish(b"x", key="k"), self.publish(b"x", key="l"))
        self.assertEqual(
            self.run_(
                self.publish(b"y", key="k"),
                self.erase((1, 1)),
                self.publish(b"y", key="k"),
                self.publish(b"y", key="l"),
            ),
            [
                (Execution.KEY_IN_USE, 0),
                (Execution.DONE, 0),
                (Execution.PUBLISHED_BEFORE, 1),
                (Execution.KEY_IN_USE, 0),
            ],
        )
        self.assertEqual(self.run_(self.publish(b"z", key="k")), [(Execution.PUBLISHED_BEFORE, 1)])
        self.replay()

    def test_blockToBeDecidedIsWhole(self) -> None:
        """A block without a content follows its parent only where its receipts are known."""
        made = self.publish(b"x")
        block = proposeBlock(self.state, self.head, 0, 0, [made])
        erased = Transaction.decode(made.head, mayBeErased=True)
        self.assertRaises(InvalidBlock, checkBlock, self.state, self.head, block.header, [erased])
        receipts = block.outcome.receipts
        again = checkBlock(self.state, self.head, block.header, [erased], receipts)
        self.assertEqual(again.header, block.header)
        self.assertLess(len(again.body), len(block.body))

    def test_recordedReceiptsDecideWhatIsMissing(self) -> None:
        """A chain of which all contents are gone is executed with its receipts, and only these."""
        self.run_(
            self.publish(b"x", author=structs.replace(signed(ALICE, b"y"), key=keyOf(ALICE))),
            self.publish(b"x", author=signed(ALICE, b"x")),
            self.publish(b"x", key="k"),
            self.publish(b"x", key="k"),
            self.publish(b"y", key="k"),
            self.publish(b"y", expected=9),
        )
        self.run_(self.publish(b"x", key="k"), self.publish(b"y", key="k"))
        self.replay()
        self.replay(isErased=False)
        block = self.blocks[1]
        swapped = list(block.outcome.receipts)
        swapped[1] = swapped[0]
        erased = [Transaction.decode(each.head, mayBeErased=True) for each in block.transactions]
        state, parent = GENESIS.state(), self.blocks[0]
        state.apply(parent.outcome, parent.history)
        self.assertRaises(
            InvalidBlock, checkBlock, state, parent.header, block.header, erased, swapped
        )

    def test_oldContentIsErasedToo(self) -> None:
        """A publish of version 1 may stand without its content, an empty one is whole."""
        made = Transaction.create(Kind.PUBLISH, SENDER, 1, 0, "t", b"x")
        read = Transaction.decode(made.head, mayBeErased=True)
        self.assertTrue(read.isErased)
        self.assertEqual(read.hash, made.hash)
        self.assertRaises(Malformed, Transaction.decode, made.head)
        empty = Transaction.create(Kind.PUBLISH, SENDER, 1, 0, "t")
        self.assertFalse(Transaction.decode(empty.head, mayBeErased=True).isErased)


class MemoryKeysTests(SynchronousTestCase):
    """
    L{MemoryKeys}.
    """

    @few
    @given(
        st.lists(st.tuples(st.integers(0, 1), st.integers(1, 12), st.integers(0, 4)), max_size=12)
    )
    def test_firstErasureOfAnEventIsKept(self, made: list[tuple[int, int, int]]) -> None:
        """Of overlapping erasures, each event has the first one."""
        keys, model = MemoryKeys(), dict[tuple[int, int], ErasedRange]()
        for height, (topic, first, more) in enumerate(made, 1):
            each = ErasedRange(
                topic=topic, first=first, last=first + more, height=height, position=0
            )
            keys.add((), [each])
            for sequence in range(first, first + more + 1):
                model.setdefault((topic, sequence), each)
        for topic in range(3):
            for sequence in range(20):
                found, known = keys.erasure(topic, sequence), model.get((topic, sequence))
                self.assertEqual(found and found.height, known and known.height)

    def test_usesOutsideTheWindowAreForgotten(self) -> None:
        """Only uses that are in force take memory."""
        with patch("svcbroker.chain._claims.KEY_WINDOW", 2):
            keys = MemoryKeys()
            for number, key in enumerate("abac", 1):
                use = KeyUse(
                    owner=OWNER,
                    key=key,
                    number=number,
                    topic=0,
                    sequence=number,
                    height=number,
                    digest=bytes(32),
                )
                keys.add([use], ())
            found = keys.find([(OWNER, key) for key in "abc"])
        self.assertEqual(
            {key: use.number for key, use in found.items()}, {(OWNER, "a"): 3, (OWNER, "c"): 4}
        )
        self.assertEqual((keys.count(OWNER), keys.count(OTHER_OWNER)), (4, 0))
