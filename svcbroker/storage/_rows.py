"""
The rows of a store, the SQL that inserts those of a block, and the tables of holds. Transactions
are found by their fingerprints: the first bytes of their hashes.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from ..chain import (
    ErasedRange,
    Hold,
    HoldChange,
    Holds,
    KeyUse,
    Kind,
    Malformed,
    Release,
    Transaction,
    encodeAuthors,
)
from ..model import Topic, topicPrefix
from ._headers import storedHeader
from ._keyuses import insertErased, insertUses

_PAIR: Final = struct.Struct(">II")

_NUMBER_SIZE: Final = 4

POSITION_SIZE: Final = _PAIR.size
"""Bytes of one event's place in L{TopicBlockRow.positions}."""


PRINT_SIZE: Final = 4
"""Bytes of a transaction's hash that are kept as its fingerprint."""

SEGMENT: Final = 512
"""The number of fingerprints in a full row."""

SEGMENT_SIZE: Final = SEGMENT * PRINT_SIZE
"""Bytes of a full segment of fingerprints."""


class BlockHeadRow(Struct, frozen=True, kw_only=True):
    """
    A block without its body.

    @ivar height: its height, from 1.
    @ivar hash: its hash: 32 bytes, no two blocks share one.
    @ivar header: its encoded header.
    @ivar certificate: its encoded commit certificate.
    @ivar transactionTotal: how many transactions are in the chain up to and including it.
    """

    height: int
    hash: bytes
    header: bytes
    certificate: bytes
    transactionTotal: int


class BlockRow(BlockHeadRow, frozen=True, kw_only=True):
    """
    A whole block.

    @ivar body: its encoded transactions.
    @ivar receipts: its encoded receipts.
    """

    body: bytes
    receipts: bytes


class TopicRow(Struct, frozen=True, kw_only=True):
    """
    One topic.

    @ivar index: the topic's number in the order of creation, from 0.
    @ivar topic: the topic. Its name, address, sender and creation time never change.
    """

    index: int
    topic: Topic


class SenderRow(Struct, frozen=True, kw_only=True):
    """
    One sender.

    @ivar index: the account's number in the order of creation, from 0.
    @ivar address: its address: 20 bytes; it never changes.
    @ivar state: its encoded state.
    """

    index: int
    address: bytes
    state: bytes


class TopicBlockRow(Struct, frozen=True, kw_only=True):
    """
    The places of one topic's events in one block.

    @ivar topicIndex: the topic's index.
    @ivar height: the block's height.
    @ivar firstSequence: the sequence number of the first of them.
    @ivar positions: what L{packPositions} makes of their places in the body, in order.
    """

    topicIndex: int
    height: int
    firstSequence: int
    positions: bytes

    @property
    def count(self) -> int:
        """The number of events."""
        return len(self.positions) // _PAIR.size

    def position(self, sequence: int) -> tuple[int, int] | None:
        """
        Offset and length of the event of this sequence number in the block's body; C{None}
        where it is not in this block.
        """
        number = sequence - self.firstSequence
        if not 0 <= number < self.count:
            return None
        return _PAIR.unpack_from(self.positions, number * _PAIR.size)


