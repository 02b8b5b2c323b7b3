"""
The ABCI application, over a store on disk and an engine that is none.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import STORE_NAME
from svcbroker.chain import Candidate, ValidatorSet
from svcbroker.ledgers.cometbft._abciapplication import QUIET, ApplicationFailed, ChainApplication
from svcbroker.ledgers.cometbft._home import POWER
from svcbroker.ledgers.cometbft.abci import messages
from svcbroker.ledgers.cometbft.abci.messages import ValidatorPublicKey, ValidatorUpdate
from svcbroker.ledgers.replicated import MAX_AHEAD, Code
from svcbroker.model import OpenTopic, PublishEvent, TopicRule
from svcbroker.proofs import engineSet
from svcbroker.storage import StorageError, StorageFailed

from .fakeconsensus import NANOSECONDS, FakeConsensus, initChain, now
from .members import GENESIS, KEYS, START, Broker, changeTo


class ApplicationTestCase(SynchronousTestCase):
    """
    An application, and who drives it.
    """

    def setUp(self) -> None:
        self.directory = Path(self.mktemp())
        self.clock = Clock()
        self.begun = 0
        self.committed: list[Candidate] = []
        self.held: Deferred[None] | None = None
        self.engine = FakeConsensus()
        self.broker = Broker()
        self.application = self.make(self.directory)
        self.engine.connect(self.application)

    def make(self, directory: Path) -> ChainApplication:
        """An application that has opened what is in a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        application = ChainApplication(
            directory,
            self.inThread,
            self.inThread,
            self.countBegun,
            self.committed.append,
            seconds=self.clock.seconds,
        )
        self.addCleanup(application.close)
        application.open()
        return application

    def countBegun(self) -> None:
        self.begun += 1

    def inThread(self, call: Any, *args: Any) -> Deferred[Any]:
        """Work in a thread; its answer is held back where a test wants that."""
        done: Deferred[Any] = maybeDeferred(call, *args)
        if self.held is None:
            return done
        return done.addCallback(lambda result: self.held)

    def crash(self) -> ChainApplication:
        """The process is killed; what is on the disk is found by the next one."""
        after = Path(self.mktemp())
        shutil.copytree(self.directory, after)
        self.committed = []
        return self.make(after)

    def opened(self, *topics: str) -> bytes:
        """The next batch, which opens topics."""
        return self.broker.batch(*(OpenTopic(topic=topic) for topic in topics))

    def published(self, topic: str) -> bytes:
        """The next batch, which publishes."""
        return self.broker.batch(PublishEvent(topic=topic, content=b"x"))


