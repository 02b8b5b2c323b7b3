"""
Proofs of events that an engine's network decided.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from attrs import evolve
from msgspec.json import encode
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import NotCertified
from svcbroker.chain import Certificate, Header
from svcbroker.ledgers.pbft._keys import publicKey
from svcbroker.model import EventId
from svcbroker.proofs import (
    UNCERTIFIED,
    AnyCertificate,
    Checkpoint,
    CometCertificate,
    EventProof,
    FinalHeader,
    HeaderFields,
    NodeChange,
    PbftCertificate,
    ProofInvalid,
    ProvedEvent,
    storedCertificate,
    verifyConsistency,
    verifyProof,
    verifyTopic,
)
from svcbroker.proofs.cometbft import MARK, Hex, Instant, LightBlock, LightBlockInvalid
from svcbroker.proofs.cometbft import EngineHeader as EngineHeader
from tools.vectors.enginechain import EngineChain
from tools.vectors.signedchain import seedOf

from ..support import proofs
from ..test_tampering import TamperingTestCase


class WalkTests(TamperingTestCase):
    """
    Nothing in a proof can be changed.
    """

    def test_changedFieldIsRefused(self) -> None:
        """No field of a proof of a chain as it began."""
        self.walk(proofs(EngineChain), "first block with events", 3000)

    def test_changedFieldAfterChangesIsRefused(self) -> None:
        """Nor of one after two changes of the nodes."""
        self.walk(proofs(EngineChain), "empty, after two changes", 3000)

    def test_changedFieldWithCheckpointIsRefused(self) -> None:
        """Nor of one with a checkpoint that others signed."""
        self.walk(proofs(EngineChain), "with a checkpoint that other nodes signed", 3000)

    def test_proofsAreSmall(self) -> None:
        """Proofs have some kilobytes."""
        events = proofs(EngineChain).events
        self.assertLess(len(events["first block with events"]), 5500)
        self.assertLess(len(events["empty, after two changes"]), 15000)


class EngineTests(SynchronousTestCase):
    """
    A chain with events before and after a change of its nodes.
    """

    def makeChain(self, **how: Any) -> EngineChain:
        """A chain with a topic."""
        directory = Path(self.mktemp())
        directory.mkdir()
        chain = EngineChain(directory, **how)
        self.addCleanup(chain.close)
        chain.open("t")
        return chain

    def setUp(self) -> None:
        self.chain = self.makeChain()
        (self.early,) = self.chain.publish("t", b"early")
        self.chain.decide()
        self.change = self.chain.changeNodes("node 0", "node 1", "node 2", "node 3", "new 4")
        (self.late,) = self.chain.publish("t", b"late")
        self.trusted = self.chain.genesis.chain

    def prove(self, eventId: EventId, checkpoint: int | None = None) -> EventProof:
        """A good proof."""
        proof = self.chain.prover.event(eventId, checkpoint)
        self.check(proof)
        return proof

    def check(self, proof: EventProof) -> ProvedEvent:
        """A proof holds."""
        return verifyProof(encode(proof), chain=self.trusted)

    def refused(self, proof: EventProof, why: str) -> None:
        """A proof does not hold, for this reason."""
        with self.assertRaisesRegex(ProofInvalid, why):
            self.check(proof)

    def certified(self, proof: EventProof, block: LightBlock) -> EventProof:
        """A proof whose event's block has another light block."""
        certificate = CometCertificate.of(block)
        return replace(proof, block=replace(proof.block, certificate=certificate))

    def resigned(
        self, block: LightBlock, voters: Sequence[int] | None = None, **changes: Any
    ) -> LightBlock:
        """A light block with another header that the first nodes have truly signed."""
        header: EngineHeader = msgspec.structs.replace(block.header, **changes)
        return self.chain.light(header, self.chain.genesis.validatorSet, voters)

    def test_proofNamesEventAndValidators(self) -> None:
        """A proof names the event and the validators."""
        proved = self.check(self.prove(self.early))
        self.assertEqual(proved.group, self.chain.genesis.group)
        self.assertEqual((len(proved.signers), proved.nodes, proved.changes), (3, 4, 0))
        for index, key in proved.signers.items():
            self.assertEqual(key, self.chain.genesis.validators[index])
        proved = self.check(self.prove(self.late))
        self.assertEqual((len(proved.signers), proved.nodes, proved.changes), (4, 5, 1))

    def test_shrunkSetIsFollowed(self) -> None:
        """A set that shrinks is followed too."""
        self.chain.changeNodes("node 1", "new 4")
        (last,) = self.chain.publish("t", b"last")
        proved = self.check(self.prove(last))
        self.assertEqual((len(proved.signers), proved.nodes, proved.changes), (2, 2, 2))

    def test_everyChangeIsRequired(self) -> None:
        """Every change is there, in order, and no more."""
        self.chain.changeNodes("node 0", "new 4", "new 5")
        (last,) = self.chain.publish("t", b"last")
        proof = self.prove(last)
        first, second = proof.changes
        for changes in ([first], [second], [second, first], [first, first, second], []):
            self.refused(replace(proof, changes=changes), "validator set")
        older = self.prove(self.early)
        self.refused(replace(older, changes=[first]), "not below block")

    def test_changeMustMatchEngineHeader(self) -> None:
        """A change that the engine's header does not name is none."""
        proof = self.prove(self.late)
        (change,) = proof.changes
        assert isinstance(change.certificate, CometCertificate)
        block = change.certificate.block()
        same = self.resigned(block, nextValidatorsHash=block.header.validatorsHash)
        changed = replace(change, certificate=CometCertificate.of(same))
        self.refused(replace(proof, changes=[changed]), "does not have the change")

    def test_moreThanTwoThirdsMustVote(self) -> None:
        """More than two thirds have voted."""
        proof = self.prove(self.early)
        block = self.chain.lights[self.early.height]
        for voters in ((0, 1, 2), (1, 2, 3), (0, 1, 2, 3)):
            self.assertEqual(
                len(self.check(self.certified(proof, self.resigned(block, voters))).signers),
                len(voters),
            )
        self.refused(self.certified(proof, self.resigned(block, (0, 1))), "two thirds")
        self.refused(self.certified(proof, self.resigned(block, ())), "two thirds")

    def test_repeatedValidatorsCountOnce(self) -> None:
        """A validator counts once."""
        proof = self.prove(self.early)
        block = self.chain.lights[self.early.height]
        twice = msgspec.structs.replace(
            block,
            validators=(block.validators[0],) * 4,
            votes=(block.votes[0],) * 4,
        )
        self.refused(self.certified(proof, twice), "one validator twice")
        more = msgspec.structs.replace(
            block,
            validators=(*block.validators, block.validators[0]),
            votes=(*block.votes, block.votes[0]),
        )
        self.refused(self.certified(proof, more), "one validator twice")

    def test_lightBlockOfOtherHeightIsRefused(self) -> None:
        """A light block of another height does not do, nor does one that claims the right one."""
        proof = self.prove(self.early)
        other = self.chain.lights[self.early.height + 1]
        self.refused(self.certified(proof, other), "it is block")
        moved = self.resigned(other, height=self.early.height + 1, appHash=Hex(bytes(32)))
        self.refused(self.certified(proof, moved), "another header")

    def test_lightBlockMatchesOneHeader(self) -> None:
        """A light block stands for one header of ours."""
        proof = self.prove(self.early)
        other = self.chain.lights[self.early.height - 1]
        block = self.resigned(self.chain.lights[self.early.height], appHash=other.header.appHash)
        self.refused(self.certified(proof, block), "another header")
        header = replace(proof.block.header.header(), view=9)
        changed = replace(proof.block, header=HeaderFields.of(header))
        self.refused(replace(proof, block=changed), "another header")

    def test_otherEngineChainIsRefused(self) -> None:
        """An engine's chain of another name is another one, whoever has signed."""
        proof = self.prove(self.early)
        block = self.resigned(self.chain.lights[self.early.height], chainId="other")
        self.refused(self.certified(proof, block), "another chain")

    def test_laterGenesisIsOtherChain(self) -> None:
        """A chain of the same name and nodes that began at another time is another one."""
        other = self.makeChain(name="other")
        proof = self.prove(self.early)
        self.refused(replace(proof, genesis=other.prover.genesis()), "not of this chain")

    def forged(self, header: Header, names: Sequence[str]) -> FinalHeader:
        """Any header, and a light block for it that nodes have truly signed."""
        nodes = evolve(
            self.chain.genesis.validatorSet,
            keys=tuple(publicKey(seedOf(name)) for name in names),
        )
        self.chain._seeds = [seedOf(name) for name in names]
        engine = self.chain._engineHeader(header, nodes, nodes)
        engine = msgspec.structs.replace(engine, appHash=Hex(header.hash))
        return FinalHeader(
            header=HeaderFields.of(header),
            certificate=CometCertificate.of(self.chain.light(engine, nodes)),
        )

    def test_formerValidatorsCannotForge(self) -> None:
        """The keys of a former set cannot forge a block after it."""
        proof = self.prove(self.late)
        header = proof.block.header.header()
        former = [f"node {index}" for index in range(4)]
        self.refused(replace(proof, block=self.forged(header, former)), "not those that decide")
        named = replace(header, validators=self.chain.genesis.validatorSet.hash)
        self.refused(replace(proof, block=self.forged(named, former)), "another validator set")

    def test_changeNeedsFormerSet(self) -> None:
        """A set of nodes cannot bring itself in."""
        proof = self.prove(self.late)
        (change,) = proof.changes
        own = self.forged(change.header.header(), ["x 0", "x 1", "x 2"])
        forged = NodeChange(header=own.header, certificate=own.certificate, nodes=change.nodes)
        self.refused(replace(proof, changes=[forged]), "not those that decide")

    def test_proofIsOfOneLedgerType(self) -> None:
        """A proof is of one kind of ledger."""
        proof = self.prove(self.late)
        (change,) = proof.changes
        self.chain._seeds = [seedOf(f"node {index}") for index in range(4)]
        certificate = PbftCertificate.of(self.chain.certify(change.header.header()))
        mixed = replace(change, certificate=certificate)
        self.refused(replace(proof, changes=[mixed]), "rules of one ledger")

    def test_contradictingBlocksAreRefused(self) -> None:
        """Blocks of the engine that contradict each other are not of one chain."""
        (last,) = self.chain.publish("t", b"last")
        proof = self.prove(self.late, last.height)
        assert proof.checkpoint is not None
        block = self.chain.lights[last.height]
        nodes = self.chain._state.validators
        before = self.chain.lights[self.late.height].header.time
        for changes in (
            {"lastBlockId": self.chain.lights[self.early.height].header.lastBlockId},
            {"time": before},
            {"time": Instant(before - 1)},
        ):
            header = msgspec.structs.replace(block.header, **changes)
            certificate = CometCertificate.of(self.chain.light(header, nodes))
            checkpoint = replace(proof.checkpoint, certificate=certificate)
            self.refused(replace(proof, checkpoint=checkpoint), "not of one chain")

    def test_blockBeforeGenesisIsRefused(self) -> None:
        """No block of the engine is older than the genesis."""
        proof = self.prove(self.early)
        time = Instant(self.chain.genesis.created * 1_000_000 - 1)
        block = self.resigned(self.chain.lights[self.early.height], time=time)
        self.refused(self.certified(proof, block), "older than the genesis")

    def test_checkpointIsLastWithTransactions(self) -> None:
        """The last block with transactions is the checkpoint of those without behind it."""
        checkpoint = self.chain.prover.checkpoint
        tip = self.chain.head.height
        for _ in range(3):
            self.chain.decide()
        self.assertEqual(checkpoint(None), checkpoint(tip))
        self.assertEqual(checkpoint(tip + 2), checkpoint(tip))
        self.assertEqual(checkpoint(self.early.height + 1), checkpoint(self.early.height))
        self.assertEqual(checkpoint(0), Checkpoint.of(self.chain.genesis.header()))
        proof = self.prove(self.early, tip + 2)
        verifyProof(encode(proof), checkpoint=checkpoint(tip + 2))
        # There is nothing later than the event's own block.
        proof = self.prove(self.late, tip + 3)
        self.assertIsNone(proof.checkpoint)
        verifyProof(encode(proof), checkpoint=checkpoint(tip + 3))
        growth = self.chain.prover.consistency(self.early.height, tip)
        older, newer = checkpoint(self.early.height), checkpoint(tip)
        verifyConsistency(encode(growth), older=older, newer=newer)

    def test_emptyChainCheckpointIsGenesis(self) -> None:
        """The checkpoint of a chain that has only blocks without transactions is its genesis."""
        directory = Path(self.mktemp())
        directory.mkdir()
        chain = EngineChain(directory)
        self.addCleanup(chain.close)
        self.assertEqual(chain.prover.checkpoint(None), Checkpoint.of(chain.genesis.header()))
        chain.decide()
        self.assertEqual(chain.prover.checkpoint(None), Checkpoint.of(chain.genesis.header()))

    def test_givenCertificateIsUsed(self) -> None:
        """A certificate that is not stored can be given."""
        chain = self.makeChain(keeps=False)
        chain.changeNodes("node 0", "node 1", "new 2")
        (event,) = chain.publish("t", b"x")
        given: dict[int, CometCertificate] = {}
        for _ in range(2):
            with self.assertRaises(NotCertified) as raised:
                chain.prover.event(event, None, given)
            height = raised.exception.height
            given[height] = CometCertificate.of(chain.lights[height])
        proof = chain.prover.event(event, None, given)
        verifyProof(encode(proof), chain=chain.genesis.chain)

    def test_laterCertificateStandsBehindMissingOne(self) -> None:
        """
        If there is no certificate of an event's block, a later one proves the event; the same
        holds with the checkpoint that was asked for. A change needs its own.
        """
        chain = self.makeChain(keeps=False)
        first = chain.publish("t", b"first")[0]
        second = chain.publish("t", b"second")[0]
        chain.decide()
        prove, lights = chain.prover.event, chain.lights
        for checkpoint in (None, second.height):
            given: dict[int, AnyCertificate | None] = {first.height: None}
            with self.assertRaises(NotCertified) as raised:
                prove(first, checkpoint, given)
            self.assertEqual(raised.exception.height, second.height)
            given[second.height] = CometCertificate.of(lights[second.height])
            proof = prove(first, checkpoint, given)
            self.assertEqual(proof.format, UNCERTIFIED)
            proved = verifyProof(encode(proof), chain=chain.genesis.chain)
            self.assertEqual(proved.content, b"first")
            self.assertEqual(proved.signed, chain.prover.checkpoint(second.height))
            self.assertEqual((len(proved.signers), proved.nodes), (3, 4))
        # There is no later block, and none of a change can be left out.
        self.assertRaises(NotCertified, prove, second, None, {second.height: None})
        changed = chain.changeNodes("node 0", "node 1", "new 2")
        (last,) = chain.publish("t", b"last")
        given = {last.height: CometCertificate.of(lights[last.height]), changed.height: None}
        self.assertRaises(NotCertified, prove, last, None, given)
        # A verifier that trusts a checkpoint needs no certificate.
        proof = prove(last, trusted=last.height)
        self.assertLess(len(encode(proof)), 2500)
        verifyProof(encode(proof), checkpoint=chain.prover.checkpoint(None))

    def test_topicIsProvedFromLastBlockWithTransactions(self) -> None:
        """Blocks without transactions have no certificate, and the state of the one before."""
        chain = self.makeChain(keeps=False)
        (event,) = chain.publish("t", b"x")
        chain.decide()
        proof = chain.prover.topic("t", chain.state)
        chain.publish("t", b"later")
        self.assertRaises(NotCertified, chain.prover.certified, proof)
        given = {event.height: CometCertificate.of(chain.lights[event.height])}
        proved = verifyTopic(
            encode(chain.prover.certified(proof, given)), chain=chain.genesis.chain
        )
        self.assertEqual((proved.count, proved.block.height), (1, event.height))


class StoredTests(SynchronousTestCase):
    """
    Certificates as stores have them.
    """

    def test_storedCertificatesAreRecognized(self) -> None:
        """Each kind is known for what it is."""
        block = LightBlock.fromJson(
            json.loads(proofs(EngineChain).events["first block with events"])["block"][
                "certificate"
            ]["lightBlock"]
        )
        self.assertEqual(storedCertificate(block.encode()), CometCertificate.of(block))
        self.assertLess(len(block.encode()), 1500)
        votes = Certificate(round=1, signatures=[(0, bytes(64))])
        self.assertEqual(storedCertificate(votes.encode()), PbftCertificate.of(votes))
        self.assertIsNone(storedCertificate(b""))
        for data in (MARK, block.encode()[:-1], block.encode() + b"x", b"x" + block.encode()):
            with self.assertRaises(LightBlockInvalid):
                LightBlock.decode(data)
