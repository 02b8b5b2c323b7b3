"""
Chains that a CometBFT engine might have decided, made by whoever has all keys.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svcbroker.archive import appendOf
from svcbroker.chain import Header, Transaction, ValidatorSet, quorum
from svcbroker.ledgers.pbft._keys import publicKey
from svcbroker.proofs.cometbft import (
    Base64,
    Hex,
    Instant,
    LightBlock,
    Member,
    addressOf,
    headerHash,
    inOrder,
    validatorsHash,
)
from svcbroker.proofs.cometbft import EngineHeader as EngineHeader
from svcbroker.proofs.cometbft._light import Vote
from svcbroker.proofs.cometbft._values import BlockId, PartSetHeader, Version, votePayload

from .signedchain import STEP, SignedChain

MILLISECOND = 1_000_000
GROUP = "svc-example"
EMPTY = Hex(sha256(b"").digest())


def membersOf(nodes: ValidatorSet) -> Sequence[Member]:
    """A validator set as the engine has it."""
    return inOrder(Member(Base64(key), 1) for key in nodes.keys)


class EngineChain(SignedChain):
    """
    A chain in a directory, and the engine's chain that it lives in.

    @ivar lights: the engine's blocks after ours, which stand for ours, by our heights.
    @ivar keeps: whether they are stored with our blocks.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int = 4,
        *,
        group: str = GROUP,
        name: str = "node",
        keeps: bool = True,
    ) -> None:
        super().__init__(directory, nodes, group=group, name=name)
        self.keeps = keeps
        self.lights: dict[int, LightBlock] = {}
        self._byKey: dict[bytes, bytes] = {}
        self._appHash = Hex(self.head.hash)
        self._last = Hex()
        self._engineHeader(self.head, self.genesis.validatorSet, self.genesis.validatorSet)

    def decide(
        self,
        transactions: Sequence[Transaction] = (),
        *,
        later: int = 0,
        erased: Collection[int] = (),
    ) -> Header:
        """See L{SignedChain.decide}."""
        before = self._state.validators
        candidate = self._propose(transactions, later, erased)
        header = candidate.header
        self.store.append(appendOf(candidate, b""))
        self._state.apply(candidate.outcome, candidate.history)
        self.head = header
        if transactions:
            self._appHash = Hex(header.hash)
        engine = self._engineHeader(header, before, candidate.outcome.validators)
        self.lights[header.height] = self.light(engine, before)
        if self.keeps and transactions:
            self.store.certify({header.height: self.lights[header.height].encode()})
        return header

    def _engineHeader(
        self, header: Header, nodes: ValidatorSet, following: ValidatorSet
    ) -> EngineHeader:
        """The header of the engine's block after one of ours."""
        members = membersOf(nodes)
        made = EngineHeader(
            version=Version(block=11, app=1),
            chainId=self.genesis.group,
            height=header.height + 1,
            time=Instant((header.timestamp + STEP) * MILLISECOND),
            lastBlockId=BlockId(hash=self._last, parts=PartSetHeader(total=1, hash=EMPTY)),
            lastCommitHash=EMPTY,
            dataHash=EMPTY,
            validatorsHash=Hex(validatorsHash(members)),
            nextValidatorsHash=Hex(validatorsHash(membersOf(following))),
            consensusHash=EMPTY,
            appHash=self._appHash,
            lastResultsHash=EMPTY,
            evidenceHash=EMPTY,
            proposerAddress=Hex(addressOf(members[0].key)),
        )
        self._last = Hex(headerHash(made))
        return made

    def light(
        self,
        header: EngineHeader,
        nodes: ValidatorSet,
        voters: Sequence[int] | None = None,
    ) -> LightBlock:
        """
        A block of the engine with votes for it.

        @param voters: the indexes of those that vote, in the engine's order; by default the first
            that are enough.
        """
        members = membersOf(nodes)
        parts = PartSetHeader(total=1, hash=EMPTY)
        blockId = BlockId(hash=Hex(headerHash(header)), parts=parts)
        chosen = range(quorum(len(members))) if voters is None else voters
        self._byKey.update((publicKey(seed), seed) for seed in self._seeds)
        votes: list[Vote | None] = []
        for index, member in enumerate(members):
            time = Instant(header.time + 1 + index)
            payload = votePayload(header.chainId, header.height, 0, blockId, time)
            key = Ed25519PrivateKey.from_private_bytes(self._byKey[member.key])
            vote = Vote(time, Base64(key.sign(payload)))
            votes.append(vote if index in chosen else None)
        return LightBlock(
            header=header, round=0, parts=parts, votes=tuple(votes), validators=tuple(members)
        )
