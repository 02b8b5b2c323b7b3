"""
What an audit finds, each in one line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import field, frozen

LIMIT: Final = 100
"""How many findings are kept by default."""

_SHOWN: Final = 8
_TEXT: Final = 80


@frozen(kw_only=True)
class Finding:
    """
    One thing that is not as it should be.

    @ivar group: the id of the group; empty where it is about the data directory.
    @ivar height: the height of the block, where it is about one.
    @ivar transaction: the index of the transaction in the block, from 0, where it is about one.
    @ivar place: the file, or the table and column, or the field of a header.
    @ivar problem: what is wrong, with what was expected and what was found.
    @ivar isDamage: whether the data is not good, rather than worth a look.
    """

    group: str
    height: int | None = None
    transaction: int | None = None
    place: str
    problem: str
    isDamage: bool = True

    def __str__(self) -> str:
        where = [f"group {self.group}"] if self.group else []
        if self.height is not None:
            where.append(f"block {self.height}")
        if self.transaction is not None:
            where.append(f"transaction {self.transaction}")
        where.append(self.place)
        kind = "" if self.isDamage else "note: "
        return " ".join(f"{kind}{', '.join(where)}: {self.problem}".split())


@frozen
class Findings:
    """
    Gathers findings, and counts those that are too many to keep.

    @ivar group: the group that they are about; empty for the data directory.
    @ivar kept: the first of them.
    """

    group: str
    _limit: int = LIMIT
    kept: list[Finding] = field(factory=list)
    _counts: dict[bool, int] = field(factory=lambda: {True: 0, False: 0})

    def damage(
        self, place: str, problem: str, height: int | None = None, transaction: int | None = None
    ) -> None:
        """Something is wrong."""
        self._add(place, problem, height, transaction, True)

    def note(self, place: str, problem: str, height: int | None = None) -> None:
        """Something is worth a look."""
        self._add(place, problem, height, None, False)

    def differ(
        self,
        place: str,
        expected: object,
        found: object,
        height: int | None = None,
        transaction: int | None = None,
    ) -> None:
        """Something is not what it must be."""
        self.damage(place, difference(expected, found), height, transaction)

    def _add(
        self, place: str, problem: str, height: int | None, transaction: int | None, isDamage: bool
    ) -> None:
        self._counts[isDamage] += 1
        if len(self.kept) < self._limit:
            self.kept.append(
                Finding(
                    group=self.group,
                    height=height,
                    transaction=transaction,
                    place=place,
                    problem=problem,
                    isDamage=isDamage,
                )
            )

    @property
    def damages(self) -> int:
        """How many of them say that the data is not good, kept or not."""
        return self._counts[True]

    @property
    def notes(self) -> int:
        """How many of them say that something is worth a look, kept or not."""
        return self._counts[False]


Report = Callable[[int, int | None], object]
"""C{report(done, total)}: how much is done by now, of how much in all where that is known."""


def noReport(done: int, total: int | None) -> None:
    """Tells nobody."""


def difference(expected: object, found: object) -> str:
    """
    What was expected and what was found, in some words.
    """
    if isinstance(expected, bytes) and isinstance(found, bytes):
        if len(expected) != len(found):
            return f"expected {len(expected)} bytes, found {len(found)}"
        pairs = zip(expected, found, strict=True)
        start = next((i for i, (one, other) in enumerate(pairs) if one != other), 0)
        if start < _SHOWN:
            return f"expected {_hex(expected)}, found {_hex(found)}"
        return (
            f"expected {_hex(expected[start:])}, found {_hex(found[start:])}, from byte {start} on"
        )
    return f"expected {show(expected)}, found {show(found)}"


def show(value: object) -> str:
    """
    A value in a bounded number of characters.
    """
    if isinstance(value, bytes):
        return f"{len(value)} bytes {_hex(value)}"
    text = ascii(value)
    return text if len(text) <= _TEXT else text[:_TEXT] + "..."


def _hex(data: bytes) -> str:
    return data.hex() if len(data) <= _SHOWN else data[:_SHOWN].hex() + "..."
