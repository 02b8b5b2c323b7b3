"""
The uses of idempotency keys and the erased events of a chain in a store.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ..chain import ErasedRange, KeyUse, MemoryKeys
from ..storage import Store


class StoredKeys:
    """
    A L{KeySource<svcbroker.chain.KeySource>} that reads a store. What was added of blocks that are
    not stored yet is kept in memory until they are.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._added: MemoryKeys | None = None
        self._addedHeight = 0

    def find(self, owner: bytes, key: str) -> KeyUse | None:
        """See L{KeySource.find<svcbroker.chain.KeySource.find>}."""
        added = self._unstored()
        use = None if added is None else added.find(owner, key)
        if use is None:
            use = self._store.findUse(owner, key)
        if added is None or use is None or use.digest is None:
            return use
        place = use.topic, use.sequence
        if added.erasure(*place) is None and self._store.erasure(*place) is None:
            return use
        return structs.replace(use, digest=None)

    def count(self, owner: bytes) -> int:
        """See L{KeySource.count<svcbroker.chain.KeySource.count>}."""
        added = self._unstored()
        count = 0 if added is None else added.count(owner)
        return count or self._store.countUses(owner)

    def add(self, uses: Sequence[KeyUse], erased: Sequence[ErasedRange]) -> None:
        """See L{KeySource.add<svcbroker.chain.KeySource.add>}."""
        added = self._unstored()
        height = (uses or erased)[0].height
        if height > self._store.height:
            added = self._added = added or MemoryKeys()
            added.add(uses, erased)
            self._addedHeight = height

    def _unstored(self) -> MemoryKeys | None:
        if self._added is not None and self._store.height >= self._addedHeight:
            self._added = None
        return self._added
