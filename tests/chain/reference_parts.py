"""
The parts of version 3 that no release executes yet, read from C{docs/chain.rst} alone. Whatever is
malformed raises C{ValueError}.
"""

from __future__ import annotations

from collections.abc import Sequence

from .reference import digest
from .reference_reading import Authors, Cursor, isName, lines, need

Recipients = Sequence[tuple[str, bytes]]


def _recipients(cursor: Cursor) -> tuple[int, Recipients]:
    """The generation of recipients, and these."""
    generation, count = cursor.number(8), cursor.number(1)
    found = [(cursor.text(cursor.number(1)), cursor.take(32)) for _ in range(count)]
    need(count <= 64, "count")
    for name, _ in found:
        need(1 <= len(name) <= 64 and "/" not in name and isName(f"receipts/{name}"), "name")
    names = [name.encode() for name, _ in found]
    need(names == sorted(set(names)), "order")
    return generation, found


def readTerms(content: bytes) -> tuple[Authors | None, Recipients | None, int]:
    """The terms of a topic that is opened."""
    cursor = Cursor(content)
    parts = cursor.number(1)
    need(1 <= parts <= 7, "parts")
    authors = Authors.next(cursor) if parts & 1 else None
    generation, recipients = _recipients(cursor) if parts & 2 else (0, None)
    profile = cursor.number(1) if parts & 4 else 0
    need(not cursor.data, "more after the end")
    need((authors is None or not authors.generation) and not generation, "generation")
    need(recipients is None or recipients, "no recipients")
    need(profile == parts >> 2, "profile")
    return authors, recipients, profile


def readRecipientChange(content: bytes) -> tuple[int, Recipients, bytes, bytes]:
    """Generation, recipients, the admin's key and its signature."""
    cursor = Cursor(content)
    change = (*_recipients(cursor), cursor.take(32), cursor.take(64))
    need(not cursor.data, "more after the end")
    return change


def recipientsStatement(chain: bytes, topic: str, generation: int, recipients: Recipients) -> bytes:
    """The bytes that an admin signs."""
    return lines(
        "svcbroker/recipients/1",
        f"chain={chain.hex()}",
        f"topic={topic}",
        f"generation={generation}",
        *(f"recipient={name.encode().hex()}:{key.hex()}" for name, key in recipients),
    )


def readRegistered(entry: bytes, isStored: bool = False) -> tuple[bytes, bytes | None]:
    """
    The statement and the content of a publish with a registered statement, without author, key,
    expected number and extensions.

    @return: C{None} for a content that is erased.
    """
    cursor = Cursor(entry)
    need(cursor.take(2) == b"\x03\x03", "a publish of version 3")
    cursor.take(36)
    commitment = cursor.take(32)
    need(isName(cursor.text(cursor.number(2))), "name")
    need(cursor.take(1) == b"\x20", "options")
    size, hash = cursor.number(4), cursor.take(32)
    need(not cursor.number(2), "extensions")
    statement = cursor.take(size)
    need(size and statement[0] == 0xD2 and digest(statement) == hash, "statement")
    if isStored and not cursor.data:
        return statement, None
    need(digest(b"svcbroker/content", cursor.data) == commitment, "commitment")
    cursor.take(32)
    return statement, cursor.data
