"""
Every decoder takes exactly what its encoder makes, and says L{Malformed} to the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    MAX_HEAD_SIZE,
    MAX_VALIDATORS,
    SALT_SIZE,
    Certificate,
    Genesis,
    Header,
    Malformed,
    Nonces,
    Transaction,
    TransactionReceipt,
    TransactionSummary,
    ValidatorChange,
    ValidatorSet,
    VersionUnknown,
    decodeBody,
    decodeReceipts,
    decodeTable,
    encodeBody,
    encodeReceipts,
    tableSize,
)
from svcbroker.model import Execution
from svcbroker.model._events import MAX_EXTENSIONS_SIZE

from . import reference
from .reference import VECTORS, Sent
from .support import (
    GENESIS,
    extensionKeys,
    few,
    headerOf,
    mutated,
    names,
    numbers,
    sents,
    texts,
    transactionOf,
)

T = TypeVar("T")

receiptLists = st.lists(
    st.builds(TransactionReceipt, st.sampled_from(Execution), numbers), max_size=6
)
certificates = st.builds(
    lambda round, signatures: Certificate(round=round, signatures=tuple(signatures)),
    numbers,
    st.lists(st.tuples(st.integers(0, 2**16 - 1), st.binary(min_size=64, max_size=64)), max_size=5),
)
genesises = st.builds(
    lambda group, created, keys: Genesis(group=group, created=created, validators=tuple(keys)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    numbers,
    st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=5, unique=True),
)
hashes = st.binary(min_size=32, max_size=32)
headers = st.builds(
    lambda chain, height, parent, view, proposer, roots, count, total: Header(
        chain=chain,
        height=height,
        parent=parent,
        view=view,
        proposer=proposer,
        timestamp=height ^ view,
        history=roots[0],
        transactionRoot=roots[1],
        receiptRoot=roots[2],
        stateRoot=roots[3],
        validators=roots[4],
        nextValidators=roots[5],
        transactionCount=count,
        transactionTotal=total,
    ),
    hashes,
    numbers,
    hashes,
    numbers,
    st.integers(0, 2**16 - 1),
    st.tuples(*[hashes] * 6),
    st.integers(0, 2**32 - 1),
    numbers,
)
keySets = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=5, unique=True)
validatorSets = st.builds(lambda number, keys: ValidatorSet(number, tuple(keys)), numbers, keySets)
signatures = st.binary(min_size=64, max_size=64)
validatorChanges = validatorSets.flatmap(
    lambda following: st.builds(
        lambda approvals, acceptances: ValidatorChange(
            following=following, approvals=tuple(approvals), acceptances=tuple(acceptances)
        ),
        st.lists(st.tuples(st.integers(0, 2**16 - 1), signatures), max_size=4),
        st.tuples(*[signatures] * len(following.keys)),
    )
)
accounts = st.builds(Nonces, numbers, st.integers(0, 2**1024 - 1))


def entryOf(transaction: Transaction) -> bytes:
    """A transaction as it stands in a body."""
    return transaction.head + transaction.content


def bodyOf(transactions: list[Transaction]) -> bytes:
    """A body without its table."""
    return encodeBody(transactions)[0]


class DecoderTests(SynchronousTestCase):
    """
    For each encoding: round trips, and bytes from anywhere.
    """

    def check(
        self,
        values: st.SearchStrategy[T],
        encode: Callable[[T], bytes],
        decode: Callable[[bytes], T],
    ) -> None:
        """
        C{decode(encode(x))} is C{x}. Of other bytes, C{decode} takes none but those that
        C{encode} gives back: nothing has two encodings.
        """
        taken = refused = 0

        @few
        @given(values)
        def roundTrip(value: T) -> None:
            self.assertEqual(decode(encode(value)), value)

        @few
        @given(mutated(values.map(encode)) | st.binary(max_size=200))
        def canonical(data: bytes) -> None:
            nonlocal taken, refused
            try:
                value = decode(data)
            except Malformed:
                refused += 1
                return
            taken += 1
            self.assertEqual(encode(value), data)

        roundTrip()
        canonical()
        # Otherwise the examples would have shown nothing.
        self.assertGreater(taken, 0)
        self.assertGreater(refused, 0)

    def test_transactionRoundTrip(self) -> None:
        """Transactions."""
        self.check(sents().map(transactionOf), entryOf, Transaction.decode)

    def test_bodyRoundTrip(self) -> None:
        """Bodies."""
        values = st.lists(sents().map(transactionOf), max_size=4)
        self.check(values, bodyOf, lambda data: list(decodeBody(data)))

    def test_bodyOfSimilarPublishesRoundTrip(self) -> None:
        """Bodies of publishes that differ in their contents alone, which are read together."""
        extensions = st.dictionaries(extensionKeys, texts, max_size=2)
        values = st.builds(
            lambda name, contents, extensions: Transaction.publishes(
                bytes(20), 1, 2, name, contents, extensions, bytes(SALT_SIZE * len(contents))
            ),
            names,
            st.lists(st.binary(max_size=9), min_size=2, max_size=4),
            extensions,
        )
        self.check(values, bodyOf, lambda data: list(decodeBody(data)))

    def test_similarPublishesAreReadAsAlone(self) -> None:
        """A body with any bit changed is read, or refused, as its transactions are one by one."""
        contents = [b"first", b"second", b""]
        body = bodyOf(
            Transaction.publishes(bytes(20), 1, 2, "t", contents, {"svc-a": "b"}, bytes(96))
        )

        def readEach(data: bytes) -> list[Transaction] | str:
            offsets = decodeTable(data)
            try:
                return [Transaction.decode(data[a:b], True) for a, b in pairwise(offsets)]
            except Malformed as error:
                return str(error)

        def readAll(data: bytes) -> list[Transaction] | str:
            try:
                return list(decodeBody(data, mayBeErased=True))
            except Malformed as error:
                return str(error)

        for at in range(tableSize(len(contents)), len(body)):
            for bit in range(8):
                changed = bytearray(body)
                changed[at] ^= 1 << bit
                data = bytes(changed)
                self.assertEqual(readAll(data), readEach(data), f"byte {at}, bit {bit}")

    def test_receiptsRoundTrip(self) -> None:
        """Receipts."""
        self.check(receiptLists, encodeReceipts, lambda data: list(decodeReceipts(data)))

    def test_headerRoundTrip(self) -> None:
        """Headers."""
        self.check(headers, lambda header: header.encoded, Header.decode)

    def test_genesisRoundTrip(self) -> None:
        """Genesis."""
        self.check(genesises, lambda genesis: genesis.encoded, Genesis.decode)

    def test_validatorSetRoundTrip(self) -> None:
        """Validator sets."""
        self.check(validatorSets, lambda value: value.encoded, ValidatorSet.decode)

    def test_validatorChangeRoundTrip(self) -> None:
        """Changes of the validator set."""
        self.check(validatorChanges, ValidatorChange.encode, ValidatorChange.decode)

    def test_certificateRoundTrip(self) -> None:
        """Certificates."""
        self.check(certificates, Certificate.encode, Certificate.decode)

    def test_accountRoundTrip(self) -> None:
        """Accounts."""
        self.check(accounts, Nonces.encode, Nonces.decode)


class TransactionTests(SynchronousTestCase):
    """
    Transactions against the reference, and parts of them.
    """

    @few
    @given(sents())
    def test_encodingsEqualReference(self, sent: Sent) -> None:
        """The package and the reference make the same bytes of the same words."""
        made = transactionOf(sent)
        self.assertEqual((made.head, made.hash), (sent.head, sent.hash))

    @few
    @given(st.lists(sents(), max_size=5))
    def test_tableLocatesTransactions(self, block: list[Sent]) -> None:
        """The table of a body says where each transaction stands."""
        made = [transactionOf(sent) for sent in block]
        body, offsets = encodeBody(made)
        self.assertEqual(body, reference.body(block))
        self.assertEqual(list(decodeTable(body[: tableSize(len(block))])), list(offsets))
        self.assertEqual(len(body), U32 + sum(transaction.size for transaction in made))
        for index, transaction in enumerate(made):
            self.assertEqual(body[offsets[index] : offsets[index + 1]], entryOf(transaction))

    @few
    @given(sents())
    def test_summaryNeedsOnlyHead(self, sent: Sent) -> None:
        """A summary needs the head alone."""
        expected = (sent.sender, sent.topic, sent.hash)
        for entry in (sent.head, sent.head + sent.content):
            summary = TransactionSummary.decode(entry)
            self.assertEqual((summary.sender, summary.topic, summary.hash), expected)

    @few
    @given(mutated(sents().map(lambda sent: sent.head)))
    def test_summaryRaisesMalformedOnly(self, data: bytes) -> None:
        """Of bytes from anywhere, a summary raises only L{Malformed}."""
        try:
            summary = TransactionSummary.decode(data)
        except Malformed:
            return
        self.assertEqual(len(summary.sender), 20)

    def test_longestHeadFitsTheBound(self) -> None:
        """No transaction's head is longer than L{MAX_HEAD_SIZE}, however many extensions."""
        keys = ["svc-"]
        space = MAX_EXTENSIONS_SIZE - len(keys[0])
        # The shortest keys that differ, so that the sizes beside them weigh most.
        for number in range(1 << 14):
            suffix = chr(number) if number < 128 else chr(number >> 7) + chr(number & 127)
            key = "svc-" + suffix
            if space < len(key):
                break
            space -= len(key)
            keys.append(key)
        sent = Sent("PUBLISH", bytes(20), 1, "\x80" * 256, b"", dict.fromkeys(keys, ""))
        made = transactionOf(sent)
        self.assertEqual(Transaction.decode(made.head), made)
        self.assertGreater(len(made.head), MAX_EXTENSIONS_SIZE + 4 * 1000)
        self.assertLess(len(made.head), MAX_HEAD_SIZE)

    def test_extensionsAreSortedByKeys(self) -> None:
        """In whatever order extensions are given, they are encoded by their keys' bytes."""
        pairs = {"svc-b": "1", "svc-": "2", "svc-\U00010000": "3", "svc-\uffff": "4"}
        heads = {
            transactionOf(Sent("PUBLISH", bytes(20), 1, "x", b"", dict(order))).head
            for order in (pairs.items(), reversed(pairs.items()))
        }
        self.assertEqual(len(heads), 1)
        self.assertEqual(
            list(Transaction.decode(heads.pop()).extensions),
            ["svc-", "svc-b", "svc-\uffff", "svc-\U00010000"],
        )


