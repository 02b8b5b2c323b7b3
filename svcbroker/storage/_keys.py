"""
The tables of idempotency keys' uses and of erased events.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final, TypeAlias

from msgspec import structs

from ..chain import KEY_WINDOW, ErasedRange, KeyUse
from ._schema import runSteps, schemaSteps

Rows: TypeAlias = Callable[..., Sequence[tuple[Any, ...]]]
"""Runs a query: takes a statement and its parameters, returns the rows."""

USE_COLUMNS: Final = "owner, number, key, topic, sequence, height, digest"
"""The columns of a use, in their order."""

ERASED_COLUMNS: Final = "topic, first, last, height, position"
"""The columns of erased events, in their order."""


def findUse(rows: Rows, owner: bytes, key: str) -> KeyUse | None:
    """
    The use of a key; C{None} where none is in force. Its digest is C{None} where the event is
    erased, also while its content is still in the file.
    """
    found = rows(f"SELECT {USE_COLUMNS} FROM key_use WHERE owner = ? AND key = ?", owner, key)
    if not found:
        return None
    use = makeUse(found[0])
    if use.digest is not None and findErasure(rows, use.topic, use.sequence) is not None:
        return structs.replace(use, digest=None)
    return use


def countUses(rows: Rows, owner: bytes) -> int:
    """
    The number of an owner's latest use; 0 where there is none.
    """
    found = rows("SELECT number FROM key_use WHERE owner = ? ORDER BY number DESC LIMIT 1", owner)
    return found[0][0] if found else 0


def findErasure(rows: Rows, topic: int, sequence: int) -> ErasedRange | None:
    """
    The erased events of a topic that an event is among; C{None} where it is not erased.
    """
    found = rows(
        f"SELECT {ERASED_COLUMNS} FROM erased WHERE topic = ? AND first <= ? "
        "ORDER BY first DESC LIMIT 1",
        topic,
        sequence,
    )
    return makeErased(found[0]) if found and found[0][2] >= sequence else None


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
    for each in erased:
        gaps = _gaps(writing, each)
        writing.executemany(
            f"INSERT INTO erased ({ERASED_COLUMNS}) VALUES (?, ?, ?, ?, ?)",
            [(each.topic, first, last, each.height, each.position) for first, last in gaps],
        )
        writing.executemany(
            "INSERT INTO erasing (height, topic, first, last) VALUES (0, ?, ?, ?)",
            [(each.topic, first, last) for first, last in gaps],
        )


def _gaps(writing: sqlite3.Connection, wanted: ErasedRange) -> Sequence[tuple[int, int]]:
    """The parts of a range that no earlier one has."""
    gaps: list[tuple[int, int]] = []
    following = wanted.first

    def rows(statement: str, *parameters: Any) -> Sequence[tuple[Any, ...]]:
        return writing.execute(statement, parameters).fetchall()

    for known in findErasures(rows, wanted.topic, wanted.first, wanted.last):
        if known.first > following:
            gaps.append((following, known.first - 1))
        following = known.last + 1
    if following <= wanted.last:
        gaps.append((following, wanted.last))
    return gaps


class ScratchKeys:
    """
    A L{KeySource<svcbroker.chain.KeySource>} in a temporary file, for who executes a chain from its
    beginning: there may be a million uses for each owner.
    """

    def __init__(self) -> None:
        # SQLite removes a database without a name when it is closed.
        self._connection = sqlite3.connect("", isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = OFF")
        runSteps(self._connection, schemaSteps(), 0)

    def find(self, owner: bytes, key: str) -> KeyUse | None:
        """See L{KeySource.find<svcbroker.chain.KeySource.find>}."""
        return findUse(self._rows, owner, key)

    def count(self, owner: bytes) -> int:
        """See L{KeySource.count<svcbroker.chain.KeySource.count>}."""
        return countUses(self._rows, owner)

    def add(self, uses: Sequence[KeyUse], erased: Sequence[ErasedRange]) -> None:
        """See L{KeySource.add<svcbroker.chain.KeySource.add>}."""
        self._connection.execute("BEGIN")
        insertUses(self._connection, uses)
        insertErased(self._connection, erased)
        self._connection.execute("COMMIT")

    def uses(self) -> Iterator[tuple[Any, ...]]:
        """All uses, as rows of the columns L{USE_COLUMNS}, by owner and number."""
        return self._connection.execute(f"SELECT {USE_COLUMNS} FROM key_use ORDER BY owner, number")

    def erased(self) -> Iterator[tuple[Any, ...]]:
        """All erased events, as rows of the columns L{ERASED_COLUMNS}, by topic."""
        return self._connection.execute(
            f"SELECT {ERASED_COLUMNS} FROM erased ORDER BY topic, first"
        )

    def erasure(self, topic: int, sequence: int) -> ErasedRange | None:
        """
        The erased events of a topic that an event is among; C{None} where it is not erased.
        """
        return findErasure(self._rows, topic, sequence)

    def close(self) -> None:
        """Remove the file."""
        self._connection.close()

    def _rows(self, statement: str, *parameters: Any) -> Sequence[tuple[Any, ...]]:
        with closing(self._connection.execute(statement, parameters)) as cursor:
            return cursor.fetchall()
