"""
The contract of a ledger that proves what it holds, as tests.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import TypeAlias

from msgspec.json import decode, encode
from twisted.trial.unittest import TestCase
from zope.interface.verify import verifyObject

from ..chain import leafHash, merkleRoot
from ..errors import EventNotFound, HeightUnknown, ParameterInvalid, TopicNotFound
from ..interfaces import IProvableLedger
from ..model import EventId, OpenTopic, PublishEvent
from ..proofs import (
    Checkpoint,
    ConsistencyProof,
    ProvedEvent,
    readGenesis,
    verifyComplete,
    verifyConsistency,
    verifyProof,
    verifyTopic,
)
from ._fixtures import LedgerFixture, LedgerKit

Trust: TypeAlias = bytes | Checkpoint
"""The trusted thing: a chain, or a block of it."""

_CONTENTS = (b"text", "größer \U0001f600".encode(), bytes(range(256)), b"", b"x" * 100_000)


def makeProofTests(makeFixture: Callable[[TestCase], LedgerFixture]) -> type[TestCase]:
    """
    The tests that every implementation of
    L{IProvableLedger<svcbroker.interfaces.IProvableLedger>} passes, beside those that
    L{makeLedgerTests<svcbroker.testing.makeLedgerTests>} gives.

    @param makeFixture: as for those.
    """

    class LedgerProofTests(ProofTests):
        def makeFixture(self) -> LedgerFixture:
            return makeFixture(self)

    return LedgerProofTests


class ProofTests(LedgerKit):
    """Proofs, checkpoints, and that there is one genesis."""

    async def beginProvable(self) -> IProvableLedger:
        """A ledger that has started, and its chain."""
        ledger: IProvableLedger = IProvableLedger(await self.begin())
        self.chain = await self.chainOf(ledger)
        await self.submit(OpenTopic(topic="t"), OpenTopic(topic="u"))
        return ledger

    async def chainOf(self, ledger: IProvableLedger) -> bytes:
        """The id of the chain, as its genesis says."""
        return readGenesis(encode(await self.settle(ledger.getGenesis()))).chain

    async def proved(
        self, ledger: IProvableLedger, eventId: EventId, trusted: Trust, height: int | None = None
    ) -> ProvedEvent:
        """The event that a proof proves, once it is written and read."""
        data = encode(await self.settle(ledger.prove(eventId, height)))
        if isinstance(trusted, Checkpoint):
            return verifyProof(data, checkpoint=trusted)
        return verifyProof(data, chain=trusted)

    async def test_ledgerProvidesTheProofInterface(self) -> None:
        """It provides the interface, and its genesis is one."""
        ledger = await self.beginProvable()
        verifyObject(IProvableLedger, ledger)
        genesis = await self.settle(ledger.getGenesis())
        self.assertEqual(genesis.chain, self.chain.hex())

    async def test_everyEventIsProved(self) -> None:
        """Every event can be proved, and what is proved is what was published."""
        ledger = await self.beginProvable()
        extensions = {"svc-b": "größe", "svc-a": ""}
        await self.submit(
            *(
                PublishEvent(topic=topic, content=content, extensions=extensions)
                for content in _CONTENTS
                for topic in ("t", "u")
            )
        )
        await self.publish("t", b"later")
        events = await self.allEvents()
        self.assertEqual(len(events), 2 * len(_CONTENTS) + 1)
        for event in events:
            found = await self.proved(ledger, event.eventId, self.chain)
            self.assertEqual(
                (found.eventId, found.topic, found.content, found.extensions, found.sequence),
                (
                    str(event.eventId),
                    event.topic,
                    event.content,
                    event.extensions,
                    event.eventId.sequence,
                ),
            )
            block = await self.settle(ledger.readBlock(event.eventId.height))
            self.assertEqual(found.timestamp, block.timestamp)
            self.assertEqual(found.block, Checkpoint(block.height, block.hash))

    async def test_trustedCheckpointsProveEventsWithoutSignatures(self) -> None:
        """A proof for a verifier that trusts a checkpoint has no signatures."""
        ledger = await self.beginProvable()
        [first] = await self.publish("t", b"first")
        own = await self.settle(ledger.getCheckpoint(first.height))
        await self.publish("u", b"second")
        for kept in (own, await self.settle(ledger.getCheckpoint(None))):
            data = encode(await self.settle(ledger.prove(first, None, trusted=kept.height)))
            found = verifyProof(data, checkpoint=kept)
            self.assertEqual((found.content, found.signed), (b"first", None))
        for wrong in (
            ledger.prove(first, None, trusted=first.height - 1),
            ledger.prove(first, kept.height, trusted=kept.height),
        ):
            await self.fails(wrong, ParameterInvalid)

    async def test_topicProofCountsItsEvents(self) -> None:
        """A topic proof tells how many events a topic has, and their proofs are complete."""
        ledger = await self.beginProvable()
        identifiers = [*await self.publish("t", b"a"), *await self.publish("t", b"b")]
        data = encode(await self.settle(ledger.proveTopic("t")))
        topic = verifyTopic(data, chain=self.chain)
        self.assertEqual((topic.topic, topic.isOpen, topic.count), ("t", True, 2))
        height = topic.block.height
        self.assertGreaterEqual(height, identifiers[-1].height)
        proofs = [
            encode(await self.settle(ledger.prove(each, None, trusted=height)))
            for each in identifiers
        ]
        events = verifyComplete(topic, proofs)
        self.assertEqual([event.content for event in events], [b"a", b"b"])
        empty = verifyTopic(encode(await self.settle(ledger.proveTopic("u"))), chain=self.chain)
        self.assertEqual((empty.topic, empty.count, empty.latest), ("u", 0, 0))
        await self.fails(ledger.proveTopic("never opened"), TopicNotFound)

    async def test_laterCheckpointsProveEarlierEvents(self) -> None:
        """A checkpoint is a block's hash; a later one vouches for any event before it."""
        ledger = await self.beginProvable()
        [first] = await self.publish("t", b"first")
        await self.publish("u", b"second")
        tip = await self.settle(ledger.getCheckpoint(None))
        self.assertEqual(tip, await self.settle(ledger.getCheckpoint(tip.height)))
        for record in await self.allPages(ledger.listBlocks, 10):
            kept = await self.settle(ledger.getCheckpoint(record.height))
            if kept.height == record.height:
                self.assertEqual(kept.hash, record.hash)
            else:
                # A block that cannot be final by itself has the one before it for a checkpoint.
                self.assertEqual(record.transactionCount, 0)
                below = await self.settle(ledger.getCheckpoint(record.height - 1))
                self.assertEqual(kept, below)
            if record.height > first.height:
                found = await self.proved(ledger, first, kept, record.height)
                self.assertEqual(found.content, b"first")
                self.assertEqual(found.checkpoint or found.block, kept)
        own = await self.settle(ledger.getCheckpoint(first.height))
        self.assertEqual((await self.proved(ledger, first, own)).block, own)

    async def test_everyBlockIsInLaterHistory(self) -> None:
        """Any block is proved to be in the history of any later one, from genesis on."""
        ledger = await self.beginProvable()
        for number in range(4):
            await self.publish("t", b"%d" % number)
        tip = await self.height()
        answers = [await self.settle(ledger.getCheckpoint(height)) for height in range(tip + 1)]
        kept = {checkpoint.height: checkpoint for checkpoint in answers}
        self.assertGreater(len(kept), 4)
        for older, newer in combinations(sorted(kept), 2):
            data = encode(await self.settle(ledger.proveConsistency(older, newer)))
            found = verifyConsistency(data, older=kept[older], newer=kept[newer])
            self.assertEqual(found.chain, self.chain)

    async def test_unknownEventsAreNotProved(self) -> None:
        """Proving an unknown event, or with an unknown block, fails as the interface says."""
        ledger = await self.beginProvable()
        [known] = await self.publish("t", b"x")
        height = known.height
        await self.fails(ledger.prove(EventId(known.prefix, 2, height), None), EventNotFound)
        await self.fails(ledger.prove(EventId("00000000", 1, height), None), EventNotFound)
        far = await self.height() + 1000
        await self.fails(ledger.prove(EventId(known.prefix, 2, far), None), HeightUnknown)
        for answer in (
            ledger.prove(known, far),
            ledger.getCheckpoint(far),
            ledger.proveConsistency(1, far),
        ):
            await self.fails(answer, HeightUnknown)
        for wrong in (
            ledger.prove(known, height),
            ledger.proveConsistency(height, height),
            ledger.proveConsistency(height, height - 1),
        ):
            await self.fails(wrong, ParameterInvalid)

    async def test_historyIsTheLogOfHeaders(self) -> None:
        """The hashes of the history are those of the headers, in order, and make its root."""
        ledger = await self.beginProvable()
        for number in range(6):
            await self.publish("t", b"%d" % number)
        tip = await self.settle(ledger.getCheckpoint(None))
        hashes = await self.settle(ledger.readHistory(0, 0, 256))
        self.assertGreater(len(hashes), tip.height)
        for first, count in ((0, 1), (1, 1), (2, 3), (tip.height, 1), (tip.height, 0)):
            read = await self.settle(ledger.readHistory(0, first, count))
            self.assertEqual(read, hashes[first : first + count])
        self.assertEqual(hashes[tip.height], tip.hash)
        self.assertEqual(await self.settle(ledger.readHistory(8, 0, 1)), [])
        data = encode(await self.settle(ledger.proveConsistency(1, tip.height)))
        proof = decode(data, type=ConsistencyProof)
        self.assertEqual(
            proof.newer.history, merkleRoot([leafHash(each) for each in hashes[: tip.height]]).hex()
        )
        for wrong in ((1, 0, 1), (-8, 0, 1), (0, -1, 1), (0, 0, 257)):
            await self.fails(ledger.readHistory(*wrong), ParameterInvalid)

    async def test_derivedKeysStayThroughRestarts(self) -> None:
        """Each purpose has a key of its own, and it is the same one after a restart."""
        ledger = await self.beginProvable()
        key = ledger.deriveKey("log key")
        self.assertEqual((len(key), ledger.deriveKey("log key")), (32, key))
        self.assertNotEqual(ledger.deriveKey("other key"), key)
        if self.fixture.isDurable:
            await self.end()
            self.assertEqual(IProvableLedger(await self.startAgain()).deriveKey("log key"), key)

    async def test_proofsFitThoseBeforeARestart(self) -> None:
        """Proofs and checkpoints made before a restart fit those made after it."""
        ledger = await self.beginProvable()
        [known] = await self.publish("t", b"x")
        before = await self.settle(ledger.getCheckpoint(None))
        if not self.fixture.isDurable:
            return
        await self.end()
        again: IProvableLedger = IProvableLedger(await self.startAgain())
        self.assertEqual(await self.chainOf(again), self.chain)
        await self.publish("t", b"y")
        tip = await self.settle(again.getCheckpoint(None))
        self.assertEqual((await self.proved(again, known, tip, tip.height)).content, b"x")
        data = encode(await self.settle(again.proveConsistency(before.height, tip.height)))
        verifyConsistency(data, older=before, newer=tip)
