"""
Reading a chain of which some bytes were changed on disk.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace
from twisted.internet.defer import maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import loadChain
from svcbroker.chain import Kind, Malformed, TransactionReceipt, encodeReceipts
from svcbroker.errors import EventNotFound, LedgerUnavailable
from svcbroker.interfaces import LedgerContext
from svcbroker.ledgers import _storedledger
from svcbroker.ledgers._storedledger import LOG_PERIOD, MAX_REASONS, LedgerReader, StoredLedger
from svcbroker.model import Block, Event, EventId, Execution, topicPrefix
from svcbroker.storage import StorageError, StorageRefused, Store
from svcbroker.storage._files import openReading
from svcbroker.storage._reader import ChainReader as StoreReader
from tools.vectors.signedchain import SignedChain

HEIGHT = 6
"""The height of the block that is damaged: the middle one."""

REFUSED = (StorageError, Malformed)


class DamageTestCase(SynchronousTestCase):
    """
    A chain with some blocks of two topics, in a file that no connection has open.

    @ivar events: all events, as they were published.
    @ivar blocks: all blocks, by height.
    """

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.path = directory / "ledger.sqlite"
        chain = SignedChain(directory)
        chain.open("a", "b")
        for number in range(2, 10):
            chain.decide(
                [
                    chain.transaction(
                        Kind.PUBLISH,
                        "ab"[place % 2],
                        b"content %d of block %d" % (place, number),
                        {"svc-tag": f"t{place}"} if place % 3 else None,
                    )
                    for place in range(number)
                ]
            )
        self.genesis, self.state = chain.genesis, loadChain(chain.store).state
        reader = LedgerReader(self.state, chain.store, lambda: 0.0, lambda: succeed(None))
        self.blocks = {height: reader.readBlock(height) for height in range(1, 10)}
        self.events = [event for block in self.blocks.values() for event in block.events]
        chain.close()
        self.whole = self.path.read_bytes()
        self.connections: list[sqlite3.Connection] = []

    def change(self, statement: str, *values: object) -> None:
        """Change some rows."""
        with closing(sqlite3.connect(self.path)) as connection:
            self.assertGreater(connection.execute(statement, values).rowcount, 0, statement)
            connection.commit()

    def restore(self, content: bytes | bytearray | None = None) -> None:
        """
        Replace the file. Its readers may not be used again.

        @param content: what to have in it; by default what it had at first.
        """
        for connection in self.connections:
            connection.close()
        self.path.write_bytes(self.whole if content is None else content)

    def reader(self, *, isResting: bool = False) -> LedgerReader:
        """
        A reader of the file as it is now.

        @param isResting: whether it hashes no blocks.
        """
        reader = LedgerReader(self.state, self.store(), lambda: 0.0, lambda: succeed(None))
        if isResting:
            reader._verifier._restsUntil = 1.0
        return reader

    def store(self) -> Store:
        """A reader of the file as it is now."""
        connection = openReading(self.path, connect=sqlite3.connect)
        self.connections.append(connection)
        self.addCleanup(connection.close)
        return StoreReader(self.path, connection)  # type: ignore[return-value]


class EventTests(DamageTestCase):
    """
    One event of the block is read.
    """

    def checkRefused(self, eventId: EventId) -> None:
        """Check that a read is refused, whether or not blocks are hashed."""
        for isResting in (False, True):
            reader = self.reader(isResting=isResting)
            self.assertRaises(REFUSED, reader.getEvent, eventId)
            self.assertRaises(REFUSED, reader.locate, eventId)

    def changeBody(self, old: bytes, new: bytes) -> None:
        """Change bytes in the body of the block."""
        self.assertEqual(len(old), len(new))
        with closing(sqlite3.connect(self.path)) as connection:
            [(body,)] = connection.execute("SELECT body FROM body WHERE height = ?", (HEIGHT,))
        self.assertEqual(body.count(old), 1)
        self.change("UPDATE body SET body = ? WHERE height = ?", body.replace(old, new), HEIGHT)

    def test_changedContentIsRefused(self) -> None:
        self.changeBody(b"content 4 of", b"content 4 ov")
        event = self.blocks[HEIGHT].events[4]
        for isResting in (False, True):
            self.assertRaises(REFUSED, self.reader(isResting=isResting).getEvent, event.eventId)

    def test_changedExtensionIsRefused(self) -> None:
        self.changeBody(b"t4", b"t3")
        self.checkRefused(self.blocks[HEIGHT].events[4].eventId)

    def test_changedTopicIsRefused(self) -> None:
        """Even where the other topic has the same prefix, as far as the reader knows."""
        event = self.blocks[HEIGHT].events[4]
        self.assertEqual(event.topic, "a")
        with closing(sqlite3.connect(self.path)) as connection:
            [(body,)] = connection.execute("SELECT body FROM body WHERE height = ?", (HEIGHT,))
        end = body.index(b"\0\x01\0\x07\0\x02svc-tagt4")
        self.assertEqual(body[end - 1 : end], b"a")
        changed = body[: end - 1] + b"b" + body[end:]
        self.change("UPDATE body SET body = ? WHERE height = ?", changed, HEIGHT)
        self.checkRefused(event.eventId)

    def test_changedSenderIsRefused(self) -> None:
        """The bytes that a client does not see are part of the transaction's hash."""
        with closing(sqlite3.connect(self.path)) as connection:
            [(body,)] = connection.execute("SELECT body FROM body WHERE height = ?", (HEIGHT,))
        at = body.index(b"a\0\x01\0\x07\0\x02svc-tagt4") - 60
        changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        self.change("UPDATE body SET body = ? WHERE height = ?", changed, HEIGHT)
        self.checkRefused(self.blocks[HEIGHT].events[4].eventId)

    def test_changedIndexIsRefused(self) -> None:
        """Sequence numbers are those that the block has, present or absent in the index."""
        first = self.blocks[HEIGHT].events[0].eventId
        for shift in (-1, 1, 100):
            self.change(
                "UPDATE topic_block SET first_sequence = first_sequence + ? "
                "WHERE height = ? AND topic = 0",
                shift,
                HEIGHT,
            )
            self.checkRefused(first)
            self.restore()
        for change in (
            "DELETE FROM topic_block WHERE height = ?",
            "UPDATE topic_block SET positions = zeroblob(8) WHERE height = ?",
            "UPDATE topic_block SET positions = CAST(positions AS TEXT) WHERE height = ?",
            "UPDATE topic_block SET topic = topic + 2 WHERE height = ?",
            "UPDATE topic_block SET first_sequence = 'x' WHERE height = ?",
        ):
            self.change(change, HEIGHT)
            self.checkRefused(first)
            self.restore()

    def test_missingBodyIsRefused(self) -> None:
        self.change("DELETE FROM body WHERE height = ?", HEIGHT)
        self.checkRefused(self.blocks[HEIGHT].events[0].eventId)

    def test_changedHeaderIsRefused(self) -> None:
        """A changed header or hash of a block is refused."""
        eventId = self.blocks[HEIGHT].events[0].eventId
        for column in ("header", "hash"):
            self.change(
                f"UPDATE head SET {column} = CAST(substr({column}, 1, 9) || zeroblob(1) || "
                f"substr({column}, 11) AS BLOB) WHERE height = ?",
                HEIGHT,
            )
            reader = self.reader()
            self.assertRaises(REFUSED, reader.getEvent, eventId)
            self.assertRaises(REFUSED, reader.readBlock, HEIGHT)
            self.restore()

    def test_changedReceiptsAreRefused(self) -> None:
        self.change("UPDATE body SET receipts = zeroblob(length(receipts)) WHERE height = 6")
        self.checkRefused(self.blocks[HEIGHT].events[0].eventId)
        self.assertRaises(REFUSED, self.reader().readBlock, HEIGHT)

    def test_damagedBlockIsHashedOnce(self) -> None:
        """Its events are refused from then on, for the same reason."""
        self.changeBody(b"t4", b"t3")
        reader = self.reader()
        read = reader._store.block
        blocks: list[int] = []

        def block(height: int) -> object:
            blocks.append(height)
            return read(height)

        self.patch(reader._store, "block", block)
        reasons = {
            str(self.assertRaises(REFUSED, reader.getEvent, event.eventId))
            for event in self.blocks[HEIGHT].events
            for _ in range(2)
        }
        self.assertEqual(blocks, [HEIGHT])
        [reason] = reasons
        self.assertIn(f"block {HEIGHT}: ", reason)

    def test_changeAfterVerificationIsRefused(self) -> None:
        """The leaves of a block are cached, its events are not."""
        reader = self.reader()
        events = self.blocks[HEIGHT].events
        reader.getEvent(events[0].eventId)
        self.changeBody(b"t4", b"t3")
        self.assertRaises(REFUSED, reader.getEvent, events[4].eventId)
        self.assertEqual(reader.getEvent(events[1].eventId), replace(events[1], index=0))

    def test_unknownEventsAreNotFound(self) -> None:
        """Neither the index nor the block has them."""
        for isResting in (False, True):
            reader = self.reader(isResting=isResting)
            for topic, sequence in (("a", 0), ("a", 1), ("b", 99), ("c", 1)):
                eventId = EventId(topicPrefix(topic), sequence, HEIGHT)
                self.assertRaises(EventNotFound, reader.getEvent, eventId)

    def test_cacheIsBounded(self) -> None:
        """Blocks that were not read for the longest time leave it first."""
        size = 3 * (9 * 8 + _storedledger._ENTRY_BYTES)
        self.patch(_storedledger, "CACHED_BYTES", size)
        reader = self.reader()
        for event in self.events:
            reader.getEvent(event.eventId)
            self.assertLessEqual(reader._verifier._cached, size)
        self.assertEqual(list(reader._verifier._blocks), [7, 8, 9])
        reader.getEvent(self.blocks[7].events[0].eventId)
        self.assertEqual(list(reader._verifier._blocks), [8, 9, 7])

    def test_hashingTakesAShareOfTime(self) -> None:
        """After a block was hashed, others are not for a while; they are all hashed in the end."""
        clock = Clock()

        def seconds() -> float:
            clock.advance(0.5)
            return clock.seconds()

        reader = LedgerReader(self.state, self.store(), seconds, lambda: succeed(None))
        hashed = []
        for _ in range(20):
            for event in self.events:
                reader.getEvent(event.eventId)
                blocks = reader._verifier._blocks.values()
                hashed.append(sum(isinstance(block, _storedledger._Hashed) for block in blocks))
        # To hash a block takes one step of the clock, and so does each read of another block.
        steps = [hashed.index(number) for number in range(1, 9)]
        self.assertEqual(steps[0], 0)
        self.assertGreaterEqual(min(b - a for a, b in pairwise(steps)), _storedledger.REST)


