"""
Proofs from a network of real engines, verified by who knows only the hash of its genesis.
"""

from __future__ import annotations

from attrs import evolve
from msgspec.json import encode
from twisted.trial.unittest import TestCase

from svcbroker.errors import EventNotFound, HeightUnknown, LedgerUnavailable, ParameterInvalid
from svcbroker.interfaces import submit
from svcbroker.ledgers.cometbft._certifier import Certifier
from svcbroker.ledgers.cometbft._home import readValidatorSeed
from svcbroker.ledgers.pbft._keys import publicKey, signChange
from svcbroker.model import EventId, OpenTopic, PublishEvent
from svcbroker.proofs import (
    Checkpoint,
    CometCertificate,
    ProvedEvent,
    readGenesis,
    storedCertificate,
    verifyComplete,
    verifyConsistency,
    verifyProof,
    verifyTopic,
)
from svcbroker.proofs.cometbft import engineOrder

from .network import TIMEOUT, Network, Node, until


class RealProofTests(TestCase):
    """
    Four nodes.
    """

    timeout = 3 * TIMEOUT

    async def publish(self, node: Node, content: bytes) -> EventId:
        """Publish through a node."""
        receipt = await submit(node.ledger, PublishEvent(topic="a", content=content))
        assert receipt.eventId is not None
        return receipt.eventId

    async def proved(
        self, node: Node, eventId: EventId, checkpoint: Checkpoint | None = None
    ) -> ProvedEvent:
        """The event that is proved by a node's proof."""
        height = None if checkpoint is None else checkpoint.height
        proof = await node.ledger.prove(eventId, height)
        return verifyProof(encode(proof), chain=self.chain, checkpoint=checkpoint)

    async def shrink(self) -> None:
        """Let the last node be no validator any more."""
        ledger = self.network.nodes[0].ledger
        seeds = [readValidatorSeed(node.plan.home) for node in self.network.nodes]
        assert None not in seeds
        known = [seed for seed in seeds if seed is not None]
        change = signChange(
            self.chain,
            await ledger.getNodes(),
            engineOrder(map(publicKey, known[:3])),
            known,
        )
        await ledger.submitChange(change)

    async def test_eventsAreProvedAcrossChange(self) -> None:
        """
        Events are proved at once and later, by any node, before and after a change of the
        validators, and also when the engine is gone.
        """
        self.network = network = Network(self, 4)
        self.addCleanup(network.stop)
        await network.start()
        first, second = network.nodes[:2]
        genesis = readGenesis(encode(await first.ledger.getGenesis()))
        self.chain = genesis.chain
        beginning = await first.ledger.getCheckpoint(None)
        self.assertEqual(beginning, Checkpoint.of(genesis.header()))
        await submit(first.ledger, OpenTopic(topic="a"))

        oldest = await self.publish(first, b"early")
        proved = await self.proved(first, oldest)
        self.assertEqual((proved.content, proved.nodes, proved.changes), (b"early", 4, 0))
        self.assertGreaterEqual(len(proved.signers), 3)
        self.assertEqual(proved.group, network.root.name)

        await self.shrink()
        late = await self.publish(first, b"late")
        proved = await self.proved(first, late)
        self.assertEqual((proved.nodes, proved.changes, len(proved.signers)), (3, 1, 3))
        await network.level()
        checkpoint = await second.ledger.getCheckpoint(None)
        self.assertEqual(checkpoint.height, late.height)
        for node in network.nodes:
            self.assertEqual(await node.ledger.getCheckpoint(None), checkpoint)
            proved = await self.proved(node, oldest, checkpoint)
            self.assertEqual((proved.nodes, proved.changes), (4, 0))
            # The block behind it has no transactions.
            higher = Checkpoint(checkpoint.height + 1, checkpoint.hash)
            self.assertEqual(await node.ledger.getCheckpoint(higher.height), checkpoint)
            proof = await node.ledger.prove(late, higher.height)
            verifyProof(encode(proof), chain=self.chain, checkpoint=checkpoint)
        for node in network.nodes:
            data = encode(await node.ledger.proveTopic("a"))
            topic = verifyTopic(data, chain=self.chain)
            self.assertEqual((topic.count, topic.block), (2, checkpoint))
            kept = [
                encode(await node.ledger.prove(each, None, trusted=checkpoint.height))
                for each in (oldest, late)
            ]
            events = verifyComplete(topic, kept)
            self.assertEqual([event.content for event in events], [b"early", b"late"])
        growth = await first.ledger.proveConsistency(0, checkpoint.height)
        verifyConsistency(encode(growth), older=beginning, newer=checkpoint)
        for asked, error in (
            (EventId(oldest.prefix, 9, oldest.height), EventNotFound),
            (EventId(oldest.prefix, 1, 10_000), HeightUnknown),
        ):
            await self.assertFailure(first.ledger.prove(asked, None), error)
        await self.assertFailure(first.ledger.prove(late, oldest.height), ParameterInvalid)

        await until(lambda: self.isCertified(first, late.height))
        await first.kill()
        self.patch(Certifier, "certificate", None)
        proved = await self.proved(first, oldest, checkpoint)
        self.assertEqual(proved.content, b"early")

        # Where a block's certificate cannot be had, a later one stands behind it.
        async def refuse(certifier: Certifier, height: int) -> CometCertificate:
            raise LedgerUnavailable("the engine is gone")

        self.patch(Certifier, "certificate", refuse)
        store = first.ledger._application.store
        assert store is not None
        store._writing.execute(
            "UPDATE head SET certificate = x'' WHERE height = ?", (oldest.height,)
        )
        proved = await self.proved(first, oldest)
        self.assertEqual((proved.signed, proved.nodes), (checkpoint, 3))
        store._writing.execute("UPDATE head SET certificate = x'' WHERE height = ?", (late.height,))
        for asked in (oldest, late):
            await self.assertFailure(first.ledger.prove(asked, None), LedgerUnavailable)

    def isCertified(self, node: Node, height: int) -> bool:
        """Whether a node has stored what makes a block and all before it final."""
        store = node.ledger._application.store
        assert store is not None
        rows = store.blockHeads(1, height)
        totals = [0, *(row.transactionTotal for row in rows)]
        return all(
            storedCertificate(row.certificate) is not None
            for row, before in zip(rows, totals, strict=False)
            if row.transactionTotal > before
        )

    async def test_eventsOutliveTheBlocksOfTheEngine(self) -> None:
        """
        An engine that keeps few blocks prunes those that are certified here, and events in them
        are read and proved.
        """
        self.network = network = Network(self, 1)
        [node] = network.nodes
        node.settings = evolve(node.settings, keep=3)
        self.addCleanup(network.stop)
        await network.start()
        self.chain = readGenesis(encode(await node.ledger.getGenesis())).chain
        await submit(node.ledger, OpenTopic(topic="a"))
        first = await self.publish(node, b"first")

        async def isPruned() -> bool:
            await self.publish(node, b"more")
            status = await node.parts.rpc.status()
            return status.syncInfo.earliestBlockHeight > first.height + 1

        await until(isPruned)
        self.assertEqual((await node.ledger.getEvent(first)).content, b"first")
