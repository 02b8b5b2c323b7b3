"""
The uses of idempotency keys and the erased events of a chain in a store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from msgspec import structs

from ..chain import ErasedRange, KeyUse, Malformed, MemoryKeys, OwnedKey
from ..storage import Store

_MAX_COUNTS: Final = 1024
"""Of how many owners the number of uses is kept in memory."""


class StoredKeys:
    """
    A L{KeySource<svcbroker.chain.KeySource>} that reads a store. What was added of blocks that are
    not stored yet is kept in memory until they are.
    """

    def __init__(self, store: Store, check: Callable[[ErasedRange], object]) -> None:
        """
        @param check: compares erased events with the chain, such as L{ErasureVerifier.check
            <svcbroker.archive.ErasureVerifier.check>}: raises
            L{Malformed<svcbroker.chain.Malformed>} where no block has erased them.
        """
        self._store = store
        self._check = check
        self._added: MemoryKeys | None = None
        self._addedHeight = 0
        # The numbers of latest uses, of the owners that were asked for.
        self._counts: dict[bytes, int] = {}

    def find(self, wanted: Collection[OwnedKey]) -> dict[OwnedKey, KeyUse]:
        """See L{KeySource.find<svcbroker.chain.KeySource.find>}."""
        added = self._unstored()
        if added is None:
            return self._stored(wanted)
        found = {**self._stored(wanted), **added.find(wanted)}
        for each, use in found.items():
            if added.erasure(use.topic, use.sequence) is not None or self._isErased(use):
                found[each] = structs.replace(use, digest=None)
        return found

    def _stored(self, wanted: Collection[OwnedKey]) -> dict[OwnedKey, KeyUse]:
        found = self._store.findUses(wanted)
        for each, use in found.items():
            if use.digest is None and not self._isErased(use):
                found[each] = structs.replace(use, digest=self._store.digestOf(use))
        return found

    def _isErased(self, use: KeyUse) -> bool:
        """
        Whether a block has erased the event of a use. A key whose event only seems to be erased
        would be taken for the same publish, whatever its content.
        """
        erased = self._store.erasure(use.topic, use.sequence)
        if erased is None:
            return False
        try:
            self._check(erased)
        except Malformed:
            return False
        return True

    def count(self, owner: bytes) -> int:
        """See L{KeySource.count<svcbroker.chain.KeySource.count>}."""
        count = self._counts.get(owner)
        if count is None:
            if len(self._counts) == _MAX_COUNTS:
                self._counts.clear()
            added = self._unstored()
            count = 0 if added is None else added.count(owner)
            count = self._counts[owner] = count or self._store.countUses(owner)
        return count

    def add(self, uses: Sequence[KeyUse], erased: Sequence[ErasedRange]) -> None:
        """See L{KeySource.add<svcbroker.chain.KeySource.add>}."""
        for use in uses:
            if use.owner in self._counts:
                self._counts[use.owner] = use.number
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
