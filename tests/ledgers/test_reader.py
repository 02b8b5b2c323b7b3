"""
Reading a stored chain: what must not depend on how large its blocks are.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import structs
from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import loadChain
from svcbroker.chain import Kind, Malformed, decodeBody
from svcbroker.errors import EventNotFound, HeightUnknown
from svcbroker.ledgers._storedledger import ENTRIES_AT_ONCE, LedgerReader
from svcbroker.model import Event, EventId, topicPrefix
from tools.vectors.signedchain import SignedChain


class BlockReadingTests(SynchronousTestCase):
    """
    One event or transaction of a block is read as the whole block is.
    """

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.chain = SignedChain(directory)
        self.addCleanup(self.chain.close)
        self.chain.open("a", "b")

    def reader(self) -> LedgerReader:
        """A reader of the chain as it is now."""
        state = loadChain(self.chain.store).state
        return LedgerReader(state, self.chain.store, lambda: 0.0, lambda: succeed(None))

    def events(self, height: int) -> list[Event]:
        """The events of a block, each read by its id."""
        reader = self.reader()
        found = list(reader.readBlock(height).events)
        for event in found:
            self.assertEqual(reader.getEvent(event.eventId), structs.replace(event, index=0))
            self.assertEqual(reader.locate(event.eventId), event.position)
        return found

    def decide(self, *events: tuple[str, bytes]) -> int:
        """A block with events of these topics; the height of it."""
        transactions = [
            self.chain.transaction(Kind.PUBLISH, topic, content) for topic, content in events
        ]
        return self.chain.decide(transactions).height

    def test_mayHoldFindsBlocksByExtension(self) -> None:
        """Blocks with an extension are found, and few others."""
        plain = self.decide(("a", b"x"))
        marked = self.chain.publish("b", b"x", b"y", extensions={"svc-retain": "1"})[0].height
        reader = self.reader()
        self.assertFalse(reader.mayHold(plain, "svc-retain"))
        self.assertTrue(reader.mayHold(marked, "svc-retain"))
        self.assertFalse(reader.mayHold(marked, "svc-other"))
        for height in (0, marked + 1, 2**63):
            self.assertRaises(HeightUnknown, reader.mayHold, height, "svc-retain")

    def test_oneTopic(self) -> None:
        """Events of a block that has nothing else."""
        height = self.decide(*(("a", b"%d" % number) for number in range(300)))
        events = self.events(height)
        self.assertEqual([event.index for event in events], list(range(300)))

    def test_eventsOfMixedBlocksAreFound(self) -> None:
        """Events of a block with other topics, and with transactions that are no events."""
        wanted = [("ab?"[number % 3], b"x" * number) for number in range(400)]
        events = self.events(self.decide(*wanted))
        self.assertEqual(
            [(event.topic, event.content) for event in events],
            [each for each in wanted if each[0] != "?"],
        )
        self.assertEqual(events[-1].index, 399)
        self.assertEqual(events[1].index, 1)
        self.assertEqual(events[2].index, 3)

    def test_transactionsReadAloneOrTogetherAreEqual(self) -> None:
        """Transactions are listed alike whether they are read together or one by one."""
        small = self.decide(*(("a", b"%d" % number) for number in range(200)))
        large = self.decide(*(("a", bytes(ENTRIES_AT_ONCE // 4)) for _ in range(9)))
        reader = self.reader()
        for height, count in ((small, 200), (large, 9)):
            for offset, limit in ((0, 3), (1, 5), (count - 2, 9), (0, count)):
                page = self.listed(reader, height, offset, limit)
                first = max(0, count - offset - limit)
                self.assertEqual(page, self.hashes(height)[first : count - offset][::-1])

    def listed(self, reader: LedgerReader, height: int, offset: int, limit: int) -> list[bytes]:
        """The hashes of a page of a block's transactions."""
        answer = reader.listTransactions(offset, limit, height, None)
        page = self.successResultOf(Deferred.fromCoroutine(answer))
        return [record.hash for record in page.items]

    def hashes(self, height: int) -> list[bytes]:
        """The hashes of a block's transactions, in order."""
        row = self.chain.store.block(height)
        assert row is not None
        return [transaction.hash for transaction in decodeBody(row.body)]

    def test_eventOfOtherTopicIsNotServed(self) -> None:
        """A damaged row leads to another event of the block, which was not asked for."""
        height = self.decide(("a", b"x"), ("b", b"y"))
        reader = self.reader()
        first, second = reader.readBlock(height).events
        self.chain.store._writing.execute(
            "UPDATE topic_block SET positions = (SELECT positions FROM topic_block WHERE topic = 1 "
            "AND height = ?1) WHERE topic = 0 AND height = ?1",
            (height,),
        )
        self.assertEqual(reader.getEvent(second.eventId).content, b"y")
        self.assertRaises(Malformed, reader.getEvent, first.eventId)

    def test_absentNumbersAreNotFound(self) -> None:
        """Numbers that the block has not lead nowhere, however large."""
        height = self.decide(("a", b"x"), ("b", b"y"))
        reader = self.reader()
        for sequence in (0, 2, 2**32 + 1, 2**63 - 1):
            eventId = EventId(topicPrefix("a"), sequence, height)
            self.assertRaises(EventNotFound, reader.getEvent, eventId)
            self.assertRaises(EventNotFound, reader.locate, eventId)
        unknown = EventId(topicPrefix("a"), 1, height + 1)
        self.assertRaises(HeightUnknown, reader.getEvent, unknown)
        self.assertRaises(HeightUnknown, reader.locate, unknown)
