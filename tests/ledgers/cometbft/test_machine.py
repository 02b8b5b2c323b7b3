"""
The state machine that the engine replicates.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec import structs
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Kind, VersionUnknown, leaderIndex
from svcbroker.ledgers.cometbft import _batch
from svcbroker.ledgers.cometbft._batch import BlockExecution, ChainMachine
from svcbroker.ledgers.cometbft.abci import framedSize
from svcbroker.ledgers.replicated import MAX_AHEAD, BlockRefused, Code
from svcbroker.model import Authorship, OpenTopic, PublishEvent
from svcbroker.model import Execution as Done
from svcbroker.testing._ledgertests import TWINS

from .members import GENESIS, KEYS, START, Broker, changeTo

NOBODY = b""


class MachineTestCase(SynchronousTestCase):
    """
    A machine at the beginning of a chain, and a broker.
    """

    def setUp(self) -> None:
        self.machine = ChainMachine(GENESIS.state(), GENESIS.header())
        self.broker = Broker()
        self.other = Broker(1, sponsor=2)

    def open(self, *topics: str, broker: Broker | None = None) -> bytes:
        """The next batch, which opens topics."""
        return (broker or self.broker).batch(*(OpenTopic(topic=topic) for topic in topics))

    def openAt(self, nonce: int) -> bytes:
        """A batch of one transaction with this nonce."""
        self.broker.transactions.resume(nonce - 1)
        self.broker.previous = 0
        return self.open("t")

    def publish(self, *topics: str, size: int = 1) -> bytes:
        """The next batch, which publishes to topics."""
        return self.broker.batch(
            *(PublishEvent(topic=topic, content=b"x" * size) for topic in topics)
        )

    def execute(self, *block: bytes, proposer: bytes = NOBODY) -> BlockExecution:
        """Execute a block, which is then the last one."""
        height = self.machine.head.height + 1
        execution = self.machine.execute(block, height, START + height, proposer)
        self.machine.apply(execution.candidate)
        return execution

    def all(self, *waiting: bytes, limit: int = 10**9) -> Sequence[bytes]:
        """The batches of the next block."""
        return self.machine.select(waiting, limit, START)

    def code(self, data: bytes, *, isRecheck: bool = False) -> Code:
        """The code for a batch that is to wait."""
        try:
            self.machine.check(data, START, isRecheck=isRecheck)
        except BlockRefused as refusal:
            return refusal.code
        return Code.OK


class CheckTests(MachineTestCase):
    """
    Tests for the batches that may wait.
    """

    def test_batchMayWaitUntilExecuted(self) -> None:
        """A batch may wait until it was executed."""
        data = self.open("t")
        self.assertIs(self.code(data), Code.OK)
        self.assertIs(self.code(data), Code.OK)
        self.execute(data)
        self.assertIs(self.code(data), Code.REPEATED)

    def test_malformedBatchIsRefused(self) -> None:
        """Malformed batches, and batches without an attestation, are refused."""
        self.assertIs(self.code(b""), Code.MALFORMED)
        data = bytearray(self.open("t"))
        data[-1] ^= 1
        self.assertIs(self.code(bytes(data)), Code.UNAUTHORIZED)
        self.assertIs(self.code(self.open("t", broker=Broker(2, sponsor=5))), Code.UNAUTHORIZED)

    def test_batchOfFormerSponsorIsRefused(self) -> None:
        """Batches of a broker whose validator has left may not, although they might before."""
        data = self.open("t", broker=self.other)
        self.assertIs(self.code(data), Code.OK)
        change = self.broker.transactions.makeChange(changeTo(0, 1, 3))
        execution = self.execute(self.broker.pack(change))
        self.assertEqual(execution.candidate.outcome.validators.keys, (KEYS[0], KEYS[1], KEYS[3]))
        self.assertIs(self.code(data, isRecheck=True), Code.UNAUTHORIZED)
        self.assertIs(self.code(self.open("u")), Code.OK)

    def test_batchWithCollidingIdsIsRefused(self) -> None:
        """A batch with two events that might have one id could be in no block."""
        self.assertIs(self.code(self.publish(*TWINS)), Code.CONFLICT)

    def test_batchWaitsForPredecessor(self) -> None:
        """A batch waits for the one before it, but not for ever where nobody has that."""
        first, second = self.open("t"), self.open("u")
        self.assertIs(self.code(second), Code.OK)
        self.execute(self.open("v", broker=self.other))
        self.assertIs(self.code(second, isRecheck=True), Code.OK)
        self.execute()
        self.assertIs(self.code(second, isRecheck=True), Code.OUT_OF_ORDER)
        self.assertIs(self.code(second), Code.OK)
        self.execute(first)
        self.assertIs(self.code(second, isRecheck=True), Code.OK)

    def test_nonceFarAheadIsRefused(self) -> None:
        """No proposer takes such a batch, and no validator votes for it; old blocks are valid."""
        latest = START * 1000 + MAX_AHEAD
        for ahead, code in ((0, Code.OK), (1, Code.AHEAD)):
            data = self.openAt(latest + ahead)
            self.assertIs(self.code(data), code)
            self.assertEqual(self.all(data), [data] if code is Code.OK else [])
            self.assertIs(self.machine.isValid([data], START), code is Code.OK)
            self.assertEqual(self.machine.execute([data], 1, START, NOBODY).codes, [Code.OK])

    def test_accountFarAheadGoesOn(self) -> None:
        """A broker whose clock was wrong may send what follows its last nonce."""
        wrong = START * 1000 + 400 * MAX_AHEAD
        self.execute(self.openAt(wrong))
        self.assertIs(self.code(self.open("next")), Code.OK)
        self.assertIs(self.code(self.openAt(wrong + 2000)), Code.AHEAD)

    def test_parsedBatchesAreBounded(self) -> None:
        """Batches that were read are kept within a bound, and read again where forgotten."""
        self.patch(_batch, "KNOWN_BYTES", 5000)
        batches = [self.publish("t", size=900) for _ in range(20)]
        for data in batches * 2:
            self.machine.check(data, START)
        self.assertLessEqual(len(self.machine._known), 5)
        self.assertEqual(
            self.machine._knownBytes, sum(size for size, _ in self.machine._known.values())
        )


class SelectTests(MachineTestCase):
    """
    Tests for the batches of a block.
    """

    def test_selectionKeepsOrder(self) -> None:
        """Everything that fits, in order."""
        waiting = [self.open("t"), *(self.publish("t", size=9 * n) for n in range(20))]
        size = 0
        for count, data in enumerate(waiting):
            self.assertEqual(self.all(*waiting, limit=size), waiting[:count])
            size += framedSize(data)
            self.assertEqual(self.all(*waiting, limit=size - 1), waiting[:count])
        self.assertEqual(self.all(*waiting, limit=size), waiting)

    def test_smallBatchDoesNotOvertake(self) -> None:
        """A small one does not come before a large one that waited longer."""
        large, small = self.publish("t", size=1000), self.publish("t")
        self.assertEqual(self.all(large, small, limit=500), [])

    def test_invalidBatchesTakeNoRoom(self) -> None:
        """Batches that could be in no block take no room."""
        old = self.open("t")
        self.execute(old)
        new = self.publish("t")
        foreign = self.open("u", broker=Broker(2, sponsor=5))
        chosen = self.all(old, b"nothing", foreign, new, new, limit=framedSize(new))
        self.assertEqual(chosen, [new])

    def test_senderOrderIsRestored(self) -> None:
        """A broker's batches stand in the order in which it made them."""
        mine = [self.open(f"t{number}") for number in range(8)]
        others = [self.open(f"u{number}", broker=self.other) for number in range(8)]
        for seed in range(30):
            waiting = [*mine, *others]
            random.Random(seed).shuffle(waiting)
            chosen = self.all(*waiting)
            self.assertCountEqual(chosen, waiting)
            self.assertEqual([each for each in chosen if each in mine], mine)
            self.assertEqual([each for each in chosen if each in others], others)
            self.assertTrue(self.machine.isValid(chosen, START))

    def test_batchWithoutPredecessorWaits(self) -> None:
        """A batch whose predecessor is not there waits, and others do not."""
        batches = [self.open(f"t{number}") for number in range(4)]
        theirs = self.open("u", broker=self.other)
        self.assertEqual(self.all(batches[3], batches[0], batches[2], theirs), [batches[0], theirs])

    def test_reorderedBatchesRespectSize(self) -> None:
        """Batches that came too early are bound by the block's size as well."""
        first, second, third = (self.open(topic) for topic in "tuv")
        limit = framedSize(first) + framedSize(second)
        self.assertEqual(self.all(third, second, first, limit=limit), [first, second])

    def test_batchWithCollidingIdsIsRefused(self) -> None:
        """A batch whose event might get the id of another one waits for the next block."""
        one, two = TWINS
        waiting = [self.open(*TWINS), self.publish(one), self.publish(two), self.publish(one)]
        self.assertEqual(self.all(*waiting), waiting[:2])
        self.assertFalse(self.machine.isValid(waiting, START))
        self.execute(*waiting[:2])
        self.assertEqual(self.all(*waiting), waiting[2:3])

    def test_selectionIsValid(self) -> None:
        """A block may be voted for if all of it may stand in it: what is chosen may."""
        old = self.open("t")
        self.execute(old)
        new = self.publish("t")
        outOfOrder = [self.publish("t"), self.publish("t")][1]
        for good in ([], [new]):
            self.assertTrue(self.machine.isValid(good, START))
        for bad in ([old], [new, new], [outOfOrder], [new, outOfOrder], [b""], [new, b"x"]):
            self.assertFalse(self.machine.isValid(bad, START), bad)

    def test_anySelectionIsValid(self) -> None:
        """Whatever waits, all validators may vote for what one of them chooses."""
        topics = ["a", "b", *TWINS]
        for seed in range(40):
            chance = random.Random(seed)
            machine = ChainMachine(GENESIS.state(), GENESIS.header())
            brokers = [Broker(0), Broker(1, sponsor=1), Broker(2, sponsor=5)]
            made = [
                chance.choice(brokers).batch(
                    *(
                        PublishEvent(topic=chance.choice(topics), content=chance.randbytes(9))
                        for _ in range(chance.randint(1, 3))
                    )
                )
                for _ in range(12)
            ]
            for _ in range(4):
                waiting = chance.choices([*made, b"", b"junk"], k=15)
                limit = chance.choice([10**6, chance.randint(0, 3000)])
                chosen = machine.select(waiting, limit, START)
                self.assertLessEqual(sum(map(framedSize, chosen)), limit)
                self.assertTrue(machine.isValid(chosen, START))
                execution = machine.execute(chosen, machine.head.height + 1, START, KEYS[0])
                self.assertEqual(set(execution.codes) | {Code.OK}, {Code.OK})
                machine.apply(execution.candidate)


