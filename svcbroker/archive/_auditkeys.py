"""
Auditing what a chain has of idempotency keys and erased events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from ..chain import RECEIPT_SIZE, Kind, Transaction
from ..model import Execution
from ..storage import POSITION_SIZE, Append, ScratchKeys, Snapshot, gapsIn
from ._findings import Findings, isSame, show

_USE: Final = ("key", "topic", "sequence", "height", "digest")
_ERASED: Final = ("last", "height", "position")
_END: Final = 2**63 - 1


class EventRanges:
    """
    Sequence numbers of events, as ranges: most are consecutive.
    """

    def __init__(self) -> None:
        self._ranges: dict[int, list[tuple[int, int]]] = {}

    def add(self, topic: int, sequence: int) -> None:
        """
        Add an event. The numbers of a topic rise.

        @param topic: the topic's index.
        """
        ranges = self._ranges.setdefault(topic, [])
        if ranges and ranges[-1][1] == sequence - 1:
            ranges[-1] = ranges[-1][0], sequence
        else:
            ranges.append((sequence, sequence))

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        """The index of the topic, and the first and the last sequence number, of each range."""
        for topic, ranges in self._ranges.items():
            for first, last in ranges:
                yield topic, first, last


class KeyAuditor:
    """
    Compares the tables of idempotency keys and of erased events with those that come of executing
    the chain, and the contents that are missing in bodies with the erasures.

    @ivar keys: what comes of executing the chain.
    @ivar erased: how many events were erased. Known once L{compare} was called.
    """

    def __init__(self, snapshot: Snapshot, findings: Findings) -> None:
        self.keys = ScratchKeys()
        self.erased = 0
        self._snapshot = snapshot
        self._found = findings
        self._missing = EventRanges()
        self._empty = EventRanges()

    def close(self) -> None:
        """Remove the temporary file."""
        self.keys.close()

    def add(self, transactions: Sequence[Transaction], append: Append) -> None:
        """
        Look for missing contents in a block.

        @param append: the rows that must be stored for it.
        """
        if all(each.content or each.kind is not Kind.PUBLISH for each in transactions):
            return
        indexes = {row.topic.name: row.index for row in append.topics}
        following = {row.topicIndex: row.firstSequence for row in append.topicBlocks}
        receipts = append.block.receipts
        for number, transaction in enumerate(transactions):
            if (
                transaction.kind is Kind.PUBLISH
                and receipts[number * RECEIPT_SIZE] == Execution.DONE
            ):
                index = indexes[transaction.topic]
                sequence = following[index]
                following[index] += 1
                if transaction.isErased:
                    self._missing.add(index, sequence)
                elif not transaction.seal and not transaction.content:
                    self._empty.add(index, sequence)

    def compare(self) -> None:
        """
        Compare the tables with those after the last block. Called in the read transaction in which
        the last block was read.

        @raise StorageError: they cannot be read.
        """
        self._compareUses()
        self._compareErased()
        self._comparePending()
        self._compareContents()

    def _compareUses(self) -> None:
        count = 0
        for use in self.keys.uses():
            count += 1
            row = self._row("key_use", _USE, ("owner", use.owner), ("number", use.number))
            if row is None:
                continue
            expected = (use.key, use.topic, use.sequence, use.height, use.digest)
            for name, must, is_ in zip(_USE, expected, row, strict=True):
                isErased = (
                    name == "digest"
                    and is_ is None
                    and self.keys.erasures(use.topic, use.sequence, use.sequence)
                )
                if not isSame(must, is_) and not isErased:
                    self._found.differ(_said("key_use", use.owner, use.number, name), must, is_)
        self._compareCount("key_use", count)

    def _compareErased(self) -> None:
        count = 0
        for each in self.keys.erased():
            count += 1
            self.erased += each.last - each.first + 1
            row = self._row("erased", _ERASED, ("topic", each.topic), ("first", each.first))
            expected = (each.last, each.height, each.position)
            for name, must, is_ in zip(_ERASED, expected, row or expected, strict=True):
                if not isSame(must, is_):
                    self._found.differ(_said("erased", each.topic, each.first, name), must, is_)
        self._compareCount("erased", count)

    def _row(self, table: str, columns: Sequence[str], *key: tuple[str, Any]) -> Any:
        rows = list(
            self._snapshot.rows(
                f"SELECT {', '.join(columns)} FROM {table} WHERE "
                + " AND ".join(f"{name} = ?" for name, _ in key),
                *(value for _, value in key),
            )
        )
        if not rows:
            said = _said(table, *(value for _, value in key))
            self._found.damage(said, "the row is missing")
            return None
        return rows[0]

    def _compareCount(self, table: str, count: int) -> None:
        ((found,),) = self._snapshot.rows(f"SELECT count(*) FROM {table}")
        if found > count:
            self._found.damage(table, f"has {found} rows, and {count} belong to the chain")

    def _comparePending(self) -> None:
        """Nothing may be removed that was not erased."""
        for height, topic, first, last in self._snapshot.rows(
            "SELECT height, topic, first, last FROM erasing"
        ):
            isTyped = all(type(each) is int for each in (height, topic, first, last))
            if not isTyped or first > last or self._gaps(topic, first, last):
                self._found.damage(
                    "erasing", f"events {show(first)} to {show(last)} were not all erased"
                )
            elif height not in (0, _END) and not list(
                self._snapshot.rows(
                    "SELECT 1 FROM topic_block WHERE topic = ? AND height = ? "
                    "AND ? BETWEEN first_sequence AND first_sequence + length(positions) / "
                    f"{POSITION_SIZE} - 1",
                    topic,
                    height,
                    first,
                )
            ):
                self._found.damage(
                    "erasing", f"event {first} of topic {topic} is not in block {height}"
                )

    def _compareContents(self) -> None:
        """Nothing may be missing that was not erased."""
        gone = 0
        for topic, first, last in self._missing:
            gone += last - first + 1
            for start, end in self._gaps(topic, first, last):
                gone -= end - start + 1
                self._found.damage(
                    "body.body",
                    f"the contents of events {start} to {end} of topic {topic} are missing, and "
                    "nothing has erased them",
                )
        for topic, first, last in self._empty:
            gone += last - first + 1
            gone -= sum(end - start + 1 for start, end in self._gaps(topic, first, last))
        if gone < self.erased:
            self._found.note(
                "body.body",
                f"{self.erased - gone} erased events still have their contents: a broker removes "
                "them while it runs",
            )

    def _gaps(self, topic: int, first: int, last: int) -> Sequence[tuple[int, int]]:
        """The parts of a range of events that were not erased."""
        return gapsIn(self.keys.erasures(topic, first, last), first, last)


def _said(table: str, one: object, other: object, column: str = "") -> str:
    """The name of a column, or of a row."""
    column = f".{column}" if column else ""
    if isinstance(one, bytes):
        return f"{table}{column} of owner {one.hex()}, number {other}"
    return f"{table}{column} of topic {one}, event {other}"
