"""
The replicas' keys: signers that refuse to sign twice, and the verification of signatures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nacl.bindings import crypto_sign, crypto_sign_seed_keypair

from ...chain import (
    Phase,
    ValidatorChange,
    ValidatorSet,
    changePayload,
    verifySignature,
    votePayload,
)
from ._messages import (
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    Vote,
    roundChangeDigest,
)

SIGNATURE_SIZE = 64

_CACHE_SIZE = 4096

VERIFIED_BYTES: Final = 2 * 512 * _CACHE_SIZE
"""The memory of the votes and of the signatures that were verified lately, in bytes."""

_SLOTS = {phase: phase for phase in Phase} | {Phase.PROPOSE: Phase.PREPARE}
"""A leader's proposal is its prepare, so the two phases must sign the same digest."""


class DoubleSign(Exception):
    """
    A replica tried to sign two different values for one height, round and phase. This is a bug in
    the replica; the signer has refused.
    """


class Verifier:
    """
    Verifies signatures of the replicas, each signature once in this process.

    @ivar keys: the public keys (32 bytes each) by the replicas' index.
    @ivar verified: votes that were verified before, or signed in this process. Every replica looks
        up every vote here.
    @ivar proposal: the last proposal that was verified, or signed in this process.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.keys = keys
        self.verified: set[Vote] = set()
        self._signatures: set[tuple[int, bytes, bytes]] = set()
        self.proposal: Proposal | None = None

    def addVote(self, vote: Vote) -> None:
        """Record a verified vote, or one that its owner has just signed in this process."""
        verified = self.verified
        if len(verified) >= _CACHE_SIZE:
            verified.clear()
        verified.add(vote)

    def verify(self, index: int, payload: bytes, signature: bytes) -> bool:
        """
        Whether a signature over a payload is a replica's.

        @param index: the index of the claimed signer; any number.
        """
        entry = (index, payload, signature)
        if entry in self._signatures:
            return True
        if not 0 <= index < len(self.keys):
            return False
        if not verifySignature(self.keys[index], payload, signature):
            return False
        if len(self._signatures) >= _CACHE_SIZE:
            self._signatures.clear()
        self._signatures.add(entry)
        return True


class Signer:
    """
    The private key of one replica. It outlives restarts of the replica, and refuses to sign two
    different values for one height, round and phase.

    @ivar index: the replica's index.
    """

    def __init__(self, index: int, seed: bytes, chain: bytes, verifier: Verifier) -> None:
        """
        @param seed: the private key: 32 bytes.
        @param chain: the chain's id; it is part of every signed payload.
        """
        self.index = index
        # Six signatures are made for each block. libsodium computes them in two
        # thirds of OpenSSL's time (docs/decisions/cost-of-a-block.rst).
        _, self._secret = crypto_sign_seed_keypair(seed)
        self._chain = chain
        self._verifier = verifier
        # The digests by height, round and slot.
        self._signed: dict[tuple[int, int, Phase], bytes] = {}
        self._highest = 0

    def sign(self, phase: Phase, height: int, round: int, digest: bytes) -> bytes:
        """
        Sign a digest for one height, round and phase.

        @return: the signature; Ed25519 gives the same one each time.
        @raise DoubleSign: another digest was signed for this height, round and phase. A proposal
            and a prepare count as one phase.
        """
        place = (height, round, _SLOTS[phase])
        if self._signed.setdefault(place, digest) != digest:
            raise DoubleSign(f"height {height}, round {round}, {phase.name}")
        if height > self._highest:
            self._highest = height
        payload = votePayload(phase, self._chain, height, round, digest)
        return crypto_sign(payload, self._secret)[:SIGNATURE_SIZE]

    def propose(
        self, height: int, round: int, block: ProposedBlock, justification: Sequence[RoundChange]
    ) -> Proposal:
        """
        Sign a proposal.

        @raise DoubleSign: as for L{sign}.
        """
        proposal = Proposal(
            sender=self.index,
            height=height,
            round=round,
            block=block,
            justification=justification,
            signature=self.sign(Phase.PROPOSE, height, round, block.header.hash),
        )
        self._verifier.proposal = proposal
        return proposal

    def vote(self, phase: Phase, height: int, round: int, digest: bytes) -> Vote:
        """
        Sign a prepare or a commit.

        @raise DoubleSign: as for L{sign}.
        """
        vote = Vote(
            phase=phase,
            sender=self.index,
            height=height,
            round=round,
            digest=digest,
            signature=self.sign(phase, height, round, digest),
        )
        self._verifier.addVote(vote)
        return vote

    def changeRound(
        self,
        height: int,
        round: int,
        prepared: PreparedCertificate | None,
        block: ProposedBlock | None,
    ) -> RoundChange:
        """
        Sign a round change.

        @raise DoubleSign: as for L{sign}.
        """
        digest = roundChangeDigest(prepared)
        return RoundChange(
            sender=self.index,
            height=height,
            round=round,
            prepared=prepared,
            block=block,
            signature=self.sign(Phase.ROUND_CHANGE, height, round, digest),
        )

    def nextRound(self, height: int) -> int:
        """The first round of a height after the last one with a signature."""
        return max((r + 1 for h, r, _ in self._signed if h == height), default=0)

    def forgetBelow(self, height: int) -> None:
        """
        Forget the signatures below a height. Only for heights that are final and stored: the
        replica never votes there again.
        """
        if self._highest < height:
            self._signed.clear()
        else:
            self._signed = {
                place: vote for place, vote in self._signed.items() if place[0] >= height
            }


def publicKey(seed: bytes) -> bytes:
    """The public key (32 bytes) of a private key."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def signChange(
    chain: bytes, current: ValidatorSet, keys: Sequence[bytes], seeds: Sequence[bytes]
) -> ValidatorChange:
    """
    Make a change of the replica set, signed by all current and all future replicas.

    @param chain: the chain's id.
    @param keys: the public keys of the new set.
    @param seeds: all their private keys, in any order.
    """
    following = ValidatorSet(current.generation + 1, tuple(keys))
    payload = changePayload(chain, current, following)
    signatures = {
        publicKey(seed): Ed25519PrivateKey.from_private_bytes(seed).sign(payload) for seed in seeds
    }
    return ValidatorChange(
        following=following,
        approvals=[(index, signatures[key]) for index, key in enumerate(current.keys)],
        acceptances=[signatures[key] for key in keys],
    )
