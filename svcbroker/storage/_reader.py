"""
The reader of a store: all queries, on a connection that only reads.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from ..chain import ErasedRange, Holds, KeyUse, Malformed, OwnedKey, decodeAuthors
from ..model import AuthorSet, Topic, topicPrefix
from ._errors import StorageDamaged, translated
from ._headers import HEADS, wholeHeader
from ._keyuses import countUses, findErasures, findUses
from ._rows import (
    POSITION_SIZE,
    PRINT_SIZE,
    SEGMENT,
    BlockHeadRow,
    BlockRow,
    EventPlace,
    HoldPlace,
    ReleasedHold,
    SenderRow,
    TopicBlockRow,
    TopicRow,
    TransactionPlace,
    ValidatorsRow,
    findItem,
    readHolds,
    readPlaces,
    readReleased,
    sumOfLengths,
)

_HEAD: Final = "height, hash, header, certificate, transaction_total, shared"

# The bounds come first: out of them substr counts from the end, or in 32 bits.
_PLACES: Final = (
    "SELECT t.first_sequence, length(t.positions), "
    "CASE WHEN ? BETWEEN t.first_sequence AND t.first_sequence "
    f"+ length(t.positions) / {POSITION_SIZE} - 1 THEN "
    f"CAST(substr(t.positions, (? - t.first_sequence) * {POSITION_SIZE} + 1, "
    f"{POSITION_SIZE}) AS BLOB) END FROM topic "
    "JOIN topic_block AS t ON t.topic = topic.idx AND t.height = ? "
    "WHERE topic.prefix = ? ORDER BY t.topic"
)

_LOAD_ROWS: Final = 4096

_BLOCKS_A_PIECE: Final = 1000
_INDEX_BYTES_A_PIECE: Final = 256 * 1024

_REMOVED: Final = 2**63 - 1
"""The height of ranges in the table C{erasing} whose contents are in no body any more."""


class ReadConnection:
    """
    Runs queries on the reading connection of a store.

    No read leaves a cursor open when it returns or yields, so none keeps the write-ahead log from
    being folded in.

    @ivar path: the file.
    """

    def __init__(self, path: Path, reading: sqlite3.Connection) -> None:
        self.path = path
        self._reading = reading
        self._moment = _Moment(self)

    def moment(self) -> _Moment:
        """
        While the context lasts, all reads see the same state: an erasure that is done meanwhile
        moves the entries of a body. Keep it short.
        """
        return self._moment

    def _rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        try:
            return self._reading.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        except UnicodeDecodeError as error:
            raise self._damage("a TEXT column is not valid UTF-8") from error

    def _damage(self, what: str) -> StorageDamaged:
        return StorageDamaged(
            f"{self.path} is damaged ({what}): stop the broker and restore it from a backup"
        )


class _Moment:
    """
    The context that L{ReadConnection.moment} gives. It is entered for each event that is read, and
    C{contextlib} would
    take 1 µs more.
    """

    def __init__(self, reading: ReadConnection) -> None:
        self._reading = reading

    def __enter__(self) -> None:
        try:
            self._reading._reading.execute("BEGIN")
        except sqlite3.Error as error:
            raise translated(error, self._reading.path) from error

    def __exit__(self, *error: object) -> None:
        try:
            self._reading._reading.execute("ROLLBACK")
        except sqlite3.Error:
            return  # What was read counts.


class ChainReader(ReadConnection):
    """
    The reading half of a store. It has a connection of its own, so all of it may be called in
    one thread while another one appends.

    Any of it may fail with L{StorageDamaged<svcbroker.storage.StorageDamaged>} or
    L{StorageFailed<svcbroker.storage.StorageFailed>}.
    """

    def tip(self) -> BlockHeadRow | None:
        """
        The latest block; C{None} where there is none yet.
        """
        rows = self._rows(f"SELECT {_HEAD} FROM {HEADS} ORDER BY height DESC LIMIT 1")
        return self._head(rows[0]) if rows else None

    def blockHead(self, height: int) -> BlockHeadRow | None:
        """
        One block without its body; C{None} where there is no such block.
        """
        rows = self._rows(f"SELECT {_HEAD} FROM {HEADS} WHERE height = ?", height)
        return self._head(rows[0]) if rows else None

    def blockHeads(self, first: int, last: int) -> Sequence[BlockHeadRow]:
        """
        Blocks without their bodies, from height C{first} to C{last}, both included, in that
        order. Heights that have no block are left out.
        """
        rows = self._rows(
            f"SELECT {_HEAD} FROM {HEADS} WHERE height BETWEEN ? AND ? ORDER BY height",
            first,
            last,
        )
        return [self._head(row) for row in rows]

    def block(self, height: int) -> BlockRow | None:
        """
        One whole block; C{None} where there is no such block.
        """
        # One statement, so that both tables are read of one moment.
        rows = self._rows(
            f"SELECT {_HEAD}, body, receipts FROM {HEADS} LEFT JOIN body USING (height) "
            "WHERE height = ?",
            height,
        )
        if not rows:
            return None
        *columns, body, receipts = rows[0]
        if body is None:
            raise self._damage(f"block {height} has no body")
        head = self._head(columns)
        if not (isinstance(body, bytes) and isinstance(receipts, bytes)):
            raise self._damage(f"the body of block {height} is not made of bytes")
        return BlockRow(
            height=height,
            hash=head.hash,
            header=head.header,
            certificate=head.certificate,
            transactionTotal=head.transactionTotal,
            body=body,
            receipts=receipts,
        )

    def bodySlice(self, height: int, offset: int, length: int) -> bytes:
        """
        A piece of a block's body. The rest of it does not come into Python.

        @param offset: where it begins, such as an L{EventPlace} has it.
        @param length: its length in bytes.
        @raise LookupError: there is no such block.
        @raise StorageDamaged: the body is missing, or has no such piece.
        """
        try:
            with self._reading.blobopen("body", "body", height, readonly=True) as blob:
                blob.seek(min(offset, len(blob)))
                piece = blob.read(min(length, len(blob)))
        except sqlite3.Error as error:
            if not self._rows("SELECT 1 FROM body WHERE height = ?", height):
                if self.blockHead(height) is not None:
                    raise self._damage(f"block {height} has no body") from error
                raise LookupError(f"no block {height}") from error
            raise translated(error, self.path) from error
        if len(piece) != length:
            raise self._damage(f"block {height} is shorter than its positions say")
        return piece

    def receipts(self, height: int) -> bytes:
        """
        The receipts of a block; empty where there is no such block.
        """
        rows = self._rows("SELECT CAST(receipts AS BLOB) FROM body WHERE height = ?", height)
        return rows[0][0] or b"" if rows else b""

    def fingerprints(self, height: int) -> bytes:
        """
        The fingerprints of a block's transactions, in order; fewer where some are missing.
        """
        rows = self._rows(
            "SELECT before, total, CAST(prints AS BLOB) FROM (SELECT coalesce((SELECT "
            "transaction_total FROM head WHERE height = ?1 - 1), 0) AS before, transaction_total "
            "AS total FROM head WHERE height = ?1) JOIN fingerprint ON segment BETWEEN "
            f"before / {SEGMENT} AND (total - 1) / {SEGMENT} ORDER BY segment",
            height,
        )
        if not rows:
            return b""
        before, total, _ = rows[0]
        if not (isinstance(before, int) and isinstance(total, int)):
            raise self._damage(f"block {height} does not say how many transactions it has")
        prints = b"".join([prints or b"" for _, _, prints in rows])
        skip = before % SEGMENT * PRINT_SIZE
        return prints[skip : skip + (total - before) * PRINT_SIZE]

    def heightOfHash(self, hash: bytes) -> int | None:
        """
        The height of the block of this hash; C{None} where there is none.
        """
        rows = self._rows(
            "SELECT height FROM head WHERE hash = ?1 AND substr(hash, 1, 8) = substr(?1, 1, 8)",
            hash,
        )
        return rows[0][0] if rows else None

    def eventPlaces(self, prefix: str, height: int, sequence: int) -> Sequence[EventPlace | None]:
        """
        The places where an event may stand. Two topics may share a prefix; then there is an answer
        for each
        that has events in the block, in the order of creation, and the event is of one of them.

        @param prefix: 8 hex digits, L{topicPrefix<svcbroker.model.topicPrefix>} of a name.
        @param sequence: the event's number in its topic.
        @return: C{None} for a topic that has other events there.
        """
        try:
            rows = self._reading.execute(_PLACES, (sequence, sequence, height, int(prefix, 16)))
            found = rows.fetchall()
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        places: list[EventPlace | None] = []
        for first, size, packed in found:
            if packed is not None and len(packed) != POSITION_SIZE:
                raise self._damage(f"the index of block {height} is not made of bytes")
            place = None if packed is None else EventPlace.of(packed, sequence - first, size)
            places.append(place)
        return places

    def lastTopicBlock(self, topicIndex: int, height: int) -> TopicBlockRow | None:
        """
        The last block up to a height that has events of a topic; C{None} where there is none.
        """
        rows = self._rows(
            "SELECT topic, height, first_sequence, positions FROM topic_block "
            "WHERE topic = ? AND height <= ? ORDER BY height DESC LIMIT 1",
            topicIndex,
            height,
        )
        return self._topicBlock(rows[0]) if rows else None

    def topicBlocks(self, topicIndex: int, afterHeight: int, limit: int) -> Sequence[TopicBlockRow]:
        """
        The next blocks that have events of one topic, in order.

        @param afterHeight: blocks above this height are looked for.
        @param limit: the most to answer.
        """
        rows = self._rows(
            "SELECT topic, height, first_sequence, positions FROM topic_block "
            "WHERE topic = ? AND height > ? ORDER BY height LIMIT ?",
            topicIndex,
            afterHeight,
            limit,
        )
        return [self._topicBlock(row) for row in rows]

    def eventBytes(self, topicIndex: int, afterHeight: int) -> tuple[int, int, bool]:
        """
        Add up the bytes that the events of one topic have in the bodies of some of the next blocks:
        as many as are read in about a millisecond.

        @param afterHeight: blocks above this height are looked for.
        @return: the height of the last block of these, or the given one where there is none; the
            bytes; and whether there are no more.
        """
        height, size, positions = afterHeight, 0, []
        try:
            with closing(
                self._reading.execute(
                    "SELECT height, positions FROM topic_block WHERE topic = ? AND height > ? "
                    "ORDER BY height",
                    (topicIndex, afterHeight),
                )
            ) as rows:
                for height, packed in rows:
                    positions.append(packed)
                    size += len(packed)
                    if len(positions) == _BLOCKS_A_PIECE or size > _INDEX_BYTES_A_PIECE:
                        return height, sumOfLengths(b"".join(positions)), False
            return height, sumOfLengths(b"".join(positions)), True
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        except (TypeError, struct.error) as error:
            raise self._damage(f"the index of topic {topicIndex} is not made of bytes") from error

    def locateTransaction(self, position: int) -> TransactionPlace | None:
        """
        The place of the chain's transaction of this number, counted from 0; C{None} where the
        chain has no such transaction. Takes as many small reads as the number of blocks has
        binary digits.
        """
        tip = self.tip()
        if tip is None or not 0 <= position < tip.transactionTotal:
            return None
        low, high, before = 1, tip.height, 0
        while low < high:
            middle = (low + high) // 2
            rows = self._rows("SELECT transaction_total FROM head WHERE height = ?", middle)
            if not rows:
                raise self._damage(f"block {middle} is missing")
            total: int = rows[0][0]
            if total > position:
                high = middle
            else:
                low, before = middle + 1, total
        return TransactionPlace(height=low, index=position - before)

    def findTransaction(
        self, hash: bytes, *, newestFirst: bool = True, segmentsPerStep: int = 32
    ) -> Iterator[Sequence[TransactionPlace]]:
        """
        Look for a transaction through the whole chain, in steps of bounded work: between any
        two of them the caller may do something else, or give up.

        Each step gives the places, in the order of the search, whose first 4 bytes of hash
        are the wanted ones: mostly none. The caller reads the block and compares the whole
        hash. Transactions appended after the first step may or may not be looked at.

        @param hash: the hash, or at least its first 4 bytes.
        @param segmentsPerStep: how much to look at in one step, in units of 512 transactions;
            the default takes 0.1 ms from memory, and some 2 ms from a cold disk.
        """
        if len(hash) < PRINT_SIZE:
            raise ValueError("a hash has at least 4 bytes")
        return self._findPrint(hash[:PRINT_SIZE], newestFirst, segmentsPerStep)

    def topics(self) -> Iterator[TopicRow]:
        """
        All topics, in the order of creation.

        @raise StorageDamaged: the prefix of one is not that of its name, so its events would not
            be found.
        """
        columns = "prefix, name, address, sender, created, is_open, sequence, height, authors"
        for index, prefix, name, address, sender, created, *changing in self._all("topic", columns):
            isOpen, sequence, height, authors = changing
            numbers = created, isOpen, sequence, height
            isTyped = all(isinstance(each, int) for each in numbers)
            isTyped &= isinstance(address, bytes) and isinstance(sender, bytes)
            if not isTyped or not isinstance(authors, bytes | None):
                raise self._damage(f"topic {index} is not made of bytes and numbers")
            if not isinstance(name, str) or prefix != int(topicPrefix(name), 16):
                raise self._damage(f"topic {index} has the prefix of another name")
            yield TopicRow(
                index=index,
                topic=Topic(
                    name=name,
                    address=address,
                    sender=sender,
                    created=created,
                    isOpen=bool(isOpen),
                    sequence=sequence,
                    height=height,
                    authors=self._authors(index, authors),
                ),
            )

    def _authors(self, index: int, encoded: Any) -> AuthorSet | None:
        if encoded is None:
            return None
        try:
            return decodeAuthors(encoded)
        except (Malformed, TypeError) as error:
            raise self._damage(f"the authors of topic {index} are none") from error

    def findUses(self, wanted: Iterable[OwnedKey]) -> dict[OwnedKey, KeyUse]:
        """
        The uses of some idempotency keys that are in force; keys without one are left out. The
        digest of a use is C{None} where the event is erased.
        """
        return findUses(self._rows, wanted)

    def digestOf(self, use: KeyUse) -> bytes | None:
        """
        The digest that is stored with a use, whether its event is erased or not; C{None} where it
        was removed.
        """
        rows = self._rows(
            "SELECT digest FROM key_use WHERE owner = ? AND number = ?", use.owner, use.number
        )
        return rows[0][0] if rows else None

    def countUses(self, owner: bytes) -> int:
        """
        The number of the latest use of any key of an owner; 0 where there is none.
        """
        return countUses(self._rows, owner)

    def erasure(self, topicIndex: int, sequence: int) -> ErasedRange | None:
        """
        The erased events that an event is among; C{None} where it is not erased.
        """
        return next(iter(self.erasures(topicIndex, sequence, sequence)), None)

    def erasureOf(self, topic: str, sequence: int) -> ErasedRange | None:
        """
        The erased events that an event is among; C{None} where it is not erased.

        @param topic: the name of its topic.
        """
        rows = self._rows(
            "SELECT idx FROM topic WHERE prefix = ? AND name = ?",
            int(topicPrefix(topic), 16),
            topic,
        )
        return self.erasure(rows[0][0], sequence) if rows else None

    def topicName(self, index: int) -> str:
        """
        The name of a topic; empty where there is no such topic.
        """
        rows = self._rows("SELECT name FROM topic WHERE idx = ?", index)
        return rows[0][0] if rows else ""

    def erasures(self, topicIndex: int, first: int, last: int) -> Sequence[ErasedRange]:
        """
        The erased events of a topic that some consecutive events are among, rising.

        @param first: the sequence number of the first of these; C{last}: that of the last.
        """
        return findErasures(self._rows, topicIndex, first, last)

    def holds(self) -> Holds:
        """
        The holds that are in force.

        @raise Malformed: they are damaged.
        """
        return readHolds(self._rows)

    def holdPlaces(self, before: tuple[int, int], limit: int) -> Sequence[HoldPlace]:
        """
        The holds before a place, released or not, the latest first.

        @param before: a height, and an index in its block.
        @param limit: the most to answer.
        """
        return readPlaces(self._rows, before, limit)

    def releasedHold(self, place: HoldPlace) -> ReleasedHold:
        """
        A hold that was released.

        @raise Malformed: it is damaged.
        """
        return readReleased(self._rows, place)

    def isErasing(self) -> bool:
        """
        Whether there may be bodies with contents of erased events.
        """
        return bool(self._rows("SELECT 1 FROM erasing WHERE height < ? LIMIT 1", _REMOVED))

    def senders(self) -> Iterator[SenderRow]:
        """
        All accounts, in the order of creation.
        """
        for index, address, state in self._all("account", "address, state"):
            if not (isinstance(address, bytes) and isinstance(state, bytes)):
                raise self._damage(f"account {index} is not made of bytes")
            yield SenderRow(index=index, address=address, state=state)

    def reservation(self) -> tuple[int, int]:
        """
        Height and round that were reserved last; C{(0, 0)} where none ever was.
        """
        rows = self._rows("SELECT height, round, again FROM reservation")
        if not rows:
            raise self._damage("the reservation is missing")
        height, round, again = rows[0]
        if again != f"{height}:{round}":
            raise self._damage("the reservation is not the one that was written")
        return height, round

    def historyNodes(self, level: int, first: int, count: int) -> Sequence[bytes]:
        """
        Inner nodes of the history tree, by rising position.

        @param level: a level that is kept.
        @param first: the position of the first one.
        @param count: the most to answer. Those that are not there are left out.
        """
        rows = self._rows(
            "SELECT hash FROM history WHERE level = ? AND position BETWEEN ? AND ? "
            "ORDER BY position",
            level,
            first,
            first + count - 1,
        )
        return [hash for (hash,) in rows]

    def blockHashes(self, first: int, count: int) -> Sequence[bytes]:
        """
        The hashes of up to C{count} blocks from a height on, in order.
        """
        rows = self._rows(
            "SELECT hash FROM head WHERE height BETWEEN ? AND ? ORDER BY height",
            first,
            first + count - 1,
        )
        return [hash for (hash,) in rows]

    def validatorSets(self) -> Sequence[ValidatorsRow]:
        """
        The validator sets that came after the first one, in order.
        """
        rows = self._rows(
            "SELECT generation, height, encoded FROM validator_set ORDER BY generation"
        )
        return [
            ValidatorsRow(generation=generation, height=height, encoded=encoded)
            for generation, height, encoded in rows
        ]

    def _findPrint(
        self, wanted: bytes, newestFirst: bool, segments: int
    ) -> Iterator[Sequence[TransactionPlace]]:
        last: int | None = self._rows("SELECT MAX(segment) FROM fingerprint")[0][0]
        if last is None:
            return
        starts = range(0, last + 1, segments)
        direction = "DESC" if newestFirst else "ASC"
        for start in reversed(starts) if newestFirst else starts:
            places = []
            for segment, prints in self._rows(
                "SELECT segment, prints FROM fingerprint WHERE segment BETWEEN ? AND ? "
                f"ORDER BY segment {direction}",
                start,
                start + segments - 1,
            ):
                numbers = findItem(prints, wanted)
                for number in reversed(numbers) if newestFirst else numbers:
                    place = self.locateTransaction(segment * SEGMENT + number)
                    if place is None:
                        raise self._damage("there are more fingerprints than transactions")
                    places.append(place)
            yield places

    def _all(self, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
        after = -1
        while rows := self._rows(
            f"SELECT idx, {columns} FROM {table} WHERE idx > ? ORDER BY idx LIMIT {_LOAD_ROWS}",
            after,
        ):
            yield from rows
            after = rows[-1][0]

    def _head(self, row: Sequence[Any]) -> BlockHeadRow:
        height, hash, header, certificate, total, shared = row
        header = wholeHeader(header, shared, height)
        # A damaged row may have a value of any type.
        isTyped = isinstance(hash, bytes) and isinstance(header, bytes)
        if not (isTyped and isinstance(certificate, bytes) and isinstance(total, int)):
            raise self._damage(f"the head of block {height} is not made of bytes and numbers")
        return BlockHeadRow(
            height=height,
            hash=hash,
            header=header,
            certificate=certificate,
            transactionTotal=total,
        )

    def _topicBlock(self, row: tuple[Any, ...]) -> TopicBlockRow:
        topicIndex, height, firstSequence, positions = row
        if not (isinstance(firstSequence, int) and isinstance(positions, bytes)):
            raise self._damage(f"the index of block {height} is not made of bytes and numbers")
        return TopicBlockRow(
            topicIndex=topicIndex,
            height=height,
            firstSequence=firstSequence,
            positions=positions,
        )
