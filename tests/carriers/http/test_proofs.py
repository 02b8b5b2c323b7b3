"""
Proofs over REST and JSON-RPC, and the operator call that changes nodes.
"""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY, Grants, Principal, Usage
from svcbroker.errors import TopicNotFound
from svcbroker.interfaces import Identity, Quotas
from svcbroker.proofs import (
    Checkpoint,
    readCheckpoint,
    readGenesis,
    verifyComplete,
    verifyConsistency,
    verifyProof,
    verifyTopic,
)
from tests.broker.support import makeFixture
from tests.ledgers.pbft.rig import LedgerRig

from .support import BASE, Client


class ProofTests(SynchronousTestCase):
    """
    A group on the embedded ledger, and one on a ledger that proves nothing.
    """

    def setUp(self) -> None:
        self.rig = LedgerRig(self).start().open()
        self.rig.publish(3)
        self.rig.settle()
        receipts = [self.successResultOf(receipt) for receipt in self.rig.receipts]
        self.ids = [str(receipt.eventId) for receipt in receipts]
        self.client = Client(fixture=makeFixture(ledgers={"1": self.rig.ledger}))
        self.chain = readGenesis(self.raw("genesis")).chain

    def raw(self, call: str) -> bytes:
        """The answer of REST as it would be saved."""
        answer = self.client.ask("GET", f"{BASE}/rest/{call}")
        self.assertEqual(answer.status, 200)
        return answer.body

    def test_answerIsAProof(self) -> None:
        """The body of REST is a proof as it is, and so is that of JSON-RPC."""
        for eventId in self.ids:
            proved = verifyProof(self.raw(f"proof?eventId={eventId}"), chain=self.chain)
            self.assertEqual((proved.eventId, proved.topic, proved.content), (eventId, "t", b"x"))
            response = json.dumps(self.client.rpc("proof", {"eventId": eventId})).encode()
            self.assertEqual(verifyProof(response, chain=self.chain), proved)
        self.assertEqual(proved.timestamp // 1000, 1_700_000_000)

    def test_checkpointOfEachHeight(self) -> None:
        """The latest block, one of a height, and genesis, with all their fields."""
        for call in ("checkpoint", "checkpoint?height=1", "checkpoint?height=0"):
            answer = self.client.rest(call)
            kept = readCheckpoint(self.raw(call))
            self.assertEqual((answer["height"], answer["hash"]), (kept.height, kept.hash.hex()))
            self.assertEqual((answer["group"], answer["chain"]), ("1", self.chain.hex()))
            self.assertEqual(answer["timestamp"] // 1000, 1_700_000_000)
            self.assertEqual(
                answer, self.client.rpc("checkpoint", {"height": kept.height})["result"]
            )
        self.assertEqual(answer["height"], 0)
        self.assertEqual(self.client.rest("checkpoint")["height"], self.rig.height)

    def test_proofWithLaterCheckpoint(self) -> None:
        """A later block proves the event, too, where the call names one."""
        self.rig.publish()
        self.rig.settle()
        tip = readCheckpoint(self.raw("checkpoint"))
        data = self.raw(f"proof?eventId={self.ids[0]}&checkpoint={tip.height}")
        self.assertEqual(verifyProof(data, checkpoint=tip).checkpoint, tip)

    def test_topicAndAllItsEventsAreProved(self) -> None:
        """Over both interfaces, and with proofs that the topic's block is trusted for."""
        data = self.raw("topicProof?topic=t")
        topic = verifyTopic(data, chain=self.chain)
        self.assertEqual((topic.topic, topic.count), ("t", 3))
        self.assertEqual(json.loads(data), self.client.rpc("topicProof", {"topic": "t"})["result"])
        height = topic.block.height
        proofs = [self.raw(f"proof?eventId={each}&trusted={height}") for each in self.ids]
        found = verifyComplete(topic, proofs)
        self.assertEqual([event.eventId for event in found], self.ids)

    def test_hiddenTopicIsNotProved(self) -> None:
        """A topic that a principal may not know of looks as if it were not there."""
        proving = self.client.fixture.calls.proving
        identity = Identity(name="ann", grants=Grants.parse(("subscribe 1 a/#",), "ann"))
        stranger = Principal(identity, Usage(Quotas(), Clock().seconds))
        self.failureResultOf(proving.proveTopic(stranger, None, "t"), TopicNotFound)
        self.successResultOf(proving.proveTopic(ANYBODY, None, "t"))

    def test_consistencyOfAnyTwoBlocks(self) -> None:
        kept = [
            readCheckpoint(self.raw(f"checkpoint?height={height}"))
            for height in range(self.rig.height + 1)
        ]
        for older, newer in ((0, 1), (0, self.rig.height), (1, self.rig.height)):
            data = self.raw(f"consistency?older={older}&newer={newer}")
            verifyConsistency(data, older=kept[older], newer=kept[newer])

    def test_unknownBlocksAndEventsAreRefused(self) -> None:
        [one, *_] = self.ids
        height = self.rig.height
        for call, code in (
            ("proof", 100300),
            ("proof?eventId=x", 100302),
            (f"proof?eventId={one.replace('-1-', '-9-')}", 100303),
            (f"proof?eventId={one[:8]}-1-{height + 1}", 100304),
            (f"proof?eventId={one}&checkpoint={height + 1}", 100304),
            (f"proof?eventId={one}&checkpoint=1", 100600),
            (f"proof?eventId={one}&checkpoint={height}", 100600),
            (f"proof?eventId={one}&checkpoint=x", 100600),
            (f"proof?eventId={one}&groupId=9", 200211),
            (f"proof?eventId={one}&trusted={height + 1}", 100304),
            (f"proof?eventId={one}&trusted=1", 100600),
            (f"proof?eventId={one}&checkpoint={height}&trusted={height}", 100600),
            ("topicProof", 100103),
            ("topicProof?topic=%23", 100106),
            ("topicProof?topic=unopened", 100101),
            (f"checkpoint?height={height + 1}", 100304),
            ("checkpoint?height=-1", 100600),
            ("checkpoint?height=1000000000000000", 100304),
            ("consistency?older=1", 100600),
            (f"consistency?older=0&newer={height + 1}", 100304),
            ("consistency?older=1&newer=1", 100600),
            ("consistency?older=1&newer=0", 100600),
        ):
            self.assertEqual(self.client.rest(call).get("code"), code, call)

    def test_ledgerWithoutProofsIsRefused(self) -> None:
        """Over both interfaces."""
        for call, params in (
            ("genesis", {}),
            ("checkpoint", {}),
            ("proof", {"eventId": self.ids[0]}),
            ("topicProof", {"topic": "t"}),
            ("consistency", {"older": 0, "newer": 1}),
        ):
            given: dict[str, Any] = {**params, "groupId": "2"}
            query = "&".join(f"{name}={value}" for name, value in given.items())
            answer = self.client.rest(f"{call}?{query}")
            self.assertEqual(answer["code"], 100600)
            self.assertIn("proves nothing", answer["message"])
            self.assertEqual(self.client.rpc(call, given)["error"]["code"], -32602)

    def test_proofAfterAChangeOfValidators(self) -> None:
        """Both an event before the change and one after it."""
        operator = self.client.fixture.calls.operator
        change = operator.changeNodes(ANYBODY, "1", [0, 3], 5)
        self.rig.run(5)
        nodes = self.successResultOf(change)
        self.assertEqual((nodes.generation, len(nodes.keys)), (1, 5))
        self.assertEqual(self.successResultOf(operator.changeNodes(ANYBODY, "1")), nodes)
        self.rig.receipts.clear()
        self.rig.publish()
        self.rig.settle()
        late = self.successResultOf(self.rig.receipts[0])
        for eventId, changes, count in ((self.ids[0], 0, 4), (str(late.eventId), 1, 5)):
            proved = verifyProof(self.raw(f"proof?eventId={eventId}"), chain=self.chain)
            self.assertEqual((proved.changes, proved.nodes), (changes, count))
            self.assertIsInstance(proved.block, Checkpoint)
