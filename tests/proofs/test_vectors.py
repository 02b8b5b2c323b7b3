"""
The test vectors of proofs, and what is held against them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.commands.prooftext import eventFields, topicFields
from svcbroker.proofs import (
    Checkpoint,
    ProofInvalid,
    readGenesis,
    verifyConsistency,
    verifyContradiction,
    verifyProof,
    verifyTopic,
)
from tools.vectors.proofs import DEFAULT, vectors

from .examples import accepts

VECTORS: Mapping[str, Any] = json.loads(DEFAULT.read_text("ascii"))
CHAIN = bytes.fromhex(VECTORS["chain"])


def written(document: object) -> bytes:
    """A document as JSON."""
    return json.dumps(document).encode("ascii")


class VectorTests(SynchronousTestCase):
    """
    C{docs/vectors/proofs.json}.
    """

    def test_toolMakesCommittedFile(self) -> None:
        """The tool makes the committed file."""
        made = json.loads(json.dumps(vectors()))
        self.assertEqual(made, VECTORS)

    def test_chainIsThatOfGenesis(self) -> None:
        """The chain is that of the genesis."""
        self.assertEqual(readGenesis(written(VECTORS["genesis"])).chain, CHAIN)

    def test_goodProofsHold(self) -> None:
        """Good proofs hold, by ours and by the example of the documentation."""
        names = set()
        for vector in VECTORS["events"]:
            data = written(vector["proof"])
            proved = verifyProof(data, chain=CHAIN)
            self.assertEqual(str(proved.block), VECTORS["checkpoints"][proved.block.height])
            self.assertTrue(accepts(data, CHAIN), vector["name"])
            self.assertEqual(vector["verified"], {"proved": True, **eventFields(proved)})
            names.add(vector["name"])
        self.assertEqual(len(names), 9)

    def test_trustedCheckpointsMatchVectors(self) -> None:
        """With a trusted checkpoint, a proof needs no signatures."""
        count = 0
        for vector in VECTORS["trusting"]:
            data, checkpoint = written(vector["proof"]), Checkpoint.parse(vector["checkpoint"])
            chain = None if vector["chain"] is None else bytes.fromhex(vector["chain"])
            if "why" in vector:
                with self.assertRaises(ProofInvalid, msg=vector["why"]):
                    verifyProof(data, chain=chain, checkpoint=checkpoint)
                # The example trusts one thing at a time.
                isAccepted = accepts(data, checkpoint) and (chain is None or accepts(data, chain))
                self.assertFalse(isAccepted, vector["why"])
            else:
                count += 1
                proved = verifyProof(data, chain=chain, checkpoint=checkpoint)
                self.assertEqual(vector["verified"], {"proved": True, **eventFields(proved)})
                self.assertTrue(accepts(data, checkpoint), vector["name"])
        self.assertEqual((count, len(VECTORS["trusting"])), (7, 15))

    def test_contradictionsMatchVectors(self) -> None:
        """Documents of contradictions hold or do not."""
        for vector in VECTORS["contradictions"]:
            found = verifyContradiction(written(vector["document"]))
            self.assertEqual(found.chain, CHAIN, vector["name"])
        self.assertEqual(len(VECTORS["contradictions"]), 4)
        for vector in VECTORS["badContradictions"]:
            with self.assertRaises(ProofInvalid, msg=vector["why"]):
                verifyContradiction(written(vector["document"]))
        self.assertEqual(len(VECTORS["badContradictions"]), 7)

    def test_topicProofsMatchVectors(self) -> None:
        """Topic proofs hold or are refused by ours and by the example."""
        for vector in VECTORS["topics"]:
            data = written(vector["proof"])
            proved = verifyTopic(data, chain=CHAIN)
            self.assertEqual(vector["verified"], {"proved": True, **topicFields(proved)})
            for trusted in (CHAIN, proved.block):
                self.assertTrue(accepts(data, trusted), vector["name"])
            verifyTopic(data, checkpoint=proved.block)
            self.assertFalse(accepts(data, bytes(32)))
            for wrong in ({"chain": bytes(32)}, {"checkpoint": Checkpoint(1, bytes(32))}, {}):
                self.assertRaises(ProofInvalid, verifyTopic, data, **wrong)
        self.refuse(VECTORS["badTopics"], verifyTopic, CHAIN)
        self.assertEqual(len({vector["why"] for vector in VECTORS["badTopics"]}), 15)

    def test_badProofsAreRefused(self) -> None:
        """Bad proofs are refused by both."""
        self.refuse(VECTORS["badEvents"], verifyProof, CHAIN)
        reasons = {vector["why"] for vector in VECTORS["badEvents"]}
        self.assertEqual(len(reasons), len(VECTORS["badEvents"]))
        self.assertGreater(len(reasons), 30)

    def test_engineProofsMatchVectors(self) -> None:
        """The same of a chain that an engine decided."""
        made = VECTORS["cometbft"]
        chain = bytes.fromhex(made["chain"])
        self.assertEqual(readGenesis(written(made["genesis"])).chain, chain)
        self.assertEqual(len(made["events"]), 5)
        for vector in made["topics"]:
            data = written(vector["proof"])
            self.assertEqual(verifyTopic(data, chain=chain).count, 3)
            self.assertTrue(accepts(data, chain), vector["name"])
        for vector in made["events"]:
            data = written(vector["proof"])
            verifyProof(data, chain=chain)
            self.assertTrue(accepts(data, chain), vector["name"])
        self.refuse(made["badEvents"], verifyProof, chain)
        self.assertEqual(len({vector["why"] for vector in made["badEvents"]}), 16)

    def prove(self, made: Any, chain: bytes) -> None:
        """The events of vectors are proved, by both."""
        for vector in made["events"]:
            data = written(vector["proof"])
            proved = verifyProof(data, chain=chain)
            self.assertTrue(accepts(data, chain), vector["name"])
            self.assertEqual(vector["verified"], {"proved": True, **eventFields(proved)})

    def refuse(self, vectors: Any, verify: Callable[..., object], chain: bytes) -> None:
        """Wrong proofs are refused, by both."""
        for vector in vectors:
            data = written(vector["proof"])
            with self.assertRaises(ProofInvalid, msg=vector["why"]):
                verify(data, chain=chain)
            self.assertFalse(accepts(data, chain), vector["why"])

    def test_authoredProofsMatchVectors(self) -> None:
        """Proofs of events of version 2 and of format 3 hold, or are refused by both."""
        made = VECTORS["format3"]
        chain = bytes.fromhex(made["chain"])
        self.prove(made, chain)
        for vector in made["topics"]:
            data = written(vector["proof"])
            fields = topicFields(verifyTopic(data, chain=chain))
            self.assertTrue(accepts(data, chain), vector["name"])
            self.assertEqual(vector["verified"], {"proved": True, **fields})
        self.refuse(made["badEvents"], verifyProof, chain)
        self.refuse(made["badTopics"], verifyTopic, chain)
        self.assertEqual((len(made["events"]), len(made["badEvents"])), (23, 53))

    def test_statementProofsMatchVectors(self) -> None:
        """Proofs of events with statements of version 2 hold, or are refused by both."""
        made = VECTORS["format4"]
        chain = bytes.fromhex(made["chain"])
        self.prove(made, chain)
        self.refuse(made["badEvents"], verifyProof, chain)
        self.assertEqual((len(made["events"]), len(made["badEvents"])), (10, 19))

    def test_proofsOfNamesInUtf8MatchVectors(self) -> None:
        """Proofs of a chain with names of topics in UTF-8 hold, or are refused by both."""
        made = VECTORS["utf8"]
        chain = bytes.fromhex(made["chain"])
        self.assertEqual(readGenesis(written(made["genesis"])).chain, chain)
        self.prove(made, chain)
        for vector in made["topics"]:
            data = written(vector["proof"])
            verifyTopic(data, chain=chain)
            self.assertTrue(accepts(data, chain), vector["name"])
        self.refuse(made["badEvents"], verifyProof, chain)
        self.assertEqual((len(made["events"]), len(made["badEvents"])), (2, 5))

    def test_consistencyProofsMatchVectors(self) -> None:
        """Consistency proofs."""
        for vector in (*VECTORS["growth"], *VECTORS["badGrowth"]):
            older, newer = (Checkpoint.parse(vector[name]) for name in ("older", "newer"))
            data = written(vector["proof"])
            if "why" in vector:
                with self.assertRaises(ProofInvalid, msg=vector["why"]):
                    verifyConsistency(data, older=older, newer=newer)
            else:
                verifyConsistency(data, older=older, newer=newer)