U32 = 4


class HeaderTests(SynchronousTestCase):
    """
    The hash of a header stands for all of it.
    """

    def test_everyChangedByteChangesTheHash(self) -> None:
        """Each byte changed gives another hash, or no header at all."""
        encoded = headerOf(VECTORS["header"]).encoded
        seen = {reference.digest(encoded)}
        decoded = 0
        for at in range(len(encoded)):
            changed = encoded[:at] + bytes([encoded[at] ^ 1]) + encoded[at + 1 :]
            try:
                header = Header.decode(changed)
            except Malformed:
                self.assertLess(at, 16)
                continue
            decoded += 1
            seen.add(header.hash)
        self.assertEqual(decoded, len(encoded) - 16)
        self.assertEqual(len(seen), decoded + 1)

    def test_otherHeaderFormatIsNamed(self) -> None:
        """A header of another format is told from what is no header, whatever its length."""
        encoded = headerOf(VECTORS["header"]).encoded
        self.assertEqual(len(encoded), 311)
        for version in (0, 1, 5, 255):
            for rest in (encoded[17:], encoded[17:-64], b""):
                with self.assertRaises(VersionUnknown):
                    Header.decode(encoded[:16] + bytes([version]) + rest)
        for other in (b"", encoded[:15], b"S" + encoded[1:], encoded[:-1], encoded + b"\0"):
            error = self.assertRaises(Malformed, Header.decode, other)
            self.assertNotIsInstance(error, VersionUnknown)


