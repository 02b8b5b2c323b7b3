"""
Faults in networks of real engines.
"""

from __future__ import annotations

import re
import signal
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import submit
from svcbroker.ledgers._views import TransactionMaker
from svcbroker.ledgers.cometbft._batch import BatchMaker, BrokerIdentity, attest
from svcbroker.ledgers.cometbft._home import publicKey, readValidatorSeed
from svcbroker.ledgers.cometbft.provisioning import Tuning
from svcbroker.model import AuthorSet, Authorship, Execution, OpenTopic, PublishEvent
from svcbroker.storage import StorageFailed
from svcbroker.testing._fixtures import RecordingObserver
from tests.authors import Author

from .load import TOPIC, Load, checkSame, eventsOf, publish
from .network import TIMEOUT, Network, Node, reactor, until
from .realengine import raw


class NetworkTestCase(TestCase):
    """
    A test of a network. Times are bounds only.
    """

    timeout = 4 * TIMEOUT

    async def begin(self, count: int, **changes: Any) -> Network:
        """A network that has started."""
        self.network = Network(self, count, **changes)
        self.addCleanup(self.network.stop)
        await self.network.start()
        return self.network


class FaultTests(NetworkTestCase):
    """
    Four nodes, of which one may fail.
    """

    async def test_killedEngineLosesNothing(self) -> None:
        """
        An engine is killed under load: the others go on, and it comes back. Nothing is lost, and
        nothing is there twice.
        """
        network = await self.begin(4)
        load = Load(network)
        await load.start(2, burst=40)
        await until(lambda: all(load.counts[number] > 5 for number in range(4)))
        victim = network.nodes[0]
        killed = victim.engine.pid
        victim.signal(signal.SIGKILL)
        others = load.total(1, 2, 3)
        await until(lambda: load.total(1, 2, 3) > others + 400)
        own = load.counts[0]
        await until(lambda: load.counts[0] > own + 100)
        self.assertNotEqual(victim.engine.pid, killed)
        await load.end()
        await load.check(self)

    async def test_silenceIsNoticed(self) -> None:
        """
        Suspended engines keep their connections, and nothing is published. The others say that
        they are alone, and refuse publishes; a broker says so of its own engine, too.
        """
        network = await self.begin(4)
        await until(partial(self.hasHeardAll, network))
        alive, silent = network.nodes[:2], network.nodes[2:]
        for node in silent:
            node.signal(signal.SIGSTOP)
            self.addCleanup(node.signal, signal.SIGCONT)
        for node in alive:
            await until(partial(self.says, node, "alone since .* UTC: 2 of 4 validators"))
            await until(partial(self.isRefused, node))
            self.assertIn("alone since", await self.failureOf(publish(node, b"refused")))
        for node in silent:
            await until(partial(self.says, node, "does not answer"))
            await until(partial(self.isRefused, node))
            self.assertIn("has not answered", await self.failureOf(publish(node, b"refused")))
        for node in silent:
            node.signal(signal.SIGCONT)
        for node in network.nodes:
            await until(partial(self.isReady, node))

    async def hasHeardAll(self, network: Network) -> bool:
        """Whether each node has heard from its peers by itself."""
        return all(len(node.ledger._watch._heard) == 3 for node in network.nodes)

    def isRefused(self, node: Node) -> bool:
        """Whether a node refuses publishes."""
        return bool(node.ledger._watch.refusal)

    async def says(self, node: Node, reason: str) -> bool:
        """Whether a node gives this reason, which others may precede."""
        return bool(re.search(reason, (await node.ledger.getHealth()).reason))

    async def isReady(self, node: Node) -> bool:
        """Whether a node is ready."""
        return (await node.ledger.getHealth()).isReady

    async def failureOf(self, answer: Deferred[Any]) -> str:
        """The reason why a publish was refused."""
        with self.assertRaises(LedgerUnavailable) as caught:
            await answer
        return str(caught.exception)

    async def test_powerCutLosesNothing(self) -> None:
        """All engines are killed at once under load, as in a power cut, and go on."""
        network = await self.begin(4)
        load = Load(network)
        await load.start(1, burst=10)
        await until(lambda: all(load.counts[number] > 10 for number in range(4)))
        for node in network.nodes:
            node.signal(signal.SIGKILL)
        counts = dict(load.counts)
        await until(lambda: all(load.counts[number] > counts[number] + 20 for number in counts))
        await load.end()
        await load.check(self)

    async def test_twoOfFourDoNotAnswer(self) -> None:
        """
        With two engines gone nothing is answered, and it is said why. Once they are back, what
        waited becomes final, once; also that for which nobody waits any more.
        """
        network = await self.begin(4)
        load = Load(network)
        await load.start(1)
        await until(lambda: all(load.counts[number] > 2 for number in range(4)))
        await load.end()
        alive, dead = network.nodes[:2], network.nodes[2:]
        await gatherResults([node.kill() for node in dead])
        for node in alive:
            await until(partial(self.isTold, node, "2 of 4 validators are active"))
            records = (await node.ledger.listNodes(0, 10)).items
            self.assertEqual(sum(record.isActive for record in records), 2)
            await until(partial(self.says, node, "alone since .* UTC: 2 of 4 validators"))
            await until(partial(self.isRefused, node))
            refused = await self.failureOf(publish(node, b"refused"))
            self.assertIn("alone since", refused)
        for node in alive:
            # As if it had not been noticed yet.
            node.ledger._watch.decided()
        waiting = {b"waiting %d" % number: node for number, node in enumerate(network.nodes)}
        answers = {content: publish(node, content) for content, node in waiting.items()}
        late = publish(alive[0], b"late")
        late.addErrback(lambda _: None)
        late.cancel()

        for node in alive:
            await until(partial(self.isTold, node, "must agree|have waited"))
        for node in dead:
            await until(partial(self.isTold, node, "the engine is stopped"))
        self.assertFalse(any(answer.called for answer in answers.values()))
        for content, receipt in load.answered.items():
            assert receipt.eventId is not None
            event = await alive[0].ledger.getEvent(receipt.eventId)
            self.assertEqual(event.content, content)

        for node in dead:
            node.engine.start()
        receipts = {content: await answer for content, answer in answers.items()}
        await checkSame(self, network, load.answered | receipts)
        contents = [event.content for event in await eventsOf(alive[1])]
        self.assertEqual(contents.count(b"late"), 1)

    async def isTold(self, node: Node, reason: str) -> bool:
        """Whether a ledger says that it is not ready, for such a reason."""
        health = await node.ledger.getHealth()
        if health.isReady:
            return False
        self.assertRegex(health.reason, reason)
        return True

    async def test_cutOffNodeCatchesUp(self) -> None:
        """One that was cut off for a while gets to where the others are."""
        network = await self.begin(4)
        load = Load(network)
        await load.start(2)
        await until(lambda: all(load.counts[number] > 2 for number in range(4)))
        victim = network.nodes[3]
        victim.signal(signal.SIGSTOP)
        self.addCleanup(self.goOn, victim)
        others = load.total(0, 1, 2)
        await until(lambda: load.total(0, 1, 2) > others + 30)
        self.assertLess(await victim.height(), await network.nodes[0].height())
        self.goOn(victim)
        own = load.counts[3]
        await until(lambda: load.counts[3] > own + 2)
        await load.end()
        await load.check(self)

    def goOn(self, node: Node) -> None:
        """Let an engine that was stopped go on."""
        if node.engine.pid is not None:
            node.signal(signal.SIGCONT)

    async def test_eventsAreTheSameEverywhere(self) -> None:
        """An event that is published through one node is read through all, under the same id."""
        network = await self.begin(4)
        observers = [RecordingObserver() for _ in network.nodes]
        for node, observer in zip(network.nodes, observers, strict=True):
            node.ledger.addObserver(observer)
        height = await network.nodes[0].height()
        await submit(network.nodes[1].ledger, OpenTopic(topic=TOPIC))
        answered = {}
        for number, node in enumerate(network.nodes):
            content = b"through %d" % number
            answered[content] = receipt = await publish(node, content)
            assert receipt.eventId is not None
            # Where it was published it is there at once.
            self.assertEqual((await node.ledger.getEvent(receipt.eventId)).content, content)
        await checkSame(self, network, answered)
        blocks = observers[0].blocks
        end = await network.nodes[0].height()
        self.assertEqual([block.height for block in blocks], list(range(height + 1, end + 1)))
        for observer in observers:
            self.assertEqual(observer.blocks, blocks)


