"""
Which filters match a topic.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from attrs import Factory, define

from ...model import isPattern

V = TypeVar("V", bound=Hashable)


@define
class _Node(Generic[V]):
    """One level of the filters: what goes on below it, and what ends here."""

    below: dict[str, _Node[V]] = Factory(dict)
    values: set[V] = Factory(set)


class FilterTrie(Generic[V]):
    """
    Values under filters, found by topic: in time that depends on the topic's levels and not on
    how many filters there are.
    """

    def __init__(self) -> None:
        self._root: _Node[V] = _Node()
        # Most filters are plain topics, and a topic is looked up at once.
        self._plain: dict[str, set[V]] = {}

    def add(self, filter: str, value: V) -> None:
        """Put a value under a valid filter."""
        if not isPattern(filter):
            self._plain.setdefault(filter, set()).add(value)
            return
        node = self._root
        for level in filter.split("/"):
            node = node.below.setdefault(level, _Node())
        node.values.add(value)

    def remove(self, filter: str, value: V) -> None:
        """Take a value away that was put under a filter."""
        if not isPattern(filter):
            values = self._plain[filter]
            values.discard(value)
            if not values:
                del self._plain[filter]
            return
        path: list[tuple[_Node[V], str]] = []
        node = self._root
        for level in filter.split("/"):
            path.append((node, level))
            node = node.below[level]
        node.values.discard(value)
        for parent, level in reversed(path):
            child = parent.below[level]
            if child.values or child.below:
                break
            del parent.below[level]

    def match(self, topic: str) -> set[V]:
        """
        The values under all filters that match a topic, by MQTT's rules: C{a/#} matches C{a},
        and no leading wildcard matches a topic that begins with C{$}.
        """
        found = set(self._plain.get(topic, ()))
        if not self._root.below:
            return found
        levels = topic.split("/")
        hidden = topic.startswith("$")
        nodes = [self._root]
        for number, level in enumerate(levels):
            following: list[_Node[V]] = []
            wild = number > 0 or not hidden
            for node in nodes:
                below = node.below
                if wild and "#" in below:
                    found |= below["#"].values
                if wild and "+" in below:
                    following.append(below["+"])
                if level in below:
                    following.append(below[level])
            nodes = following
            if not nodes:
                return found
        for node in nodes:
            found |= node.values
            if "#" in node.below:
                found |= node.below["#"].values
        return found