class ListedTests(SynchronousTestCase):
    """
    A block whose transactions are found by their fingerprints and receipts.
    """

    RECEIPTS = (
        TransactionReceipt(Execution.DONE, 2**40 + 1),
        TransactionReceipt(Execution.PUBLISHED_BEFORE, 2**40 + 2),
        TransactionReceipt(Execution.DONE, 2**40 + 3),
    )
    PRINTS = (b"aaaa", b"bbbb", b"cccc")

    def indexes(self, sequence: int, hash: bytes, prints: bytes = b"".join(PRINTS)) -> list[int]:
        """The indexes that an event may have in the block."""
        block = _storedledger._Listed.of(prints, encodeReceipts(self.RECEIPTS))
        return list(block.indexes(EventId("00000000", sequence, HEIGHT), hash + b"rest"))

    def test_eventIsFoundByFingerprintAndReceipt(self) -> None:
        """Only a transaction that published an event of this number is found."""
        self.assertEqual(self.indexes(2**40 + 1, b"aaaa"), [0])
        self.assertEqual(self.indexes(2**40 + 3, b"cccc"), [2])
        self.assertEqual(self.indexes(2**40 + 3, b"aaaa"), [])
        self.assertEqual(self.indexes(2**40 + 2, b"aaaa"), [])
        self.assertEqual(self.indexes(2**40 + 2, b"bbbb"), [])

    def test_nothingIsFoundWhereSomeAreMissing(self) -> None:
        """A block without the fingerprints of all its transactions is damaged."""
        self.assertEqual(self.indexes(2**40 + 1, b"aaaa", b"aaaabbbb"), [])
        self.assertEqual(self.indexes(2**40 + 1, b"aaaa", b""), [])


