"""
Headers as they are stored. The header of a block repeats what those before it say of the chain and
of the validator sets, and its height stands in its row: two fifths of its bytes. So the row has the
rest, and the number of a row of C{header_base}, which has what is alike.

A module of its own: all readers of the table C{head} need it, and most of them no other row.
"""

from __future__ import annotations

import sqlite3
import struct
from typing import Any, Final

from ..chain import joinHeader, splitHeader

HEADS: Final = "head LEFT JOIN header_base ON number = base"
"""The table of heads, for queries that need its headers: these have C{shared}, too."""

HEADER_LENGTH: Final = "length(header) + coalesce(length(shared) + 8, 0)"
"""The number of bytes of a whole header, in a query of L{HEADS}."""


def storedHeader(
    writing: sqlite3.Connection, header: bytes, height: int
) -> tuple[bytes, int | None]:
    """
    The part of a header that the row of its block has, and the number of the other part. Called in
    a transaction.

    @return: the whole header and C{None} where the bytes are not the header of a block of this
        height.
    """
    parts = splitHeader(header)
    if parts is None or parts[2] != height:
        return header, None
    shared, own, _ = parts
    row = writing.execute("SELECT number FROM header_base WHERE shared = ?", (shared,)).fetchone()
    if row is not None:
        return own, row[0]
    made = writing.execute("INSERT INTO header_base (shared) VALUES (?)", (shared,))
    return own, made.lastrowid


def wholeHeader(header: Any, shared: Any, height: Any) -> Any:
    """
    The header of a block, from its row and that of its base. Where one of them is damaged, it is
    no header, or has another hash.

    @param shared: C{None} where the header stands in its row whole.
    """
    if shared is None or not (isinstance(header, bytes) and isinstance(shared, bytes)):
        return header
    try:
        return joinHeader(shared, header, height)
    except struct.error:
        return header
