"""
Tests of transactions of version 3, in blocks of format 4.
"""

from __future__ import annotations

from msgspec import structs
from msgspec.structs import replace

from svcbroker.chain import (
    Claims,
    Header,
    InvalidBlock,
    Kind,
    Malformed,
    Transaction,
    VersionUnknown,
    checkBlock,
    encodeBody,
    proposeBlock,
    statement,
    transactionHashes,
)
from svcbroker.model import Authorship, Execution

from .support import GENESIS
from .test_version2 import ALICE, SALT, SENDER, ChainTestCase, signed

OPTIONS = 73
"""The place of the options in the head of a transaction to the topic t."""


def entryOf(transaction: Transaction) -> bytes:
    """A transaction as it stands in a body."""
    return transaction.head + transaction.seal + transaction.content


class Statement2Tests(ChainTestCase):
    """
    Statements of version 2.
    """

    def test_statementIsText(self) -> None:
        """A statement of version 2 has the expected number, or a line without one."""
        for expected, line in ((7, "expected=7"), (0, "expected=0"), (None, "expected=")):
            text = statement(b"\xab" * 32, "a b", b"", 12, "k", {"svc-a": ""}, 2, expected)
            self.assertEqual(
                text.decode("utf-8"),
                f"svcbroker/statement/2\nchain={'ab' * 32}\ntopic=a b\n"
                "content=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n"
                f"time=12\nkey=k\n{line}\nextension=7376632d61:\n",
            )

    def test_expectedSequenceIsSigned(self) -> None:
        """Whoever sends a signed event can neither change, take out nor add the number."""
        refused = (Execution.REFUSED, 0)
        for given, sent in ((0, None), (0, 1), (None, 0)):
            author = signed(ALICE, b"x", version=2, expected=given)
            self.assertEqual(self.run_(self.publish(author=author, expected=sent)), [refused])
        for expected, end in ((0, (Execution.DONE, 1)), (None, (Execution.DONE, 2))):
            author = signed(ALICE, b"x", version=2, expected=expected)
            self.assertEqual(self.run_(self.publish(author=author, expected=expected)), [end])
        author = signed(ALICE, b"x", version=2, expected=9)
        self.assertEqual(
            self.run_(self.publish(author=author, expected=9)), [(Execution.OTHER_SEQUENCE, 2)]
        )
        self.replay()

    def test_versionOfStatementIsPartOfTheHead(self) -> None:
        """A signature of one version is not one of the other."""
        for version in (1, 2):
            author = signed(ALICE, b"x", version=version, expected=None)
            other = structs.replace(author, statement=3 - version)
            self.assertEqual(self.run_(self.publish(author=other)), [(Execution.REFUSED, 0)])

    def test_version1LeavesTheNumberOpen(self) -> None:
        """A statement of version 1 is good with any expected number, and with none."""
        author = signed(ALICE, b"x")
        self.assertEqual(
            self.run_(
                self.publish(author=author, expected=0),
                self.publish(author=author, expected=1),
                self.publish(author=author),
            ),
            [(Execution.DONE, 1), (Execution.DONE, 2), (Execution.DONE, 3)],
        )

    def test_publishSurvivesItsEncoding(self) -> None:
        """It is read as it was written, whole and erased."""
        for extensions in ({}, {"svc-a": "1", "svc-private-b": "2"}):
            for key in (None, "k"):
                for expected in (None, 0, 2**64 - 1):
                    author = Authorship(key=bytes(32), signedAt=5, signature=b"s" * 64, statement=2)
                    made = self.publish(
                        author=author, key=key, expected=expected, extensions=extensions
                    )
                    self.assertEqual(made.version, 3)
                    self.assertEqual(Transaction.decode(entryOf(made)), made)
                    erased = made.withoutContent()
                    assert erased.claims is not None and erased.claims.author is not None
                    self.assertEqual(erased.claims.author.statement, 2)
                    self.assertEqual(erased.hash, made.hash)
                    body, offsets = encodeBody([made, made])
                    self.assertEqual(transactionHashes(body, offsets), [made.hash] * 2)