class EventPlace(Struct, frozen=True):
    """
    The place of one event in its block.

    @ivar offset: where its transaction starts in the block's body.
    @ivar length: how many bytes it has there.
    @ivar number: which of the block's events of its topic it is, from 0.
    @ivar count: how many events of its topic the block has.
    """

    offset: int
    length: int
    number: int
    count: int

    @classmethod
    def of(cls, packed: bytes, number: int, size: int) -> EventPlace:
        """
        @param packed: its part of the positions.
        @param size: how many bytes all of the positions have.
        """
        offset, length = _PAIR.unpack(packed)
        return cls(offset, length, number, size // POSITION_SIZE)


class HistoryRow(Struct, frozen=True, kw_only=True):
    """
    An inner node of the history tree.

    @ivar level: its level; the leaves have 0.
    @ivar position: its place in its level, from 0.
    @ivar hash: 32 bytes.
    """

    level: int
    position: int
    hash: bytes


class ValidatorsRow(Struct, frozen=True, kw_only=True):
    """
    A validator set that came after the first one.

    @ivar generation: how many sets there were before it.
    @ivar height: the height of the block that brought it.
    @ivar encoded: the set, encoded.
    """

    generation: int
    height: int
    encoded: bytes


class TransactionPlace(Struct, frozen=True, kw_only=True):
    """
    The place of a transaction.

    @ivar height: the height of its block.
    @ivar index: its index in the block, from 0.
    """

    height: int
    index: int


class Append(Struct, frozen=True, kw_only=True):
    """
    Everything that one block changes, stored together or not at all.

    @ivar block: the block; its height follows the tip's.
    @ivar transactionHashes: the hashes of its transactions, in order, 4 bytes or more each.
    @ivar topics: topics that it created or changed.
    @ivar senders: senders that it added, and those with changed nonces.
    @ivar topicBlocks: for each topic with events in it, where they stand.
    @ivar history: inner nodes of the history tree that it completed.
    @ivar validators: the validator set that it brought; C{None} where the set stays.
    @ivar uses: the idempotency keys that it used, in order.
    @ivar erased: the events that it erased. Their contents are removed later.
    @ivar holds: the holds and releases that it has, in order.
    """

    block: BlockRow
    transactionHashes: Sequence[bytes]
    topics: Sequence[TopicRow] = ()
    senders: Sequence[SenderRow] = ()
    topicBlocks: Sequence[TopicBlockRow] = ()
    history: Sequence[HistoryRow] = ()
    validators: ValidatorsRow | None = None
    uses: Sequence[KeyUse] = ()
    erased: Sequence[ErasedRange] = ()
    holds: Sequence[HoldChange] = ()


def packPositions(positions: Iterable[tuple[int, int]]) -> bytes:
    """
    Pack pairs of offset and length, each below 2 to the 32, as L{TopicBlockRow.positions}.

    @raise struct.error: a number is out of range.
    """
    numbers = tuple(chain.from_iterable(positions))
    return struct.pack(f">{len(numbers)}I", *numbers)


def sumOfLengths(positions: bytes) -> int:
    """
    The sum of the lengths in pairs that L{packPositions} has packed.

    @raise struct.error: the bytes are no such pairs.
    """
    return sum(struct.unpack(f">{len(positions) // _NUMBER_SIZE}I", positions)[1::2])


def findItem(items: bytes, wanted: bytes) -> Sequence[int]:
    """
    The indexes at which C{wanted} is among items of its length.
    """
    found = []
    at = items.find(wanted)
    while at >= 0:
        index, excess = divmod(at, len(wanted))
        if excess == 0:
            found.append(index)
        at = items.find(wanted, at + 1)
    return found


def checkedPrints(append: Append, height: int, total: int, tail: bytes) -> bytes:
    """
    The fingerprints of a block's transactions, after those of the last segment.

    @param height: the height of the block before it.
    @param total: how many transactions there are up to that.
    @param tail: the fingerprints of the last segment, where that is not full.
    @raise ValueError: the block does not follow that one, or a hash is too short.
    """
    block, hashes = append.block, append.transactionHashes
    if block.height != height + 1:
        raise ValueError(f"block {block.height} does not follow block {height}")
    if block.transactionTotal != total + len(hashes):
        raise ValueError(f"block {block.height} makes {total + len(hashes)} transactions in total")
    prints = tail + b"".join([hash[:PRINT_SIZE] for hash in hashes])
    if len(prints) != len(tail) + PRINT_SIZE * len(hashes):
        raise ValueError("a transaction's hash has at least 4 bytes")
    return prints


def insertBlock(writing: sqlite3.Connection, append: Append, first: int, prints: bytes) -> None:
    """
    Insert the rows of a block. Called in a transaction.

    @param first: the number of the first segment of fingerprints that changes.
    @param prints: the fingerprints from its beginning on.
    """
    block = append.block
    header, base = storedHeader(writing, block.header, block.height)
    writing.execute(
        "INSERT INTO head (height, transaction_total, hash, header, certificate, base) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            block.height,
            block.transactionTotal,
            block.hash,
            header,
            block.certificate,
            base,
        ),
    )
    writing.execute(
        "INSERT INTO body (height, receipts, body) VALUES (?, ?, ?)",
        (block.height, block.receipts, block.body),
    )
    _insertPrints(writing, append, first, prints)
    writing.executemany(
        "INSERT INTO topic (idx, prefix, name, address, sender, created, is_open, sequence, "
        "height, authors) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (idx) DO UPDATE SET "
        "is_open = excluded.is_open, sequence = excluded.sequence, height = excluded.height, "
        "authors = excluded.authors",
        [_topicValues(row) for row in append.topics],
    )
    writing.executemany(
        "INSERT INTO account (idx, address, state) VALUES (?, ?, ?) "
        "ON CONFLICT (idx) DO UPDATE SET state = excluded.state",
        [(row.index, row.address, row.state) for row in append.senders],
    )
    writing.executemany(
        "INSERT INTO topic_block (topic, height, first_sequence, positions) VALUES (?, ?, ?, ?)",
        [
            (row.topicIndex, row.height, row.firstSequence, row.positions)
            for row in append.topicBlocks
        ],
    )
    if append.history:
        writing.executemany(
            "INSERT INTO history (level, position, hash) VALUES (?, ?, ?)",
            [(row.level, row.position, row.hash) for row in append.history],
        )
    if append.validators is not None:
        row = append.validators
        writing.execute(
            "INSERT INTO validator_set (generation, height, encoded) VALUES (?, ?, ?)",
            (row.generation, row.height, row.encoded),
        )
    if append.uses:
        insertUses(writing, append.uses)
    if append.erased:
        insertErased(writing, append.erased)
    if append.holds:
        _insertHolds(writing, append.holds)