class FileTests(DamageTestCase):
    """
    Any byte of the file is changed.
    """

    def read(self, reader: LedgerReader) -> tuple[int, int]:
        """
        Read everything; how much was answered and how much refused. Nothing is answered wrong.
        """
        answered = refused = 0

        def check(read: Callable[[], object], expected: object) -> None:
            nonlocal answered, refused
            try:
                found = read()
            except REFUSED:
                refused += 1
            else:
                answered += 1
                self.assertEqual(found, expected)

        def readEvent(event: Event) -> None:
            check(lambda: reader.getEvent(event.eventId), replace(event, index=0))
            check(lambda: reader.locate(event.eventId), event.position)

        def readBlock(block: Block) -> None:
            check(lambda: reader.readBlock(block.height), block)

        for event in self.events:
            readEvent(event)
        for block in self.blocks.values():
            readBlock(block)
        for topic in ("a", "b"):
            heights = [
                height
                for height, block in self.blocks.items()
                if any(event.topic == topic for event in block.events)
            ]
            check(lambda topic=topic: reader.findBlocks([topic], 1, 64), heights)  # type: ignore[misc]
        return answered, refused

    def test_changedByteIsRefusedOrHarmless(self) -> None:
        """Every event, place and block is answered as it was published, or refused."""
        count, total = 0, 0
        for number, at in enumerate(range(4096, len(self.whole), 61)):
            if self.whole[at - 8 : at + 8] == bytes(16):
                continue
            damaged = bytearray(self.whole)
            damaged[at] ^= 1 << number % 8
            self.restore(damaged)
            try:
                reader = self.reader(isResting=number % 2 == 1)
            except StorageRefused:
                continue  # The schema is read once, when the file is opened.
            _, refused = self.read(reader)
            total += 1
            count += refused > 0
        self.assertGreater(total, 100)
        self.assertGreater(count, 20)

    def test_prefixIsCheckedAtStart(self) -> None:
        """A topic whose events would not be found keeps the chain from being loaded."""
        self.change("UPDATE topic SET prefix = prefix + 1 WHERE idx = 1")
        copy = self.path.with_name("copy.sqlite")
        shutil.copy(self.path, copy)
        store = Store.open(copy)
        self.addCleanup(store.close)
        error = self.assertRaises(StorageError, loadChain, store)
        self.assertIn("topic 1 has the prefix of another name", str(error))


