"""
Headers come out of a store as they went into it, and what is alike in them is stored once.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Header
from svcbroker.storage import HEADER_LENGTH, HEADS, Store, TopicBlockRow, wholeHeader

from .chains import newStore, seededChain

HEADERS = 6


def headerOf(height: int, sets: bytes = b"v") -> Header:
    """A header with something else in each field."""
    return Header(
        version=3,
        chain=b"c" * 32,
        height=height,
        parent=b"%032d" % height,
        history=b"h%031d" % height,
        view=height,
        proposer=height % 4,
        timestamp=10**12 + height,
        transactionRoot=b"t%031d" % height,
        receiptRoot=b"r%031d" % height,
        stateRoot=b"s%031d" % height,
        validators=sets * 32,
        nextValidators=b"n" * 32,
        transactionCount=height,
        transactionTotal=7 * height,
    )


class HeaderTests(SynchronousTestCase):
    """
    Tests of the headers of a store.
    """

    def setUp(self) -> None:
        self.path = Path(self.mktemp()).absolute()
        self.store = newStore(self.path)
        self.addCleanup(lambda: self.store.close())
        self.appends = list(seededChain(1, HEADERS).appends)

    def keep(self, number: int, header: bytes) -> None:
        """Store a block with a header."""
        append = self.appends[number]
        self.appends[number] = replace(append, block=replace(append.block, header=header))
        self.store.append(self.appends[number])

    def reopen(self) -> None:
        """Close and open the store."""
        self.store.close()
        self.store = Store.open(self.path)

    def count(self) -> int:
        """The number of rows of shared parts."""
        with closing(sqlite3.connect(self.path)) as connection:
            [(count,)] = connection.execute("SELECT count(*) FROM header_base")
        return int(count)

    def test_headersAreWhole(self) -> None:
        """Every way to read a block gives its header as it was stored, whatever that was."""
        encoded = headerOf(3).encoded
        given = [
            headerOf(1).encoded,
            headerOf(2).encoded,
            encoded[:-1],
            headerOf(3).encoded,
            headerOf(5, b"w").encoded,
            b"",
        ]
        for number, header in enumerate(given):
            self.keep(number, header)
        self.reopen()
        heads = self.store.blockHeads(1, HEADERS)
        self.assertEqual([head.header for head in heads], given)
        for append, head in zip(self.appends, heads, strict=True):
            self.assertEqual(self.store.block(head.height), append.block)
            self.assertEqual(self.store.blockHead(head.height), head)
        self.assertEqual(self.store.tip(), heads[-1])
        rows = self.store._rows(f"SELECT {HEADER_LENGTH} FROM {HEADS} ORDER BY height")
        self.assertEqual([length for (length,) in rows], [len(header) for header in given])

    def test_sharedPartsAreStoredOnce(self) -> None:
        """Headers of the same chain and validator sets have one row between them."""
        for number in range(4):
            self.keep(number, headerOf(number + 1).encoded)
        self.assertEqual(self.count(), 1)
        self.reopen()
        self.keep(4, headerOf(5).encoded)
        self.keep(5, headerOf(6, b"w").encoded)
        self.assertEqual(self.count(), 2)
        for (header,) in self.store._rows("SELECT header FROM head"):
            self.assertNotIn(b"c" * 32, header)

    def test_refusedBlockLeavesNoParts(self) -> None:
        """A block that is not stored leaves no row of shared parts; the next one has its own."""
        self.keep(0, headerOf(1).encoded)
        second, header = self.appends[1], headerOf(2, b"w").encoded
        row = TopicBlockRow(topicIndex=0, height=2, firstSequence=1, positions=b"")
        block = replace(second.block, header=header)
        bad = replace(second, block=block, topicBlocks=[row, row])
        self.assertRaises(ValueError, self.store.append, bad)
        self.assertEqual(self.count(), 1)
        self.keep(1, header)
        self.assertEqual([head.header for head in self.store.blockHeads(2, 2)], [header])

    def test_damagedRowsMakeNoHeader(self) -> None:
        """A damaged row gives a header of another hash, or bytes that are none, and no error."""
        for number in range(2):
            self.keep(number, headerOf(number + 1).encoded)
        part, shared = self.store._rows(f"SELECT header, shared FROM {HEADS} WHERE height = 2")[0]
        whole = headerOf(2).encoded
        self.assertEqual(wholeHeader(part, shared, 2), whole)
        for damaged in (
            (part, shared, 3),
            (part, shared, -2),
            (part[:-1], shared, 2),
            (part, shared[1:], 2),
            (part, None, 2),
            (part, "text", 2),
            ("text", shared, 2),
            (part, b"", 2),
        ):
            self.assertNotEqual(wholeHeader(*damaged), whole, damaged)
