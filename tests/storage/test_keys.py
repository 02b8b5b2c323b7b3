"""
Uses of idempotency keys and erased events in a store.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import ErasedRange, KeyUse, MemoryKeys
from svcbroker.model import AuthorSet
from svcbroker.storage import ScratchKeys, StorageDamaged, Store
from tests import examples
from tests.storage.chains import Chain, newStore

ONE, TWO = b"1" * 20, b"2" * 20


def useOf(owner: bytes, key: str, number: int, *, sequence: int = 1, height: int = 1) -> KeyUse:
    """A use of a key for an event of topic 0."""
    return KeyUse(
        owner=owner,
        key=key,
        number=number,
        topic=0,
        sequence=sequence,
        height=height,
        digest=b"d" * 32,
    )


def rangeOf(topic: int, first: int, last: int, height: int = 1) -> ErasedRange:
    """Erased events."""
    return ErasedRange(topic=topic, first=first, last=last, height=height, position=3)


class KeyTests(SynchronousTestCase):
    """
    Tests for a store with uses and erased events.
    """

    def setUp(self) -> None:
        path = Path(self.mktemp())
        path.mkdir()
        self.store = newStore(path / "ledger.sqlite")
        self.addCleanup(lambda: self.store.close())
        self.chain = Chain()

    def add(self, *added: KeyUse | ErasedRange) -> None:
        """Store a block with them."""
        append = self.chain.add([])
        uses = [each for each in added if isinstance(each, KeyUse)]
        erased = [each for each in added if isinstance(each, ErasedRange)]
        self.store.append(replace(append, uses=uses, erased=erased))

    def reopen(self) -> None:
        """Close the store, and open it again."""
        self.store.close()
        self.store = Store.open(self.store.path)

    def findUse(self, owner: bytes, key: str) -> KeyUse | None:
        """The use of a key."""
        return self.store.findUses([(owner, key)]).get((owner, key))

    def test_usesAreFoundAndCounted(self) -> None:
        """Each owner has keys of its own; what was never used is not found."""
        uses = [useOf(ONE, "a", 1), useOf(TWO, "a", 1), useOf(ONE, "b", 2)]
        self.add(*uses)
        self.reopen()
        for use in uses:
            self.assertEqual(self.findUse(use.owner, use.key), use)
        self.assertIsNone(self.findUse(TWO, "b"))
        counts = [self.store.countUses(owner) for owner in (ONE, TWO, b"3" * 20)]
        self.assertEqual(counts, [2, 1, 0])

    def test_usesOfManyKeysAreFoundTogether(self) -> None:
        """However many keys are asked for, of whichever owners and in which order, each use is
        found once, as in memory."""
        memory = MemoryKeys()
        uses = [
            useOf(owner, f"k{number}", number, sequence=2 * number)
            for owner in (ONE, TWO)
            for number in range(1, 1201)
        ]
        erased = [rangeOf(0, 5, 90), rangeOf(0, 100, 100), rangeOf(1, 1, 3000)]
        self.add(*uses, *erased)
        memory.add(uses, erased)
        known = [(use.owner, use.key) for use in uses]
        unknown = [(b"3" * 20, "k1"), (ONE, "k0"), (TWO, "K1"), (ONE, "k1201")]
        for count in (0, 1, 2, 3, 31, 511, 512, 513, len(known)):
            wanted = [*unknown, *known[::-1][:count], *known[:1]]
            found = self.store.findUses(wanted)
            self.assertEqual(found, memory.find(wanted))
            self.assertEqual(len(found), len({*known[::-1][:count], known[0]}))

    def test_oldUsesAreDeleted(self) -> None:
        """Each use beyond the window takes the place of the owner's oldest one; its key may then be
        used again."""
        with patch("svcbroker.storage._keyuses.KEY_WINDOW", 3):
            for number in range(1, 6):
                self.add(useOf(ONE, f"k{number}", number))
            self.add(useOf(TWO, "k1", 1))
            found = [self.findUse(ONE, f"k{number}") is not None for number in range(1, 6)]
            self.assertEqual(found, [False, False, True, True, True])
            self.assertEqual(self.store.countUses(ONE), 5)
            again = useOf(ONE, "k1", 6, sequence=9)
            self.add(again)
            self.assertEqual(self.findUse(ONE, "k1"), again)
            self.assertIsNotNone(self.findUse(TWO, "k1"))

    def test_keyInForceIsNotUsedTwice(self) -> None:
        """Two uses of a key in force contradict each other."""
        self.add(useOf(ONE, "a", 1))
        self.assertRaises(ValueError, self.add, useOf(ONE, "a", 2))

    def test_useOfErasedEventHasNoDigest(self) -> None:
        """From the erasure on, though the content is still in the file."""
        self.add(useOf(ONE, "a", 1, sequence=5), useOf(ONE, "b", 2, sequence=6))
        self.add(rangeOf(0, 2, 5), rangeOf(1, 6, 6))
        digests = [self.findUse(ONE, key) for key in "ab"]
        self.assertEqual([use and use.digest for use in digests], [None, b"d" * 32])

    def test_erasureIsFoundFromEvent(self) -> None:
        """An erased event leads to the transaction that erased it."""
        self.add(rangeOf(4, 10, 12, 1), rangeOf(4, 14, 20, 1))
        self.add(rangeOf(4, 8, 30, 2))
        self.reopen()
        heights = {}
        for sequence in range(7, 32):
            found = self.store.erasure(4, sequence)
            heights[sequence] = found and (found.height, found.position)
        expected = dict.fromkeys(range(8, 31), (2, 3))
        expected |= dict.fromkeys((10, 11, 12, *range(14, 21)), (1, 3))
        self.assertEqual(heights, {7: None, 31: None, **expected})
        self.assertIsNone(self.store.erasure(5, 10))

    @settings(max_examples=examples(60), deadline=None, derandomize=True, database=None)
    @given(
        st.lists(
            st.builds(
                lambda topic, first, count: rangeOf(topic, first, first + count),
                st.integers(0, 1),
                st.integers(1, 40),
                st.integers(0, 12),
            ),
            max_size=12,
        )
    )
    def test_rangesAreThoseOfMemory(self, ranges: list[ErasedRange]) -> None:
        """Whatever overlaps, the same events are erased by the same transactions as in memory, and
        no event is in two rows."""
        memory, scratch = MemoryKeys(), ScratchKeys()
        for height, each in enumerate(ranges, 1):
            numbered = rangeOf(each.topic, each.first, each.last, height)
            memory.add([], [numbered])
            scratch.add([], [numbered])
        for topic in (0, 1):
            for sequence in range(60):
                here = memory.erasure(topic, sequence)
                there = scratch.erasures(topic, sequence, sequence)
                self.assertEqual([here.height] if here else [], [each.height for each in there])
        for one, other in pairwise(scratch.erased()):
            self.assertTrue(one.topic < other.topic or one.last < other.first, (one, other))
        scratch.close()

    def test_authorsAreStored(self) -> None:
        """The authors of a topic are those of its last change."""
        append = self.chain.add([("a", b"x"), ("b", b"y")])
        first = AuthorSet(authors=(b"k" * 32,))
        second = AuthorSet(generation=1, authors=(b"k" * 32, b"l" * 32), admins=(b"m" * 32,))
        for authors in (first, second):
            topics = [
                replace(row, topic=replace(row.topic, authors=authors))
                if row.topic.name == "b"
                else row
                for row in append.topics
            ]
            self.store.append(replace(append, topics=topics))
            self.reopen()
            found = {row.topic.name: row.topic.authors for row in self.store.topics()}
            self.assertEqual(found, {"a": None, "b": authors})
            append = replace(self.chain.add([]), topics=append.topics)

    def test_damagedAuthorsAreReported(self) -> None:
        """Authors that cannot be read are damage."""
        self.store.append(self.chain.add([("a", b"x")]))
        self.store._writing.execute("UPDATE topic SET authors = x'00'")
        self.assertRaises(StorageDamaged, list, self.store.topics())
