"""
Uses of idempotency keys in a store, and in blocks that are not stored yet.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from unittest.mock import patch

from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import StoredKeys
from svcbroker.chain import ErasedRange, KeyUse, MemoryKeys
from svcbroker.storage import Append
from tests.storage.chains import Chain, newStore

OWNERS = [bytes([number]) * 20 for number in range(4)]
KEYS = [f"k{number}" for number in range(12)]


class StoredKeysTests(SynchronousTestCase):
    """
    L{StoredKeys} beside L{MemoryKeys}, which are given the same.
    """

    def setUp(self) -> None:
        path = Path(self.mktemp())
        path.mkdir()
        self.store = newStore(path / "ledger.sqlite")
        self.addCleanup(self.store.close)
        self.random = Random(19)
        self.chain = Chain()
        self.memory, self.keys = MemoryKeys(), StoredKeys(self.store, lambda erased: None)
        self.height = self.sequence = 0

    def block(self) -> Append:
        """The next block: some new uses and, now and then, an erasure."""
        self.height += 1
        uses: list[KeyUse] = []
        for owner in self.random.sample(OWNERS, 2):
            number = self.memory.count(owner)
            new = [key for key in KEYS if (owner, key) not in self.memory.find([(owner, key)])]
            for key in self.random.sample(new, min(2, len(new))):
                number, self.sequence = number + 1, self.sequence + 1
                uses.append(
                    KeyUse(
                        owner=owner,
                        key=key,
                        number=number,
                        topic=0,
                        sequence=self.sequence,
                        height=self.height,
                        digest=bytes(32),
                    )
                )
        erased = []
        if uses and self.random.random() < 0.4:
            last = self.random.randint(1, self.sequence)
            erased = [
                ErasedRange(
                    topic=0, first=max(1, last - 1), last=last, height=self.height, position=0
                )
            ]
        return replace(self.chain.add([]), uses=uses, erased=erased)

    def apply(self, append: Append) -> None:
        """Apply a block to both."""
        if append.uses or append.erased:
            self.memory.add(append.uses, append.erased)
            self.keys.add(append.uses, append.erased)

    def compare(self) -> None:
        """All keys and counts are those of memory."""
        wanted = [(owner, key) for owner in OWNERS for key in (*KEYS, "unused")]
        self.assertEqual(self.keys.find(wanted), self.memory.find(wanted))
        for owner in OWNERS:
            self.assertEqual(self.keys.count(owner), self.memory.count(owner))

    def test_storedBlocksAreFound(self) -> None:
        """Each block is stored before it is applied, as ledgers do."""
        for _ in range(30):
            append = self.block()
            self.store.append(append)
            self.apply(append)
            self.compare()

    def test_blocksAreFoundBeforeTheyAreStored(self) -> None:
        """Several blocks are applied before they are stored, as an import does."""
        for count in (1, 3, 2, 5, 1, 4, 6):
            appends = []
            for _ in range(count):
                appends.append(self.block())
                self.apply(appends[-1])
                self.compare()
            self.store.extend(appends)
            self.compare()

    def test_countsOfManyOwnersAreRight(self) -> None:
        """More owners than those whose counts are in memory."""
        with patch("svcbroker.archive._replay._MAX_COUNTS", 2):
            self.test_blocksAreFoundBeforeTheyAreStored()
            self.assertLessEqual(len(self.keys._counts), 2)
