"""
The bytes of each topic's events: counted from the index of the stored blocks when somebody asks, so
that publishing pays nothing for it, a restart forgets nothing, and an erasure makes them fewer.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from twisted.internet.defer import Deferred

from ..chain import ChainState
from ..storage import Store

PIECES_A_CALL: Final = 100
"""
The most pieces of the index that a call reads. Each takes about a millisecond; the next call goes
on where this one has stopped.
"""

TOPICS_A_TURN: Final = 50
"""The number of topics that are looked at before the reactor gets its turn."""


class TopicBytes:
    """
    The bytes that the events of each topic have in the bodies of blocks.

    What was counted is kept in 16 bytes a topic, with the height up to which it goes. A call reads
    the index of later blocks only.
    """

    def __init__(
        self, state: ChainState, store: Store, yieldToReactor: Callable[[], Deferred[None]]
    ) -> None:
        """
        @param yieldToReactor: gives the reactor its turn in the middle of a long count.
        """
        self._state = state
        self._store = store
        self._yieldToReactor = yieldToReactor
        self._heights = array("Q")
        self._counts = array("Q")

    async def count(self, names: Iterable[str]) -> Sequence[int | None]:
        """
        The bytes of topics; C{None} for one that is not counted up to its end yet, or never was
        opened.

        @raise svcbroker.storage.StorageError: the index cannot be read.
        """
        left = PIECES_A_CALL
        found: list[int | None] = []
        for number, name in enumerate(names, 1):
            if number % TOPICS_A_TURN == 0:
                await self._yieldToReactor()
            index = self._state.topicIndex(name)
            if index is None:
                found.append(None)
                continue
            self._grow(index)
            isWhole = self._isWhole(index)
            while not isWhole and left:
                isWhole = self._readPiece(index)
                left -= not isWhole
                if not isWhole:
                    await self._yieldToReactor()
            found.append(self._counts[index] if isWhole else None)
        return found

    def forget(self, names: Iterable[str]) -> None:
        """Count topics anew: contents were removed from blocks."""
        for name in names:
            index = self._state.topicIndex(name)
            if index is not None and index < len(self._counts):
                self._heights[index] = self._counts[index] = 0

    def _isWhole(self, index: int) -> bool:
        return self._heights[index] >= self._state.topicAt(index).height

    def _readPiece(self, index: int) -> bool:
        """Count the events of some more blocks. Whether that is all that are stored."""
        height, size, isEnd = self._store.eventBytes(index, self._heights[index])
        self._heights[index] = height
        self._counts[index] += size
        return isEnd or self._isWhole(index)

    def _grow(self, index: int) -> None:
        missing = index + 1 - len(self._counts)
        if missing > 0:
            self._heights.extend([0] * missing)
            self._counts.extend([0] * missing)