class BeginTests(ApplicationTestCase):
    """
    Tests for the beginning of a chain.
    """

    def test_initChainMakesGenesis(self) -> None:
        """The engine's genesis is ours."""
        self.assertEqual(self.begun, 1)
        self.assertEqual(self.application.genesis, GENESIS)
        self.assertEqual(self.engine.start, GENESIS.header().hash)
        info = now(self.application.info(messages.InfoRequest()))
        self.assertEqual((info.lastBlockHeight, info.lastBlockAppHash), (0, b""))

    def test_initChainHasTheRuleOfTopics(self) -> None:
        """The part of the engine's genesis that is ours says the rule; no other part may."""
        state = b' { "topics" : "utf8" }\n'
        now(self.application.initChain(initChain(appState=state)))
        self.assertEqual(self.application.genesis, evolve(GENESIS, topics=TopicRule.UTF8))
        for none in (b"", b"{}"):
            now(self.application.initChain(initChain(appState=none)))
            self.assertEqual(self.application.genesis, GENESIS)
        for bad in (b"x", b"[]", b'{"topics": "ascii"}', b'{"topics": null}', b'{"more": 1}'):
            with self.assertRaisesRegex(ApplicationFailed, "app_state"):
                now(self.application.initChain(initChain(appState=bad)))

    def test_initChainMayBeRepeated(self) -> None:
        """An engine that ended before the first block begins again; so it may differently."""
        self.assertEqual(self.engine.connect(self.application), [])
        self.assertEqual(self.begun, 1)
        answer = now(self.application.initChain(initChain(chainId="other")))
        self.assertEqual((self.begun, self.application.genesis.group), (2, "other"))
        self.assertEqual(answer.appHash, self.application.genesis.header().hash)

    def test_initChainKeepsExistingBlocks(self) -> None:
        """An engine that has lost its blocks does not make an application forget its own."""
        self.engine.run(self.application, self.opened("t"))
        with self.assertRaises(ApplicationFailed):
            now(self.application.initChain(initChain()))

    def test_transactionsBeforeTheChainAreRefused(self) -> None:
        """A client of an engine that fetches a snapshot does not end the application."""
        application = self.make(Path(self.mktemp()))
        answer = application.checkTx(messages.CheckTxRequest(tx=b"x"))
        self.assertEqual(answer.code, Code.NO_CHAIN)

    def test_unsupportedGenesisIsRefused(self) -> None:
        """Only what our sets can say may be the genesis: Ed25519, one vote each, from height 1."""
        application = self.make(Path(self.mktemp()))
        first = ValidatorUpdate(publicKey=ValidatorPublicKey(ed25519=KEYS[0]), power=POWER)
        wrong: Sequence[messages.InitChainRequest] = [
            initChain(initialHeight=2),
            initChain(validators=(evolve(first, power=2),)),
            initChain(
                validators=(
                    first,
                    ValidatorUpdate(publicKey=ValidatorPublicKey(ed25519=KEYS[1]), power=1),
                )
            ),
            initChain(validators=(evolve(first, power=0),)),
            initChain(
                validators=(evolve(first, publicKey=ValidatorPublicKey(secp256k1=b"x" * 33)),)
            ),
            initChain(validators=(first, first)),
            initChain(validators=(evolve(first, publicKey=ValidatorPublicKey(ed25519=bytes(32))),)),
            initChain(validators=()),
        ]
        for request in wrong:
            with self.assertRaises((ApplicationFailed, ValueError)):
                now(application.initChain(request))
        self.assertIsNone(application.store)

    def test_callsBeforeInitChainFail(self) -> None:
        """Before there is a chain, nothing is executed."""
        application = self.make(Path(self.mktemp()))
        for call in (
            lambda: application.finalizeBlock(self.engine.decide()),
            lambda: application.commit(messages.CommitRequest()),
        ):
            with self.assertRaises(ApplicationFailed):
                now(call())


