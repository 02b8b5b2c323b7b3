"""
The replicas' keys: signers that refuse to contradict themselves, and verification.
"""

from __future__ import annotations

from collections.abc import Sequence

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


class DoubleSign(Exception):
    """
    A replica was about to sign two different things for one height, round and phase. It never
    does; that it tried is a bug in the replica.
    """


class Verifier:
    """
    Verifies the replicas' signatures, each of them once in this process.

    @ivar keys: the public keys (32 bytes each) by the replicas' index.
    """

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.keys = keys
        self._known: set[tuple[int, bytes, bytes] | Vote] = set()

    def isKnown(self, vote: Vote) -> bool:
        """Whether this very vote was verified before."""
        return vote in self._known

    def know(self, vote: Vote) -> None:
        """Take note of a vote that was verified."""
        self._remember(vote)

    def verify(self, index: int, payload: bytes, signature: bytes) -> bool:
        """
        Whether a signature is that of a replica under a payload.

        @param index: the replica that is said to have signed; any number.
        """
        entry = (index, payload, signature)
        if entry in self._known:
            return True
        if not 0 <= index < len(self.keys):
            return False
        if not verifySignature(self.keys[index], payload, signature):
            return False
        self._remember(entry)
        return True

    def vouch(self, index: int, payload: bytes, signature: bytes) -> None:
        """
        Take note of a signature that was just made by its owner in this process: there is
        nothing to verify.
        """
        self._remember((index, payload, signature))

    def _remember(self, entry: tuple[int, bytes, bytes] | Vote) -> None:
        if len(self._known) >= _CACHE_SIZE:
            self._known.clear()
        self._known.add(entry)


class Signer:
    """
    One replica's private key. It outlives the replica's crashes, and it signs no two different
    things for one height, round and phase.

    @ivar index: the replica's index.
    """

    def __init__(self, index: int, seed: bytes, chain: bytes, verifier: Verifier) -> None:
        """
        @param seed: the private key: 32 bytes.
        @param chain: the chain's id; it is part of all that is signed.
        """
        self.index = index
        # Six signatures are made for each block. libsodium makes the same bytes as OpenSSL in two
        # thirds of the time (docs/decisions/cost-of-a-block.rst).
        _, self._secret = crypto_sign_seed_keypair(seed)
        self._chain = chain
        self._verifier = verifier
        self._signed: dict[tuple[int, int, Phase], tuple[bytes, bytes]] = {}

    def sign(self, phase: Phase, height: int, round: int, digest: bytes) -> bytes:
        """
        Vote.

        @raise DoubleSign: another digest was signed for this height, round and phase.
        """
        place = (height, round, phase)
        before = self._signed.get(place)
        if before is not None:
            if before[0] != digest:
                raise DoubleSign(f"height {height}, round {round}, {phase.name}")
            return before[1]
        payload = votePayload(phase, self._chain, height, round, digest)
        signature = crypto_sign(payload, self._secret)[:SIGNATURE_SIZE]
        self._signed[place] = (digest, signature)
        self._verifier.vouch(self.index, payload, signature)
        return signature

    def propose(
        self, height: int, round: int, block: ProposedBlock, justification: Sequence[RoundChange]
    ) -> Proposal:
        """
        Propose a block.

        @raise DoubleSign: as for L{sign}.
        """
        return Proposal(
            sender=self.index,
            height=height,
            round=round,
            block=block,
            justification=justification,
            signature=self.sign(Phase.PROPOSE, height, round, block.header.hash),
        )

    def vote(self, phase: Phase, height: int, round: int, digest: bytes) -> Vote:
        """
        Prepare a block or commit to it.

        @raise DoubleSign: as for L{sign}.
        """
        return Vote(
            phase=phase,
            sender=self.index,
            height=height,
            round=round,
            digest=digest,
            signature=self.sign(phase, height, round, digest),
        )

    def changeRound(
        self,
        height: int,
        round: int,
        prepared: PreparedCertificate | None,
        block: ProposedBlock | None,
    ) -> RoundChange:
        """
        Go on to a round.

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
        """The first round of a height from which on nothing was signed."""
        return max((r + 1 for h, r, _ in self._signed if h == height), default=0)

    def forgetBelow(self, height: int) -> None:
        """
        Forget what was signed below a height. Only for heights that are final and stored: the
        replica never votes there again.
        """
        self._signed = {place: vote for place, vote in self._signed.items() if place[0] >= height}


def publicKey(seed: bytes) -> bytes:
    """The public key (32 bytes) of a private one."""
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def signChange(
    chain: bytes, current: ValidatorSet, keys: Sequence[bytes], seeds: Sequence[bytes]
) -> ValidatorChange:
    """
    A change of the set of replicas, approved by all of them and by all that are to come.

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
