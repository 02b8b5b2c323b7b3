"""
Nodes that join a network of real engines: with a snapshot, and with the first block.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from signal import SIGKILL
from typing import Any

import msgspec
from attrs import define, evolve, field
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from svcbroker.access import ANYBODY
from svcbroker.archive import STORE_NAME, auditChain
from svcbroker.broker.subscriptions import Subscriptions
from svcbroker.broker.subscriptions._positions import MemoryPositions
from svcbroker.errors import BrokerError
from svcbroker.interfaces import Batch, ISubscriber, submit
from svcbroker.ledgers.cometbft._home import GENESIS, readGenesis, readKeys
from svcbroker.ledgers.cometbft.abci.messages import ListSnapshotsRequest, OfferedSnapshot
from svcbroker.ledgers.cometbft.provisioning import Address, StateSync, askTrust, layOutJoining
from svcbroker.model import (
    Edge,
    EventId,
    InterfaceType,
    OpenTopic,
    PublishEvent,
    Receipt,
    SubscribeRequest,
)
from svcbroker.proofs import verifyProof
from svcbroker.testing._fixtures import MAX_CONTENT

from .network import TUNING, Network, Node, reactor, until
from .realengine import TIMEOUT

EVENTS = 120
INTERVAL = 10
PAUSE = 1.0
"""Seconds between two publishes while a node joins: each block costs four engines a vote."""
TOPIC = "of the time before"
LARGE = "of large events"
PATIENT = evolve(TUNING, propose=5.0, vote=1.0)
"""Timeouts for a busy machine: all engines are there, so that no round has to be given up."""


@implementer(ISubscriber)
@define(eq=False)
class Reader:
    """
    Keeps the ids of what comes.
    """

    ids: list[EventId] = field(factory=list)

    def deliver(self, batch: Batch) -> None:
        """See L{ISubscriber.deliver}."""
        self.ids += [event.eventId for event in batch.events]

    def subscriptionEnded(self, error: BrokerError) -> None:
        """See L{ISubscriber.subscriptionEnded}."""


class JoiningTests(TestCase):
    """
    Four nodes with a chain, and a fifth one.
    """

    timeout = 8 * TIMEOUT

    def setUp(self) -> None:
        self.network = Network(self, 4, hasPorts=True, tuning=PATIENT)
        self.addCleanup(self.network.stop)
        self.joined = 0
        for node in self.network.nodes:
            # So that there are some, and several kinds of heights, within seconds.
            node.settings = evolve(node.settings, snapshots=INTERVAL)

    async def publish(self, count: int) -> Sequence[Receipt]:
        """Publish through all nodes in turn, some at a time, and let none wait for the next."""
        nodes = self.network.nodes[:4]
        receipts: list[Receipt] = []
        while len(receipts) < count:
            for node in nodes:
                # On a busy machine engines lose each other, and find each other again.
                await until(partial(self.isReady, node))
            receipts += await gatherResults(
                [
                    submit(
                        node.ledger,
                        PublishEvent(topic=TOPIC, content=b"%d of %d" % (number, len(receipts))),
                    )
                    for node in nodes
                    for number in range(3)
                ],
                consumeErrors=True,
            )
        return receipts

    async def isReady(self, node: Node) -> bool:
        """Whether a node takes events."""
        return (await node.ledger.getHealth()).isReady

    async def begin(self) -> Sequence[Receipt]:
        """A network that has had events."""
        await self.network.start()
        for topic in (TOPIC, LARGE):
            await submit(self.network.nodes[0].ledger, OpenTopic(topic=topic))
        for node in self.network.nodes:
            # A snapshot comes in several pieces.
            for _ in range(2):
                await submit(node.ledger, PublishEvent(topic=LARGE, content=bytes(MAX_CONTENT)))
        receipts = await self.publish(EVENTS)
        await self.network.level()
        (latest, *_) = await self.offers(self.network.nodes[0])
        self.assertGreater(latest.chunks, 1)
        return receipts

    async def join(self, stateSync: bool) -> Node:
        """A fifth node."""
        first, second, *_ = self.network.nodes
        genesis = readGenesis(first.plan.home)
        sync = None
        if stateSync:
            sources = [node.parts.rpc for node in (first, second)]
            trust = await askTrust(genesis, sources)
            servers = [
                node.plan.rpc for node in (first, second) if isinstance(node.plan.rpc, Address)
            ]
            sync = StateSync(servers=servers, height=trust.height, hash=trust.hash)
        self.joined += 1
        node = self.network.newNode(f"joining{self.joined}", first.program)
        node.settings = evolve(node.settings, snapshots=INTERVAL)
        layOutJoining(
            node.plan,
            (first.plan.home / GENESIS).read_bytes(),
            [each.plan.peer(readKeys(each.plan.home)) for each in self.network.nodes],
            os.urandom,
            stateSync=sync,
            tuning=PATIENT,
        )
        self.network.nodes.append(node)
        await node.start()
        return node

    async def check(self, node: Node, receipts: Sequence[Receipt]) -> None:
        """It has everything that the others have."""
        await self.network.level()
        other = self.network.nodes[0]
        for height in range(1, await other.height() + 1):
            self.assertEqual(
                (await node.ledger.readBlock(height)).hash,
                (await other.ledger.readBlock(height)).hash,
            )
        for receipt in receipts[:: len(receipts) // 10]:
            assert receipt.eventId is not None
            self.assertEqual(
                await node.ledger.getEvent(receipt.eventId),
                await other.ledger.getEvent(receipt.eventId),
            )

    async def checkProof(self, node: Node, receipt: Receipt) -> None:
        """It proves an event of before."""
        genesis = await node.ledger.getGenesis()
        assert receipt.eventId is not None
        proof = await node.ledger.prove(receipt.eventId, None)
        proved = verifyProof(msgspec.json.encode(proof), chain=bytes.fromhex(genesis.chain))
        self.assertEqual(proved.eventId, str(receipt.eventId))

    async def follow(self, node: Node) -> Reader:
        """Subscribe there, from the beginning."""
        subscriptions = Subscriptions(
            {"1": node.ledger}, reactor, reactor.seconds, os.urandom, MemoryPositions()
        )
        await subscriptions.start()
        self.addCleanup(subscriptions.stop)
        reader = Reader()
        request = SubscribeRequest(
            interfaceType=InterfaceType.STOMP, group="1", filters=(TOPIC,), offset=Edge.FIRST
        )
        (await subscriptions.subscribe(ANYBODY, request, reader)).resume()
        return reader

    async def offers(self, node: Node) -> Sequence[OfferedSnapshot]:
        """The snapshots that a node offers to those that join."""
        answer = await node.ledger._application.listSnapshots(ListSnapshotsRequest())
        return answer.snapshots

    async def leave(self, node: Node) -> None:
        """Stop a node that has joined."""
        await node.stop()
        self.network.nodes.remove(node)

    async def test_fifthNodeJoinsByBlocksAndBySnapshot(self) -> None:
        """
        A fifth node begins with the first block; another one with a snapshot, of which three of
        four nodes hand over changed pieces; another one again after its engine was killed in the
        middle; and the last one while the others go on. They have all of the chain.
        """
        receipts = [*await self.begin()]
        await self.joinByBlocks(receipts)
        await self.joinBesideLiars(receipts)
        await self.joinAfterKill(receipts)
        await self.joinUnderLoad(receipts)

    async def joinByBlocks(self, receipts: Sequence[Receipt]) -> None:
        """With the first block."""
        node = await self.join(False)
        await self.check(node, receipts)
        self.assertEqual((await node.parts.rpc.status()).syncInfo.earliestBlockHeight, 1)
        await self.leave(node)

    async def joinBesideLiars(self, receipts: Sequence[Receipt]) -> None:
        """It has the chain from the fourth node."""
        asked = []
        patched = []
        for node in self.network.nodes[:3]:
            source = node.ledger._application._source
            assert source is not None

            async def lie(*arguments: int, load: Any = source.load) -> bytes:
                asked.append(arguments)
                piece: bytes = await load(*arguments)
                return piece[:-100] + bytes([piece[-100] ^ 1]) + piece[-99:]

            patched.append(self.patch(source, "load", lie))
        node = await self.join(True)
        await self.check(node, receipts)
        self.assertTrue(asked)
        for each in patched:
            each.restore()
        await self.leave(node)

    async def joinAfterKill(self, receipts: Sequence[Receipt]) -> None:
        """Its engine begins anew."""
        joining = Deferred.fromCoroutine(self.join(True))
        nodes = self.network.nodes
        # One for the offer, and one for a piece.
        await until(lambda: len(nodes) > 4 and nodes[4].ledger._application.progress >= 2)
        application = nodes[4].ledger._application
        self.assertIsNone(application.store)
        nodes[4].signal(SIGKILL)
        node = await joining
        await self.check(node, receipts)
        await self.leave(node)

    async def joinUnderLoad(self, receipts: list[Receipt]) -> None:
        """
        Its engine has not the blocks in the snapshot. It serves what was published before it was
        there, and what comes; after another start as well. It offers the same snapshots as the
        others.
        """
        joining = Deferred.fromCoroutine(self.join(True))
        while not joining.called:
            # Nobody waits for the new one.
            receipts += await self.publish(12)
            await deferLater(reactor, PAUSE)
        node = await joining
        reader = await self.follow(node)
        await self.check(node, receipts)
        self.assertGreater((await node.parts.rpc.status()).syncInfo.earliestBlockHeight, INTERVAL)
        receipts += await self.publish(12)
        await self.checkProof(node, receipts[0])
        ids = {receipt.eventId for receipt in receipts}
        await until(lambda: len(reader.ids) == len(ids))
        self.assertEqual(set(reader.ids), ids)

        await node.stop()
        receipts += await self.publish(12)
        await node.start()
        await self.check(node, receipts)
        mine, others = await self.offers(node), await self.offers(self.network.nodes[0])
        self.assertEqual(mine, others)
        await node.stop()
        group = self.network.root.name
        audited = auditChain(node.directory / STORE_NAME, group=group)
        self.assertTrue(audited.isGood)
