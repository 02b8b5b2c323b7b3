"""
The source of batches, over nodes that are not whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.evm import _evmbatch, checkInstalled
from svcbroker.ledgers.evm._contract import LoggedBatch, LogState, batchTopic
from svcbroker.ledgers.evm._ethereum import word
from svcbroker.ledgers.evm._evmbatch import (
    TURN,
    WINDOW_BYTES,
    BatchSource,
    LogIncomplete,
    Reorganized,
    SourcePlace,
)
from svcbroker.ledgers.evm._evmrpc import EvmError, EvmReason, todata

from .fakenode import CONTRACT, SENDER, FakeBlock, FakeNode, FakeRpc

skip = checkInstalled() or None


class SourceTests(SynchronousTestCase):
    turns = 0

    def makeSource(
        self, *nodes: FakeNode, finality: str | int = 0, window: int = 1000
    ) -> BatchSource:
        """A source that begins where the contract was made."""
        self.rpc = FakeRpc(*nodes)
        place = SourcePlace(number=0, hash=nodes[0].blocks[0].hash, log=LogState())
        return BatchSource(self.rpc, CONTRACT, finality, place, window, self.turn)

    def turn(self) -> Deferred[None]:
        """Count the turns that reading takes."""
        self.turns += 1
        return succeed(None)

    def read(self, source: BatchSource, most: int = 1000) -> Sequence[tuple[int, bytes]]:
        """
        Read on, as a ledger does that executes one batch at a time.

        @return: the numbers of the chain's blocks, and their batches.
        """
        found: list[tuple[int, bytes]] = []

        async def readAll() -> None:
            async for block in source.read():
                batch = block.batches[0]
                found.append((block.number, batch.data))
                source.place = SourcePlace(
                    number=block.number, hash=block.hash, log=source.place.log.after(batch)
                )

        self.successResultOf(Deferred.fromCoroutine(readAll()))
        return found

    def fails(self, source: BatchSource, error: type[Exception]) -> str:
        """Read on, which fails; the error's text."""

        async def readAll() -> None:
            async for block in source.read():
                log = source.place.log
                for batch in block.batches:
                    log = log.after(batch)
                source.place = SourcePlace(number=block.number, hash=block.hash, log=log)

        return str(self.failureResultOf(Deferred.fromCoroutine(readAll()), error).value)

    def test_longWayIsReadInWindows(self) -> None:
        """Of 100,000 blocks the logs are read a thousand blocks at a time, each once, and many of
        one window in several turns."""
        node = FakeNode()
        node.blocks += [FakeBlock(number, "") for number in range(1, 100_001)]
        places = [*range(500, 100_001, 500), *range(70_001, 70_100)]
        for count, number in enumerate(sorted(places), 1):
            node.blocks[number].batches.append(LoggedBatch(count, SENDER, b"%d" % number))
        source = self.makeSource(node)
        found = self.read(source)
        self.assertEqual(found, [(number, b"%d" % number) for number in sorted(places)])
        self.assertEqual(node.asked.count("eth_getLogs"), 101)
        self.assertLess(len(node.asked), 101 * 4 + len(places))
        # A window takes a request, and its blocks with batches one for each fifty.
        self.assertLess(node.requests, 101 * 2 + 10)
        self.assertEqual(self.turns, 101 // TURN)

    def test_allBatchesAreReadOnceInOrder(self) -> None:
        """All batches are read once and in order, also several of a block, and as they come."""
        node = FakeNode()
        node.mine()
        node.mine(b"a", b"b", b"c")
        source = self.makeSource(node)
        self.assertEqual(self.read(source), [(2, b"a"), (2, b"b"), (2, b"c")])
        self.assertEqual(self.read(source), [])
        node.mine(b"d")
        node.mine()
        self.assertEqual(self.read(source), [(3, b"d")])
        self.assertEqual(source.place.number, 4)

    def test_placeInsideOfBlockIsGoneOnFrom(self) -> None:
        """Reading goes on with the rest of a block of which some batches were executed."""
        node = FakeNode()
        block = node.mine(b"a", b"b")
        self.rpc = FakeRpc(node)
        log = LogState().after(block.batches[0])
        place = SourcePlace(number=1, hash=block.hash, log=log)
        source = BatchSource(self.rpc, CONTRACT, 0, place, 10, self.turn)
        self.assertEqual(self.read(source), [(1, b"b")])

    def test_unchangedContractIsNotSearched(self) -> None:
        """Blocks without batches are passed over without a look at their logs."""
        node = FakeNode()
        for _ in range(10_000):
            node.mine()
        source = self.makeSource(node)
        self.assertEqual(self.read(source), [])
        self.assertNotIn("eth_getLogs", node.asked)
        self.assertEqual(source.place.number, 10_000)

    def test_onlyFinalBlocksAreRead(self) -> None:
        """With a number of confirmations the last blocks are not read."""
        node = FakeNode()
        node.mine(b"a")
        node.mine(b"b")
        source = self.makeSource(node, finality=1)
        self.assertEqual(self.read(source), [(1, b"a")])
        node.mine()
        self.assertEqual(self.read(source), [(2, b"b")])

    def test_windowsThatAreCutAreNoticed(self) -> None:
        """A node that gives the logs of ten blocks only, without a word, hides nothing."""
        node = FakeNode(cut=10)
        for number in range(100):
            node.mine(*([b"%d" % number] if number % 7 == 0 else []))
        source = self.makeSource(node)
        expected = [b"%d" % number for number in range(0, 100, 7)]
        self.assertEqual([data for _, data in self.read(source)], expected)

    def test_windowsThatAreRefusedBecomeSmaller(self) -> None:
        """A node that refuses a long range is asked for shorter ones."""
        node = FakeNode(limit=8)
        for number in range(50):
            node.mine(b"%d" % number)
        source = self.makeSource(node)
        self.assertEqual(len(self.read(source)), 50)

    def test_windowsBecomeLargerAgain(self) -> None:
        """A node that has refused long ranges is asked for them again after a while; what it still
        cuts is noticed as before."""
        node = FakeNode(limit=8)
        for number in range(20):
            node.mine(b"%d" % number)
        source = self.makeSource(node)
        self.read(source)
        node.limit = None
        node.blocks += [FakeBlock(number, "") for number in range(21, 4000)]
        node.mine(b"last")
        node.ranges.clear()
        self.assertEqual(self.read(source), [(4000, b"last")])
        self.assertLess(len(node.ranges), 200)
        self.assertEqual(max(last - first + 1 for first, last in node.ranges), 160)
        node.cut = 10
        for number in range(1000):
            node.mine(*([b"%d" % number] if number % 100 == 0 else []))
        self.assertEqual(len(self.read(source)), 10)

    def test_largeBatchesMakeWindowsSmaller(self) -> None:
        """Where blocks have much in them, few are read together, and more when they have less. An
        answer that is too large for several blocks is not read."""
        node = FakeNode()
        for _ in range(64):
            node.mine(bytes(WINDOW_BYTES // 4))
        source = self.makeSource(node, window=16)
        self.assertEqual(len(self.read(source)), 64)
        lengths = [last - first + 1 for first, last in node.ranges]
        self.assertEqual(lengths[:4], [16, 8, 4, 3])
        self.assertEqual(set(lengths[4:-1]), {3})
        node.blocks += [FakeBlock(number, "") for number in range(65, 1000)]
        node.mine(b"last")
        self.assertEqual(len(self.read(source)), 1)
        self.assertEqual(node.ranges[-2][1] - node.ranges[-2][0] + 1, 16)

    def test_manyBatchesMakeWindowsSmaller(self) -> None:
        """Where blocks have many batches, however small, few are read together."""
        self.patch(_evmbatch, "LOG_BYTES", WINDOW_BYTES // 8)
        node = FakeNode()
        for _ in range(8):
            node.mine(*([b"x"] * 5))
        source = self.makeSource(node, window=4)
        self.assertEqual(len(self.read(source)), 8 * 5)
        self.assertEqual([last - first + 1 for first, last in node.ranges], [4, 2, 1, 1, 1])

    def test_missingLogStopsReading(self) -> None:
        """Where a log is missing, nothing after it is read, until another node has it."""
        liar, honest = FakeNode(hidden={2}), FakeNode()
        for node in (liar, honest):
            for data in (b"a", b"b", b"c"):
                node.mine(data)
        source = self.makeSource(liar, honest)
        self.assertIn("block", self.fails(source, LogIncomplete))
        self.assertEqual(source.place.log.count, 1)
        self.rpc.leave()
        self.assertEqual(self.read(source), [(2, b"b"), (3, b"c")])

    def test_changedLogsStopReading(self) -> None:
        """A log that a node doubles, invents, changes, moves or has taken back is found out, in
        windows of blocks and of one, and nothing of it is read."""

        def altered(log: Any, **fields: Any) -> Any:
            return {**log, **fields}

        two, third = todata(word(2)), [todata(batchTopic()), *map(todata, (word(3), word(SENDER)))]
        for change in (
            lambda logs: [*logs, logs[-1]],
            lambda logs: [logs[0], *logs],
            lambda logs: logs[::-1],
            lambda logs: [*logs[:-1], altered(logs[-1], data=logs[0]["data"])],
            lambda logs: [*logs[:-1], altered(logs[-1], topics=[*logs[-1]["topics"][:2], two])],
            lambda logs: [*logs, altered(logs[-1], logIndex="0x7", topics=third)],
            lambda logs: [altered(each, blockNumber="0x9") for each in logs],
            lambda logs: [altered(each, blockHash=two) for each in logs],
            lambda logs: [altered(each, logIndex="first") for each in logs],
            lambda logs: [altered(each, removed=True) for each in logs],
        ):
            node = FakeNode()
            node.mine(b"a", b"b")
            node.mine()
            node.change = change
            source = self.makeSource(node)
            self.assertIn("block", self.fails(source, LogIncomplete))
            self.assertEqual(source.place.log, LogState())
            node.change = None
            self.assertEqual(self.read(source), [(1, b"a"), (1, b"b")])

    def test_statesThatAreGoneAreNotNeeded(self) -> None:
        """A node that keeps the last state only is read whole, and found out if it lies."""
        for gone in (
            "missing trie node 0x12 (path )",
            "required historical state unavailable (reexec=128)",
            "BlockOutOfRangeError: block height is 60 but requested was 7",
        ):
            node = FakeNode(keeps=1, gone=gone)
            for number in range(60):
                node.mine(b"%d" % number)
            source = self.makeSource(node, window=7)
            self.assertEqual(len(self.read(source)), 60)
        liar = FakeNode(keeps=1, hidden={40})
        for number in range(60):
            liar.mine(b"%d" % number)
        source = self.makeSource(liar, window=7)
        self.fails(source, LogIncomplete)
        self.assertEqual(source.place.log.count, 0)

    def test_reorganizationBelowFinalityStops(self) -> None:
        """Another block where one was final is told of, with both hashes."""
        node = FakeNode()
        node.mine(b"a")
        source = self.makeSource(node)
        self.read(source)
        before = node.blocks[1].hash.hex()
        del node.blocks[1]
        node.mine(b"other", salt="fork")
        node.mine()
        text = self.fails(source, Reorganized)
        self.assertIn(before, text)
        self.assertIn(node.blocks[1].hash.hex(), text)

    def test_otherChainIsRefused(self) -> None:
        """A node of another chain, or one without the contract, is not read."""
        for node, reason in (
            (FakeNode(chainId=8), EvmReason.WRONG_CHAIN),
            (FakeNode(code=""), EvmReason.NO_CONTRACT),
            (FakeNode(code="6001"), EvmReason.NO_CONTRACT),
        ):
            node.mine(b"a")
            source = self.makeSource(node)
            self.fails(source, EvmError)
            self.rpc.leave()
            failure = self.failureResultOf(self.rpc.tryAll([]), EvmError)
            self.assertIs(failure.value.reason, reason)

    def test_nodeThatIsBehindIsWaitedFor(self) -> None:
        """Another node that has fewer blocks than were read changes nothing."""
        ahead, behind = FakeNode(), FakeNode()
        for node in (ahead, behind):
            node.mine(b"a")
        ahead.mine(b"b")
        source = self.makeSource(ahead, behind)
        self.read(source)
        self.rpc.leave()
        self.assertEqual(self.read(source), [])
        self.assertEqual(source.place.log.count, 2)
        behind.mine(b"b")
        behind.mine(b"c")
        self.assertEqual(self.read(source), [(3, b"c")])