def _insertPrints(writing: sqlite3.Connection, append: Append, first: int, prints: bytes) -> None:
    writing.executemany(
        "INSERT OR REPLACE INTO fingerprint (segment, prints) VALUES (?, ?)",
        [
            (first + number, prints[start : start + SEGMENT_SIZE])
            for number, start in enumerate(range(0, len(prints), SEGMENT_SIZE))
        ]
        if append.transactionHashes
        else (),
    )


def _topicValues(row: TopicRow) -> tuple[object, ...]:
    topic = row.topic
    return (
        row.index,
        int(topicPrefix(topic.name), 16),
        topic.name,
        topic.address,
        topic.sender,
        topic.created,
        topic.isOpen,
        topic.sequence,
        topic.height,
        None if topic.authors is None else encodeAuthors(topic.authors),
    )


_HOLD_COLUMNS: Final = "height, position, time, entry"
_RELEASE_COLUMNS: Final = "released_height, released_position, released_time, release"
"""The columns of a hold, and of its release."""

Rows: TypeAlias = Callable[..., Sequence[tuple[Any, ...]]]
"""Runs a query: takes a statement and its parameters, returns the rows."""


class HoldPlace(NamedTuple):
    """
    A hold that is stored.

    @ivar height: the height of its block.
    @ivar position: the index of its transaction in that.
    @ivar case: its name.
    @ivar isReleased: whether it was released.
    """

    height: int
    position: int
    case: str
    isReleased: bool


class ReleasedHold(Struct, frozen=True, kw_only=True):
    """
    A hold that was released.

    @ivar hold: the hold.
    @ivar release: its release.
    """

    hold: HoldChange
    release: HoldChange


def _insertHolds(writing: sqlite3.Connection, changes: Sequence[HoldChange]) -> None:
    """
    Insert the holds and the releases of a block.
    """
    for each in changes:
        place = each.height, each.position
        if isinstance(each.content, Hold):
            writing.execute(
                f"INSERT INTO hold (name, {_HOLD_COLUMNS}) VALUES (?, ?, ?, ?, ?)",
                (each.content.case, *place, each.time, each.entry),
            )
        else:
            writing.execute(
                f"UPDATE hold SET ({_RELEASE_COLUMNS}) = (?, ?, ?, ?) "
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
        f"SELECT name, {_HOLD_COLUMNS} FROM hold WHERE released_height IS NULL "
        "ORDER BY height, position"
    )
    if rows("SELECT count, again FROM holding") != [(len(found), str(len(found)))]:
        raise Malformed("there are not as many holds as are in force")
    [(released,)] = rows("SELECT max(released_height) FROM hold")
    return Holds([_change(Kind.HOLD, *row) for row in found], released or 0)


def readPlaces(rows: Rows, before: tuple[int, int], limit: int) -> Sequence[HoldPlace]:
    """
    The holds before a place, released or not, the latest first.

    @param before: a height, and an index in its block.
    @param limit: the most to read.
    """
    found = rows(
        "SELECT height, position, name, released_height IS NOT NULL FROM hold "
        "WHERE (height, position) < (?, ?) ORDER BY height DESC, position DESC LIMIT ?",
        *before,
        limit,
    )
    return [HoldPlace(*row) for row in found]


def readReleased(rows: Rows, place: HoldPlace) -> ReleasedHold:
    """
    A hold that was released.

    @raise Malformed: the table is damaged.
    """
    [row] = rows(
        f"SELECT name, {_HOLD_COLUMNS}, {_RELEASE_COLUMNS} FROM hold "
        "WHERE height = ? AND position = ?",
        place.height,
        place.position,
    )
    return ReleasedHold(
        hold=_change(Kind.HOLD, *row[:5]), release=_change(Kind.RELEASE, row[0], *row[5:])
    )


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
