"""
Trees of topics and of topic filters by their levels, and the filters that match a topic.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from ...model import filterMatches, isPattern

V = TypeVar("V")

H = TypeVar("H", bound=Hashable)
F = TypeVar("F")

_STEP: Final = 64
"""A search that finds nothing yields after so many nodes."""

_ALL: Final = -1
"""Stands for the levels of a filter where C{#} has matched a whole branch."""

_FEW: Final = 8
"""So many filters are tried one after the other."""


class LevelTree(Generic[V]):
    """
    Values under paths, which are topics or topic filters.

    Levels without a branch share a node: a path costs its length and two nodes at most, however
    many levels it has. Clients choose paths, so a node a level would cost them hundreds of bytes
    for two of theirs.
    """

    def __init__(self) -> None:
        self._root: _Node[V] = _Node("")

    def get(self, path: str) -> V | None:
        """The value of a path."""
        node, start = self._root, 0
        while True:
            child = self._child(node, path, start)
            if child is None or not path.startswith(child.label, start):
                return None
            node, start = child, start + len(child.label)
            if start == len(path):
                return node.value
            if path[start] != "/":
                return None
            start += 1

    def set(self, path: str, value: V) -> None:
        """Set the value of a path."""
        node, start = self._root, 0
        while True:
            child = self._child(node, path, start)
            if child is None:
                node.add(_Node(path[start:], value))
                return
            shared = _sharedLevels(child.label, path[start:])
            if len(shared) < len(child.label):
                upper: _Node[V] = _Node(shared)
                child.label = child.label[len(shared) + 1 :]
                upper.add(child)
                node.add(upper)
                child = upper
            node, start = child, start + len(shared)
            if start == len(path):
                node.value = value
                return
            start += 1

    def remove(self, path: str) -> None:
        """Remove the value of a path. Removing one that has none changes nothing."""
        trail: list[_Node[V]] = [self._root]
        start = 0
        while start <= len(path):
            child = self._child(trail[-1], path, start)
            if child is None or _sharedLevels(child.label, path[start:]) != child.label:
                return
            trail.append(child)
            start += len(child.label) + 1
        node = trail.pop()
        node.value = None
        if not node.below:
            parent = trail[-1]
            assert parent.below is not None
            del parent.below[node.label.partition("/")[0]]
            parent.below = parent.below or None
            node = trail.pop()
        if trail and node.value is None and node.below is not None and len(node.below) == 1:
            # It has no branch any more.
            (only,) = node.below.values()
            only.label = f"{node.label}/{only.label}"
            trail[-1].add(only)

    @staticmethod
    def _child(node: _Node[V], path: str, start: int) -> _Node[V] | None:
        """The node below that has the level of C{path} at C{start}."""
        if node.below is None:
            return None
        end = path.find("/", start)
        return node.below.get(path[start:] if end < 0 else path[start:end])

    def matching(self, topic: str) -> Iterator[V]:
        """
        The values of the filters that match a topic, by MQTT's rules: C{a/#} matches C{a}, and no
        leading wildcard matches a topic that begins with C{$}.
        """
        levels = topic.split("/")
        count = len(levels)
        waiting = [(self._root, 0)]
        while waiting:
            node, used = waiting.pop()
            if used == count and node.value is not None:
                yield node.value
            if node.below is None:
                continue
            wanted = levels[used : used + 1]
            if used or not topic.startswith("$"):
                wanted += ("+", "#") if used < count else ("#",)
            for level in wanted:
                child = node.below.get(level)
                if child is None:
                    continue
                reached = _follow(child.label, levels, used)
                if reached == _ALL and child.value is not None:
                    yield child.value
                elif reached is not None and reached != _ALL:
                    waiting.append((child, reached))

    def matched(self, filter: str) -> Iterator[V | None]:
        """
        The values of the topics that a filter matches, one after the other; sometimes C{None}, so
        that a long search can be interrupted. The tree may change meanwhile.
        """
        wanted = filter.split("/")
        count, steps = len(wanted), 0
        waiting = [(self._root, 0)]
        while waiting:
            steps += 1
            if not steps % _STEP:
                yield None
            node, used = waiting.pop()
            # A filter that ends with /# matches the topic above, too.
            isWhole = used in (count, _ALL) or (used > 0 and wanted[used] == "#")
            if isWhole and node.value is not None:
                yield node.value
            if node.below is None or used == count:
                continue
            if used == _ALL or wanted[used] == "#":
                found = [(child, _ALL) for child in _children(node, used)]
            elif wanted[used] == "+":
                found = _reach(_children(node, used), wanted, used)
            else:
                child = node.below.get(wanted[used])
                found = [] if child is None else _reach([child], wanted, used)
            waiting += reversed(found)


class _Node(Generic[V]):
    """
    A run of levels without a branch.

    @ivar label: the levels, with slashes between them.
    @ivar below: the nodes below it, by their first level; C{None} where there are none.
    @ivar value: the value of the path that ends here.
    """

    __slots__ = ("below", "label", "value")

    def __init__(self, label: str, value: V | None = None) -> None:
        self.label = label
        self.below: dict[str, _Node[V]] | None = None
        self.value = value

    def add(self, child: _Node[V]) -> None:
        """Add a node below."""
        if self.below is None:
            self.below = {}
        self.below[child.label.partition("/")[0]] = child


def _children(node: _Node[V], used: int) -> list[_Node[V]]:
    """The nodes below one; at the root without topics that begin with C{$}."""
    if node.below is None:
        return []
    if used:
        return list(node.below.values())
    # [MQTT-4.7.2-1] [MQTT5-4.7.2-1]
    return [child for level, child in node.below.items() if not level.startswith("$")]


def _reach(children: list[_Node[V]], wanted: list[str], used: int) -> list[tuple[_Node[V], int]]:
    """Those nodes whose topics a filter may match, with how many of its levels they use."""
    found = []
    for child in children:
        reached: int | None = used
        for level in child.label.split("/"):
            assert reached is not None
            if reached == len(wanted):
                reached = None
                break
            if wanted[reached] == "#":
                reached = _ALL
                break
            if wanted[reached] not in ("+", level):
                reached = None
                break
            reached += 1
        if reached is not None:
            found.append((child, reached))
    return found


def _follow(label: str, levels: list[str], used: int) -> int | None:
    """
    The number of levels of a topic that are used behind a label of a filter's levels; L{_ALL} where
    it ends with C{#}, C{None} where it does not match.
    """
    for level in label.split("/"):
        if level == "#":
            return _ALL
        if used == len(levels) or level not in ("+", levels[used]):
            return None
        used += 1
    return used


def _sharedLevels(label: str, path: str) -> str:
    """The levels that both begin with."""
    if path == label or path.startswith(f"{label}/"):
        return label
    shared = []
    for one, other in zip(label.split("/"), path.split("/"), strict=False):
        if one != other:
            break
        shared.append(one)
    return "/".join(shared)


class FilterTrie(Generic[H]):
    """
    Values under filters, found by topic, in time that depends on the filters that match rather
    than on how many filters there are.
    """

    def __init__(self) -> None:
        self._patterns: LevelTree[set[H]] = LevelTree()
        # Most filters are plain topics, and a topic is looked up at once.
        self._plain: dict[str, set[H]] = {}

    def add(self, filter: str, value: H) -> None:
        """Add a value under a valid filter."""
        if not isPattern(filter):
            self._plain.setdefault(filter, set()).add(value)
            return
        values = self._patterns.get(filter)
        if values is None:
            self._patterns.set(filter, {value})
        else:
            values.add(value)

    def remove(self, filter: str, value: H) -> None:
        """Remove a value that was added under a filter."""
        isPlain = not isPattern(filter)
        values = self._plain[filter] if isPlain else self._patterns.get(filter)
        assert values is not None
        values.discard(value)
        if not values and isPlain:
            del self._plain[filter]
        elif not values:
            self._patterns.remove(filter)

    def match(self, topic: str) -> set[H]:
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
        if topic in self.filters:
            return True
        if not self._patterns:
            return False
        if len(self.filters) <= _FEW:
            return any(filterMatches(filter, topic) for filter in self.filters)
        if self._trie is None:
            self._trie = FilterTrie()
            for filter in self.filters:
                self._trie.add(filter, filter)
        return bool(self._trie.match(topic))
