"""
Contradictions: found where there are some, with the keys that signed both, and nowhere else.
"""

from __future__ import annotations

import json
from itertools import combinations, product
from pathlib import Path
from random import Random
from typing import Any

from msgspec.json import encode
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import ExportedHeaders, exportChain
from svcbroker.chain import TransactionReceipt, merkleRoot, receiptLeaf
from svcbroker.model import EventId, Execution
from svcbroker.proofs import (
    Contradiction,
    EventProof,
    FinalHeader,
    HeaderFields,
    PbftCertificate,
    ProofInvalid,
    contradictionDocument,
    readStatement,
    verifyContradiction,
    verifyProof,
)
from svcbroker.proofs._verification import SignedHeader
from tools.vectors.enginechain import EngineChain
from tools.vectors.signedchain import SignedChain, seedOf

from .mutations import mutations
from .support import proofs, withoutCertificate
from .test_tampering import written


def found(first: bytes, second: bytes) -> Contradiction | None:
    """The contradiction of two documents, from the document that shows it."""
    document = contradictionDocument(readStatement(first), readStatement(second))
    return None if document is None else verifyContradiction(encode(document))


class ForkTestCase(SynchronousTestCase):
    """
    A chain, and a fork of it by all of its keys: from block 2 on, with another number of events.
    """

    kind: type[SignedChain] = SignedChain

    def makeChain(self, *words: bytes, changes: bool = True, **how: Any) -> SignedChain:
        """
        A chain with a block for each event of its topic.

        @param changes: whether there is a change of the nodes after them.
        """
        directory = Path(self.mktemp())
        directory.mkdir()
        chain = self.kind(directory, **how)
        self.addCleanup(chain.close)
        chain.open("t", "u")
        self.ids = [chain.publish("t", word)[0] for word in words]
        if changes:
            chain.changeNodes("node 0", "new 1", "node 2", "node 3")
        chain.publish("u", b"x")
        return chain

    def setUp(self) -> None:
        self.fork = self.makeChain(b"forged", b"second")
        self.fork.publish("u", b"more")
        self.forkIds = self.ids
        self.chain = self.makeChain(b"first", b"second", b"third")

    def event(self, chain: SignedChain, eventId: EventId, height: int | None = None) -> bytes:
        """An event proof."""
        return encode(chain.prover.event(eventId, height))

    def topic(self, chain: SignedChain, name: str = "t") -> bytes:
        """A topic proof."""
        return encode(chain.prover.certified(chain.prover.topic(name, chain.state)))


