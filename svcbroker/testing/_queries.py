"""
The contract of a ledger, as tests: what operators read.
"""

from __future__ import annotations

from zope.interface.verify import verifyObject

from ..interfaces import IMeasuredLedger
from ..model import CloseTopic, NodeType, OpenTopic, PublishEvent
from ._kit import LedgerKit

_UNKNOWN_HASH = bytes(range(32))


class QueryTests(LedgerKit):
    """Pages of blocks, transactions and nodes, statistics and health."""

    async def test_newChainHasNoTransactions(self) -> None:
        """A new chain has nothing in it, but perhaps blocks with nothing in them."""
        ledger = await self.begin()
        statistics = await self.settle(ledger.getStatistics())
        self.assertEqual(statistics.transactionCount, 0)
        for page in (
            await self.settle(ledger.listTopics(0, 10)),
            await self.settle(ledger.listTransactions(0, 10)),
        ):
            self.assertEqual((page.total, list(page.items)), (0, []))
        blocks = await self.allPages(ledger.listBlocks, 10)
        self.assertTrue(all(block.transactionCount == 0 for block in blocks))
        self.assertGreaterEqual(len(blocks), statistics.height)

    async def test_measuresAreThoseOfNow(self) -> None:
        """A ledger that is measured counts what waits, and the blocks that it has stored."""
        ledger = await self.begin()
        if not IMeasuredLedger.providedBy(ledger):
            return
        verifyObject(IMeasuredLedger, ledger)
        before = ledger.measure()
        stored, final = (
            0 if each is None else each.count for each in (before.sync, before.latency)
        )
        await self.submit(OpenTopic(topic="t"))
        await self.publish("t", b"1")
        after = ledger.measure()
        self.assertEqual((after.waiting, after.waitingBytes, after.oldest), (0, 0, 0.0))
        if after.sync is not None:
            self.assertGreater(after.sync.count, stored)
        if after.latency is not None:
            self.assertEqual(after.latency.count, final + 2)
        if after.replicas is not None:
            self.assertEqual(after.running, after.replicas)
        submission = ledger.submitMany([PublishEvent(topic="t", content=b"2")])
        waits = ledger.measure()
        self.assertEqual(bool(waits.waiting), not submission.done.called)
        self.assertEqual(bool(waits.waitingBytes), not submission.done.called)
        await self.settle(submission.done)

    async def test_blocksAreListedAndFound(self) -> None:
        """Blocks are listed newest first, and found by height and by hash."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        for number in range(6):
            await self.publish("t", b"%d" % number, b"x")
        height = await self.height()
        for limit in (1, 4, 99):
            blocks = await self.allPages(ledger.listBlocks, limit)
            self.assertEqual([block.height for block in blocks], list(range(height, 0, -1)))
        timestamps = [block.timestamp for block in blocks]
        self.assertEqual(timestamps, sorted(timestamps, reverse=True))
        statistics = await self.settle(ledger.getStatistics())
        counts = sum(block.transactionCount for block in blocks)
        self.assertEqual(counts, statistics.transactionCount)
        self.assertTrue(all(0 <= block.sealer < statistics.nodeCount for block in blocks))
        one, other = blocks[1], blocks[2]
        self.assertEqual(len(one.hash), 32)
        for filters, found in (
            ({"height": one.height}, [one]),
            ({"hash": one.hash}, [one]),
            ({"hash": one.hash, "height": one.height}, [one]),
            ({"hash": one.hash, "height": other.height}, []),
            ({"hash": _UNKNOWN_HASH}, []),
            ({"height": 0}, []),
            ({"height": height + 1}, []),
            ({"height": 2**64}, []),
        ):
            page = await self.settle(ledger.listBlocks(0, 10, **filters))
            self.assertEqual((page.total, list(page.items)), (len(found), found), filters)
        page = await self.settle(ledger.listBlocks(1, 10, height=one.height))
        self.assertEqual((page.total, list(page.items)), (1, []))

    async def test_transactionsAreListedAndFound(self) -> None:
        """Transactions are listed newest first, and found by block and by hash; refused ones
        are among them."""
        ledger = await self.begin()
        [opened] = await self.submit(OpenTopic(topic="t"))
        receipts = [opened]
        for size in (3, 1, 5):
            receipts += await self.submit(
                *(PublishEvent(topic="t", content=b"%d" % number) for number in range(size))
            )
        receipts += await self.submit(CloseTopic(topic="u"))
        topic = self.topic("t")
        for limit in (1, 4, 99):
            found = await self.allPages(ledger.listTransactions, limit)
            self.assertEqual(
                [(record.hash, record.height) for record in found],
                [(receipt.transactionHash, receipt.height) for receipt in reversed(receipts)],
            )
        self.assertEqual({record.sender for record in found}, {topic.sender})
        self.assertEqual({record.recipient for record in found[1:]}, {topic.address})
        for record in found:
            page = await self.settle(ledger.listTransactions(0, 10, hash=record.hash))
            self.assertEqual((page.total, list(page.items)), (1, [record]))
            block = await self.settle(ledger.readBlock(record.height))
            self.assertEqual(record.timestamp, block.timestamp)
        for height in range(await self.height() + 2):
            inBlock = [record for record in found if record.height == height]
            page = await self.settle(ledger.listTransactions(0, 99, height=height))
            self.assertEqual((page.total, list(page.items)), (len(inBlock), inBlock))
        one = found[0]
        for filters in (
            {"hash": _UNKNOWN_HASH},
            {"hash": one.hash, "height": one.height - 1},
            {"height": 2**64},
        ):
            page = await self.settle(ledger.listTransactions(0, 10, **filters))
            self.assertEqual((page.total, list(page.items)), (0, []), filters)

    async def test_everyNodeIsListed(self) -> None:
        """Every node is listed, and says how it stands."""
        ledger = await self.begin()
        await self.submit(OpenTopic(topic="t"))
        statistics = await self.settle(ledger.getStatistics())
        nodes = await self.allPages(ledger.listNodes, 3)
        self.assertEqual(len(nodes), statistics.nodeCount)
        self.assertEqual(len({node.nodeId for node in nodes}), len(nodes))
        sealers = [node for node in nodes if node.nodeType is NodeType.SEALER]
        self.assertTrue(any(node.isActive for node in sealers))
        self.assertEqual(max(node.height for node in nodes), statistics.height)
        page = await self.settle(ledger.listNodes(0, 10, name="no node has this name"))
        self.assertEqual((page.total, list(page.items)), (0, []))

    async def test_startedLedgerIsReady(self) -> None:
        """A ledger that has started makes progress."""
        ledger = await self.begin()
        health = await self.settle(ledger.getHealth())
        self.assertEqual((health.isReady, health.reason), (True, ""))