class GenesisTests(SynchronousTestCase):
    """
    The contents of a genesis.
    """

    def test_genesisWithoutKeysIsRefused(self) -> None:
        """A genesis without nodes is none."""
        encoded = Genesis(group="1", created=1, validators=()).encoded
        self.assertRaises(Malformed, Genesis.decode, encoded)

    def test_duplicateKeyIsRefused(self) -> None:
        """One key under two indexes is refused: it would count twice."""
        key = bytes(range(32))
        encoded = Genesis(group="1", created=1, validators=(key, bytes(32), key)).encoded
        self.assertRaises(Malformed, Genesis.decode, encoded)

    def test_tooManyValidatorsAreMalformed(self) -> None:
        """No chain begins with more nodes than a set may have."""
        keys = tuple(number.to_bytes(32, "big") for number in range(MAX_VALIDATORS + 1))
        most = Genesis(group="1", created=1, validators=keys[:-1])
        self.assertEqual(Genesis.decode(most.encoded), most)
        tooMany = Genesis(group="1", created=1, validators=keys)
        self.assertRaises(Malformed, Genesis.decode, tooMany.encoded)

    def test_genesisStateHasTheFirstSet(self) -> None:
        """The first block finds the first validator set, and genesis in the history."""
        state = GENESIS.state()
        self.assertEqual(state.validators, ValidatorSet(0, GENESIS.validators))
        self.assertEqual(state.history.root, reference.history([GENESIS.header().hash]))
        self.assertEqual(GENESIS.header().history, reference.history([]))

    def test_chainIdCoversEveryField(self) -> None:
        """Whatever differs in a genesis gives another chain."""
        key, other = bytes(32), bytes(range(32))
        chains = {
            Genesis(group=group, created=created, validators=validators).chain
            for group in ("1", "2")
            for created in (1, 2)
            for validators in ((key,), (other,), (key, other), (other, key))
        }
        self.assertEqual(len(chains), 16)
