"""
Auditing what a chain has of idempotency keys and erased events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ..chain import Transaction
from ..storage import POSITION_SIZE, Append, ScratchKeys, Snapshot, gapsIn
from ._erasing import EventRanges, eventsOf
from ._findings import Findings, isSame, show

_USE: Final = ("key", "topic", "sequence", "height", "digest")
_ERASED: Final = ("last", "height", "position")
_END: Final = 2**63 - 1


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
        self._empty = EventRanges()

    def close(self) -> None:
        """Remove the temporary file."""
        self.keys.close()

    def add(self, transactions: Sequence[Transaction], append: Append) -> None:
        """
        Look for events without content in a block.

        @param append: the rows that must be stored for it.
        """
        if all(each.content or each.seal or each.isErased for each in transactions):
            return
        for topic, sequence, transaction in eventsOf(transactions, append):
            if not (transaction.content or transaction.seal or transaction.isErased):
                self._empty.add(topic, sequence)

    def compare(self, missing: EventRanges) -> None:
        """
        Compare the tables with those after the last block. Called in the read transaction in which
        the last block was read.

        @param missing: the events whose contents are missing.
        @raise StorageError: they cannot be read.
        """
        self._compareUses()
        self._compareErased()
        self._comparePending()
        self._compareContents(missing)

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
            if (
                not isTyped
                or first > last
                or gapsIn(self.keys.erasures(topic, first, last), first, last)
            ):
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

    def _compareContents(self, missing: EventRanges) -> None:
        """Nothing may be missing that was not erased."""
        notErased = list(missing.without(self.keys.erasures))
        for topic, first, last in notErased:
            self._found.damage(
                "body.body",
                f"the contents of events {first} to {last} of topic {topic} are missing, and "
                "nothing has erased them",
            )
        gone = missing.count + self._empty.count
        gone -= sum(last - first + 1 for _, first, last in notErased)
        gone -= sum(last - first + 1 for _, first, last in self._empty.without(self.keys.erasures))
        if gone < self.erased:
            said = f"{self.erased - gone} erased events still have their contents"
            waiting = f"SELECT 1 FROM erasing WHERE height < {_END} LIMIT 1"
            if list(self._snapshot.rows(waiting)):
                self._found.note("body.body", f"{said}: a broker removes them while it runs")
            else:
                self._found.damage("erasing", f"{said}, and none of them is to be removed")


def _said(table: str, one: object, other: object, column: str = "") -> str:
    """The name of a column, or of a row."""
    column = f".{column}" if column else ""
    if isinstance(one, bytes):
        return f"{table}{column} of owner {one.hex()}, number {other}"
    return f"{table}{column} of topic {one}, event {other}"
