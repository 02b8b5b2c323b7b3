"""
What the engine answers to the calls that we make: the parts of it that we read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, field

from ...proofs.cometbft import (
    Base64,
    BlockId,
    Commit,
    Header,
    Hex,
    Instant,
    Natural,
    PublicKey,
    Validator,
    Wire,
)
from ._genesis import Genesis
from ._inclusion import Path

Round = Annotated[int, Meta(ge=-1, le=2**31 - 1)]
"""A round; -1 stands for none."""


class Broadcast(Wire, frozen=True, kw_only=True):
    """
    What became of a transaction at the engine's door. It is not in a block yet.

    @ivar code: what the application said; 0: it waits for a block.
    @ivar log: in its words.
    @ivar hash: what the engine calls it.
    """

    code: Natural
    log: str = ""
    hash: Hex


class NodeInfo(Wire, frozen=True, kw_only=True):
    """
    Who an engine says it is.

    @ivar id: its id: 40 hexadecimal digits.
    @ivar listenAddr: where it says that peers reach it.
    @ivar network: the engine's name of the chain.
    @ivar moniker: its name.
    """

    id: str
    listenAddr: str
    network: str
    version: str
    moniker: str


class SyncInfo(Wire, frozen=True, kw_only=True):
    """
    How far an engine is.

    @ivar catchingUp: whether it still takes over what the others have decided.
    """

    latestBlockHash: Hex
    latestAppHash: Hex
    latestBlockHeight: Natural
    latestBlockTime: Instant
    earliestBlockHeight: Natural
    catchingUp: bool


class ValidatorInfo(Wire, frozen=True, kw_only=True):
    """
    An engine as a validator.

    @ivar votingPower: 0 where it is none.
    """

    address: Hex
    pubKey: PublicKey
    votingPower: Natural


class Status(Wire, frozen=True, kw_only=True):
    """The engine that was asked."""

    nodeInfo: NodeInfo
    syncInfo: SyncInfo
    validatorInfo: ValidatorInfo


class ConnectedPeer(Wire, frozen=True, kw_only=True):
    """An engine that another one is connected to."""

    nodeInfo: NodeInfo
    isOutbound: bool
    remoteIp: str


class NetInfo(Wire, frozen=True, kw_only=True):
    """The engines that the one that was asked is connected to."""

    nPeers: Natural
    peers: tuple[ConnectedPeer, ...]


class ValidatorsPage(Wire, frozen=True, kw_only=True):
    """
    Some of the validators that decide a height.

    @ivar total: how many there are in all.
    """

    blockHeight: Natural
    validators: tuple[Validator, ...]
    total: Natural


class BlockParams(Wire, frozen=True, kw_only=True):
    """
    What a block may be.

    @ivar maxBytes: the most bytes of all of it; -1: what the engine can take.
    """

    maxBytes: int
    maxGas: int


class ConsensusParams(Wire, frozen=True, kw_only=True):
    """What the validators have agreed on."""

    block: BlockParams


class ParamsAnswer(Wire, frozen=True, kw_only=True):
    """The answer to C{consensus_params}."""

    blockHeight: Natural
    consensusParams: ConsensusParams


class GenesisAnswer(Wire, frozen=True, kw_only=True):
    """The answer to C{genesis}."""

    genesis: Genesis


class BlockData(Wire, frozen=True, kw_only=True):
    """A block's transactions."""

    txs: tuple[bytes, ...] | None = None


class EngineBlock(Wire, frozen=True, kw_only=True):
    """
    A block as the engine has it.

    @ivar lastCommit: the votes for the block before.
    """

    header: Header
    data: BlockData
    lastCommit: Commit | None = None

    @property
    def transactions(self) -> Sequence[bytes]:
        """Its transactions, in order."""
        return self.data.txs or ()


class BlockAnswer(Wire, frozen=True, kw_only=True):
    """The answer to C{block}."""

    blockId: BlockId
    block: EngineBlock


class TransactionResult(Wire, frozen=True, kw_only=True):
    """What the application said of a transaction in a block."""

    code: Natural = 0
    data: bytes | None = None
    log: str = ""


class BlockResults(Wire, frozen=True, kw_only=True):
    """
    What the application said of a block.

    @ivar appHash: the application's hash after the block.
    """

    height: Natural
    txsResults: tuple[TransactionResult, ...] | None = None
    appHash: Base64 | None = None


class HeaderAnswer(Wire, frozen=True, kw_only=True):
    """The answer to C{header}."""

    header: Header


class SignedHeader(Wire, frozen=True, kw_only=True):
    """A header, and the votes that make its block final."""

    header: Header
    commit: Commit


class CommitAnswer(Wire, frozen=True, kw_only=True):
    """
    The answer to C{commit}.

    @ivar canonical: whether the next block holds these votes. Those of the newest block are
        what this engine has seen.
    """

    signedHeader: SignedHeader
    canonical: bool


class BlockMeta(Wire, frozen=True, kw_only=True):
    """A block without its transactions."""

    blockId: BlockId
    blockSize: Natural
    header: Header
    numTxs: Natural


class Blockchain(Wire, frozen=True, kw_only=True):
    """
    Some blocks, newest first.

    @ivar lastHeight: the height of the newest of all.
    """

    lastHeight: Natural
    blockMetas: tuple[BlockMeta, ...]


class RoundState(Wire, frozen=True, kw_only=True):
    """
    Where an engine is in deciding.

    @ivar height: the height that it is deciding: one above its newest block.
    @ivar round: the round that it is in.
    """

    height: Natural
    round: Round


class PeerState(Wire, frozen=True, kw_only=True):
    """What an engine knows of a peer."""

    roundState: RoundState


class PeerStateInfo(Wire, frozen=True, kw_only=True):
    """
    What an engine knows of a peer, if it knows anything yet.

    @ivar nodeAddress: C{id@host:port}.
    """

    nodeAddress: str
    peerState: PeerState | None = None


class ConsensusState(Wire, frozen=True, kw_only=True):
    """Where the engine that was asked is in deciding, and where its peers are."""

    roundState: RoundState
    peers: tuple[PeerStateInfo, ...]


class Mempool(Wire, frozen=True, kw_only=True):
    """
    What waits for a block at the engine that was asked.

    @ivar total: how many transactions.
    @ivar totalBytes: how many bytes of them.
    """

    total: Natural
    totalBytes: Natural


class Proof(Wire, frozen=True, kw_only=True):
    """A path as the engine writes it."""

    index: Natural
    total: Natural
    aunts: tuple[Base64, ...] = ()

    @property
    def path(self) -> Path:
        """The same as a value of ours."""
        aunts = tuple(Hex(aunt) for aunt in self.aunts)
        return Path(index=self.index, total=self.total, aunts=aunts)


class TransactionProof(Wire, frozen=True, kw_only=True):
    """Where a transaction is in its block."""

    rootHash: Hex
    proof: Proof


class TransactionAnswer(Wire, frozen=True, kw_only=True):
    """The answer to C{tx}."""

    hash: Hex
    height: Natural
    index: Natural
    result: TransactionResult = field(name="tx_result")
    tx: bytes
    proof: TransactionProof | None = None
