"""
The tables of idempotency keys' uses and of erased events.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, TypeAlias

from ..chain import KEY_WINDOW, ErasedRange, KeyUse, OwnedKey
from ._schema import runSteps, schemaSteps

Rows: TypeAlias = Callable[..., Sequence[tuple[Any, ...]]]
"""Runs a query: takes a statement and its parameters, returns the rows."""

USE_COLUMNS: Final = "owner, number, key, topic, sequence, height, digest"
"""The columns of a use, in their order."""

ERASED_COLUMNS: Final = "topic, first, last, height, position"
"""The columns of erased events, in their order."""


_KEYS_AT_ONCE: Final = 512
"""The number of keys that one query looks up. SQLite may take as few as 999 parameters."""

_FIND_USES: Final = (
    "WITH wanted (one) AS (VALUES (?)%s) "
    "SELECT owner, number, key, topic, sequence, height, CASE WHEN sequence <= ("
    "SELECT last FROM erased WHERE erased.topic = key_use.topic AND first <= sequence "
    "ORDER BY first DESC LIMIT 1) THEN NULL ELSE digest END "
    "FROM wanted CROSS JOIN key_use INDEXED BY key_use_key ON owner = ? AND key = one"
)


def findUses(rows: Rows, wanted: Iterable[OwnedKey]) -> dict[OwnedKey, KeyUse]:
    """
    The uses of some keys; keys without one in force are left out. The digest of a use is C{None}
    where the event is erased, also while its content is still in the file.
    """
    owned: dict[bytes, list[str]] = {}
    for owner, key in wanted:
        owned.setdefault(owner, []).append(key)
    found: dict[OwnedKey, KeyUse] = {}
    for owner, keys in owned.items():
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[start : start + _KEYS_AT_ONCE]
            # Filled up to a power of two: the statements are few, so they stay prepared.
            size = 1 << (len(some) - 1).bit_length()
            some += some[:1] * (size - len(some))
            for row in rows(_FIND_USES % (", (?)" * (size - 1)), *some, owner):
                use = makeUse(row)
                found[owner, use.key] = use
    return found


def countUses(rows: Rows, owner: bytes) -> int:
    """
    The number of an owner's latest use; 0 where there is none.
    """
    found = rows("SELECT number FROM key_use WHERE owner = ? ORDER BY number DESC LIMIT 1", owner)
    return found[0][0] if found else 0


def findErasures(rows: Rows, topic: int, first: int, last: int) -> Sequence[ErasedRange]:
    """
    The erased events of a topic that some of the events from C{first} to C{last} are among, rising.
    """
    found = rows(
        f"SELECT {ERASED_COLUMNS} FROM erased WHERE topic = ?1 AND first <= ?3 AND first >= "
        "coalesce((SELECT max(first) FROM erased WHERE topic = ?1 AND first <= ?2), 0) "
        "ORDER BY first",
        topic,
        first,
        last,
    )
    return [makeErased(row) for row in found if row[2] >= first]


def makeUse(row: tuple[Any, ...]) -> KeyUse:
    """
    @param row: the columns L{USE_COLUMNS}.
    """
    owner, number, key, topic, sequence, height, digest = row
    return KeyUse(
        owner=owner,
        key=key,
        number=number,
        topic=topic,
        sequence=sequence,
        height=height,
        digest=digest,
    )


def makeErased(row: tuple[Any, ...]) -> ErasedRange:
    """
    @param row: the columns L{ERASED_COLUMNS}.
    """
    topic, first, last, height, position = row
    return ErasedRange(topic=topic, first=first, last=last, height=height, position=position)


def insertUses(writing: sqlite3.Connection, uses: Sequence[KeyUse]) -> None:
    """
    Insert uses of keys. Each one takes the place of its owner's oldest, once there are
    L{KEY_WINDOW<svcbroker.chain.KEY_WINDOW>}.
    """
    writing.executemany(
        "DELETE FROM key_use WHERE owner = ? AND number = ?",
        [(use.owner, use.number - KEY_WINDOW) for use in uses if use.number > KEY_WINDOW],
    )
    writing.executemany(
        f"INSERT INTO key_use ({USE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (use.owner, use.number, use.key, use.topic, use.sequence, use.height, use.digest)
            for use in uses
        ],
    )


def insertErased(writing: sqlite3.Connection, erased: Sequence[ErasedRange]) -> None:
    """
    Insert erased events, as far as they were not erased before, and have their contents removed.
    """

    def rows(statement: str, *parameters: Any) -> Sequence[tuple[Any, ...]]:
        return writing.execute(statement, parameters).fetchall()

    for each in erased:
        known = findErasures(rows, each.topic, each.first, each.last)
        gaps = gapsIn(known, each.first, each.last)
        writing.executemany(
            f"INSERT INTO erased ({ERASED_COLUMNS}) VALUES (?, ?, ?, ?, ?)",
            [(each.topic, first, last, each.height, each.position) for first, last in gaps],
        )
        writing.executemany(
            "INSERT INTO erasing (height, topic, first, last) VALUES (0, ?, ?, ?)",
            [(each.topic, first, last) for first, last in gaps],
        )


def gapsIn(erasures: Sequence[ErasedRange], first: int, last: int) -> Sequence[tuple[int, int]]:
    """
    The parts of a range of events that were not erased.

    @param erasures: the erased events that some of them are among, rising.
    """
    gaps: list[tuple[int, int]] = []
    for each in erasures:
        if each.first > first:
            gaps.append((first, each.first - 1))
        first = each.last + 1
    if first <= last:
        gaps.append((first, last))
    return gaps


class ScratchKeys:
    """
    A L{KeySource<svcbroker.chain.KeySource>} in a temporary file, to execute a chain from its
    beginning: there may be a million uses for each owner.
    """

    def __init__(self) -> None:
        # SQLite removes a database without a name when it is closed.
        self._connection = sqlite3.connect("", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = OFF")
        runSteps(self._connection, schemaSteps(), 0)

    def find(self, wanted: Collection[OwnedKey]) -> dict[OwnedKey, KeyUse]:
        """See L{KeySource.find<svcbroker.chain.KeySource.find>}."""
        return findUses(self._rows, wanted)

    def isErased(self, topic: int, sequence: int) -> bool:
        """See L{KeySource.isErased<svcbroker.chain.KeySource.isErased>}."""
        return bool(self.erasures(topic, sequence, sequence))

    def count(self, owner: bytes) -> int:
        """See L{KeySource.count<svcbroker.chain.KeySource.count>}."""
        return countUses(self._rows, owner)

    def add(self, uses: Sequence[KeyUse], erased: Sequence[ErasedRange]) -> None:
        """See L{KeySource.add<svcbroker.chain.KeySource.add>}."""
        self._connection.execute("BEGIN")
        insertUses(self._connection, uses)
        insertErased(self._connection, erased)
        self._connection.execute("COMMIT")

    def uses(self) -> Iterator[KeyUse]:
        """All uses, by owner and number."""
        rows = self._connection.execute(f"SELECT {USE_COLUMNS} FROM key_use ORDER BY owner, number")
        return map(makeUse, rows)

    def erased(self) -> Iterator[ErasedRange]:
        """All erased events, by topic and number."""
        rows = self._connection.execute(
            f"SELECT {ERASED_COLUMNS} FROM erased ORDER BY topic, first"
        )
        return map(makeErased, rows)

    def erasures(self, topic: int, first: int, last: int) -> Sequence[ErasedRange]:
        """
        The erased events of a topic that some of the events from C{first} to C{last} are among.
        """
        return findErasures(self._rows, topic, first, last)

    def close(self) -> None:
        """Remove the file."""
        self._connection.close()

    def _rows(self, statement: str, *parameters: Any) -> Sequence[tuple[Any, ...]]:
        with closing(self._connection.execute(statement, parameters)) as cursor:
            return cursor.fetchall()
