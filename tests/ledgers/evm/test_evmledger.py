"""
The ledger on nodes that have bad days, over the network of this machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import evolve
from msgspec import structs
from twisted.trial.unittest import SynchronousTestCase, TestCase

from svcbroker.chain import Genesis
from svcbroker.errors import BrokerError, LedgerUnavailable
from svcbroker.ledgers.evm import EvmLedger, _evmledger, _evmrpc, checkInstalled
from svcbroker.ledgers.evm._ethereum import EvmAccount
from svcbroker.ledgers.evm._evmledger import RECENT, Attestations
from svcbroker.ledgers.evm._evmsettings import EvmSettings
from svcbroker.model import Execution, OpenTopic, PublishEvent, Receipt
from svcbroker.net.deferreds import asDeferred
from tests.waiting import until

from .fakenode import CHAIN_ID, CONTRACT, FakeNode, FakeRpc, ServedNode
from .nodes import contextOf

skip = checkInstalled() or None

YEAR = 365.0 * 24 * 3600


class AttestationTests(SynchronousTestCase):
    """The attestations of one broker, on a node in memory."""

    def setUp(self) -> None:
        self.node = FakeNode()
        self.called: list[bytes] = []
        self.attestations = Attestations(FakeRpc(self.node), CONTRACT, 10, self.called.append)

    def execute(self, height: int, minutes: int, behind: int = 0) -> None:
        """Execute a block, a minute after the one before it."""
        header = Genesis(group="1", created=minutes * 60_000, validators=(bytes(32),)).header()
        before = (minutes - 1) * 60_000
        self.attestations.executed(structs.replace(header, height=height), before, behind)

    def test_blocksAreAttestedByHeightAndHour(self) -> None:
        """Each tenth block is attested, and the first one of each hour, so that all brokers attest
        the same; those of long ago are not."""
        for height in range(1, 65):
            self.execute(height, height)
        due = [int.from_bytes(each[4:36], "big") for each in self.called]
        self.assertEqual(due, [10, 20, 30, 40, 50, 60])
        self.called.clear()
        for height, minutes in ((71, 120), (72, 121), (73, 180), (80, 181)):
            self.execute(height, minutes, behind=0 if height < 73 else RECENT + 1)
        self.assertEqual([int.from_bytes(each[4:36], "big") for each in self.called], [71])

    def test_attestedHashesAreCompared(self) -> None:
        """What others have attested agrees with the blocks here, or is told of with both hashes;
        after a start, also what was attested before it."""
        self.attestations.begin(45, lambda height: bytes([height]) * 32)
        self.successResultOf(self.attestations.compare())
        self.assertEqual((self.attestations.agreed, self.attestations.fault), (0, ""))
        self.node.attested = {20: b"\x14" * 32, 40: b"\x28" * 32}
        self.successResultOf(self.attestations.compare())
        self.assertEqual((self.attestations.agreed, self.attestations.fault), (40, ""))
        self.node.attested[30] = b"\x07" * 32
        self.successResultOf(self.attestations.compare())
        self.assertEqual(self.attestations.agreed, 40)
        self.assertIn((b"\x1e" * 32).hex(), self.attestations.fault)
        self.assertIn((b"\x07" * 32).hex(), self.attestations.fault)
        self.flushLoggedErrors()


class LedgerTests(TestCase):
    """
    Nodes of one chain that are in memory, and brokers that ask them.
    """

    # For a machine under load: each wait has a bound of its own.
    timeout = 600

    def begin(self, count: int = 1, **fields: Any) -> list[ServedNode]:
        """Serve nodes of one chain."""
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.nodes = [FakeNode(**fields)]
        self.nodes += [FakeNode(blocks=self.nodes[0].blocks, **fields) for _ in range(count - 1)]
        self.node = self.nodes[0]
        self.served = [each.serve(self) for each in self.nodes]
        return self.served

    def makeLedger(
        self,
        name: str = "a",
        *,
        key: str = "a",
        now: Callable[[], float] = time.time,
        **settings: Any,
    ) -> EvmLedger:
        """The ledger of a broker, not started."""
        path = self.directory / f"{key}.key"
        if not path.exists():
            EvmAccount.create(path, os.urandom)
        fields: dict[str, Any] = {
            "endpoint": tuple(each.url for each in self.served),
            "contract": CONTRACT,
            "key": path,
            "chainId": CHAIN_ID,
            "finality": 0,
            "interval": 0.005,
        }
        context = evolve(contextOf(self.directory / name), now=now)
        ledger = EvmLedger(context, EvmSettings(**{**fields, **settings}))
        self.addCleanup(ledger.stop)
        return ledger

    async def started(self, *args: Any, **settings: Any) -> EvmLedger:
        """A ledger that runs, with a topic."""
        ledger = self.makeLedger(*args, **settings)
        await ledger.start()
        await self.publish(ledger, OpenTopic(topic="t"))
        return ledger

    async def publish(self, ledger: EvmLedger, *requests: Any) -> list[Any]:
        """The outcomes of some requests."""
        submission = ledger.submitMany(requests)
        await submission.done
        return list(submission.outcomes)

    async def event(self, ledger: EvmLedger, content: bytes) -> None:
        """Publish an event, which is executed."""
        [receipt] = await self.publish(ledger, PublishEvent(topic="t", content=content))
        self.assertIsInstance(receipt, Receipt)
        self.assertIs(receipt.execution, Execution.DONE)

    async def untilEvent(self, ledger: EvmLedger, content: bytes) -> None:
        """Publish an event until it is executed."""

        async def isDone() -> bool:
            [outcome] = await self.publish(ledger, PublishEvent(topic="t", content=content))
            return isinstance(outcome, Receipt)

        await until(isDone)

    async def contents(self, ledger: EvmLedger) -> list[bytes]:
        """The contents of all events, in order."""
        height = (await ledger.getStatistics()).height
        found = []
        for each in range(1, height + 1):
            found += [event.content for event in (await ledger.readBlock(each)).events]
        return found

    async def reason(self, ledger: EvmLedger, words: str) -> None:
        """Wait until a ledger is not ready, for a reason with some words."""

        async def tells() -> bool:
            return words in (await ledger.getHealth()).reason

        await until(tells)

    async def untilReady(self, ledger: EvmLedger) -> None:
        """Wait until a ledger is ready."""

        async def isReady() -> bool:
            return (await ledger.getHealth()).isReady

        await until(isReady)

    @asDeferred
    async def test_endpointThatChangesUnderWayLosesNothing(self) -> None:
        """A node that falls silent while transactions are under way is left: the next one is
        given what was accepted, and all of it is executed once, in order."""
        self.patch(_evmrpc, "TIMEOUT", 2.0)
        first, second = self.begin(2)
        ledger = await self.started(window=4)
        expected = []
        for silent, other in ((first, second), (second, first)):
            contents = [b"%s %d" % (silent.url.encode(), number) for number in range(5)]
            expected += contents
            waiting = [
                ledger.submitMany([PublishEvent(topic="t", content=each)]) for each in contents[:-1]
            ]
            # What was sent is in the chain, and the answer is lost.
            silent.delay, other.delay = None, 0.0
            waiting.append(ledger.submitMany([PublishEvent(topic="t", content=contents[-1])]))
            for each in waiting:
                await each.done
                self.assertIs(each.outcomes[0].execution, Execution.DONE)  # type: ignore[union-attr]
        self.assertEqual(await self.contents(ledger), expected)

    @asDeferred
    async def test_lateNodeIsWaitedFor(self) -> None:
        """A node that takes long for each answer delays events, and that is all."""
        [served] = self.begin()
        ledger = await self.started()
        served.delay = 0.4
        await self.event(ledger, b"x")
        self.assertTrue((await ledger.getHealth()).isReady)

    @asDeferred
    async def test_silentNodeIsTold(self) -> None:
        """A single node that never answers is told of; events are accepted again when it does."""
        [served] = self.begin()
        ledger = await self.started()
        served.delay = None
        shortened = self.patch(_evmrpc, "TIMEOUT", 0.3)
        await self.reason(ledger, served.url)
        shortened.restore()
        served.delay = 0.0
        await self.untilReady(ledger)
        await self.event(ledger, b"x")
        self.assertEqual(await self.contents(ledger), [b"x"])

    @asDeferred
    async def test_stoppedLedgerHasEndedItsRequests(self) -> None:
        """A ledger that stops closes the connections on which it waits for answers; a node that
        is closed leaves none of its late answers behind."""
        [served] = self.begin()
        ledger = await self.started()
        for delay in (None, 1000.0):
            served.delay = delay
            await until(lambda: served.waiting == 1)
            await ledger.stop()
            await until(lambda: not served.waiting)
            self.assertEqual((await ledger.getHealth()).reason, "the ledger is stopped")
            served.delay = 0.0
            ledger = self.makeLedger()
            await ledger.start()

    @asDeferred
    async def test_wrongAnswersChangeNothing(self) -> None:
        """A node whose answers are none is told of, whatever it says; nothing of it is executed,
        and all goes on with right answers."""
        [served] = self.begin()
        ledger = await self.started()
        expected = []
        for number, wrong in enumerate(
            (
                *(b"", b"<html>502</html>", b"[]", b"{}", b"null", b"[[[[", b"\xff\xfe"),
                b'{"jsonrpc": "2.0", "id": 0, "result": null}',
                b'{"jsonrpc": "2.0", "id": 0, "result": "0x"}',
                b'{"jsonrpc": "2.0", "id": 0, "result": {"number": "0x-1"}}',
                b'{"jsonrpc": "2.0", "id": 0, "result": "0x' + b"f" * 200 + b'"}',
                b'{"jsonrpc": "2.0", "id": 0, "error": {"code": 1, "message": "no"}}',
                b'{"jsonrpc": "2.0", "id": 99, "result": true}',
            )
        ):
            height = ledger.measure().height
            served.change = lambda answer, wrong=wrong: wrong  # type: ignore[misc]
            self.node.mine()

            async def isTold() -> bool:
                return not (await ledger.getHealth()).isReady

            await until(isTold)
            self.assertEqual(ledger.measure().height, height)
            served.change = lambda answer: answer
            await self.untilReady(ledger)
            expected.append(b"%d" % number)
            await self.untilEvent(ledger, expected[-1])
        served.change = lambda answer: answer[:-9]
        await self.reason(ledger, "answered with no answer")
        self.assertEqual(await self.contents(ledger), expected)

    @asDeferred
    async def test_strictDialectIsFoundOut(self) -> None:
        """A node that takes eight calls in a request, and gives the logs of ten blocks without a
        word, is read and written to with the bounds that are for any node."""
        self.begin(most=8, cut=10)
        first = await self.started("a", key="a", window=40)
        for number in range(30):
            await self.event(first, b"%d" % number)
        second = self.makeLedger("b", key="b")
        await second.start()
        await until(lambda: second.measure().height == first.measure().height)
        expected = [b"%d" % number for number in range(30)]
        self.assertEqual(await self.contents(second), expected)
        # What the node forgets is sent again, all at once.
        self.node.standsAt = len(self.node.blocks) - 1
        waiting = []
        sender: Any = first._sender
        for number in range(12):
            waiting.append(first.submitMany([PublishEvent(topic="t", content=b"w%d" % number)]))
            await until(lambda: not sender._pending.queued and all(x.due for x in sender._sent))
        self.assertGreater(sender.underWay, 8)
        self.node.standsAt = None
        for each in sender._sent:
            each.due = 0.0
        sender._wake(0)
        for submission in waiting:
            await submission.done
        self.assertEqual(len(await self.contents(first)), 42)

    @asDeferred
    async def test_nodeThatStandsStillIsLeft(self) -> None:
        """A node that has lost its chain, and answers all the same, is left for another one."""
        self.patch(_evmledger, "STILL", 2.0)
        self.begin(2)
        ledger = await self.started()
        for each in self.nodes:
            if each.asked:
                each.standsAt = len(each.blocks) - 1
        await self.event(ledger, b"x")
        self.assertEqual(await self.contents(ledger), [b"x"])

    @asDeferred
    async def test_standstillIsTold(self) -> None:
        """Where a single node brings no blocks while transactions wait, the reason says so; a
        chain without blocks is ready while nothing waits."""
        self.patch(_evmledger, "STILL", 0.2)
        self.patch(_evmledger, "STALL_TIMEOUT", 0.3)
        self.begin()
        ledger = await self.started()
        self.node.standsAt = len(self.node.blocks) - 1
        looked = ledger._looked
        await until(lambda: ledger._looked > looked + 0.5)
        self.assertTrue((await ledger.getHealth()).isReady)
        waiting = ledger.submitMany([PublishEvent(topic="t", content=b"x")])
        await self.reason(ledger, "stands still, or its chain does")
        self.node.standsAt = None
        sender: Any = ledger._sender
        for each in sender._sent:
            each.due = 0.0
        sender._wake(0)
        await waiting.done
        await self.untilReady(ledger)

    @asDeferred
    async def test_catchingUpIsTold(self) -> None:
        """A node that says that it is behind its chain is told of."""
        self.patch(_evmledger, "COMPARED", 0.0)
        self.begin(syncing={"currentBlock": "0x5", "highestBlock": "0x64"})
        ledger = await self.started()
        await self.reason(ledger, "has block 5 of 100")
        self.node.syncing = False
        await self.untilReady(ledger)

    @asDeferred
    async def test_brokersWithOneKeyDoubleNothing(self) -> None:
        """Two brokers that use copies of one key take each other's nonces: what was acknowledged
        is in both logs once, and nothing is there twice."""
        self.begin()
        brokers = [await self.started("a"), await self.started("b")]
        acknowledged: list[bytes] = []
        for number in range(10):
            submissions = [
                (each, ledger.submitMany([PublishEvent(topic="t", content=each)]))
                for ledger, each in zip(brokers, (b"a%d" % number, b"b%d" % number), strict=True)
            ]
            for content, submission in submissions:
                await submission.done
                [outcome] = submission.outcomes
                self.assertIsInstance(outcome, Receipt | BrokerError)
                if isinstance(outcome, Receipt):
                    acknowledged.append(content)
        heights = [ledger.measure().height or 0 for ledger in brokers]
        for ledger in brokers:
            await until(lambda ledger=ledger: ledger.measure().height >= max(heights))  # type: ignore[misc]
        first, second = [await self.contents(ledger) for ledger in brokers]
        self.assertEqual(first, second)
        self.assertEqual(len(set(first)), len(first))
        self.assertLessEqual(set(acknowledged), set(first))
        self.assertTrue(acknowledged)

    @asDeferred
    async def test_accountWithoutMoneyIsTold(self) -> None:
        """An account that cannot pay for gas is told of. What was accepted before waits, and is
        executed when others have sent money; new events are refused at once."""
        self.begin(price=1, balance=10**9)
        ledger = await self.started()
        self.node.balance = 0
        waiting = ledger.submitMany([PublishEvent(topic="t", content=b"x")])
        await self.reason(ledger, "is out of gas money: it has 0 wei")
        [refused] = await self.publish(ledger, PublishEvent(topic="t", content=b"y"))
        self.assertIsInstance(refused, LedgerUnavailable)
        self.node.balance = 10**9
        await waiting.done
        await self.untilReady(ledger)
        self.assertEqual(await self.contents(ledger), [b"x"])

    @asDeferred
    async def test_dearerGasIsPaid(self) -> None:
        """Where gas becomes dearer, a transaction is offered again for more, and executed once. A
        broker whose price is fixed tells of it, and goes on when that is enough again."""
        self.begin(price=5, balance=10**12)
        ledger = await self.started()
        fixed = await self.started("b", key="b", gasPrice=50)
        self.node.price = 100
        await self.event(ledger, b"x")
        chain = ledger.measure().chain
        assert chain is not None
        self.assertEqual(chain.gasPrice, 100)
        waiting = fixed.submitMany([PublishEvent(topic="t", content=b"y")])
        await self.reason(fixed, "the node wants more than 50 wei for gas: set gas-price")
        self.node.price = 50
        await waiting.done
        self.assertEqual(await self.contents(fixed), [b"x", b"y"])

    @asDeferred
    async def test_replacedTransactionGetsAnotherNonce(self) -> None:
        """While the node's pool has somebody else's transaction with a nonce of ours, ours waits.
        When the other one is in a block, ours is sent with the next nonce, and executed once."""
        self.begin()
        ledger = await self.started()
        sender: Any = ledger._sender
        await until(lambda: not sender.underWay)
        self.node.refusal = "replacement transaction underpriced"
        waiting = ledger.submitMany([PublishEvent(topic="t", content=b"x")])
        await until(lambda: any(each.due for each in sender._sent))
        [nonce] = [each.nonce for each in sender._sent]
        self.node.refusal = ""
        account = EvmAccount.load(self.directory / "a.key")
        self.node.mine().senders[b"\x01" * 32] = account.address
        await waiting.done
        self.assertEqual(self.node.nonceOf(account.address, self.node.last), nonce + 2)
        self.assertEqual(await self.contents(ledger), [b"x"])

    @asDeferred
    async def test_gapOfNoncesIsFilled(self) -> None:
        """A transaction that the node takes and forgets is sent again with those behind it, which
        it refuses for their nonces; all are executed once, in order."""
        self.begin()
        ledger = await self.started()
        self.node.forgets = 1
        sender: Any = ledger._sender
        waiting = []
        for number in range(3):
            waiting.append(ledger.submitMany([PublishEvent(topic="t", content=b"%d" % number)]))
            # Nothing is taken while the node has just refused something.
            await until(lambda: not sender._pending.queued and not sender.reason)
        for each in waiting:
            await each.done
        self.assertEqual(await self.contents(ledger), [b"0", b"1", b"2"])

    @asDeferred
    async def test_wrongClocksDoNotStopWrites(self) -> None:
        """A broker whose clock is a year ahead, and is then a year behind, goes on; the times of
        blocks are the chain's."""
        self.begin()
        for number, off in enumerate((YEAR, -YEAR, 0.0)):
            ledger = self.makeLedger(now=lambda off=off: time.time() + off)  # type: ignore[misc]
            await ledger.start()
            await self.publish(ledger, OpenTopic(topic="t"))
            await self.event(ledger, b"%d" % number)
            height = ledger.measure().height or 0
            block = await ledger.readBlock(height)
            self.assertEqual(block.timestamp, self.node.blocks[-1].time * 1000)
            await ledger.stop()

    @asDeferred
    async def test_startReadsNothingAgain(self) -> None:
        """A broker that starts again asks for no log of before, however long the chain is."""
        self.begin()
        ledger = await self.started()
        for number in range(30):
            await self.event(ledger, b"%d" % number)
        await ledger.stop()
        for _ in range(5000):
            self.node.mine()
        self.node.asked.clear()
        again = self.makeLedger()
        await again.start()
        await until(lambda: again._source is not None and not again._source.behind)
        self.assertEqual(len(await self.contents(again)), 30)
        self.assertNotIn("eth_getLogs", self.node.asked)
        self.assertLess(len(self.node.asked), 40)

    @asDeferred
    async def test_brokerThatIsBehindSaysSo(self) -> None:
        """A broker that reads for long says how many blocks are left, and reads them all."""
        self.patch(_evmledger, "BEHIND", 0.0)
        self.begin()
        first = await self.started()
        for number in range(40):
            await self.event(first, b"%d" % number)
        second = self.makeLedger("b", key="b", dialect="fisco")
        self.served[0].delay = 0.02
        starting = second.start()
        await self.reason(second, "blocks of the chain are still to be read")
        await starting
        await self.untilReady(second)
        self.assertEqual(await self.contents(second), await self.contents(first))

    @asDeferred
    async def test_moneyIsSeenWithoutPublishing(self) -> None:
        """What others send to the account."""
        self.patch(_evmledger, "SURVEYED", 0.0)
        self.begin()
        ledger = await self.started()
        self.node.balance = 7

        def isSeen() -> bool:
            chain = ledger.measure().chain
            assert chain is not None
            return chain.balance == 7

        await until(isSeen)

    @asDeferred
    async def test_validatorsAreNodes(self) -> None:
        """Where the node tells the chain's validators, they are the nodes, and those that have
        proposed blocks lately are active; else the endpoints are."""
        self.patch(_evmledger, "SURVEYED", 0.0)
        self.begin()
        ledger = await self.started()
        page = await ledger.listNodes(0, 10)
        self.assertEqual([each.name for each in page.items], [self.served[0].url])
        # Asked once of each node that tells none.
        self.assertEqual(self.node.asked.count("istanbul_getValidators"), 1)
        self.node.tells = True
        ledger._rpc.leave()
        for _ in range(9):
            self.node.mine()

        newest = len(self.node.blocks) - 1

        async def areTold() -> bool:
            page = await ledger.listNodes(0, 10)
            return page.total == 4 and max(each.height for each in page.items) == newest

        await until(areTold)
        page = await ledger.listNodes(0, 10)
        self.assertEqual([each.isActive for each in page.items], [True, True, True, False])
        self.assertEqual({each.height for each in page.items}, {0, *range(newest - 2, newest + 1)})
        named = await ledger.listNodes(0, 10, name=page.items[1].name)
        self.assertEqual([each.nodeId for each in named.items], [b"\x02" * 20])