class BlockTests(ApplicationTestCase):
    """
    Tests for the effects of blocks.
    """

    def test_finalizedBlockFollowsEngineBlock(self) -> None:
        """Each of the engine's blocks is one of ours, of its height, time and proposer."""
        block = self.engine.decide(self.opened("t"), self.published("t"), proposer=KEYS[2])
        answer = self.engine.play(self.application, block)
        (candidate,) = self.committed
        header = candidate.header
        self.assertEqual((header.height, header.timestamp, header.proposer), (1, START + 1, 2))
        self.assertEqual([result.code for result in answer.txResults], [0, 0])
        self.assertEqual((answer.appHash, answer.validatorUpdates), (header.hash, ()))
        assert self.application.store is not None
        row = self.application.store.blockHead(1)
        assert row is not None
        self.assertEqual(row.hash, header.hash)

    def test_emptyBlocksKeepAppHash(self) -> None:
        """Blocks without transactions leave the application's hash alone, also after a start."""
        self.engine.run(self.application)
        self.assertEqual(self.engine.hashes[-1], self.engine.start)
        self.engine.run(self.application, self.opened("t"))
        last = self.committed[-1].header.hash
        for _ in range(3):
            self.engine.run(self.application)
        self.assertEqual(self.engine.hashes[1:], [last] * 4)
        again = self.crash()
        info = now(again.info(messages.InfoRequest()))
        self.assertEqual((info.lastBlockHeight, info.lastBlockAppHash), (5, last))
        self.engine.run(again)
        self.assertEqual(self.engine.hashes[-1], last)

    def test_preparedProposalIsValid(self) -> None:
        """A proposal may be voted for."""
        waiting = (self.opened("t"), b"junk", self.published("t"))
        prepared = now(
            self.application.prepareProposal(
                messages.PrepareProposalRequest(txs=waiting, maxTxBytes=10**6)
            )
        )
        self.assertEqual(prepared.txs, (waiting[0], waiting[2]))
        for txs, verdict in (
            (prepared.txs, messages.Verdict.ACCEPT),
            (waiting, messages.Verdict.REJECT),
        ):
            answer = now(self.application.processProposal(messages.ProcessProposalRequest(txs=txs)))
            self.assertIs(answer.status, verdict)

    def test_emptyBlockPrecedesAfterQuiet(self) -> None:
        """After some quiet a block without transactions goes first, and gives the next its time."""
        request = messages.PrepareProposalRequest(txs=(self.opened("t"),), maxTxBytes=10**6)
        self.clock.advance(QUIET)
        self.assertEqual(now(self.application.prepareProposal(request)).txs, request.txs)
        self.clock.advance(0.1)
        self.assertEqual(now(self.application.prepareProposal(request)).txs, ())
        self.engine.run(self.application)
        self.assertEqual(now(self.application.prepareProposal(request)).txs, request.txs)

    def test_blockTimeBoundsNonces(self) -> None:
        """Neither proposed nor accepted is a nonce more than a day ahead of the block's time."""
        self.broker.transactions.resume(MAX_AHEAD)
        data = self.opened("t")
        answer = now(self.application.checkTx(messages.CheckTxRequest(tx=data)))
        self.assertEqual(answer.code, Code.AHEAD)
        for time, txs, verdict in (
            (0, (), messages.Verdict.REJECT),
            (NANOSECONDS, (data,), messages.Verdict.ACCEPT),
        ):
            preparing = messages.PrepareProposalRequest(txs=(data,), maxTxBytes=10**6, time=time)
            self.assertEqual(now(self.application.prepareProposal(preparing)).txs, txs)
            processing = messages.ProcessProposalRequest(txs=(data,), time=time)
            self.assertIs(now(self.application.processProposal(processing)).status, verdict)

    def test_checkTxTellsReason(self) -> None:
        """The reason why a batch may not wait is said."""
        data, later = self.opened("t"), self.published("t")
        self.assertEqual(
            now(self.application.checkTx(messages.CheckTxRequest(tx=data))).code, Code.OK
        )
        self.engine.run(self.application, data)
        answer = now(self.application.checkTx(messages.CheckTxRequest(tx=data)))
        self.assertEqual((answer.code, bool(answer.log)), (Code.REPEATED, True))
        outOfOrder = [self.published("t"), self.published("t")][1]
        self.engine.run(self.application)
        for tx, code in ((outOfOrder, Code.OUT_OF_ORDER), (later, Code.OK)):
            request = messages.CheckTxRequest(tx=tx, type=messages.CheckTxType.RECHECK)
            self.assertEqual(now(self.application.checkTx(request)).code, code)

    def test_invalidTransactionsGetCodes(self) -> None:
        """A block with what should not be there has its codes, and does nothing else."""
        answer = self.engine.run(self.application, b"junk", self.opened("t"))
        self.assertEqual([each.code for each in answer.txResults], [Code.MALFORMED, Code.OK])
        answer = self.engine.run(self.application, b"junk")
        self.assertEqual(answer.appHash, self.committed[0].header.hash)

    def test_validatorUpdatesAreReported(self) -> None:
        """The engine is told who comes and who goes."""
        change = self.broker.transactions.makeChange(changeTo(0, 1, 2, 4))
        answer = self.engine.run(self.application, self.broker.pack(change))
        told = [(each.publicKey.ed25519, each.power) for each in answer.validatorUpdates]
        self.assertCountEqual(told, [(KEYS[3], 0), (KEYS[4], 100)])
        self.assertEqual(self.engine.run(self.application).validatorUpdates, ())
        # The engine's next proposer may still be the one that leaves.
        self.engine.play(self.application, self.engine.decide(proposer=KEYS[3]))
        again = self.crash()
        block = self.engine.decide(proposer=KEYS[4])
        self.engine.play(again, block)
        self.assertEqual(self.committed[-1].header.proposer, 3)

    def test_blockOfOtherValidatorsIsRefused(self) -> None:
        """A block of an engine whose validators are others is not executed."""
        block = self.engine.decide()
        others = ValidatorSet(0, tuple(KEYS[1:5]))
        with self.assertRaises(ApplicationFailed) as raised:
            now(
                self.application.finalizeBlock(
                    evolve(block, nextValidatorsHash=engineSet(others, 100))
                )
            )
        self.assertIn("is of another chain", str(raised.exception))
        own = engineSet(GENESIS.validatorSet, 100)
        now(self.application.finalizeBlock(evolve(block, nextValidatorsHash=own)))

    def test_formerNetworkKeepsPowerOne(self) -> None:
        """A network that began with power 1 adds validators with power 1, also after a start."""
        validators = tuple(evolve(each, power=1) for each in initChain().validators)
        application = self.make(Path(self.mktemp()))
        now(application.initChain(initChain(validators=validators)))
        change = self.broker.transactions.makeChange(changeTo(0, 1, 2, 4))
        block = messages.FinalizeBlockRequest(
            txs=(self.broker.pack(change),),
            height=1,
            nextValidatorsHash=engineSet(GENESIS.validatorSet, 1),
        )
        restarted = self.make(application._path.parent)
        for each in (application, restarted):
            answer = now(each.finalizeBlock(block))
            self.assertEqual({update.power for update in answer.validatorUpdates}, {0, 1})

    def test_wrongHeightIsRefused(self) -> None:
        """A block that does not follow is not executed."""
        block = self.engine.decide()
        for height in (0, 2):
            with self.assertRaises(ApplicationFailed):
                now(self.application.finalizeBlock(evolve(block, height=height)))
        with self.assertRaises(ApplicationFailed):
            now(self.application.commit(messages.CommitRequest()))