class FormatTests(ChainTestCase):
    """
    Blocks of format 4.
    """

    def test_firstTransactionOfVersion3ChangesTheFormat(self) -> None:
        """A chain has format 4 from its first transaction of version 3 on, from either format."""
        first = Transaction.make(Kind.OPEN, SENDER, 4, 0, "u", version=3)
        last = Transaction.create(Kind.OPEN, SENDER, 5, 0, "v")
        second = Transaction.make(Kind.OPEN, SENDER, 3, 0, "t")
        for before, version in (([], 2), ([second], 3)):
            state, parent = GENESIS.state(), GENESIS.header()
            for transactions, format in ((before, version), ([first], 4), ([], 4), ([last], 4)):
                made = proposeBlock(state, parent, 0, 0, transactions)
                self.assertEqual(made.header.version, format)
                for other in {2, 3, 4} - {format}:
                    wrong = replace(made.header, version=other)
                    self.assertRaises(InvalidBlock, checkBlock, state, parent, wrong, transactions)
                self.assertEqual(Header.decode(made.header.encoded), made.header)
                state.apply(made.outcome, made.history)
                parent = made.header

    def test_plainTransactionsKeepTheFormat(self) -> None:
        """Nothing but a transaction that needs it takes a chain to format 4."""
        self.run_(
            self.publish(),
            self.publish(author=signed(ALICE, b"x"), expected=1),
            self.publish(key="k"),
        )
        self.assertEqual(self.head.version, 3)
        self.run_(self.publish(author=signed(ALICE, b"x", version=2, expected=3), expected=3))
        self.assertEqual(self.head.version, 4)

    def test_partsThatAreNotExecutedAreNamed(self) -> None:
        """A transaction that only a newer svcbroker executes is told from a malformed one."""
        plain = self.publish()
        entry = entryOf(plain)
        author = Authorship(key=bytes(32), signedAt=5, signature=b"s" * 64)
        of3 = entryOf(
            Transaction.publish(
                SENDER, 1, 0, "t", b"x", None, SALT, Claims(author=author), version=3
            )
        )

        def changed(entry: bytes, at: int, to: int) -> bytes:
            return entry[:at] + bytes([to]) + entry[at + 1 :]

        open3 = self.make(Kind.OPEN, "t", b"\x02terms", 3)
        for newer in (
            changed(entry, 0, 4),
            changed(of3, 1, 9),
            changed(of3, OPTIONS, 1 | 32),
            entryOf(open3),
        ):
            self.assertRaises(VersionUnknown, Transaction.decode, newer)
        for bad in (
            changed(of3, 1, 0),
            changed(of3, 1, 7),
            changed(of3, 1, 8),
            changed(of3, 1, 10),
            changed(of3, OPTIONS, 64),
            changed(of3, OPTIONS, 16),
            changed(entry, OPTIONS, 16),
            changed(entry, 1, 7),
            entryOf(self.make(Kind.CLOSE, "caf\u00e9")),
        ):
            error = self.assertRaises(Malformed, Transaction.decode, bad)
            self.assertNotIsInstance(error, VersionUnknown)


class ErasedKeyTests(ChainTestCase):
    """
    Idempotency keys of erased events.
    """

    def test_keyOfErasedEventRefusesEveryContent(self) -> None:
        """Nothing tells whether a content is the erased one, so no content is taken for it."""
        self.run_(self.publish(b"x", key="k"), self.publish(b"x", key="l"))
        before, inUse = Execution.PUBLISHED_BEFORE, Execution.KEY_IN_USE
        self.assertEqual(
            self.run_(
                self.publish(b"x", key="k"),
                self.publish(b"y", key="k"),
                self.erase((1, 1), version=3),
                self.publish(b"x", key="k"),
                self.publish(b"y", key="k"),
                self.publish(b"x", key="l"),
                self.publish(b"y", key="l"),
            ),
            [
                (before, 1),
                (inUse, 0),
                (Execution.DONE, 0),
                (inUse, 1),
                (inUse, 1),
                (before, 2),
                (inUse, 0),
            ],
        )
        self.assertEqual(self.blocks[-1].outcome.earlier, {0: 2, 3: 2, 4: 2, 5: 2})
        again = self.run_(
            self.publish(b"x", key="k"),
            self.publish(b"z", key="k"),
            self.publish(b"x", key="k", topic="u"),
        )
        self.assertEqual(again, [(inUse, 1), (inUse, 1), (inUse, 0)])
        self.replay()
        self.replay(isErased=False)

    def test_formatOfTheBlockDecides(self) -> None:
        """A key whose event was erased is refused from the first block of format 4 on."""
        self.run_(self.publish(b"x", key="k"), self.erase((1, 1)))
        self.assertEqual(self.run_(self.publish(b"y", key="k")), [(Execution.PUBLISHED_BEFORE, 1)])
        self.assertEqual(
            self.run_(self.publish(b"y", key="k"), self.make(Kind.CLOSE, "u", version=3)),
            [(Execution.KEY_IN_USE, 1), (Execution.TOPIC_NOT_FOUND, 0)],
        )
        self.replay()