class ApplicationTests(NetworkTestCase):
    """
    One node whose application fails.
    """

    async def breaks(self, change: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        network = await self.begin(1)
        (node,) = network.nodes
        await submit(node.ledger, OpenTopic(topic=TOPIC))
        await network.level()
        height = await node.height()
        observer = RecordingObserver()
        node.ledger.addObserver(observer)
        store: Any = node.ledger._application.store
        store.append = change(store.append)
        answers = [publish(node, b"%d" % number) for number in range(5)]
        receipts = [await answer.addTimeout(TIMEOUT, reactor) for answer in answers]
        self.assertEqual({receipt.execution for receipt in receipts}, {Execution.DONE})
        await checkSame(
            self, network, {b"%d" % number: each for number, each in enumerate(receipts)}
        )
        heights = [block.height for block in observer.blocks]
        self.assertEqual(heights, list(range(height + 1, await node.height() + 1)))
        await until(partial(self.isReady, node))

    async def says(self, node: Node, reason: str) -> bool:
        """Whether a node gives this reason, which others may precede."""
        return bool(re.search(reason, (await node.ledger.getHealth()).reason))

    async def isReady(self, node: Node) -> bool:
        """Whether a ledger is ready."""
        return (await node.ledger.getHealth()).isReady

    async def test_unstoredBlockComesAgain(self) -> None:
        """A block that cannot be stored comes again, once the application is open again."""

        def change(append: Callable[..., Any]) -> Callable[..., Any]:
            def full(rows: object) -> None:
                raise StorageFailed("no room")

            return full

        await self.breaks(change)

    async def test_storedBlockIsReported(self) -> None:
        """A block that was stored, but not answered for, is told of."""

        def change(append: Callable[..., Any]) -> Callable[..., Any]:
            def broken(rows: object) -> None:
                append(rows)
                raise StorageFailed("and then it failed")

            return broken

        await self.breaks(change)


class MempoolTests(NetworkTestCase):
    """
    One node, and what waits in its engine.
    """

    async def test_blocksAreFilledToLimit(self) -> None:
        """
        Blocks are filled as far as the engine lets us, which ends where there is a byte too many.
        """
        # So slow that more waits than one block holds.
        network = await self.begin(1, blockBytes=8192, tuning=Tuning(commit=0.5))
        (node,) = network.nodes
        await submit(node.ledger, OpenTopic(topic=TOPIC))
        answers = []
        for size in range(0, 1200, 20):
            answers.append(publish(node, b"%4d" % size + bytes(size)))
            # A batch for each.
            await deferLater(reactor, 2 * node.settings.interval)
        receipts = await gatherResults(answers, consumeErrors=True)
        self.assertEqual({receipt.execution for receipt in receipts}, {Execution.DONE})
        contents = [event.content for event in await eventsOf(node)]
        self.assertEqual(contents, [b"%4d" % size + bytes(size) for size in range(0, 1200, 20)])
        sizes = []
        for height in {receipt.height for receipt in receipts}:
            answer = await node.parts.rpc.ask(raw("block", height=str(height)))
            transactions = answer["block"]["data"]["txs"]
            sizes.append(sum(len(b64decode(each)) for each in transactions))
        self.assertGreater(max(sizes), 3500)

    async def test_orphanedBatchLeavesMempool(self) -> None:
        """
        A batch whose broker has lost the one before it waits for one block, and not for ever: as
        long as anything waits the engine makes blocks.
        """
        network = await self.begin(1)
        (node,) = network.nodes
        chain = node.ledger._application.genesis.chain
        validator = readValidatorSeed(node.plan.home)
        assert validator is not None
        seed = b"k" * 32
        attestation = attest(validator, chain, publicKey(seed))
        batches = BatchMaker(
            chain,
            BrokerIdentity(
                seed=seed,
                sponsor=bytes.fromhex(attestation.validator),
                attestation=bytes.fromhex(attestation.signature),
            ),
        )
        maker = TransactionMaker(chain, batches.sender, lambda: 0.0, bytes)
        maker.resume(99)
        rpc = node.parts.rpc
        data = batches.make(maker.makeMany([OpenTopic(topic=TOPIC)]), 99)
        self.assertEqual((await rpc.broadcast(data)).code, 0)

        async def isEmpty() -> bool:
            return int((await rpc.ask(raw("num_unconfirmed_txs")))["total"]) == 0

        await until(isEmpty)
        await network.level()
        self.assertIsNone(node.ledger.topicState(TOPIC))
        # It may be handed in again when the one before it is there.
        maker.resume(98)
        before = batches.make(maker.makeMany([OpenTopic(topic="before")]), 0)
        for each in (before, batches.make(maker.makeMany([OpenTopic(topic=TOPIC)]), 99)):
            self.assertEqual((await rpc.broadcast(each)).code, 0)

        async def isThere() -> bool:
            return node.ledger.topicState(TOPIC) is not None

        await until(isThere)


class ForgeryTests(NetworkTestCase):
    """
    Four nodes, of which one runs changed code.
    """

    async def test_operatorCannotPublishToTopicWithAuthors(self) -> None:
        """
        A node that does not check authors cannot get an event that no author has signed, or a
        forged signature, past the others; they go on without it.
        """
        network = await self.begin(4)
        author = Author()
        authors = AuthorSet(authors=(author.key,))
        await submit(network.nodes[0].ledger, OpenTopic(topic=TOPIC, authors=authors))
        await network.level()
        good, bad = network.nodes[:3], network.nodes[3]
        chain = bad.ledger._application.genesis.chain
        state: Any = bad.ledger._state
        index = state.topicIndex(TOPIC)
        state._topics[index] = replace(state._topics[index], authors=None)
        forged = Authorship(key=author.key, signedAt=1, signature=bytes(64))
        for sender, authorship, execution in (
            (good[1], forged, Execution.REFUSED),
            (good[1], None, Execution.NO_AUTHOR),
        ):
            request = PublishEvent(topic=TOPIC, content=b"forged", author=authorship)
            receipt = await submit(sender.ledger, request)
            self.assertIs(receipt.execution, execution)
        unsigned = submit(bad.ledger, PublishEvent(topic=TOPIC, content=b"forged"))
        unsigned.addBoth(lambda outcome: None)
        authorship = author.sign(chain, TOPIC, b"signed", {})
        request = PublishEvent(topic=TOPIC, content=b"signed", author=authorship)
        receipt = await submit(good[0].ledger, request)
        assert receipt.eventId is not None
        for node in good:
            await until(partial(self.has, node, receipt.height))
            self.assertEqual([event.content for event in await eventsOf(node)], [b"signed"])
            event = await node.ledger.getEvent(receipt.eventId)
            self.assertEqual(event.author, authorship)

    async def has(self, node: Node, height: int) -> bool:
        """Whether a node has a block."""
        return await node.height() >= height