class ExecuteTests(MachineTestCase):
    """
    Tests for the effects of a decided block.
    """

    def test_executionIsDeterministic(self) -> None:
        """Two machines that are given the same are the same, whatever else they were asked."""
        other = ChainMachine(GENESIS.state(), GENESIS.header())
        blocks = [
            [self.open("a", "b")],
            [self.publish("a"), self.publish("b", "a")],
            [],
            [self.open("c", broker=self.other), self.publish("c")],
        ]
        for height, block in enumerate(blocks, 1):
            for data in block:
                other.check(data, START)
            other.select(block, 100, START)
            made = [
                machine.execute(block, height, START + height, KEYS[height % 4])
                for machine in (self.machine, other)
            ]
            first, second = (each.candidate.header for each in made)
            self.assertEqual(first, second)
            self.assertEqual(made[0].codes, made[1].codes)
            for machine, execution in zip((self.machine, other), made, strict=True):
                machine.apply(execution.candidate)
        self.assertEqual(self.machine.state.root, other.state.root)

    def test_executionChangesNothing(self) -> None:
        """Only applying it changes anything: it may be executed as often as the engine likes."""
        block = [self.open("t")]
        hashes = {self.machine.execute(block, 1, START, NOBODY).candidate.header.hash for _ in "ab"}
        self.assertEqual(len(hashes), 1)
        self.assertEqual(self.machine.head, GENESIS.header())
        self.assertIsNone(self.machine.state.topic("t"))

    def test_invalidBatchesGetCodes(self) -> None:
        """A batch that should not be in a block has a code of its own there, changing nothing."""
        good = self.open("t")
        self.execute(good)
        foreign = self.open("u", broker=Broker(2, sponsor=5))
        following, outOfOrder = self.publish("t"), [self.publish("t"), self.publish("t")][1]
        block = [b"", good, foreign, outOfOrder, following, following]
        execution = self.execute(*block)
        self.assertEqual(
            execution.codes,
            [
                Code.MALFORMED,
                Code.REPEATED,
                Code.UNAUTHORIZED,
                Code.OUT_OF_ORDER,
                Code.OK,
                Code.REPEATED,
            ],
        )
        self.assertEqual(len(execution.candidate.transactions), 1)
        topic = self.machine.state.topic("t")
        assert topic is not None
        self.assertEqual(topic.sequence, 1)

    def test_repeatedTransactionsAreSkipped(self) -> None:
        """A batch with something new may stand in a block; what is not new is not done again."""
        one, two = (self.broker.make(PublishEvent(topic="t", content=b"%d" % n)) for n in range(2))
        self.execute(self.open("t", broker=self.other), self.broker.pack(one))
        execution = self.execute(self.broker.batches.make([one, two], 0))
        self.assertEqual(execution.codes, [Code.OK])
        receipts = [receipt.execution for receipt in execution.candidate.outcome.receipts]
        self.assertEqual(receipts, [Done.REPEATED, Done.DONE])

    def test_timeNeverGoesBack(self) -> None:
        """Time does not go back, whatever the engine says."""
        first = self.machine.execute([], 1, START - 5, NOBODY).candidate
        self.assertEqual(first.header.timestamp, START)

    def test_viewNamesProposer(self) -> None:
        """Our header names the engine's proposer, by the lowest view that does."""
        last = 0
        for height, index in enumerate([0, 3, 1, 1, 2, 0, 0, 3], 1):
            header = self.execute(proposer=KEYS[index]).candidate.header
            self.assertEqual(header.proposer, index)
            self.assertEqual(leaderIndex(header.view, height, 4), index)
            self.assertIn(header.view - last, range(4))
            last = header.view

    def test_unknownProposerKeepsView(self) -> None:
        """One that is not in the set leaves the view as it is."""
        self.execute(proposer=KEYS[3])
        view = self.machine.head.view
        self.assertEqual(self.execute(proposer=KEYS[5]).candidate.header.view, view)
        self.assertEqual(self.execute(proposer=NOBODY).candidate.header.view, view)

    def test_changeAppliesToNextBlock(self) -> None:
        """A change of the validators is executed once, and the next block is of the new set."""
        change = changeTo(0, 1, 2, 4)
        made = [self.broker.transactions.makeChange(change) for _ in range(2)]
        self.assertEqual(made[0].kind, Kind.VALIDATORS)
        execution = self.execute(self.broker.pack(*made))
        receipts = [receipt.execution for receipt in execution.candidate.outcome.receipts]
        self.assertEqual(receipts, [Done.DONE, Done.REFUSED])
        header = execution.candidate.header
        self.assertEqual(header.validators, GENESIS.validatorSet.hash)
        self.assertEqual(header.nextValidators, change.following.hash)
        following = self.execute(proposer=KEYS[4]).candidate.header
        self.assertEqual(following.validators, change.following.hash)
        self.assertEqual(following.proposer, 3)