class _Ledger(StoredLedger):
    """
    A ledger that only reads.
    """

    def _checkOpen(self) -> None:
        pass


class LoggingTests(DamageTestCase):
    """
    Clients ask for damaged events as often as they like.
    """

    def setUp(self) -> None:
        super().setUp()
        self.clock = Clock()
        self.clock.advance(1000)

    def lines(self, ledger: StoredLedger, *eventIds: EventId) -> list[str]:
        """The lines that are logged while damaged events are asked for."""
        with capturedLogs() as events:
            for eventId in eventIds:
                error = self.failureResultOf(ledger.getEvent(eventId), LedgerUnavailable)
                self.assertEqual(error.value.code, 200214)
        return [formatEvent(event) for event in events]

    def ledger(self) -> StoredLedger:
        """The ledger of the file as it is now."""
        store = Store.open(self.path)
        self.addCleanup(store.close)
        context = LedgerContext(
            group="1",
            directory=self.path.parent,
            reactor=self.clock,
            now=self.clock.seconds,
            entropy=bytes,
            runInThread=maybeDeferred,
            maxContent=1,
        )
        ledger = _Ledger(context)
        ledger._openReads(self.genesis, self.state, store)
        return ledger

    def test_missingBodyIsLoggedOnce(self) -> None:
        """In one line, without a traceback; again after a minute."""
        self.change("DELETE FROM body WHERE height = ?", HEIGHT)
        ledger = self.ledger()
        eventId = self.blocks[HEIGHT].events[0].eventId
        [line] = self.lines(ledger, eventId, eventId, eventId)
        self.assertIn("the chain of group 1 cannot be read: ", line)
        self.assertIn(f"block {HEIGHT} has no body", line)
        self.assertNotIn("\n", line)
        self.assertEqual(self.lines(ledger, eventId), [])
        self.clock.advance(LOG_PERIOD)
        self.assertEqual(len(self.lines(ledger, eventId, eventId)), 1)
        self.assertEqual(self.flushLoggedErrors(), [])

    def test_reasonsAreBounded(self) -> None:
        """However many events are damaged, a minute has a few lines."""
        self.change("UPDATE body SET body = zeroblob(length(body))")
        lines = self.lines(self.ledger(), *(event.eventId for event in self.events))
        self.assertEqual(len(lines), MAX_REASONS)
        self.assertEqual(len(set(lines)), MAX_REASONS)
