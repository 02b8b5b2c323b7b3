"""
Making proofs: the trees of a block, and what is said where there is nothing to prove.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import encode
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import Eraser, Erasing, Prover
from svcbroker.chain import (
    Kind,
    Malformed,
    MerkleTree,
    Transaction,
    TransactionReceipt,
    encodeBody,
    encodeReceipts,
    leafHash,
    merklePath,
    receiptLeaf,
    receiptLeaves,
    transactionHashes,
)
from svcbroker.errors import EventNotFound, HeightUnknown, ParameterInvalid, TopicNotFound
from svcbroker.model import EventId, Execution, topicPrefix
from svcbroker.proofs import (
    ProofInvalid,
    verifyComplete,
    verifyConsistency,
    verifyProof,
    verifyTopic,
)
from tests import examples
from tests.archive.erasable import ErasableChain
from tools.vectors.signedchain import SignedChain

few = settings(max_examples=examples(100), deadline=None, derandomize=True, database=None)
EXTENSIONS = st.dictionaries(st.text(max_size=3).map("svc-".__add__), st.text(max_size=3))


class TreeTests(SynchronousTestCase):
    """
    The quick ways to the hashes of a block are the same as the slow ones.
    """

    def test_treeGivesMerklePaths(self) -> None:
        """A tree gives the paths that are made without one."""
        leaves = [leafHash(bytes([number])) for number in range(40)]
        for size in (1, 2, 3, 4, 5, 8, 31, 32, 33, 40):
            tree = MerkleTree(leaves[:size])
            for index in range(size):
                self.assertEqual(tree.path(index), merklePath(leaves[:size], index))

    @few
    @given(st.lists(st.tuples(st.binary(max_size=50), EXTENSIONS), max_size=5))
    def test_hashesOfStoredTransactions(self, events: list[tuple[bytes, dict[str, str]]]) -> None:
        """The hashes of a body's transactions are theirs, whatever they hold."""
        transactions = [
            Transaction.create(Kind.PUBLISH, bytes(20), number, 0, "t", content, extensions)
            for number, (content, extensions) in enumerate(events)
        ]
        body, offsets = encodeBody(transactions)
        hashes = [transaction.hash for transaction in transactions]
        self.assertEqual(transactionHashes(body, offsets), hashes)
        receipts = [TransactionReceipt(Execution.DONE, number) for number in range(len(hashes))]
        leaves = [*map(receiptLeaf, hashes, receipts)]
        self.assertEqual(receiptLeaves(hashes, encodeReceipts(receipts)), leaves)

    @few
    @given(st.binary(max_size=100), st.lists(st.integers(0, 110), max_size=4).map(sorted))
    def test_arbitraryBodiesAreMalformed(self, body: bytes, offsets: list[int]) -> None:
        """Whatever bytes there are, there are hashes or it is said that they are none."""
        with contextlib.suppress(Malformed):
            transactionHashes(body, offsets)

    def test_missingReceiptsAreMalformed(self) -> None:
        """A block has as many receipts as transactions."""
        for size in (0, 8, 10, 18):
            self.assertRaises(Malformed, receiptLeaves, [bytes(32)], bytes(size))