class FindingTests(ForkTestCase):
    """
    On one operator's chain.
    """

    def test_twoBlocksOfOneHeight(self) -> None:
        """Two signed blocks of one height, and the keys that signed both."""
        one, other = self.event(self.chain, self.ids[0]), self.event(self.fork, self.forkIds[0])
        contradiction = found(one, other)
        assert contradiction is not None
        self.assertEqual(contradiction.kind, "block")
        self.assertEqual(contradiction.chain, self.chain.genesis.chain)
        for side, chain in (
            (contradiction.first, self.chain),
            (contradiction.second, self.fork),
        ):
            self.assertEqual(side.says, str(chain.prover.checkpoint(2)))
        self.assertEqual([*contradiction.keys], [*self.chain.genesis.validators[:3]])
        self.assertTrue(contradiction.isDoubleSigning)

    def test_onlyKeysThatSignedBothAreNamed(self) -> None:
        """Quorums differ, and rounds."""
        proof = self.chain.prover.event(self.ids[0])
        header = proof.block.header.header()
        self.chain._seeds = [seedOf(f"node {index}") for index in range(4)]
        for signers, round, count in (((1, 2, 3), 0, 2), ((0, 2, 3), 1, 2), ((0, 1, 2, 3), 0, 3)):
            certificate = PbftCertificate.of(self.chain.certify(header, signers, round))
            changed = replace(proof, block=replace(proof.block, certificate=certificate))
            contradiction = found(encode(changed), self.event(self.fork, self.forkIds[0]))
            assert contradiction is not None
            self.assertEqual(len(contradiction.keys), count)
            self.assertEqual(contradiction.isDoubleSigning, round == 0)

    def test_blocksThatLaterHeadersName(self) -> None:
        """A later header names the block before it, and those that a path leads to."""
        tip = self.chain.head.height
        forged = self.event(self.fork, self.forkIds[0])
        bare = encode(withoutCertificate(self.chain.prover.event(self.ids[0], tip)))
        contradiction = found(bare, forged)
        assert contradiction is not None
        assert isinstance(contradiction.first.signed, SignedHeader)
        self.assertEqual(contradiction.first.signed.header.height, tip)
        # After the change of the nodes three of them are the same.
        self.assertEqual(len(contradiction.keys), 2)
        self.assertFalse(contradiction.isDoubleSigning)
        # The second event's block names the first one's as its parent.
        contradiction = found(self.event(self.chain, self.ids[1]), forged)
        assert contradiction is not None
        self.assertEqual(contradiction.first.says, str(self.chain.prover.checkpoint(2)))
        self.assertFalse(contradiction.isDoubleSigning)

    def test_checkpointContradictsProof(self) -> None:
        """A kept checkpoint contradicts the proof of a fork; no keys signed it."""
        kept = str(self.chain.prover.checkpoint(2)).encode()
        forged = self.event(self.fork, self.forkIds[0])
        for first, second in ((kept, forged), (forged, kept)):
            contradiction = found(first, second)
            assert contradiction is not None
            self.assertEqual((contradiction.kind, contradiction.keys), ("block", ()))
        answer = json.dumps({"checkpoint": kept.decode(), "height": 2}).encode()
        self.assertIsNotNone(found(answer, forged))
        self.assertIsNone(found(kept, self.event(self.chain, self.ids[0])))
        self.assertIsNone(found(kept, kept))

    def test_topicHasFewerEvents(self) -> None:
        """A topic proof contradicts an event beyond its count, where no block is in both."""
        event = self.event(self.chain, self.ids[2])
        fork = self.makeChain(b"forged", changes=False)
        for _ in range(4):
            fork.publish("u", b"x")
        topic = self.topic(fork)
        for first, second in ((topic, event), (event, topic)):
            contradiction = found(first, second)
            assert contradiction is not None
            self.assertEqual(contradiction.kind, "topic")
            self.assertEqual(len(contradiction.keys), 3)
        self.assertIsNone(found(self.topic(fork, "u"), event))

    def test_topicsCountFallsLater(self) -> None:
        """The number of a topic's events never falls."""
        fork = self.makeChain(b"forged", changes=False)
        for _ in range(8):
            fork.publish("u", b"x")
        contradiction = found(self.topic(fork), self.topic(self.chain))
        assert contradiction is not None
        self.assertEqual(contradiction.kind, "topic")

    def test_numbersOutOfOrder(self) -> None:
        """No number is used twice, and none below another one in a later block."""
        third = self.event(self.chain, self.ids[2])
        fork = self.makeChain(b"forged", changes=False)
        for _ in range(3):
            fork.publish("u", b"x")
        ids = [fork.publish("t", word)[0] for word in (b"second", b"third", b"fourth")]
        for eventId, isClash in zip(ids, (True, True, False), strict=True):
            contradiction = found(third, self.event(fork, eventId))
            self.assertEqual(contradiction is not None, isClash)
            if contradiction is not None:
                self.assertEqual(contradiction.kind, "event")

    def test_twoEventsOfOneId(self) -> None:
        """A quorum that signs a block with one number twice has signed two events of one id."""
        self.chain.publish("t", b"fourth", b"fifth")
        prefix, height = self.ids[0].prefix, self.chain.head.height
        one, two = (self.chain.prover.event(EventId(prefix, number, height)) for number in (4, 5))
        events = [verifyProof(encode(each), chain=self.chain.genesis.chain) for each in (one, two)]
        receipt = TransactionReceipt(Execution.DONE, 4)
        leaves = [receiptLeaf(event.transaction, receipt) for event in events]
        header = replace(one.block.header.header(), receiptRoot=merkleRoot(leaves))
        block = FinalHeader(
            header=HeaderFields.of(header),
            certificate=PbftCertificate.of(self.chain.certify(header)),
        )

        def forged(proof: EventProof, sibling: bytes) -> bytes:
            event = replace(proof.event, eventId=one.event.eventId)
            return encode(replace(proof, event=event, block=block, receiptPath=[sibling.hex()]))

        contradiction = found(forged(one, leaves[1]), forged(two, leaves[0]))
        assert contradiction is not None
        self.assertEqual(contradiction.kind, "event")
        self.assertEqual(len(contradiction.keys), 3)
        self.assertFalse(contradiction.isDoubleSigning)

    def test_unsignedProofsAreRefused(self) -> None:
        """Nothing is said of a document that does not hold, or that has no signatures."""
        bare = encode(self.chain.prover.event(self.ids[0], trusted=self.chain.head.height))
        good = self.event(self.chain, self.ids[0])
        document = json.loads(good)
        document["event"]["content"] = "changed"
        for data, why in (
            (bare, "no signatures"),
            (written(document), "not in its block"),
            (b"{}", "not a checkpoint"),
            (encode(self.chain.prover.consistency(0, 2)), "not an event proof"),
            (encode(self.chain.prover.genesis()), "not a checkpoint"),
        ):
            with self.assertRaisesRegex(ProofInvalid, why):
                readStatement(data)

    def test_otherChainsContradictNothing(self) -> None:
        """Statements of two chains have nothing to do with each other."""
        other = self.makeChain(b"first", name="other")
        self.assertIsNone(
            found(self.event(self.fork, self.forkIds[0]), self.event(other, self.ids[0]))
        )

    def test_honestChainNeverContradictsItself(self) -> None:
        """Of all proofs of one chain no two contradict each other."""
        tip = self.chain.head.height
        documents = [
            *(self.event(self.chain, each) for each in self.ids),
            *(self.event(self.chain, each, tip) for each in self.ids),
            self.topic(self.chain),
            self.topic(self.chain, "u"),
            *(str(self.chain.prover.checkpoint(height)).encode() for height in range(tip + 1)),
        ]
        self.chain.publish("t", b"later")
        documents += [self.topic(self.chain), self.topic(self.chain, "u")]
        for one, other in combinations(documents, 2):
            self.assertIsNone(found(one, other))
        for kind in (SignedChain, EngineChain):
            made = proofs(kind)
            for one, other in product(made.events.values(), made.topics.values()):
                self.assertIsNone(found(one, other))

    def test_documentCannotBeChanged(self) -> None:
        """A document that says something else than its statements show does not hold."""
        statements = [
            readStatement(self.event(chain, ids[0]))
            for chain, ids in ((self.chain, self.ids), (self.fork, self.forkIds))
        ]
        document = json.loads(encode(contradictionDocument(*statements)))
        contradiction = document["contradiction"]
        count = 0
        for what, changed in mutations(contradiction):
            if json.dumps(changed) != json.dumps(contradiction):
                count += 1
                with self.assertRaises(ProofInvalid, msg=what):
                    verifyContradiction(written({**document, "contradiction": changed}))
        self.assertGreater(count, 500)
        for member, wrong in (
            ("format", "svcbroker/contradiction/2"),
            ("second", document["first"]),
            ("first", "2:" + "0" * 64),
            ("first", "not a checkpoint"),
            ("first", {}),
        ):
            with self.assertRaises(ProofInvalid, msg=member):
                verifyContradiction(written({**document, member: wrong}))


