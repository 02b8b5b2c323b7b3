"""
The tables of holds: those in force and those that were released, and how many are in force.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from ..chain import Hold, HoldChange, Holds, Kind, Malformed, Release, Transaction

HOLD_COLUMNS: Final = "height, position, time, entry"
RELEASE_COLUMNS: Final = "released_height, released_position, released_time, release"
"""The columns of a hold, and of its release."""

Rows: TypeAlias = Callable[..., Sequence[tuple[Any, ...]]]
"""Runs a query: takes a statement and its parameters, returns the rows."""


class ReleasedHold(Struct, frozen=True, kw_only=True):
    """
    A hold that was released.

    @ivar hold: the hold.
    @ivar release: its release.
    """

    hold: HoldChange
    release: HoldChange


def insertHolds(writing: sqlite3.Connection, changes: Sequence[HoldChange]) -> None:
    """
    Insert the holds and the releases of a block.
    """
    for each in changes:
        place = each.height, each.position
        if isinstance(each.content, Hold):
            writing.execute(
                f"INSERT INTO hold (name, {HOLD_COLUMNS}) VALUES (?, ?, ?, ?, ?)",
                (each.content.case, *place, each.time, each.entry),
            )
        else:
            writing.execute(
                f"UPDATE hold SET ({RELEASE_COLUMNS}) = (?, ?, ?, ?) "
                "WHERE name = ? AND released_height IS NULL",
                (*place, each.time, each.entry, each.content.case),
            )
    writing.execute(
        "UPDATE holding SET (count, again) = (SELECT count(*), CAST(count(*) AS TEXT) FROM hold "
        "WHERE released_height IS NULL)"
    )


def readHolds(rows: Rows) -> Holds:
    """
    The holds that are in force.

    @raise Malformed: the tables are damaged.
    """
    found = rows(
        f"SELECT name, {HOLD_COLUMNS} FROM hold WHERE released_height IS NULL "
        "ORDER BY height, position"
    )
    if rows("SELECT count, again FROM holding") != [(len(found), str(len(found)))]:
        raise Malformed("there are not as many holds as are in force")
    [(released,)] = rows("SELECT max(released_height) FROM hold")
    return Holds([_change(Kind.HOLD, *row) for row in found], released or 0)


def readReleased(rows: Rows, limit: int) -> Sequence[ReleasedHold]:
    """
    Holds that were released, the latest release first.

    @param limit: the most to read.
    @raise Malformed: the table is damaged.
    """
    found = rows(
        f"SELECT name, {HOLD_COLUMNS}, {RELEASE_COLUMNS} FROM hold WHERE released_height "
        "IS NOT NULL ORDER BY released_height DESC, released_position DESC LIMIT ?",
        limit,
    )
    return [
        ReleasedHold(
            hold=_change(Kind.HOLD, *row[:5]), release=_change(Kind.RELEASE, row[0], *row[5:])
        )
        for row in found
    ]


def _change(
    kind: Kind, case: object, height: Any, position: Any, time: Any, entry: Any
) -> HoldChange:
    if not isinstance(entry, bytes):
        raise Malformed(f"hold {case!r} is not stored as bytes")
    # It has the hash of its content.
    transaction = Transaction.decode(entry)
    if transaction.kind is not kind:
        raise Malformed(f"hold {case!r} is another transaction")
    decode = Hold.decode if kind is Kind.HOLD else Release.decode
    content = decode(transaction.content)
    if content.case != case:
        raise Malformed(f"hold {case!r} is that of another case")
    return HoldChange(
        content=content,
        entry=entry,
        hash=transaction.hash,
        height=height,
        position=position,
        time=time,
    )