class ProverTests(SynchronousTestCase):
    """
    A chain of some hundred blocks.
    """

    def setUp(self) -> None:
        directory = Path(self.mktemp())
        directory.mkdir()
        self.chain = SignedChain(directory)
        self.addCleanup(self.chain.close)
        self.chain.open("t")
        self.ids = self.chain.publish("t", b"a", b"b", b"c")

    def test_anyTwoBlocksAreConsistent(self) -> None:
        """Any two blocks of a chain, across the levels of which nodes are kept."""
        for _ in range(600):
            self.chain.decide()
        prover, tip = self.chain.prover, self.chain.head.height
        for older in (0, 1, 254, 255, 256, 257, 511, 512, tip - 1):
            for newer in (older + 1, 256, 257, 512, 513, tip):
                if newer > older:
                    verifyConsistency(
                        encode(prover.consistency(older, newer)),
                        older=prover.checkpoint(older),
                        newer=prover.checkpoint(newer),
                    )
        proof = encode(prover.event(self.ids[1], tip))
        verifyProof(proof, checkpoint=prover.checkpoint(tip))
        # A checkpoint costs ten hashes on six hundred blocks.
        self.assertLess(len(proof), 6000)

    def test_oneAfterTheOther(self) -> None:
        """Events of one block, and of others in between."""
        other = self.chain.publish("t", b"d", b"e")
        for eventId in (*self.ids, other[0], self.ids[0], *other, *self.ids):
            proved = verifyProof(
                encode(self.chain.prover.event(eventId)), chain=self.chain.genesis.chain
            )
            self.assertEqual(proved.eventId, str(eventId))

    def test_unknownEventsAndBlocksAreRefused(self) -> None:
        """No such event, no such block, no such order."""
        prover, known = self.chain.prover, self.ids[0]
        prefix, height = known.prefix, known.height
        for eventId in (
            EventId(prefix, 4, height),
            EventId("00000000", 1, height),
            EventId(prefix, 1, 1),
        ):
            self.assertRaises(EventNotFound, prover.event, eventId)
        for far in (height + 1, 2**63 - 1):
            self.assertRaises(HeightUnknown, prover.event, EventId(prefix, 1, far))
            self.assertRaises(HeightUnknown, prover.event, known, far)
            self.assertRaises(HeightUnknown, prover.checkpoint, far)
            self.assertRaises(HeightUnknown, prover.consistency, 0, far)
        for checkpoint in (height, height - 1):
            self.assertRaises(ParameterInvalid, prover.event, known, checkpoint)
        for older, newer in ((1, 1), (2, 1), (-1, 1)):
            self.assertRaises(ParameterInvalid, prover.consistency, older, newer)

    def test_trustedCheckpointNeedsNoCertificates(self) -> None:
        """Proofs that lead to a trusted checkpoint do not grow with each change of the nodes."""
        prover, known = self.chain.prover, self.ids[0]
        sizes = []
        for word in "abc":
            self.chain.changeNodes("node 0", "node 1", "node 2", word)
            height = self.chain.head.height
            for trusted in (known.height, height):
                proof = encode(prover.event(known, trusted=trusted))
                proved = verifyProof(proof, checkpoint=prover.checkpoint(trusted))
                self.assertEqual((proved.signed, proved.signers), (None, {}))
            sizes.append(len(proof))
        self.assertLess(sizes[-1] - sizes[0], 200)
        self.assertRaises(ParameterInvalid, prover.event, known, trusted=known.height - 1)
        self.assertRaises(ParameterInvalid, prover.event, known, height, trusted=height)
        self.assertRaises(HeightUnknown, prover.event, known, trusted=height + 1)

    def test_unknownTopicIsRefused(self) -> None:
        """That a topic was never opened is not proved."""
        self.assertRaises(TopicNotFound, self.chain.prover.topic, "u", self.chain.state)

    def test_allEventsOfTopicAreComplete(self) -> None:
        """All events of a topic, in any order and more than once, are complete; fewer are not."""
        self.chain.open("u")
        self.chain.publish("u", b"other")
        more = self.chain.publish("t", b"d", b"e")
        prover, state = self.chain.prover, self.chain.state
        made = encode(prover.certified(prover.topic("t", state)))
        topic = verifyTopic(made, chain=self.chain.genesis.chain)
        self.assertEqual(topic.count, 5)
        height = topic.block.height
        proofs = [encode(prover.event(each, trusted=height)) for each in (*self.ids, *more)]
        for some in (proofs, proofs[::-1], proofs * 2):
            events = verifyComplete(topic, some)
            self.assertEqual([event.content for event in events], [b"a", b"b", b"c", b"d", b"e"])
        for missing in range(5):
            with self.assertRaisesRegex(
                ProofInvalid, f"1 of .* first of them is number {missing + 1}"
            ):
                verifyComplete(topic, proofs[:missing] + proofs[missing + 1 :])
        other = encode(prover.event(EventId(topicPrefix("u"), 1, height - 1), trusted=height))
        with self.assertRaisesRegex(ProofInvalid, "of another topic"):
            verifyComplete(topic, [*proofs, other])
        # A proof that leads elsewhere may be of another history.
        with self.assertRaisesRegex(ProofInvalid, "does not lead"):
            verifyComplete(topic, [*proofs[:-1], encode(prover.event(self.ids[0]))])
        fewer = evolve(topic, count=4)
        with self.assertRaisesRegex(ProofInvalid, "number 5 is beyond"):
            verifyComplete(fewer, proofs)
        self.assertEqual(verifyComplete(evolve(topic, count=0), []), [])

    def test_erasureKeepsProofs(self) -> None:
        """
        Proofs made before an erasure still hold; afterwards the same prover proves the erased event
        without its content, the others of its block, and that these are all events of the topic.
        """
        directory = Path(self.mktemp())
        directory.mkdir()
        chain = ErasableChain(directory)
        self.addCleanup(chain.close)
        chain.open("t")
        contents = [b"gone" * 100, b"kept", b"gone, too" * 50, b"kept, too"]
        header = chain.decide(
            [
                chain.say("t", content, author="ada", key=str(index))
                for index, content in enumerate(contents)
            ]
        )
        ids = [EventId(topicPrefix("t"), number, header.height) for number in range(1, 5)]
        before = [encode(chain.prover.event(eventId)) for eventId in ids]
        chain.erase("t", (1, 1), (3, 3))
        self.assertIs(Eraser(chain.store).run(), Erasing.DONE)
        trusted = chain.genesis.chain
        for content, proof in zip(contents, before, strict=True):
            self.assertEqual(verifyProof(proof, chain=trusted).content, content)
        made = encode(chain.prover.certified(chain.prover.topic("t", chain.state)))
        topic = verifyTopic(made, chain=trusted)
        after = [encode(chain.prover.event(each, trusted=topic.block.height)) for each in ids]
        events = verifyComplete(topic, after)
        self.assertEqual([event.content for event in events], [None, b"kept", None, b"kept, too"])
        for event, proof in zip(events, before, strict=True):
            known = verifyProof(proof, chain=trusted)
            assert event.author is not None and known.author is not None
            self.assertEqual(event.author.key, known.author.key)
            self.assertEqual(event.transaction, known.transaction)
            self.assertEqual(event.author.signature == b"", event.content is None)
        for secret in (b"gonegone", b"gone, too"):
            self.assertNotIn(secret, b"".join(after))

    def test_damagedBlockGivesNoProof(self) -> None:
        """A proof that would not hold is not given."""
        writing = self.chain.store._writing
        height = self.ids[0].height
        [(body, receipts)] = writing.execute(
            "SELECT body, receipts FROM body WHERE height = ?", (height,)
        ).fetchall()
        for damaged in (
            (bytes([*body[:60], body[60] ^ 1, *body[61:]]), receipts),
            (body, bytes([*receipts[:-1], receipts[-1] ^ 1])),
            (body, receipts[:-1]),
            (body[:40], receipts),
        ):
            writing.execute(
                "UPDATE body SET body = ?, receipts = ? WHERE height = ?", (*damaged, height)
            )
            prover = Prover(self.chain.genesis, self.chain.store)
            self.assertRaises(Malformed, prover.event, self.ids[1])

    def test_damagedCertificateGivesNoProof(self) -> None:
        """A signature that does not hold is not given away."""
        self.chain.store._writing.execute(
            "UPDATE head SET certificate = CAST(substr(certificate, 1, 40) || zeroblob(1) || "
            "substr(certificate, 42) AS BLOB) WHERE height = ?",
            (self.ids[0].height,),
        )
        prover = Prover(self.chain.genesis, self.chain.store)
        self.assertRaises(Malformed, prover.event, self.ids[0])

    def test_damagedHeaderGivesNoCheckpoint(self) -> None:
        """Neither the last one, nor one before it; nor a proof that leads to it."""
        self.chain.decide()
        middle = self.chain.decide().height
        self.chain.decide()
        self.damageHeader(middle)
        prover = Prover(self.chain.genesis, self.chain.store)
        self.assertRaises(Malformed, prover.event, self.ids[0], trusted=middle)
        for height in (self.chain.head.height, 1):
            self.damageHeader(height)
            prover = Prover(self.chain.genesis, self.chain.store)
            self.assertRaises(Malformed, prover.checkpoint, height)

    def damageHeader(self, height: int) -> None:
        """Change the transaction root in a stored header."""
        self.chain.store._writing.execute(
            "UPDATE head SET header = CAST(substr(header, 1, 83) || zeroblob(8) || "
            "substr(header, 92) AS BLOB) WHERE height = ?",
            (height,),
        )