class EngineTests(ForkTestCase):
    """
    On the chain of a network of engines.
    """

    kind = EngineChain

    def test_twoBlocksOfOneHeight(self) -> None:
        contradiction = found(
            self.event(self.chain, self.ids[0]), self.event(self.fork, self.forkIds[0])
        )
        assert contradiction is not None
        self.assertEqual((contradiction.kind, len(contradiction.keys)), ("block", 3))
        self.assertTrue(contradiction.isDoubleSigning)

    def test_changedHeaderProofIsRefused(self) -> None:
        """A header proof says the same, or is refused, whatever is changed in it."""
        empty = self.chain.decide().height
        self.chain.publish("u", b"z")
        path = Path(self.mktemp())
        with path.open("wb") as file:
            exportChain(self.chain.store.path.parent, file)
        document = json.loads(encode(ExportedHeaders(path).prove(empty)))
        self.assertEqual(document["earlier"]["header"]["height"], empty)
        blocks = [claim.block for claim in readStatement(written(document)).claims]
        for what, changed in Random(6).sample(list(mutations(document)), 500):
            if isinstance(changed, dict) and changed.get("format") == document["format"]:
                try:
                    statement = readStatement(written(changed))
                except ProofInvalid:
                    continue
                self.assertIn(
                    [claim.block for claim in statement.claims], (blocks, blocks[:-2]), what
                )

    def test_topicHasFewerEvents(self) -> None:
        event = self.event(self.chain, self.ids[2])
        fork = self.makeChain(b"forged", changes=False)
        for _ in range(4):
            fork.publish("u", b"x")
        contradiction = found(self.topic(fork), event)
        assert contradiction is not None
        self.assertEqual(contradiction.kind, "topic")
