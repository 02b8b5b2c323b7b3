"""
Bounds of memory: the rows that rooms declare beside what they bound. The daemon sums them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from ..model import BoundRecord
from .budgets import ENTRY_BYTES

INPUT: Final = "input"
WINDOWS: Final = "windows"
RETAINED: Final = "retained messages"
SUBSCRIPTIONS: Final = "sessions and subscriptions"
NAMES: Final = "names that connections remember"
CONNECTIONS: Final = "connections"
LOGINS: Final = "log-ins"
CHECKED: Final = "names and signatures that were checked"
DURABLE: Final = "what is kept of durable subscriptions"

KEPT_BYTES: Final = 512
"""The memory of an entry of the metadata store, in bytes."""

_KIB: Final = 1024


@frozen(kw_only=True)
class Bound(BoundRecord):
    """
    The most memory of one kind, and what holds it. One with C{each} is not in the sum. Rows of one
    name, of several rooms, are shown as one.

    @ivar holders: the attributes and variables that hold it, C{module.Class.attribute}.
    """

    bytes: int = 0
    how: str = ""
    holders: Sequence[str] = ()


@frozen(kw_only=True)
class Sizing:
    """
    The settings of the daemon itself that the bounds of a feature follow.

    @ivar groups: how many groups are served.
    @ivar maxContent: the most bytes of an event's content.
    """

    groups: int
    maxContent: int

    @property
    def ofGroups(self) -> str:
        """The groups in words, behind an amount."""
        return "the group" if self.groups == 1 else f"each of {self.groups} groups"


def within(owner: str, *names: str) -> Sequence[str]:
    """The full names of attributes of a class."""
    return [f"{owner}.{name}" for name in names]


def cacheBound(room: str, functions: Sequence[Any]) -> Bound:
    """
    The bound of functions whose results are cached by what clients send.

    @param functions: made by C{functools.lru_cache}.
    """
    entries = sum(each.cache_parameters()["maxsize"] for each in functions)
    return Bound(
        name=CHECKED,
        bytes=entries * ENTRY_BYTES,
        how=f"{entries:,} entries of {room}",
        holders=[f"{each.__module__}.{each.__qualname__}" for each in functions],
    )


def mergeBounds(bounds: Iterable[Bound]) -> Iterator[Bound]:
    """The rows with those of one name as one, where the first of them stands."""
    merged: dict[str, Bound] = {}
    for each in bounds:
        first = merged.get(each.name)
        merged[each.name] = (
            each
            if first is None
            else evolve(
                first,
                bytes=first.bytes + each.bytes,
                how="; ".join(filter(None, (first.how, each.how))),
                holders=(*first.holders, *each.holders),
            )
        )
    return iter(merged.values())


def amountText(size: float) -> str:
    """An amount of bytes in words."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < _KIB:
            return f"{size:.0f} {unit}"
        size /= _KIB
    return f"{size:.1f} GiB" if size < _KIB else f"{size / _KIB:.1f} TiB"