class CrashTests(ApplicationTestCase):
    """
    An end at every point, and what the engine finds afterwards.
    """

    def setUp(self) -> None:
        super().setUp()
        self.engine.run(self.application, self.opened("t"))
        self.engine.run(self.application)
        self.block = self.engine.decide(self.published("t"))

    def goesOn(self, application: ChainApplication, played: Sequence[int]) -> None:
        """The engine connects to an application, plays some blocks, and decides the next one."""
        self.assertEqual(self.engine.connect(application), played)
        self.engine.run(application, self.published("t"))
        assert application.machine is not None
        topic = application.machine.state.topic("t")
        assert topic is not None
        self.assertEqual((topic.sequence, topic.height), (2, 4))
        self.assertEqual([each.header.height for each in self.committed], [*played, 4])

    def test_crashBeforeExecutionReplaysTheBlock(self) -> None:
        """Killed before the block came."""
        self.goesOn(self.crash(), [3])

    def test_crashBeforeCommitReplaysTheBlock(self) -> None:
        """Killed after it was executed, before it was committed."""
        self.engine.hashes.append(now(self.application.finalizeBlock(self.block)).appHash)
        self.goesOn(self.crash(), [3])

    def test_crashAfterStoringKeepsTheBlock(self) -> None:
        """Killed after it was stored, before the engine heard of it: it has it all the same."""
        self.engine.hashes.append(now(self.application.finalizeBlock(self.block)).appHash)
        self.held = Deferred()
        committing = Deferred.fromCoroutine(self.application.commit(messages.CommitRequest()))
        self.assertNoResult(committing)
        self.assertEqual(len(self.committed), 2)
        after = self.crash()
        held, self.held = self.held, None
        self.goesOn(after, [])
        held.callback(None)
        self.successResultOf(committing)

    def test_crashAfterCommitReplaysNothing(self) -> None:
        """Killed after the engine heard of it."""
        self.engine.play(self.application, self.block)
        self.goesOn(self.crash(), [])

    def test_reexecutionGivesSameResult(self) -> None:
        """The engine ended between execution and commit: it is executed again, and gives the
        same."""
        first = now(self.application.finalizeBlock(self.block))
        self.engine.hashes.append(first.appHash)
        self.committed.clear()
        self.goesOn(self.application, [3])

    def test_lostDiskIsReplayed(self) -> None:
        """An application that has lost its disk is played everything, and is the same."""
        self.engine.play(self.application, self.block)
        self.committed.clear()
        empty = self.make(Path(self.mktemp()))
        self.assertEqual(self.engine.connect(empty), [1, 2, 3])
        assert empty.machine is not None and self.application.machine is not None
        self.assertEqual(empty.machine.head, self.application.machine.head)

    def test_storageFailureFailsCommit(self) -> None:
        """A block that cannot be stored is reported by the application, which has not got it."""
        store: Any = self.application.store

        def full(rows: object) -> None:
            raise StorageFailed("the disk is full")

        self.patch(store, "append", full)
        self.engine.hashes.append(now(self.application.finalizeBlock(self.block)).appHash)
        with self.assertRaises(StorageFailed):
            now(self.application.commit(messages.CommitRequest()))
        self.assertEqual(len(self.committed), 2)
        self.application.close()
        self.assertIsNone(self.application.store)
        self.committed.clear()
        self.application.open()
        self.goesOn(self.application, [3])

    def test_damagedChainIsNotOpened(self) -> None:
        """A chain that is damaged is not opened, and nothing is left open."""
        self.application.close()
        (self.directory / STORE_NAME).write_bytes(b"nothing like it" * 100)
        with self.assertRaises(StorageError):
            self.application.open()
        self.assertIsNone(self.application.store)
