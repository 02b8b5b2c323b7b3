"""
Forging: proofs that somebody with some of the keys, or another chain, might make.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.json import encode
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import Header, Kind, ValidatorSet
from svcbroker.ledgers.pbft._keys import publicKey, signChange
from svcbroker.model import EventId
from svcbroker.proofs import (
    Checkpoint,
    EventProof,
    FinalHeader,
    HeaderFields,
    NodeChange,
    PbftCertificate,
    ProofInvalid,
    verifyConsistency,
    verifyProof,
)
from tools.vectors.signedchain import SignedChain, seedOf

CHANGED = ("node 0", "new 1", "new 2", "new 3")
"""The nodes after the change; of the first set there is one left."""


class ForgeTests(SynchronousTestCase):
    """
    A chain with events before and after a change of its nodes.
    """

    def makeChain(self, **how: Any) -> SignedChain:
        """A chain with a topic."""
        directory = Path(self.mktemp())
        directory.mkdir()
        chain = SignedChain(directory, **how)
        self.addCleanup(chain.close)
        chain.open("t")
        return chain

    def setUp(self) -> None:
        self.chain = self.makeChain()
        (self.early,) = self.chain.publish("t", b"early")
        self.change = self.chain.changeNodes(*CHANGED)
        (self.late,) = self.chain.publish("t", b"late")
        self.trusted = self.chain.genesis.chain

    def prove(self, eventId: EventId, checkpoint: int | None = None) -> EventProof:
        """A good proof."""
        proof = self.chain.prover.event(eventId, checkpoint)
        verifyProof(encode(proof), chain=self.trusted)
        return proof

    def refused(self, proof: EventProof, why: str, **trusted: Any) -> None:
        """A proof does not hold, for this reason."""
        with self.assertRaisesRegex(ProofInvalid, why):
            verifyProof(encode(proof), **(trusted or {"chain": self.trusted}))

    def signed(self, proof: EventProof, signers: Sequence[int], round: int = 0) -> EventProof:
        """A proof whose block has these signatures of the nodes that decide now."""
        certificate = self.chain.certify(proof.block.header.header(), signers, round)
        return self.certified(proof, PbftCertificate.of(certificate))

    def certificateOf(self, proof: EventProof) -> PbftCertificate:
        """The certificate of a proof's block."""
        certificate = proof.block.certificate
        assert isinstance(certificate, PbftCertificate)
        return certificate

    def certified(self, proof: EventProof, certificate: PbftCertificate) -> EventProof:
        """A proof whose block has this certificate."""
        return replace(proof, block=replace(proof.block, certificate=certificate))

    def test_proofNeedsSomethingTrusted(self) -> None:
        """A proof that is to be checked against nothing proves nothing."""
        with self.assertRaisesRegex(ProofInvalid, "nothing is trusted"):
            verifyProof(encode(self.prove(self.early)))

    def test_proofOfOtherChainIsRefused(self) -> None:
        """A proof of one chain is none of another, whatever else is trusted too."""
        other = self.makeChain(name="other")
        proof = self.prove(self.early)
        self.refused(proof, "not the trusted one", chain=other.genesis.chain)
        self.refused(
            proof,
            "not the trusted one",
            chain=other.genesis.chain,
            checkpoint=self.chain.prover.checkpoint(self.early.height),
        )

    def test_otherGenesisIsRefused(self) -> None:
        """The genesis of another chain does not fit, nor does one that names this one."""
        other = self.makeChain(name="other").prover.genesis()
        proof = self.prove(self.early)
        self.refused(replace(proof, genesis=other), "not of this chain")
        named = replace(other, chain=proof.genesis.chain)
        self.refused(replace(proof, genesis=named), "not that of the chain it names")

    def test_onlyQuorumsSuffice(self) -> None:
        """Any quorum will do; too few, unsorted and repeated signatures do not."""
        proof = self.prove(self.late)
        for quorum in ((0, 1, 2), (1, 2, 3), (0, 2, 3), (0, 1, 2, 3)):
            verifyProof(encode(self.signed(proof, quorum, round=7)), chain=self.trusted)
        bad: Sequence[tuple[Sequence[int], str]] = (
            ((), "fewer than the 3 needed"),
            ((0, 1), "fewer than the 3 needed"),
            ((0, 2, 1), "not in rising order"),
            ((0, 1, 1), "not in rising order"),
            ((1, 1, 1, 1), "not in rising order"),
        )
        for signers, why in bad:
            self.refused(self.signed(proof, signers), why)

    def test_signaturesOfSeveralRoundsAreRefused(self) -> None:
        """Signatures of different rounds do not add up."""
        proof = self.prove(self.late)
        one, other = (self.certificateOf(self.signed(proof, (0, 1, 2), round)) for round in (0, 1))
        mixed = [*one.signatures[:2], other.signatures[2]]
        self.refused(
            self.certified(proof, replace(one, signatures=mixed)), "validator 2 does not hold"
        )

    def test_unknownSignerIsRefused(self) -> None:
        """A signature by an index beyond the set is refused."""
        proof = self.prove(self.late)
        certificate = self.certificateOf(proof)
        stranger = replace(certificate.signatures[2], node=4)
        changed = replace(certificate, signatures=[*certificate.signatures[:2], stranger])
        self.refused(self.certified(proof, changed), "not a validator")
        extra = replace(certificate, signatures=[*certificate.signatures, stranger])
        self.refused(self.certified(proof, extra), "not a validator")

    def forged(self, header: Header) -> FinalHeader:
        """Any header, signed by those who decide now."""
        return FinalHeader(
            header=HeaderFields.of(header),
            certificate=PbftCertificate.of(self.chain.certify(header)),
        )

    def test_formerNodesSignNoLaterBlock(self) -> None:
        """
        All keys of a former set cannot forge a block after it, under either set's name.
        """
        proof = self.prove(self.late)
        header = proof.block.header.header()
        self.chain._seeds = [seedOf(f"node {index}") for index in range(4)]
        self.refused(replace(proof, block=self.forged(header)), "signature of validator 1")
        former = replace(header, validators=self.chain.genesis.validatorSet.hash)
        self.refused(replace(proof, block=self.forged(former)), "another validator set")
        # Without the change it is their turn, as far as the proof says. That is what forks are:
        # nobody who has no checkpoint can see it.
        hidden = replace(proof, block=self.forged(former), changes=[])
        found = verifyProof(encode(hidden), chain=self.trusted)
        self.refused(
            hidden, "another hash", checkpoint=self.chain.prover.checkpoint(found.block.height)
        )

    def test_laterNodesSignNoEarlierBlock(self) -> None:
        """The nodes of a later set cannot sign what came before it."""
        proof = self.prove(self.early)
        self.refused(self.signed(proof, (0, 1, 2)), "signature of validator 1")
        later = replace(proof.block.header.header(), validators=self.chain.head.validators)
        self.refused(replace(proof, block=self.forged(later)), "another validator set")

    def test_changesAreCompleteAndOrdered(self) -> None:
        """Changes are there all, once, in order, and no more than it takes."""
        early, late = self.prove(self.early), self.prove(self.late)
        (change,) = late.changes
        self.chain.changeNodes("node 0", "new 1", "new 2", "newer 3")
        (last,) = self.chain.publish("t", b"last")
        proof = self.prove(last)
        first, second = proof.changes
        self.refused(replace(early, changes=[change]), "not below block")
        self.refused(replace(late, changes=[change, second]), "not below block")
        self.refused(replace(late, changes=[]), "another validator set")
        for changes in ([first], [second], [second, first], [first, first, second], []):
            self.refused(replace(proof, changes=changes), "validator set")

    def test_changeIsSignedByTheSetBefore(self) -> None:
        """A validator set cannot bring itself in, nor another than its block names."""
        proof = self.prove(self.late)
        (change,) = proof.changes
        header = change.header.header()
        self.chain._seeds = [seedOf(f"x {index}") for index in range(4)]
        own = NodeChange(
            header=HeaderFields.of(header),
            certificate=PbftCertificate.of(self.chain.certify(header)),
            nodes=change.nodes,
        )
        self.refused(replace(proof, changes=[own]), "signature of validator 0")
        swapped = [change.nodes[1], change.nodes[0], *change.nodes[2:]]
        for nodes in (swapped, [], change.nodes[:3], [*change.nodes, change.nodes[0]]):
            self.refused(replace(proof, changes=[replace(change, nodes=nodes)]), "set|node")

    def test_onlyChangesBringNewSets(self) -> None:
        """
        No block but one that changes the nodes brings others in, although it is truly final.
        """
        proof = self.prove(self.late)
        names = [f"usurper {index}" for index in range(4)]
        own = ValidatorSet(1, tuple(publicKey(seedOf(name)) for name in names))
        ordinary = self.prove(self.early).block
        self.chain._seeds = [seedOf(name) for name in names]
        header = replace(proof.block.header.header(), validators=own.hash, nextValidators=own.hash)
        change = NodeChange(
            header=ordinary.header,
            certificate=ordinary.certificate,
            nodes=[key.hex() for key in own.keys],
        )
        forged = replace(proof, changes=[change], block=self.forged(header))
        self.refused(forged, "does not bring")

    def test_formerSetBringsNoLaterSet(self) -> None:
        """
        All keys of a former set cannot bring in a set after the one that followed it.
        """
        proof = self.prove(self.late)
        (change,) = proof.changes
        first = [seedOf(f"node {index}") for index in range(4)]
        own = ValidatorSet(2, tuple(map(publicKey, first)))
        for header in (change.header.header(), self.prove(self.early).block.header.header()):
            self.chain._seeds = first
            earlier = self.forged(replace(header, nextValidators=own.hash))
            second = NodeChange(
                header=earlier.header,
                certificate=earlier.certificate,
                nodes=[key.hex() for key in own.keys],
            )
            block = self.forged(replace(proof.block.header.header(), validators=own.hash))
            forged = replace(proof, changes=[change, second], block=block)
            self.refused(forged, "does not bring")

    def test_changeInTheSameBlock(self) -> None:
        """An event in the block of a change is decided by the nodes before."""
        keys = [seedOf(f"other {index}") for index in range(4)]
        change = signChange(
            self.trusted,
            self.chain._state.validators,
            list(map(publicKey, keys)),
            [*self.chain.seeds, *keys],
        )
        publish = self.chain.transaction(Kind.PUBLISH, "t", b"with a change")
        header = self.chain.decide(
            [publish, self.chain.transaction(Kind.VALIDATORS, content=change.encode())]
        )
        self.assertNotEqual(header.validators, header.nextValidators)
        self.chain._seeds = keys
        proof = self.prove(EventId(self.late.prefix, 3, header.height))
        self.assertEqual(len(proof.changes), 1)
        (own,) = self.prove(
            self.chain.publish("t", b"after")[0],
        ).changes[1:]
        self.refused(replace(proof, changes=[*proof.changes, own]), "not below block")

    def test_onlyOwnCheckpointsAreAccepted(self) -> None:
        """Only the event's own block and the proof's checkpoint are led to."""
        tip = self.chain.decide().height
        proof = self.prove(self.early, tip)
        for height in (self.early.height, tip):
            verifyProof(encode(proof), checkpoint=self.chain.prover.checkpoint(height))
        for height in (0, self.early.height - 1, self.early.height + 1, tip - 1):
            checkpoint = self.chain.prover.checkpoint(height)
            isBefore = height < self.early.height
            reason = "it cannot cover it" if isBefore else "does not lead to"
            self.refused(proof, reason, checkpoint=checkpoint)
        bare = self.prove(self.early)
        self.refused(bare, "does not lead", checkpoint=self.chain.prover.checkpoint(tip))

    def test_checkpointMustBeLater(self) -> None:
        """A block before the event's, or the event's own, cannot vouch for it."""
        tip = self.chain.decide().height
        proof = self.prove(self.late, tip)
        assert proof.checkpoint is not None
        earlier = self.prove(self.early, self.change.height).checkpoint
        assert earlier is not None
        self.refused(replace(proof, checkpoint=earlier), "no leaf|not below")
        own = replace(
            proof.checkpoint,
            header=proof.block.header,
            certificate=proof.block.certificate,
            path=[],
        )
        self.refused(replace(proof, checkpoint=own), "no leaf")

    def fork(self) -> SignedChain:
        """The same nodes, and another chain from the first event on."""
        fork = self.makeChain()
        fork.publish("t", b"forged")
        fork.changeNodes(*CHANGED)
        fork.publish("t", b"late")
        fork.decide()
        self.assertEqual(fork.genesis.chain, self.trusted)
        return fork

    def test_checkpointRefusesFork(self) -> None:
        """
        All keys together can fork; then a checkpoint of the one chain refuses the proofs of the
        other, and there is no consistency proof between them.
        """
        fork = self.fork()
        tip = self.chain.decide().height
        forged = fork.prover.event(self.early, tip)
        self.assertEqual(verifyProof(encode(forged), chain=self.trusted).content, b"forged")
        kept = self.chain.prover.checkpoint(tip)
        self.refused(forged, "another hash", checkpoint=kept, chain=self.trusted)
        self.refused(
            replace(forged, checkpoint=self.prove(self.early, tip).checkpoint),
            "not in the history",
        )
        older = self.chain.prover.checkpoint(self.early.height)
        for chain in (fork, self.chain):
            growth = chain.prover.consistency(self.early.height, tip)
            with self.assertRaises(ProofInvalid):
                verifyConsistency(encode(growth), older=older, newer=fork.prover.checkpoint(tip))

    def test_consistencyOfOtherCheckpointsIsRefused(self) -> None:
        """Checkpoints that are equal, swapped, or of other heights are not proved."""
        tip = self.chain.decide().height
        one, two = (self.chain.prover.checkpoint(height) for height in (2, tip))
        data = encode(self.chain.prover.consistency(2, tip))
        self.assertEqual(verifyConsistency(data, older=one, newer=two).chain, self.trusted)
        moved = Checkpoint(one.height + 1, one.hash)
        for older, newer in ((two, one), (one, one), (two, two), (moved, two), (one, moved)):
            with self.assertRaisesRegex(ProofInvalid, "it is about"):
                verifyConsistency(data, older=older, newer=newer)

    def test_otherHistoryIsRefused(self) -> None:
        """A header whose history is something else vouches for nothing."""
        proof = self.prove(self.early, self.late.height)
        assert proof.checkpoint is not None
        header = replace(proof.checkpoint.header.header(), history=bytes(32))
        final = self.forged(header)
        changed = replace(proof.checkpoint, header=final.header, certificate=final.certificate)
        self.refused(replace(proof, checkpoint=changed), "not in the history")
