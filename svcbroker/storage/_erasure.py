"""
The SQL that removes erased contents from the bodies of blocks.

SQLite overwrites what is deleted (C{secure_delete}), but not what it moves: where rows change
pages, copies of them may stay in the free space of the old ones. So no row with a body ever takes
more of its page than before, and none is deleted: then SQLite moves none. Only where no block has
contents any more, in many rows around, rows are deleted and inserted again, which frees pages.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from attrs import frozen

from ..chain import ErasedRange
from ..model import topicPrefix
from ._errors import StorageDamaged
from ._files import PAGE_SIZE
from ._headers import HEADS, wholeHeader
from ._keyuses import ERASED_COLUMNS, makeErased
from ._rows import POSITION_SIZE

BLOCKS_AT_ONCE: Final = 64
"""From how many blocks at most contents are removed in one transaction."""

BYTES_AT_ONCE: Final = 256 * 1024
"""The size of bodies after which such a transaction ends."""

LOCATED_AT_ONCE: Final = 256
"""The number of ranges that are located in one step: each takes some 30 small reads."""

COMPACTED_AT_ONCE: Final = 256
"""The number of rows that are written close together in one step."""

PAGES_AT_ONCE: Final = 256
"""The number of pages that are given back to the file system in one transaction."""

MARGIN: Final = 300
"""
The number of rows without contents that have to follow one that is moved. SQLite moves rows of the
page
beside, too, and no page has more than 292.
"""

_UNLOCATED: Final = 0
_DONE: Final = 2**63 - 1

_ERASED: Final = ", ".join(f"erased.{column}" for column in ERASED_COLUMNS.split(", "))

# How SQLite divides a row between its leaf and overflow pages (Database File Format, 1.6).
_MAX_LOCAL: Final = PAGE_SIZE - 35
_MIN_LOCAL: Final = (PAGE_SIZE - 12) * 32 // 255 - 23
_OVERFLOW: Final = PAGE_SIZE - 4
_SLACK: Final = 100


@frozen(kw_only=True)
class ErasableBlock:
    """
    A block with contents that are to be removed.

    @ivar header: its encoded header.
    @ivar body: its body.
    @ivar receipts: its encoded receipts.
    @ivar erased: for topics, by name, the ranges of sequence numbers of erased events, without
        overlaps. Some of them may be of other blocks.
    @ivar erasures: which erasures have erased them, as the table of erased events says. The ranges
        of the block are among these.
    """

    height: int
    header: bytes
    body: bytes
    receipts: bytes
    erased: Mapping[str, Sequence[tuple[int, int]]]
    erasures: Sequence[ErasedRange] = ()


@frozen(kw_only=True)
class StrippedBlock:
    """
    A block without the contents that were erased.

    @ivar body: its body now.
    @ivar positions: for each topic with events in it, by name, what
        L{packPositions<svcbroker.storage.packPositions>} makes of their places now.
    @ivar keys: owners and idempotency keys of the events that were erased.
    """

    body: bytes
    positions: Mapping[str, bytes]
    keys: Collection[tuple[bytes, str]]


def eraseBlocks(
    writing: sqlite3.Connection,
    height: int,
    strip: Callable[[ErasableBlock], StrippedBlock | None],
    damage: Callable[[str], StorageDamaged],
) -> None:
    """
    Remove contents from some blocks. Called in a transaction.

    @param height: the height of the last block.
    @param strip: makes a block without the contents that were erased; C{None} where it has none.
    @param damage: makes the error to raise, of what is damaged.
    @raise StorageDamaged: the rows of the next block contradict each other. Where there were others
        before it, their contents are removed first.
    """
    locate(writing, height)
    size = 0
    for number in range(BLOCKS_AT_ONCE):
        try:
            block = nextErasable(writing, damage)
            stripped = None if block is None else strip(block)
        except Exception:
            if number:
                break  # and keep what is done; it comes up again
            raise
        if block is None:
            break
        if stripped is not None and not replaceBody(writing, block, stripped):
            raise damage(f"the index of block {block.height} is not that of its events")
        advance(writing, block.height, damage)
        size += len(block.body)
        if size > BYTES_AT_ONCE:
            break


def locate(writing: sqlite3.Connection, height: int) -> None:
    """
    Find the blocks of some ranges that were not looked for yet. Called in a transaction.

    @param height: the height of the last block.
    """
    rows = writing.execute(
        f"SELECT topic, first FROM erasing WHERE height = {_UNLOCATED} LIMIT {LOCATED_AT_ONCE}"
    ).fetchall()
    writing.executemany(
        f"UPDATE erasing SET height = ? WHERE height = {_UNLOCATED} AND topic = ? AND first = ?",
        [(_heightOf(writing, topic, first, height), topic, first) for topic, first in rows],
    )


def _heightOf(writing: sqlite3.Connection, topic: int, sequence: int, height: int) -> int:
    """
    The height of the block that has an event. Where the index does not have it, that of the last
    block, which L{nextErasable} then refuses.
    """
    low, high, found = 1, height, height
    while low <= high:
        middle = (low + high) // 2
        row = writing.execute(
            "SELECT height, first_sequence FROM topic_block WHERE topic = ? AND height <= ? "
            "ORDER BY height DESC LIMIT 1",
            (topic, middle),
        ).fetchone()
        if row is not None and row[1] > sequence:
            high = row[0] - 1
        else:
            low = middle + 1
            found = found if row is None else row[0]
    return found


def nextErasable(
    writing: sqlite3.Connection, damage: Callable[[str], StorageDamaged]
) -> ErasableBlock | None:
    """
    The next block with contents to remove; C{None} where there is none. All ranges are located.

    @raise StorageDamaged: a range that waits is not the rest of one that was erased, or the block
        does not have its first event.
    """
    ((height,),) = writing.execute(
        f"SELECT min(height) FROM erasing WHERE height < {_DONE}"
    ).fetchall()
    if height is None:
        return None
    row = writing.execute(
        f"SELECT body, receipts, header, shared FROM {HEADS} "
        "JOIN body USING (height) WHERE height = ?",
        (height,),
    ).fetchone()
    if row is None:
        raise damage(f"block {height}, which has contents to remove, is missing")
    body, receipts, part, shared = row
    header = wholeHeader(part, shared, height)
    if not all(isinstance(each, bytes) for each in (header, body, receipts)):
        raise damage(f"block {height}, which has contents to remove, is not made of bytes")
    erased: dict[str, list[tuple[int, int]]] = {}
    erasures: list[ErasedRange] = []
    for topic, first, last in writing.execute(
        "SELECT topic, first, last FROM erasing WHERE height = ? ORDER BY topic, first", (height,)
    ).fetchall():
        name, erasure = _checkedWaiting(writing, height, topic, first, last, damage)
        erased.setdefault(name, []).append((first, last))
        erasures.append(erasure)
    return ErasableBlock(
        height=height,
        header=header,
        body=body,
        receipts=receipts,
        erased=erased,
        erasures=erasures,
    )


def _checkedWaiting(
    writing: sqlite3.Connection,
    height: int,
    topic: int,
    first: int,
    last: int,
    damage: Callable[[str], StorageDamaged],
) -> tuple[str, ErasedRange]:
    """
    Compare a range that waits with the table of erased events and with the index of its block: it
    begins with the first event of an erased range, or with the first one of its block, and ends
    where the erased range ends.

    @return: the topic's name, and the erased range.
    @raise StorageDamaged: they contradict each other.
    """
    row = writing.execute(
        f"SELECT name, first_sequence, length(positions) / {POSITION_SIZE}, {_ERASED} FROM erased "
        "JOIN topic ON idx = erased.topic JOIN topic_block AS t ON t.topic = erased.topic "
        "AND t.height = ?1 WHERE erased.topic = ?2 AND first <= ?3 ORDER BY first DESC LIMIT 1",
        (height, topic, first),
    ).fetchone()
    # A damaged row may have a value of any type.
    if row is not None and all(type(each) is int for each in (*row[1:], first, last)):
        name, start, count, *columns = row
        erasure = makeErased(tuple(columns))
        isBeginning = first in (start, erasure.first) and start <= first < start + count
        if isBeginning and first <= last == erasure.last:
            return name, erasure
    raise damage(
        f"what is to be removed, events {first} to {last} of topic {topic} from block {height} on, "
        "is not what was erased"
    )


def replaceBody(writing: sqlite3.Connection, block: ErasableBlock, new: StrippedBlock) -> bool:
    """
    Store a block without the contents that were erased. Called in a transaction.

    @return: whether the rows of its topics are those of its events.
    """
    height, receipts = block.height, len(block.receipts)
    ((padded,),) = writing.execute(
        "SELECT coalesce(length(padding), 0) FROM body WHERE height = ?", (height,)
    ).fetchall()
    padding = paddingFor(
        rowSize(receipts, len(block.body), padded), rowSize(receipts, len(new.body), 0)
    )
    writing.execute(
        "UPDATE body SET body = ?, padding = ? WHERE height = ?",
        (new.body, bytes(padding) or None, height),
    )
    for name, positions in new.positions.items():
        changed = writing.execute(
            "UPDATE topic_block SET positions = ?1 WHERE height = ?2 AND length(positions) = ?3 "
            "AND topic = (SELECT idx FROM topic WHERE prefix = ?4 AND name = ?5)",
            (positions, height, len(positions), int(topicPrefix(name), 16), name),
        )
        if changed.rowcount != 1:
            return False
    writing.executemany(
        "UPDATE key_use SET digest = NULL WHERE owner = ? AND key = ? AND height = ?",
        [(owner, key, height) for owner, key in new.keys],
    )
    return True


def advance(
    writing: sqlite3.Connection, height: int, damage: Callable[[str], StorageDamaged]
) -> None:
    """
    Go from a block on to the next one for each range with events in it. Called in a transaction.

    @raise StorageDamaged: the index leaves out some of the events.
    """
    for topic, first, last in writing.execute(
        "SELECT topic, first, last FROM erasing WHERE height = ?", (height,)
    ).fetchall():
        here, *following = writing.execute(
            f"SELECT height, first_sequence, length(positions) / {POSITION_SIZE} FROM topic_block "
            "WHERE topic = ? AND height >= ? ORDER BY height LIMIT 2",
            (topic, height),
        ).fetchall()
        end = here[1] + here[2]
        row = (_DONE, first)
        if end <= last:
            if not following or following[0][1] != end:
                raise damage(f"the index of topic {topic} leaves out event {end}")
            row = following[0][:2]
        writing.execute(
            "UPDATE erasing SET height = ?, first = ? WHERE height = ? AND topic = ? AND first = ?",
            (*row, height, topic, first),
        )


def hasCopies(writing: sqlite3.Connection) -> bool:
    """
    Whether contents were removed from bodies that may still be in copies of them.
    """
    return _has(writing, f"height = {_DONE}")


def hasErasable(writing: sqlite3.Connection) -> bool:
    """
    Whether there are contents to remove from bodies.
    """
    return _has(writing, f"height < {_DONE}")


def _has(writing: sqlite3.Connection, condition: str) -> bool:
    return (
        writing.execute(f"SELECT 1 FROM erasing WHERE {condition} LIMIT 1").fetchone() is not None
    )


def forgetCopies(writing: sqlite3.Connection) -> None:
    """
    The copies are removed, too. Called in a transaction.
    """
    writing.execute(f"DELETE FROM erasing WHERE height = {_DONE}")


def compactedHeight(writing: sqlite3.Connection) -> int:
    """
    The height up to which rows were written close together.
    """
    height: int = writing.execute("SELECT height FROM compacted").fetchone()[0]
    return height


def findBare(
    writing: sqlite3.Connection, height: int, last: int, isBare: Callable[[bytes], bool]
) -> tuple[int, bool]:
    """
    The height up to which blocks have no contents.

    @param height: the height up to which that is known.
    @param last: the height up to which it is of interest.
    @param isBare: whether a body has none.
    @return: the height up to which it is known now, and whether there may be more.
    """
    size = 0
    while height < last:
        row = writing.execute("SELECT body FROM body WHERE height = ?", (height + 1,)).fetchone()
        if row is None or not isBare(row[0]):
            break
        height, size = height + 1, size + len(row[0])
        if size > BYTES_AT_ONCE:
            return height, True
    return height, False


def compactRows(writing: sqlite3.Connection, first: int, last: int) -> None:
    """
    Write rows of blocks without contents close together. Called in a transaction.

    @param first: the height of the first block.
    @param last: that of the last one to be written.
    """
    rows: list[tuple[int, bytes, bytes]] = []
    size = 0
    for height in range(first, last + 1):
        rows += writing.execute(
            "SELECT height, receipts, body FROM body WHERE height = ?", (height,)
        ).fetchall()
        size += len(rows[-1][2]) if rows else 0
        if size > BYTES_AT_ONCE:
            break
    writing.executemany("DELETE FROM body WHERE height = ?", [(row[0],) for row in rows])
    writing.executemany("INSERT INTO body (height, receipts, body) VALUES (?, ?, ?)", rows)
    height = rows[-1][0] if rows else last
    writing.execute("UPDATE compacted SET height = ?, again = ?", (height, str(height)))


def countFreePages(writing: sqlite3.Connection) -> tuple[int, bool]:
    """
    The number of free pages, and whether they can be given back.
    """
    free = writing.execute("PRAGMA freelist_count").fetchone()[0]
    return free, bool(writing.execute("PRAGMA auto_vacuum").fetchone()[0])


def giveBackPages(writing: sqlite3.Connection, free: int) -> None:
    """
    Give up to L{PAGES_AT_ONCE} free pages back to the file system.
    """
    # Python takes one step of the statement, which is one page.
    for _ in range(min(free, PAGES_AT_ONCE)):
        writing.execute("PRAGMA incremental_vacuum(1)").fetchall()


def rowSize(receipts: int, body: int, padding: int) -> int:
    """
    The size of a row of the table C{body}, from those of its columns.
    """
    types = [12 + 2 * receipts, 12 + 2 * body, 12 + 2 * padding if padding else 0]
    # The header's own size, and the type of the height, which the row does not have.
    return 2 + sum(_varintSize(each) for each in types) + receipts + body + padding


def paddingFor(before: int, after: int) -> int:
    """
    The number of bytes to add to a row that gets smaller, so that it takes no more of its leaf
    than before: the shorter row may have less in overflow pages and more in the leaf.

    @param before: the row's size before.
    @param after: its size now.
    """
    # A row from before the column was added has one byte less.
    if _local(after) <= min(_local(before), _local(before - 1)):
        return 0
    # Somewhat below a full overflow page the leaf has least.
    pages = max(0, after - _MIN_LOCAL) // _OVERFLOW + 1
    return _MIN_LOCAL + pages * _OVERFLOW - _SLACK - after


def _local(size: int) -> int:
    """The number of a row's bytes that are in its leaf."""
    if size <= _MAX_LOCAL:
        return size
    local = _MIN_LOCAL + (size - _MIN_LOCAL) % _OVERFLOW
    return local if local <= _MAX_LOCAL else _MIN_LOCAL


def _varintSize(number: int) -> int:
    return max(1, -(-number.bit_length() // 7))
