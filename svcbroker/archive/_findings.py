"""
The findings of an audit, one line each.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from attrs import field, frozen

LIMIT: Final = 100
"""The number of findings that are kept by default."""

_SHOWN: Final = 8
_TEXT: Final = 80


class FindingKind(Enum):
    """
    The kind of a finding, by the words that its line begins with.
    """

    DAMAGE = ""
    """Data is damaged."""
    NOTE = "note: "
    """An operator should look at something that is no damage."""
    UNAUDITED = "not audited: "
    """Something could not be audited: this release does not read it."""


@frozen(kw_only=True)
class AuditFinding:
    """
    One finding of an audit.

    @ivar group: the id of the group; empty for the data directory.
    @ivar height: the height of the block; C{None} where it concerns no single block.
    @ivar transaction: the index of the transaction in the block, from 0; C{None} where it concerns
        no single transaction.
    @ivar place: the file, or the table and column, or the field of a header.
    @ivar problem: what is wrong, with the expected and the found value.
    @ivar kind: what it says.
    """

    group: str
    height: int | None = None
    transaction: int | None = None
    place: str
    problem: str
    kind: FindingKind = FindingKind.DAMAGE

    @property
    def isDamage(self) -> bool:
        """Whether data is damaged."""
        return self.kind is FindingKind.DAMAGE

    def __str__(self) -> str:
        where = [f"group {self.group}"] if self.group else []
        if self.height is not None:
            where.append(f"block {self.height}")
        if self.transaction is not None:
            where.append(f"transaction {self.transaction}")
        where.append(self.place)
        return " ".join(f"{self.kind.value}{', '.join(where)}: {self.problem}".split())


@frozen
class Findings:
    """
    Collects findings up to a limit, and counts the rest.

    @ivar group: the group that they concern; empty for the data directory.
    @ivar kept: the findings up to the limit.
    """

    group: str
    _limit: int = LIMIT
    kept: list[AuditFinding] = field(factory=list)
    _counts: dict[FindingKind, int] = field(factory=lambda: dict.fromkeys(FindingKind, 0))

    def damage(
        self, place: str, problem: str, height: int | None = None, transaction: int | None = None
    ) -> None:
        """Report damage."""
        self._add(place, problem, height, transaction, FindingKind.DAMAGE)

    def note(self, place: str, problem: str, height: int | None = None) -> None:
        """Report something that an operator should look at, and that is no damage."""
        self._add(place, problem, height, None, FindingKind.NOTE)

    def unaudited(self, place: str, problem: str) -> None:
        """Report something that could not be audited."""
        self._add(place, problem, None, None, FindingKind.UNAUDITED)

    def differ(
        self,
        place: str,
        expected: object,
        found: object,
        height: int | None = None,
        transaction: int | None = None,
    ) -> None:
        """Report a value that is not the expected one."""
        self.damage(place, difference(expected, found), height, transaction)

    def _add(
        self,
        place: str,
        problem: str,
        height: int | None,
        transaction: int | None,
        kind: FindingKind,
    ) -> None:
        self._counts[kind] += 1
        if len(self.kept) < self._limit:
            self.kept.append(
                AuditFinding(
                    group=self.group,
                    height=height,
                    transaction=transaction,
                    place=place,
                    problem=problem,
                    kind=kind,
                )
            )

    @property
    def damageCount(self) -> int:
        """The number of findings that are damage, kept or not."""
        return self._counts[FindingKind.DAMAGE]

    @property
    def noteCount(self) -> int:
        """The number of findings that are notes, kept or not."""
        return self._counts[FindingKind.NOTE]

    @property
    def count(self) -> int:
        """The number of findings, kept or not."""
        return sum(self._counts.values())

    @property
    def unauditedCount(self) -> int:
        """The number of findings of what could not be audited, kept or not."""
        return self._counts[FindingKind.UNAUDITED]

    @property
    def isGood(self) -> bool:
        """Whether all was audited, and there is no damage."""
        return not self.damageCount and not self.unauditedCount


Report = Callable[[int, int | None], object]
"""C{report(done, total)}: called with how much is done, and of how much where that is known."""


Pause = Callable[[], object]
"""Called between read transactions: a running broker can begin its write-ahead log anew then."""


def noPause() -> None:
    """Go on at once."""


def noReport(done: int, total: int | None) -> None:
    """Ignore the progress."""


def isSame(expected: object, found: object) -> bool:
    """Whether a value is equal and of the same type: SQLite may return 1.0 for 1."""
    return type(expected) is type(found) and expected == found


def difference(expected: object, found: object) -> str:
    """
    Describe the difference between an expected and a found value.
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
    A value as text of bounded length.
    """
    if isinstance(value, bytes):
        return f"{len(value)} bytes {_hex(value)}"
    text = ascii(value)
    return text if len(text) <= _TEXT else text[:_TEXT] + "..."


def _hex(data: bytes) -> str:
    return data.hex() if len(data) <= _SHOWN else data[:_SHOWN].hex() + "..."
