"""
Recorded answers of a real engine, and a chain of engine blocks made here.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from attrs import define, frozen
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from svcbroker.chain import leafHash, merkleRoot
from svcbroker.ledgers.cometbft._home import EngineGenesis, decodeGenesis
from svcbroker.ledgers.cometbft.provisioning import makeValidator
from svcbroker.proofs.cometbft import (
    Base64,
    Commit,
    EngineHeader,
    Hex,
    Instant,
    LightBlock,
    Member,
    Trust,
    Validator,
    addressOf,
    headerHash,
    makeDecoder,
    makeLightBlock,
    validatorsHash,
)
from svcbroker.proofs.cometbft._light import Vote
from svcbroker.proofs.cometbft._values import BlockId, PartSetHeader, Version, votePayload

T = TypeVar("T")

FIXTURES = Path(__file__).parent / "fixtures"
"""Answers of CometBFT 0.38.25, of a network of four at its tenth height."""


def recorded(name: str) -> Any:
    """The result in a recorded answer."""
    return json.loads((FIXTURES / f"{name}.json").read_bytes())["result"]


def decoded(kind: type[T], value: Any) -> T:
    """A part of a recorded answer as one of our values."""
    return makeDecoder(kind)(json.dumps(value).encode())


def recordedGenesis() -> EngineGenesis:
    """The genesis of the recorded network."""
    return decodeGenesis(json.dumps(recorded("genesis")["genesis"]).encode())


def trustOf(genesis: EngineGenesis) -> Trust:
    """The trust in a chain of whoever knows its genesis."""
    return Trust.beginning(genesis.chainId, genesis.genesisTime, genesis.members)


def recordedLightBlock() -> LightBlock:
    """Block 3 of the recorded network."""
    signed = recorded("commit_height_3")["signed_header"]
    return makeLightBlock(
        decoded(EngineHeader, signed["header"]),
        decoded(Commit, signed["commit"]),
        decoded(tuple[Validator, ...], recorded("validators")["validators"]),
    )


def recordedTransactions() -> Sequence[bytes]:
    """The transactions of block 3 of the recorded network."""
    return [b64decode(each) for each in recorded("block_height_3")["block"]["data"]["txs"]]


@frozen
class Node:
    """A validator with its key."""

    key: Ed25519PrivateKey
    power: int

    @classmethod
    def numbered(cls, number: int, power: int = 10) -> Node:
        """One of as many as there are numbers."""
        return cls(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32), power)

    @property
    def member(self) -> Member:
        return Member(Base64(self.key.public_key().public_bytes_raw()), self.power)


def ordered(nodes: Sequence[Node]) -> list[Node]:
    """Validators in the engine's order."""
    return sorted(nodes, key=lambda node: (-node.power, addressOf(node.member.key)))


def hashOf(nodes: Sequence[Node]) -> Hex:
    """The hash of a set."""
    return Hex(validatorsHash([node.member for node in ordered(nodes)]))


START = Instant(1_800_000_000 * 10**9)


@define
class FakeChain:
    """
    A chain of engine blocks.

    @ivar nodes: who decides the next block.
    """

    nodes: Sequence[Node]
    chainId: str = "fake"
    height: int = 0
    last: Hex = Hex()

    def genesis(self) -> EngineGenesis:
        """The genesis with the present validators."""
        return EngineGenesis(
            genesisTime=START,
            chainId=self.chainId,
            validators=tuple(makeValidator(n.member.key, n.power) for n in self.nodes),
        )

    def add(
        self,
        after: Sequence[Node] | None = None,
        voters: Sequence[Node] | None = None,
        change: Callable[[EngineHeader], EngineHeader] = lambda header: header,
    ) -> LightBlock:
        """
        Decide a block.

        @param after: who decides the one after.
        @param voters: who votes; all where it is left open.
        @param change: makes the block another one.
        """
        self.height += 1
        after = self.nodes if after is None else after
        nodes = ordered(self.nodes)
        nothing = Hex(sha256(b"").digest())
        header = change(
            EngineHeader(
                version=Version(block=11, app=1),
                chainId=self.chainId,
                height=self.height,
                time=Instant(START + (self.height - 1) * 10**9),
                lastBlockId=BlockId(hash=self.last, parts=PartSetHeader(total=1, hash=nothing)),
                lastCommitHash=nothing,
                dataHash=nothing,
                validatorsHash=hashOf(nodes),
                nextValidatorsHash=hashOf(after),
                consensusHash=nothing,
                appHash=nothing,
                lastResultsHash=nothing,
                evidenceHash=nothing,
                proposerAddress=Hex(addressOf(nodes[0].member.key)),
            )
        )
        self.last = Hex(headerHash(header))
        self.nodes = after
        parts = PartSetHeader(total=1, hash=nothing)
        blockId = BlockId(hash=self.last, parts=parts)
        votes: list[Vote | None] = []
        for index, node in enumerate(nodes):
            time = Instant(header.time + index)
            payload = votePayload(header.chainId, header.height, 0, blockId, time)
            vote = Vote(time, Base64(node.key.sign(payload)))
            votes.append(vote if voters is None or node in voters else None)
        return LightBlock(
            header=header,
            round=0,
            parts=parts,
            votes=tuple(votes),
            validators=tuple(node.member for node in nodes),
        )


def replaceHeader(**changes: Any) -> Callable[[EngineHeader], EngineHeader]:
    """Return a function that changes some fields of a header."""
    return lambda header: msgspec.structs.replace(header, **changes)


def dataHash(transactions: Sequence[bytes]) -> bytes:
    """The hash of a block's transactions, as its header has it."""
    return merkleRoot([leafHash(sha256(each).digest()) for each in transactions])
