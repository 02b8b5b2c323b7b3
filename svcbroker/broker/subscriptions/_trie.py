"""
Which filters match a topic.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from ...model import filterMatches, isPattern
from ._levels import LevelTree

V = TypeVar("V", bound=Hashable)
F = TypeVar("F")

_FEW: Final = 8
"""So many filters are tried one after the other."""


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


class TopicMatches(dict[str, F]):
    """
    A cache of the matches of topics, emptied when there are too many of them.
    """

    def __init__(self, maxTopics: int, maxMatches: int) -> None:
        """
        @param maxMatches: the most matches of all these topics together: a client may have a
            thousand filters that match each topic.
        """
        super().__init__()
        self._maxTopics = maxTopics
        self._maxMatches = maxMatches
        self._matches = 0

    def keep(self, topic: str, found: F, matches: int) -> None:
        """
        Keep what matches a topic that is not there; instead of all others, where they are too many.

        @param matches: how many values match it.
        """
        if len(self) >= self._maxTopics or self._matches + matches > self._maxMatches:
            self.clear()
        self._matches += matches
        self[topic] = found

    def clear(self) -> None:
        """Forget all topics: filters have changed."""
        super().clear()
        self._matches = 0


class FilterSet:
    """
    The filters of one subscription.

    @ivar filters: the filters, in the order in which they were added.
    """

    def __init__(self, filters: Iterable[str]) -> None:
        self.filters = dict.fromkeys(filters)
        self._patterns = sum(map(isPattern, self.filters))
        # Most subscriptions have a single filter, and there are many of them.
        self._trie: FilterTrie[str] | None = None

    @property
    def hasPatterns(self) -> bool:
        """Whether any of them is a pattern."""
        return self._patterns > 0

    def add(self, filter: str) -> None:
        """Add a valid filter. Adding one that is there changes nothing."""
        if filter not in self.filters:
            self.filters[filter] = None
            self._patterns += isPattern(filter)
            if self._trie is not None:
                self._trie.add(filter, filter)

    def remove(self, filter: str) -> None:
        """Remove a filter that is there."""
        del self.filters[filter]
        self._patterns -= isPattern(filter)
        if self._trie is not None:
            self._trie.remove(filter, filter)

    def matches(self, topic: str) -> bool:
        """Whether any of them matches a topic."""
        if len(self.filters) <= _FEW:
            return any(filterMatches(filter, topic) for filter in self.filters)
        if self._trie is None:
            self._trie = FilterTrie()
            for filter in self.filters:
                self._trie.add(filter, filter)
        return bool(self._trie.match(topic))
