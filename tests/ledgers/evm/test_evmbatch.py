"""
Batches, and the blocks that they become.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from unittest.mock import patch

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Header, Kind, Malformed, Transaction
from svcbroker.ledgers._views import TransactionMaker
from svcbroker.ledgers.evm import _evmbatch, checkInstalled
from svcbroker.ledgers.evm._contract import LoggedBatch, LogState
from svcbroker.ledgers.evm._evmbatch import (
    MAX_UNPACKED,
    BatchBlock,
    EvmExecution,
    executeBlock,
    genesisOf,
    packBatch,
    senderOf,
    unpackBatch,
)
from svcbroker.model import AuthorSet, OpenTopic, PublishEvent, Request, TopicRule, topicPrefix

skip = checkInstalled() or None

ACCOUNT, OTHER = b"\x01" * 20, b"\x02" * 20


class BatchTests(SynchronousTestCase):
    """A chain, and batches of an account."""

    def setUp(self) -> None:
        self.genesis = genesisOf("1", 7, b"\x0c" * 20, 1_700_000_000_000)
        self.state, self.head = self.genesis.state(), self.genesis.header()
        self.chain = self.genesis.chain
        self.makers = {
            account: TransactionMaker(
                self.chain, senderOf(self.chain, account), lambda: 1_700_000_000.0, os.urandom
            )
            for account in (ACCOUNT, OTHER)
        }
        self.log = LogState()
        self.numbers = self.turns = 0

    def turn(self) -> Deferred[None]:
        """Count the turns that executing takes."""
        self.turns += 1
        return succeed(None)

    def batch(self, *requests: Request, account: bytes = ACCOUNT) -> LoggedBatch:
        """The next batch of an account."""
        return self.logged(packBatch(self.chain, self.made(requests, account)), account)

    def made(self, requests: Sequence[Request], account: bytes) -> Sequence[Transaction]:
        """The transactions of some requests."""
        maker = self.makers[account]
        maker.isNew = True
        return maker.makeMany(requests)

    def logged(self, data: bytes, account: bytes = ACCOUNT) -> LoggedBatch:
        """The next batch of the log, with any data."""
        self.numbers += 1
        return LoggedBatch(self.numbers, account, data)

    def execute(self, *batches: LoggedBatch, number: int = 5) -> Sequence[EvmExecution]:
        """Execute a block of the chain; the blocks of ours."""
        made = []
        left = list(batches)
        while left:
            block = BatchBlock(
                number=number, hash=b"\x0b" * 32, time=1_700_000_000_000 + number, batches=left
            )
            executing = executeBlock(self.state, self.head, self.log, block, self.turn)
            done = self.successResultOf(Deferred.fromCoroutine(executing))
            self.state.apply(done.candidate.outcome, done.candidate.history)
            self.head, self.log = done.candidate.header, done.state
            left = [each for each in left if each.number > self.log.count]
            made.append(done)
        return made

    def test_batchesAreReadAsMade(self) -> None:
        """A batch is packed where that is shorter, and read as it was made."""
        for content in (b"x" * 5000, os.urandom(50)):
            transactions = self.made([PublishEvent(topic="t", content=content)], ACCOUNT)
            data = packBatch(self.chain, transactions)
            found = unpackBatch(self.chain, self.logged(data))
            self.assertEqual([each.hash for each in found.transactions], [transactions[0].hash])
            self.assertEqual(len(data) < 1000, True)

    def test_foreignBatchesAreRefused(self) -> None:
        """Batches of another chain, of another sender, empty, broken or too large are none."""
        good = self.batch(OpenTopic(topic="t"))
        packed = zlib.compressobj(9, zlib.DEFLATED, -15)
        bomb = packed.compress(bytes(MAX_UNPACKED + 1)) + packed.flush()
        self.assertLess(len(bomb), 4000)
        for data, account in (
            (good.data, OTHER),
            (b"", ACCOUNT),
            (b"\x03" + good.data[1:], ACCOUNT),
            (good.data[:1] + bytes(32) + good.data[33:], ACCOUNT),
            (good.data[:-1], ACCOUNT),
            (good.data + b"x", ACCOUNT),
            (b"\x02" + self.chain + bomb, ACCOUNT),
            (b"\x02" + self.chain + b"no deflate", ACCOUNT),
            (packBatch(self.chain, []), ACCOUNT),
        ):
            with self.assertRaises(Malformed):
                unpackBatch(self.chain, LoggedBatch(1, account, data))

    def test_refusedBatchesAreCountedAndExecuteNothing(self) -> None:
        """A block with a bad batch among good ones has the good ones' transactions."""
        bad = [b"junk", b"", b"\x01" + self.chain]
        batches = [self.batch(OpenTopic(topic="t")), *map(self.logged, bad)]
        batches.append(self.batch(PublishEvent(topic="t", content=b"x")))
        [made] = self.execute(*batches)
        self.assertEqual(
            [each.kind for each in made.candidate.transactions], [Kind.OPEN, Kind.PUBLISH]
        )
        self.assertEqual([each.number for each, _ in made.refused], [2, 3, 4])
        self.assertEqual((made.place.number, made.place.count), (5, 5))

    def test_namesInUtf8AreOfChainsThatHaveThem(self) -> None:
        """The rule is part of the chain's id. On another chain such a batch executes nothing."""
        batch = self.batch(OpenTopic(topic="\u00e9"))
        [made] = self.execute(batch)
        [(refused, why)] = made.refused
        self.assertEqual((refused, made.candidate.transactions), (batch, []))
        self.assertIn("'\u00e9'", why)
        genesis = genesisOf("1", 7, b"\x0c" * 20, 1_700_000_000_000, TopicRule.UTF8)
        self.assertNotEqual(genesis.chain, self.chain)
        self.chain, self.state, self.head = genesis.chain, genesis.state(), genesis.header()
        self.log, self.numbers = LogState(), 0
        self.makers[ACCOUNT] = TransactionMaker(
            self.chain, senderOf(self.chain, ACCOUNT), lambda: 1_700_000_000.0, os.urandom
        )
        authors = AuthorSet(authors=(bytes(32),))
        [made] = self.execute(self.batch(OpenTopic(topic="\u00e9", authors=authors)))
        self.assertEqual(made.refused, [])
        found = self.state.topic("\u00e9")
        assert found is not None
        self.assertEqual(found.authors, authors)

    def test_repeatedBatchExecutesNothing(self) -> None:
        """The same batch again, by the same account or by another, executes nothing."""
        first = self.batch(OpenTopic(topic="t"))
        self.execute(first)
        again, stolen = self.logged(first.data), self.logged(first.data, OTHER)
        [made] = self.execute(again, stolen)
        self.assertEqual(made.candidate.transactions, [])
        self.assertEqual([each for each, _ in made.refused], [again, stolen])

    def test_largeBlockBecomesSeveral(self) -> None:
        """More than a block's bytes in one block of the chain become blocks of ours, in order."""
        batches = [self.batch(OpenTopic(topic="t"))]
        batches += [self.batch(PublishEvent(topic="t", content=b"x" * 1000)) for _ in range(5)]
        with patch.object(_evmbatch, "BLOCK_BYTES", 2500):
            made = self.execute(*batches)
        self.assertEqual([len(each.candidate.transactions) for each in made], [3, 2, 1])
        self.assertEqual([each.place.number for each in made], [5, 5, 5])
        self.assertEqual([each.place.count for each in made], [3, 5, 6])
        self.assertEqual([each.candidate.header.height for each in made], [1, 2, 3])

    def test_batchesOfEveryVersionBecomeTheSameBlocks(self) -> None:
        """Earlier versions sent batches of 2,000 transactions. However many a block has, of all
        versions the same blocks are found; each further batch of a block is read in a turn of its
        own."""
        events = [PublishEvent(topic="t", content=b"x")] * 1999
        first = self.batch(OpenTopic(topic="t"), *events)
        junk = [self.logged(b"junk") for _ in range(300)]
        made = self.execute(first, *junk, self.batch(*events))
        self.assertEqual([len(each.candidate.transactions) for each in made], [3999])
        self.assertEqual([len(each.refused) for each in made], [300])
        self.assertEqual(self.turns, 301)

    def test_topicsThatShareIdsAreInBlocksOfTheirOwn(self) -> None:
        """Two topics whose events would have the same ids come into two blocks."""
        with patch("svcbroker.ledgers.replicated.topicPrefix", lambda topic: "00000000"):
            made = self.execute(
                self.batch(OpenTopic(topic="t"), OpenTopic(topic="u")),
                self.batch(PublishEvent(topic="t", content=b"x")),
                self.batch(PublishEvent(topic="u", content=b"y")),
            )
        self.assertEqual([len(each.candidate.transactions) for each in made], [3, 1])
        self.assertNotEqual(topicPrefix("t"), topicPrefix("u"))

    def test_timesNeverFall(self) -> None:
        """A block of the chain with an earlier time than that before has the time before."""
        self.execute(self.batch(OpenTopic(topic="t")), number=9)
        [made] = self.execute(self.batch(PublishEvent(topic="t", content=b"x")), number=3)
        self.assertEqual(made.candidate.header.timestamp, 1_700_000_000_009)

    def test_allBrokersFindTheSameBlocks(self) -> None:
        """Two brokers that execute the same log have the same headers."""
        batches = [
            self.batch(OpenTopic(topic="t")),
            self.batch(PublishEvent(topic="t", content=b"x"), account=OTHER),
            self.logged(b"junk"),
        ]
        heads: list[Header] = []
        for _ in range(2):
            self.state, self.head = self.genesis.state(), self.genesis.header()
            self.log = LogState()
            heads.append(self.execute(*batches)[-1].candidate.header)
        self.assertEqual(heads[0], heads[1])
