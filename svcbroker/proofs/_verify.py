"""
Checking proofs, with nothing but the proof and what one trusts already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from attrs import frozen
from msgspec import DecodeError, ValidationError
from msgspec.json import Decoder

from ..chain import (
    CertificateInvalid,
    Genesis,
    Header,
    Kind,
    Malformed,
    Transaction,
    TransactionReceipt,
    ValidatorSet,
    checkCertificate,
    leafHash,
    receiptLeaf,
    rootOfPath,
)
from ..errors import BrokerError
from ..model import Execution, checkExtensions, checkTopicName
from ._checkpoint import Checkpoint
from ._format import (
    ConsistencyProof,
    EventFields,
    EventProof,
    FinalHeader,
    GenesisFields,
    NodeChange,
    unhex,
)

T = TypeVar("T")

MAX_PROOF_SIZE = 1 << 30
"""Bytes of the longest proof that is looked at."""

_GENESIS = Decoder(GenesisFields)
_EVENT = Decoder(EventProof)
_CONSISTENCY = Decoder(ConsistencyProof)


class ProofInvalid(ValueError):
    """A proof that does not prove what it says. The text says why, in one line."""


@frozen(kw_only=True)
class ProvedEvent:
    """
    What an event proof has proved.

    @ivar group: the id of the group whose log the event is in.
    @ivar chain: the id of the chain: the hash of its genesis.
    @ivar eventId: the event's id.
    @ivar topic: the topic that it was published to.
    @ivar content: what was published.
    @ivar extensions: what it was published with.
    @ivar sequence: its number in its topic, from 1.
    @ivar submitted: when its transaction was submitted, by the broker's clock, in milliseconds
        since the epoch.
    @ivar timestamp: the time of its block, which a quorum of nodes found plausible, in
        milliseconds since the epoch.
    @ivar block: its block.
    @ivar checkpoint: the later block that vouches for it too, where the proof has one.
    """

    group: str
    chain: bytes
    eventId: str
    topic: str
    content: bytes
    extensions: Mapping[str, str]
    sequence: int
    submitted: int
    timestamp: int
    block: Checkpoint
    checkpoint: Checkpoint | None


def readGenesis(data: bytes) -> Genesis:
    """
    Read a genesis file, as C{svcbroker genesis} writes it.

    @raise ProofInvalid: it is not one.
    """
    try:
        return _decoded(_GENESIS, data, "a genesis").genesis()
    except Malformed as error:
        raise ProofInvalid(str(error)) from None


def verifyProof(
    data: bytes, *, chain: bytes | None = None, checkpoint: Checkpoint | None = None
) -> ProvedEvent:
    """
    Check an event proof. At least one thing must be given that is trusted already; all of the
    proof is checked, whatever is given.

    @param data: the proof: JSON.
    @param chain: the id of the chain: the hash of its genesis.
    @param checkpoint: a block of the chain: the event's own, or the proof's checkpoint.
    @raise ProofInvalid: it does not prove its event, or not from what is trusted.
    """
    if chain is None and checkpoint is None:
        raise ProofInvalid("nothing is trusted: give the chain's genesis or a checkpoint")
    proof = _decoded(_EVENT, data, "an event proof")
    try:
        proved = _checkedEvent(proof)
    except (Malformed, CertificateInvalid) as error:
        raise ProofInvalid(str(error)) from None
    except BrokerError as error:
        raise ProofInvalid(error.message) from None
    if chain is not None and proved.chain != chain:
        raise ProofInvalid(f"it is of chain {proved.chain.hex()}, which is not the trusted one")
    if checkpoint is not None and checkpoint not in (proved.block, proved.checkpoint):
        raise ProofInvalid(f"it does not lead to checkpoint {checkpoint}: ask for one that does")
    return proved


def verifyConsistency(data: bytes, *, older: Checkpoint, newer: Checkpoint) -> None:
    """
    Check that the chain up to one checkpoint is the beginning of the chain up to another.

    @param data: the proof: JSON.
    @raise ProofInvalid: it does not prove that.
    """
    proof = _decoded(_CONSISTENCY, data, "a consistency proof")
    try:
        header = proof.newer.header()
        _checkHistory(older.hash, older.height, header, proof.path)
    except Malformed as error:
        raise ProofInvalid(str(error)) from None
    for said, trusted in ((proof.older, older), (str(Checkpoint.of(header)), newer)):
        if said != str(trusted):
            raise ProofInvalid(f"it is about {said}, not about {trusted}")


def _decoded(decoder: Decoder[T], data: bytes, what: str) -> T:
    if len(data) > MAX_PROOF_SIZE:
        raise ProofInvalid(f"{what} is never as long as {len(data)} bytes")
    try:
        return decoder.decode(data)
    except (ValidationError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProofInvalid(f"this is not {what}: {error}") from None


class _Deciders:
    """
    Which set of nodes decides which block, as far as the changes of a proof say.
    """

    def __init__(self, genesis: Genesis, changes: Sequence[NodeChange]) -> None:
        """
        @raise Malformed: the changes do not follow from genesis, or from each other.
        @raise CertificateInvalid: one is not final.
        """
        self._chain = genesis.chain
        self._sets: list[tuple[int, ValidatorSet]] = [(0, genesis.validatorSet)]
        for change in changes:
            header = self.check(change)
            since, current = self._sets[-1]
            following = ValidatorSet.decode(
                ValidatorSet(
                    current.generation + 1, tuple(unhex(key, 32) for key in change.nodes)
                ).encoded
            )
            if header.height <= since or header.nextValidators != following.hash:
                raise Malformed(f"block {header.height} does not bring that set of nodes")
            self._sets.append((header.height, following))

    def check(self, final: FinalHeader) -> Header:
        """
        Make sure that a header is final.

        @raise Malformed: it is not of this chain and of the nodes whose turn it is.
        @raise CertificateInvalid: a quorum of them has not signed it.
        """
        header = final.header.header()
        deciders = [nodes for since, nodes in self._sets if since < header.height]
        if header.chain != self._chain or not deciders:
            raise Malformed(f"block {header.height} is not of this chain")
        if header.validators != deciders[-1].hash:
            raise Malformed(f"block {header.height} is decided by another set of nodes")
        checkCertificate(
            final.certificate.certificate(), header, len(deciders[-1].keys), deciders[-1].verify
        )
        return header


def _checkedEvent(proof: EventProof) -> ProvedEvent:
    genesis = proof.genesis.genesis()
    deciders = _Deciders(genesis, proof.changes)
    header = deciders.check(proof.block)
    eventId = proof.event.id()
    if eventId.height != header.height:
        raise Malformed("the event's id names another block")
    transaction = _transactionOf(proof.event)
    receipt = TransactionReceipt(Execution.DONE, eventId.sequence)
    for what, leaf, path, root in (
        ("transaction", transaction.hash, proof.transactionPath, header.transactionRoot),
        (
            "receipt",
            receiptLeaf(transaction.hash, receipt),
            proof.receiptPath,
            header.receiptRoot,
        ),
    ):
        siblings = [unhex(sibling, 32) for sibling in path]
        if rootOfPath(leaf, proof.index, header.transactionCount, siblings) != root:
            raise Malformed(f"the event's {what} is not in its block")
    checkpoint = None
    if proof.checkpoint is not None:
        later = deciders.check(proof.checkpoint)
        _checkHistory(header.hash, header.height, later, proof.checkpoint.path)
        checkpoint = Checkpoint.of(later)
    return ProvedEvent(
        group=genesis.group,
        chain=genesis.chain,
        eventId=str(eventId),
        topic=transaction.topic,
        content=transaction.content,
        extensions=transaction.extensions,
        sequence=eventId.sequence,
        submitted=transaction.timestamp,
        timestamp=header.timestamp,
        block=Checkpoint.of(header),
        checkpoint=checkpoint,
    )


def _transactionOf(event: EventFields) -> Transaction:
    checkTopicName(event.topicName)
    checkExtensions(event.extensions)
    if not (0 <= event.nonce < 2**64 and 0 <= event.timestamp < 2**64):
        raise Malformed("the event's nonce or time is not one")
    return Transaction.create(
        Kind.PUBLISH,
        unhex(event.sender, 20),
        event.nonce,
        event.timestamp,
        event.topicName,
        event.contentBytes,
        event.extensions,
    )


def _checkHistory(hash: bytes, height: int, later: Header, path: Sequence[str]) -> None:
    siblings = [unhex(sibling, 32) for sibling in path]
    if rootOfPath(leafHash(hash), height, later.height, siblings) != later.history:
        raise Malformed(f"block {height} is not in the history of block {later.height}")