class FormatTests(MachineTestCase):
    """
    From blocks of format 2 to blocks of formats 3 and 4.
    """

    def old(self) -> ChainMachine:
        """A machine whose chain has a transaction of version 1; format 3 begins at block 4."""
        self.broker.transactions.version = 1
        machine = ChainMachine(GENESIS.state(), GENESIS.header(), format3=4)
        self.run_(machine, self.open("t"))
        return machine

    def run_(self, machine: ChainMachine, *block: bytes) -> int:
        """Decide a block; the version of its header."""
        height = machine.head.height + 1
        machine.apply(machine.execute(block, height, START, NOBODY).candidate)
        return machine.head.version

    def test_newChainHasFormat3(self) -> None:
        """A chain without transactions takes those of version 2."""
        self.assertEqual(self.run_(self.machine), 2)
        data = self.open("t")
        self.machine.check(data, START)
        self.assertTrue(self.machine.isValid([data], START))
        self.assertEqual(self.run_(self.machine, data), 3)

    def test_newChainMayBeginWithFormat4(self) -> None:
        """The broker of a chain without transactions begins with version 3, and goes on with 2."""
        self.broker.transactions.isNew = True
        data = self.open("t")
        self.machine.check(data, START)
        self.assertTrue(self.machine.isValid([data], START))
        self.assertEqual(self.run_(self.machine, data), 4)
        self.broker.transactions.isNew = False
        self.assertEqual(self.machine.newest, 3)
        data = self.publish("t")
        self.assertEqual([each.version for each in self.machine._read(data).transactions], [2])

    def test_formatChangesAtTheAgreedHeight(self) -> None:
        """Before the agreed height no block with transactions of version 2 is accepted."""
        machine = self.old()
        self.broker.transactions.version = 2
        self.changes(machine, self.publish("t"), 2)

    def test_format4ChangesAtItsHeight(self) -> None:
        """Before its height no block with transactions of version 3 is accepted."""
        machine = ChainMachine(GENESIS.state(), GENESIS.header(), format4=4)
        self.run_(machine, self.open("t"))
        self.changes(machine, self.statement2("t"), 3)

    def statement2(self, topic: str) -> bytes:
        """A batch of version 3: a publish with a statement of version 2."""
        request = PublishEvent(
            topic=topic,
            content=b"x",
            author=Authorship(key=bytes(32), signedAt=1, signature=bytes(64), statement=2),
        )
        return self.broker.batch(request)

    def changes(self, machine: ChainMachine, data: bytes, version: int) -> None:
        """Transactions of a version are valid from block 4 on."""
        for _ in range(2):
            self.assertEqual(machine.newest, version - 1)
            refused = self.assertRaises(BlockRefused, machine.check, data, START)
            self.assertIs(refused.code, Code.TOO_NEW)
            self.assertEqual(machine.select([data], 10**6, START), [])
            self.assertFalse(machine.isValid([data], START))
            self.assertEqual(self.run_(machine), version)
        machine.check(data, START)
        self.assertEqual(machine.select([data], 10**6, START), [data])
        self.assertTrue(machine.isValid([data], START))
        self.assertEqual(self.run_(machine, data), version + 1)

    def test_decidedBlockIsExecuted(self) -> None:
        """A node that was told another height, or none, follows what the others have decided."""
        machine = self.old()
        self.broker.transactions.version = 2
        self.assertEqual(self.run_(machine, self.publish("t")), 3)
        self.assertEqual(machine.newest, 2)
        topic = machine.state.topic("t")
        assert topic is not None
        self.assertEqual(topic.sequence, 1)

    def test_transactionsUnderWayAtTheChangeAreExecuted(self) -> None:
        """A transaction that was sent before the change is executed after it."""
        machine = self.old()
        late = self.publish("t")
        self.run_(machine)
        self.run_(machine)
        self.broker.transactions.version = 2
        self.assertEqual(self.run_(machine, late, self.publish("t")), 3)
        topic = machine.state.topic("t")
        assert topic is not None
        self.assertEqual(topic.sequence, 2)

    def test_newerTransactionsStopANode(self) -> None:
        """A decided block with transactions of a newer svcbroker is not executed without them."""
        self.run_(self.machine, self.open("t"))
        [made] = self.broker.transactions.makeMany([PublishEvent(topic="t", content=b"x")])
        newer = structs.replace(made, head=b"\x04" + made.head[1:])
        data = self.broker.batches.make([newer], made.nonce - 1)
        refused = self.assertRaises(BlockRefused, self.machine.check, data, START)
        self.assertIs(refused.code, Code.TOO_NEW)
        self.assertIn("a newer svcbroker", str(refused))
        self.assertFalse(self.machine.isValid([data], START))
        with self.assertRaisesRegex(VersionUnknown, "block 2 .*: upgrade it"):
            self.machine.execute([data], 2, START, NOBODY)
