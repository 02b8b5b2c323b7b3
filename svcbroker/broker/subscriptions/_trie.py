"""
Which filters match a topic.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from ...model import isPattern
from ._levels import LevelTree

V = TypeVar("V", bound=Hashable)


class FilterTrie(Generic[V]):
    """
    Values under filters, found by topic, in time that depends on the filters that match rather
    than on how many filters there are.
    """

    def __init__(self) -> None:
        self._patterns: LevelTree[set[V]] = LevelTree()
        # Most filters are plain topics, and a topic is looked up at once.
        self._plain: dict[str, set[V]] = {}

    def add(self, filter: str, value: V) -> None:
        """Add a value under a valid filter."""
        if not isPattern(filter):
            self._plain.setdefault(filter, set()).add(value)
            return
        values = self._patterns.get(filter)
        if values is None:
            self._patterns.set(filter, {value})
        else:
            values.add(value)

    def remove(self, filter: str, value: V) -> None:
        """Remove a value that was added under a filter."""
        isPlain = not isPattern(filter)
        values = self._plain[filter] if isPlain else self._patterns.get(filter)
        assert values is not None
        values.discard(value)
        if not values and isPlain:
            del self._plain[filter]
        elif not values:
            self._patterns.remove(filter)

    def match(self, topic: str) -> set[V]:
        """
        The values under all filters that match a topic, by MQTT's rules.
        """
        return set(self._plain.get(topic, ())).union(*self._patterns.matching(topic))
