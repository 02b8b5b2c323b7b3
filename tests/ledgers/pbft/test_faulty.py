"""
Tests for sets with one Byzantine replica. C{tests/simulation} has many more of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace
from nacl.bindings import crypto_sign
from twisted.logger import capturedLogs, formatEvent

from svcbroker.chain import Phase, votePayload
from svcbroker.ledgers.pbft._protocol import (
    BlockRequest,
    Conditions,
    Decide,
    DecidedBlock,
    Effect,
    Message,
    Proposal,
    Send,
)
from svcbroker.ledgers.pbft._replica import Replica
from tests.ledgers.pbft.test_replicaset import SetTestCase

NO_HEIGHT = 10**6


class Equivocator(Replica):
    """
    As the leader, sends a second valid block to half of the others.
    """

    def propose(self, height: int) -> Sequence[Effect]:
        effects: list[Effect] = []
        for effect in super().propose(height):
            if isinstance(effect, Send) and isinstance(effect.message, Proposal):
                effects += [
                    Send(self.other(effect.message) if target > 1 else effect.message, target)
                    for target in range(4)
                    if target != self.index
                ]
                effects.append(Send(self.other(effect.message), 0))
            else:
                effects.append(effect)
        return effects

    def other(self, proposal: Proposal) -> Proposal:
        """The proposal of a valid block with another time."""
        header = replace(proposal.block.header, timestamp=proposal.block.header.timestamp + 1)
        payload = votePayload(
            Phase.PROPOSE, header.chain, proposal.height, proposal.round, header.hash
        )
        return replace(
            proposal,
            block=replace(proposal.block, header=header),
            signature=crypto_sign(payload, self._signer._secret)[:64],
        )


class Forger(Replica):
    """
    Answers requests with a block that was not decided.
    """

    def receive(self, messages: Sequence[Message]) -> Sequence[Effect]:
        effects = list(super().receive(messages))
        for place, effect in enumerate(effects):
            if isinstance(effect, Send) and isinstance(effect.message, DecidedBlock):
                header = replace(effect.message.header, timestamp=1)
                effects[place] = replace(effect, message=replace(effect.message, header=header))
        return effects


class Unproven(Replica):
    """
    Decides each block with fewer signatures than a quorum.
    """

    def receive(self, messages: Sequence[Message]) -> Sequence[Effect]:
        return [
            replace(
                effect,
                certificate=replace(
                    effect.certificate, signatures=effect.certificate.signatures[:2]
                ),
            )
            if isinstance(effect, Decide)
            else effect
            for effect in super().receive(messages)
        ]


class SilentAfterDeciding(Replica):
    """
    Sends nothing once it has decided a block.
    """

    hasDecided = False

    def receive(self, messages: Sequence[Message]) -> Sequence[Effect]:
        before = self.head
        effects = super().receive(messages)
        self.hasDecided = self.hasDecided or self.head != before
        return [] if self.hasDecided else effects


class AsksAfterDeciding(Replica):
    """
    Asks for a block that does not exist with each block that it decides.

    @cvar received: the requests that replicas of this kind have received.
    """

    received: ClassVar[list[BlockRequest]] = []

    def receive(self, messages: Sequence[Message]) -> Sequence[Effect]:
        requests = [each for each in messages if isinstance(each, BlockRequest)]
        self.received.extend(each for each in requests if each.height == NO_HEIGHT)
        effects = super().receive(messages)
        if any(isinstance(effect, Decide) for effect in effects):
            effects = [*effects, Send(BlockRequest(sender=self.index, height=NO_HEIGHT))]
        return effects


class FaultyTests(SetTestCase):
    def test_equivocatingLeaderIsReported(self) -> None:
        """At most one of its blocks is decided."""
        rig = self.rig(worse={2: Equivocator})
        for turn in range(6):
            rig.publish(2)
            rig.settle()
            self.assertEqual(rig.sequences(), [2 * turn + 1, 2 * turn + 2])
        self.assertEqual({proof.first.sender for proof in rig.replicaSet.evidence}, {2})
        for proof in rig.replicaSet.evidence:
            self.assertNotEqual(proof.first.digest, proof.second.digest)
        rig.check()

    def test_forgedBlockIsNotAdopted(self) -> None:
        """A replica that is behind refuses it."""
        rig = self.rig(worse={3: Forger})
        rig.replicaSet.stopReplica(0)
        rig.publish()
        rig.settle()
        cut = frozenset({(1, 0), (2, 0)})
        rig.replicaSet.network.conditions = Conditions(cut=cut)
        rig.replicaSet.startReplica(0)
        rig.run(1)
        self.assertEqual(self.heights(rig)[0], 1)
        rig.replicaSet.network.conditions = Conditions()
        rig.publish()
        rig.settle()
        rig.run(2)
        self.assertEqual(self.heights(rig)[0], rig.height)
        rig.check()

    def test_blockWithoutQuorumIsNotStored(self) -> None:
        """A replica decides first, without a valid certificate: another one's is stored."""
        rig = self.rig(worse=dict.fromkeys(range(3), Unproven))
        with capturedLogs() as events:
            rig.publish()
            rig.settle()
        self.assertEqual(rig.sequences(), [1])
        told = [text for text in map(formatEvent, events) if "without a valid certificate" in text]
        self.assertTrue(told)
        self.assertIn("2 signatures are fewer than the 3 needed", told[0])
        rig.check()

    def test_replacedReplicaHasNoEffects(self) -> None:
        """Effects of a replica after the decision that replaces it are not done."""
        received = AsksAfterDeciding.received
        received.clear()
        rig = self.rig(worse=dict.fromkeys(range(4), AsksAfterDeciding))
        self.assertEqual(len(received), 12)
        rig.change([0])
        self.assertEqual(len(received), 12)
        rig.publish()
        rig.settle()
        self.assertEqual(len(received), 24)

    def test_silenceAfterDecidingDelaysNothing(self) -> None:
        rig = self.rig(worse={0: SilentAfterDeciding})
        for turn in range(5):
            rig.publish()
            rig.settle()
            self.assertEqual(rig.sequences(), [turn + 1])
        rig.check()
