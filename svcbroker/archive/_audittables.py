"""
The audit of a file's tables: its schema, and the rows that follow from executing the chain, of
idempotency keys and erased events too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from ..chain import ChainState, Hold, Malformed, Transaction, ValidatorSet, encodeAuthors
from ..model import topicPrefix
from ..storage import (
    POSITION_SIZE,
    PRINT_SIZE,
    SEGMENT,
    Append,
    ScratchKeys,
    Snapshot,
    StorageError,
    compatibility,
    gapsIn,
)
from ._eraser import EventRanges, eventsOf
from ._findings import Findings, difference, isSame, show

_SEGMENT_SIZE: Final = PRINT_SIZE * SEGMENT
_SHOWN_PROBLEMS: Final = 20

_TOPIC: Final = (
    *("prefix", "name", "address", "sender", "created", "is_open", "sequence", "height"),
    "authors",
)
_ACCOUNT: Final = ("address", "state")


_HOLD: Final = (
    *("height", "position", "name", "time", "entry"),
    *("released_height", "released_position", "released_time", "release"),
)
_USE: Final = ("key", "topic", "sequence", "height", "digest")
_ERASED: Final = ("last", "height", "position")
_END: Final = 2**63 - 1


def auditStructure(snapshot: Snapshot, name: str, findings: Findings) -> bool:
    """
    Check that a file has the expected schema, and that SQLite finds no corruption in it.

    @param name: the file's name, for the findings.
    @return: whether its tables can be read.
    """
    try:
        problem = snapshot.logProblem()
        if problem:
            findings.damage(f"{name}-wal", problem)
        with snapshot.moment():
            missing, added = snapshot.compareContents()
            if snapshot.isNewer:
                findings.note(name, "a later svcbroker wrote it; what that adds is not audited")
            for each in missing:
                findings.damage(name, f"{show(each)} is not the one that svcbroker makes")
            for each in added:
                findings.damage(name, f"{show(each)} should not be there")
            for problem in snapshot.problems(_SHOWN_PROBLEMS):
                findings.damage(name, f"SQLite finds: {problem}")
    except (StorageError, OSError) as error:
        findings.damage(name, f"it cannot be read: {error}")
        return False
    return not missing


class RowAuditor:
    """
    Compares the immutable rows that blocks add, a batch of blocks at a time.
    """

    def __init__(self, snapshot: Snapshot, findings: Findings) -> None:
        self._snapshot = snapshot
        self._found = findings
        self._positions: dict[int, dict[int, tuple[int, bytes]]] = defaultdict(dict)
        self._history: dict[tuple[int, int], tuple[int, bytes]] = {}
        self._sets: dict[int, tuple[int, bytes]] = {}
        self._prints = b""
        self._segment = 0
        self._rowsOfTopic: dict[int, int] = defaultdict(int)
        self._counts = {"history": 0, "validator_set": 0, "fingerprint": 0}

    def add(self, append: Append) -> None:
        """Add the rows that must be stored for a block."""
        height = append.block.height
        for row in append.topicBlocks:
            self._positions[row.topicIndex][height] = (row.firstSequence, row.positions)
            self._rowsOfTopic[row.topicIndex] += 1
        for node in append.history:
            self._history[node.level, node.position] = (height, node.hash)
        if append.validators is not None:
            self._sets[append.validators.generation] = (height, append.validators.encoded)
        self._prints += b"".join([hash[:PRINT_SIZE] for hash in append.transactionHashes])

    def compare(self, isLast: bool, isComplete: bool) -> None:
        """
        Compare the rows added since the last call.

        @param isLast: whether no block follows.
        @param isComplete: whether rows were added for all blocks so far; where execution has ended
            before, there may be more fingerprints than were added.
        @raise StorageError: it cannot be read.
        """
        for topic, expected in self._positions.items():
            self._comparePositions(topic, expected)
        self._positions.clear()
        for (level, position), (height, hash) in self._history.items():
            self._compareOne("history", ("hash",), (hash,), height, level=level, position=position)
        self._history.clear()
        for generation, row in self._sets.items():
            columns = ("height", "encoded")
            self._compareOne("validator_set", columns, row, row[0], generation=generation)
        self._sets.clear()
        self._comparePrints(isLast, isComplete)

    def _comparePositions(self, topic: int, expected: Mapping[int, tuple[int, bytes]]) -> None:
        rows = self._snapshot.rows(
            "SELECT height, first_sequence, positions FROM topic_block "
            "WHERE topic = ? AND height BETWEEN ? AND ?",
            topic,
            min(expected),
            max(expected),
        )
        found = {height: (first, positions) for height, first, positions in rows}
        for height in sorted({*expected, *found}, key=_order):
            place = f"topic_block of topic {topic}"
            if height not in found:
                self._found.damage(place, "the row is missing", height)
            elif height not in expected:
                self._found.damage(place, f"the row of block {show(height)} should not be there")
            else:
                names = ("first_sequence", "positions")
                for name, must, is_ in zip(names, expected[height], found[height], strict=True):
                    if not isSame(must, is_):
                        self._found.differ(
                            f"topic_block.{name} of topic {topic}", must, is_, height
                        )

    def _compareOne(
        self, table: str, columns: Sequence[str], row: Sequence[object], height: int, **key: int
    ) -> None:
        where = " AND ".join(f"{name} = ?" for name in key)
        said = ", ".join(f"{name} {value}" for name, value in key.items())
        rows = list(
            self._snapshot.rows(
                f"SELECT {', '.join(columns)} FROM {table} WHERE {where}", *key.values()
            )
        )
        self._counts[table] += 1
        if not rows:
            self._found.damage(f"{table} of {said}", "the row is missing", height)
            return
        for name, must, is_ in zip(columns, row, rows[0], strict=True):
            if not isSame(must, is_):
                self._found.differ(f"{table}.{name} of {said}", must, is_, height)

    def _comparePrints(self, isLast: bool, isComplete: bool) -> None:
        size = len(self._prints)
        full = size if isLast else size - size % _SEGMENT_SIZE
        first = self._segment
        expected = {
            first + number: self._prints[start : start + _SEGMENT_SIZE]
            for number, start in enumerate(range(0, full, _SEGMENT_SIZE))
        }
        self._segment += len(expected)
        self._counts["fingerprint"] += len(expected)
        self._prints = self._prints[full:]
        rows = self._snapshot.rows(
            "SELECT segment, prints FROM fingerprint WHERE segment BETWEEN ? AND ?",
            first,
            self._segment - 1,
        )
        found = dict(rows)
        if not isComplete and isinstance(found.get(self._segment - 1), bytes):
            found[self._segment - 1] = found[self._segment - 1][: len(expected[self._segment - 1])]
        for segment, prints in expected.items():
            if segment not in found:
                self._found.damage(f"fingerprint of segment {segment}", "the row is missing")
            elif prints != found[segment]:
                self._found.damage(
                    f"fingerprint.prints of segment {segment}",
                    self._printProblem(segment, prints, found[segment]),
                )

    def _printProblem(self, segment: int, prints: bytes, found: object) -> str:
        problem = difference(prints, found)
        if isinstance(found, bytes) and len(found) == len(prints):
            place = next(i for i in range(len(prints)) if prints[i] != found[i]) // PRINT_SIZE
            problem += f", of transaction {segment * SEGMENT + place} of the chain"
        return problem

    def compareCounts(self) -> None:
        """
        Look for rows that no block has added. Called once all rows have been compared.

        @raise StorageError: they cannot be read.
        """
        for table, count in self._counts.items():
            ((found,),) = self._snapshot.rows(f"SELECT count(*) FROM {table}")
            if found > count:
                self._found.damage(table, f"has {found} rows, and {count} belong to the chain")
        for topic, found in self._snapshot.rows(
            "SELECT topic, count(*) FROM topic_block GROUP BY topic"
        ):
            count = self._rowsOfTopic.get(topic, 0)
            if found > count:
                self._found.damage(
                    f"topic_block of topic {show(topic)}",
                    f"has {found} rows, and {count} belong to the chain" + self._firstStray(topic),
                )

    def _firstStray(self, topic: object) -> str:
        """The place where the sequence numbers stop being consecutive."""
        following = 1
        for height, first, positions in self._snapshot.rows(
            "SELECT height, first_sequence, positions FROM topic_block WHERE topic = ? "
            "ORDER BY height",
            topic,
        ):
            if first != following or not isinstance(positions, bytes):
                return f"; see block {show(height)}"
            following += len(positions) // POSITION_SIZE
        return ""


def compareState(snapshot: Snapshot, state: ChainState, findings: Findings) -> None:
    """
    Compare topics and accounts with what they are after the last block.

    @raise StorageError: they cannot be read.
    """
    topics = (state.topicAt(index) for index in range(state.topicCount))
    _compareList(
        snapshot,
        findings,
        "topic",
        _TOPIC,
        (
            (
                int(topicPrefix(topic.name), 16),
                topic.name,
                topic.address,
                topic.sender,
                topic.created,
                int(topic.isOpen),
                topic.sequence,
                topic.height,
                None if topic.authors is None else encodeAuthors(topic.authors),
            )
            for topic in topics
        ),
    )
    _compareList(
        snapshot,
        findings,
        "account",
        _ACCOUNT,
        ((address, nonces.encode()) for address, nonces in state.senders),
    )


def _compareList(
    snapshot: Snapshot,
    findings: Findings,
    table: str,
    columns: Sequence[str],
    expected: Iterable[Sequence[object]],
) -> None:
    rows = snapshot.rows(f"SELECT idx, {', '.join(columns)} FROM {table} ORDER BY idx")
    row: tuple[Any, ...] | None = next(rows, None)
    index = -1
    for index, values in enumerate(expected):
        row = _skip(rows, row, index, table, findings)
        if row is None or row[0] > index:
            findings.damage(f"{table} {index}", f"the row of {show(values[0])} is missing")
            continue
        for name, must, is_ in zip(columns, values, row[1:], strict=True):
            if not isSame(must, is_):
                findings.differ(f"{table}.{name} of {table} {index}", must, is_)
        row = next(rows, None)
    while row is not None:
        findings.damage(f"{table} {row[0]}", "the row should not be there")
        row = next(rows, None)


def _skip(
    rows: Iterator[tuple[Any, ...]],
    row: tuple[Any, ...] | None,
    index: int,
    table: str,
    findings: Findings,
) -> tuple[Any, ...] | None:
    while row is not None and row[0] < index:
        findings.damage(f"{table} {row[0]}", "the row should not be there")
        row = next(rows, None)
    return row


def compareBases(snapshot: Snapshot, used: Mapping[object, bool], findings: Findings) -> None:
    """
    Look for parts of headers that are of no block.

    @param used: the numbers that blocks have, and whether one of their headers is whole.
    @raise StorageError: they cannot be read.
    """
    for (number,) in snapshot.rows("SELECT number FROM header_base ORDER BY number"):
        if not used.get(number):
            problem = "no header that has it is whole" if number in used else "no block has it"
            findings.damage(f"header_base of number {number}", problem)


def compareReservation(snapshot: Snapshot, height: int, findings: Findings) -> None:
    """
    Check the reservation of consensus rounds.

    @param height: the height of the last block.
    @raise StorageError: they cannot be read.
    """
    rows = list(snapshot.rows("SELECT id, height, round, again FROM reservation"))
    if len(rows) != 1:
        findings.damage("reservation", f"has {len(rows)} rows instead of one")
        return
    key, reserved, round, again = rows[0]
    if key != 0:
        findings.differ("reservation.id", 0, key)
    if type(reserved) is not int or type(round) is not int or reserved < 0 or round < 0:
        findings.damage("reservation", f"{show(reserved)} and {show(round)} are no round")
    elif again != f"{reserved}:{round}":
        findings.damage(
            "reservation",
            f"height and round are {reserved}:{round}, and in the column 'again' {show(again)}",
        )
    elif reserved > height + 1:
        findings.damage(
            "reservation",
            f"a round of block {reserved} was set aside, so blocks after {height} are missing",
        )


def compareCompacted(snapshot: Snapshot, height: int, findings: Findings) -> None:
    """
    Check up to where rows were written close together.

    @param height: the height of the last block.
    @raise StorageError: it cannot be read.
    """
    rows = list(snapshot.rows("SELECT id, height, again FROM compacted"))
    if len(rows) != 1 or rows[0][0] != 0:
        findings.damage("compacted", f"has {len(rows)} rows instead of one")
    elif type(rows[0][1]) is not int or not 0 <= rows[0][1] <= height:
        findings.damage("compacted.height", f"{show(rows[0][1])} is no height of the chain")
    elif rows[0][2] != str(rows[0][1]):
        findings.differ("compacted.again", str(rows[0][1]), rows[0][2])


def compareCompatible(snapshot: Snapshot, findings: Findings) -> None:
    """
    Check which software may use the file, by the rows for the schemas that this one knows. A file
    has those of its own schema and of the ones before.

    @raise StorageError: they cannot be read.
    """
    expected = [row for row in compatibility() if row[0] <= snapshot.version]
    if not expected:
        return  # it is older than the table
    newest = expected[-1][0]
    found = list(
        snapshot.rows(
            "SELECT version, since, release FROM compatible WHERE version <= ? OR version > ? "
            "ORDER BY version",
            newest,
            max(newest, snapshot.version),
        )
    )
    if not isSame(expected, found):
        findings.differ("compatible", expected, found)


def storedSets(snapshot: Snapshot) -> Mapping[bytes, ValidatorSet]:
    """
    The stored validator sets by their hashes, unchecked.
    """
    sets: dict[bytes, ValidatorSet] = {}
    try:
        for (encoded,) in snapshot.rows("SELECT encoded FROM validator_set"):
            try:
                decoded = ValidatorSet.decode(encoded)
            except (Malformed, TypeError):
                continue
            sets[decoded.hash] = decoded
    except StorageError:
        # The comparison of the table reports it.
        return sets
    return sets


class HoldAuditor:
    """
    Compares the tables of holds with those that come of executing the chain.
    """

    def __init__(self, snapshot: Snapshot, findings: Findings) -> None:
        self._snapshot = snapshot
        self._found = findings
        # By case the row of the hold in force, and all rows by their places.
        self._inForce: dict[str, tuple[int, int]] = {}
        self._rows: dict[tuple[int, int], list[object]] = {}

    def add(self, append: Append) -> None:
        """Add the holds and releases of a block."""
        for each in append.holds:
            place = each.height, each.position
            if isinstance(each.content, Hold):
                self._inForce[each.content.case] = place
                row = [*place, each.content.case, each.time, _digest(each.entry)]
                self._rows[place] = [*row, None, None, None, None]
            else:
                row = self._rows[self._inForce.pop(each.content.case)]
                row[-4:] = [*place, each.time, _digest(each.entry)]

    def compare(self) -> None:
        """
        Compare the tables with those after the last block.

        @raise StorageError: they cannot be read.
        """
        found = {}
        for row in self._snapshot.rows(f"SELECT {', '.join(_HOLD)} FROM hold"):
            found[row[:2]] = [_digest(each) if isinstance(each, bytes) else each for each in row]
        for place in sorted({*self._rows, *found}, key=repr):
            said = f"hold of transaction {show(place[1])} of block {show(place[0])}"
            if place not in found:
                self._found.damage(said, "the row is missing")
            elif place not in self._rows:
                self._found.damage(said, "the row should not be there")
            else:
                for name, must, is_ in zip(_HOLD, self._rows[place], found[place], strict=True):
                    if not isSame(must, is_):
                        self._found.differ(f"{said}: {name}", must, is_)
        count = len(self._inForce)
        rows = list(self._snapshot.rows("SELECT id, count, again FROM holding"))
        if not isSame([(0, count, str(count))], rows):
            self._found.differ("holding", [(0, count, str(count))], rows)


def _digest(entry: bytes) -> bytes:
    """The SHA-256 of an entry, which is kept in its place while a chain is executed."""
    return sha256(entry).digest()


def _order(height: object) -> tuple[bool, Any]:
    return not isinstance(height, int), height


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
