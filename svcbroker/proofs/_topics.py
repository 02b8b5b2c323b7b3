"""
Verifying how many events a topic has, and that a reader has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import error as StructError

from attrs import field, frozen

from ..chain import CertificateInvalid, Malformed, TopicPath
from ..model import AuthorSet
from ._certificates import kindOf
from ._checkpoint import Checkpoint
from ._format import TopicProof
from ._headers import HeaderVerifier, SignedHeader
from ._hex import unhex
from ._reading import ProofInvalid, checkChain, checkTrusted, readFields
from ._verify import ProvedEvent, verifyProof


@frozen(kw_only=True)
class ProvedTopic:
    """
    The facts that a valid topic proof proves.

    @ivar group: the id of the group whose log the topic is in.
    @ivar chain: the id of the chain: the hash of its genesis.
    @ivar topic: the topic's name.
    @ivar isOpen: whether it was open after the block.
    @ivar count: how many events were published to it up to the block.
    @ivar latest: the height of the block of the latest of them; 0 if there is none.
    @ivar authors: who may publish to it; C{None} where events need no signature.
    @ivar block: the block.
    @ivar timestamp: its time, in milliseconds since the epoch.
    @ivar ledger: the kind of the block's certificate.
    @ivar signers: the public keys of the validators that signed the block, by their indexes.
    @ivar nodes: the size of the validator set, of which a quorum had to sign.
    @ivar changes: how often the validator set had changed since the genesis.
    @ivar headers: the headers with certificates: those of changes, and the block's.
    """

    group: str
    chain: bytes
    topic: str
    isOpen: bool
    count: int
    latest: int
    authors: AuthorSet | None
    block: Checkpoint
    timestamp: int
    ledger: str
    signers: Mapping[int, bytes]
    nodes: int
    changes: int
    headers: Sequence[SignedHeader] = field(eq=False, repr=False)

    @property
    def signed(self) -> Checkpoint:
        """The block that validators signed."""
        return self.block


def verifyTopic(
    data: bytes, *, chain: bytes | None = None, checkpoint: Checkpoint | None = None
) -> ProvedTopic:
    """
    Check a topic proof against a trusted chain id, a trusted checkpoint, or both.

    @param data: the proof: JSON.
    @param chain: the id of the chain: the hash of its genesis.
    @param checkpoint: the proof's block.
    @raise ProofInvalid: it does not prove its topic, or does not lead to the trusted chain or
        checkpoint.
    """
    checkTrusted(chain, checkpoint)
    proof = readFields(TopicProof, data, "a topic proof")
    try:
        proved = checkedTopic(proof)
    except (Malformed, CertificateInvalid) as error:
        raise ProofInvalid(str(error)) from None
    checkChain(proved.chain, chain)
    if checkpoint is not None and checkpoint != proved.block:
        raise ProofInvalid(f"it is of block {proved.block}, not of checkpoint {checkpoint}")
    return proved


def verifyComplete(topic: ProvedTopic, proofs: Iterable[bytes]) -> Sequence[ProvedEvent]:
    """
    Check that some event proofs are of all events that a topic has, and prove each of them.

    Each proof has to lead to the block of the topic proof, so that all of them are of one history.

    @return: the events, by their numbers.
    @raise ProofInvalid: a proof does not hold, is of another topic, or one is missing.
    """
    found: dict[int, ProvedEvent] = {}
    for number, data in enumerate(proofs, start=1):
        try:
            event = verifyProof(data, chain=topic.chain, checkpoint=topic.block)
        except ProofInvalid as error:
            raise ProofInvalid(f"event proof {number}: {error}") from None
        if event.topic != topic.topic:
            raise ProofInvalid(f"event proof {number} is of another topic")
        found[event.sequence] = event
    if found and max(found) > topic.count:
        raise ProofInvalid(f"event number {max(found)} is beyond the topic's {topic.count} events")
    if len(found) < topic.count:
        first = next(number for number in range(1, topic.count + 1) if number not in found)
        raise ProofInvalid(
            f"{topic.count - len(found)} of the topic's {topic.count} events are missing, the "
            f"first of them is number {first}"
        )
    return [found[number] for number in sorted(found)]


def checkedTopic(proof: TopicProof) -> ProvedTopic:
    """
    Check all of a topic proof but for its being of what is trusted.

    @raise Malformed, CertificateInvalid: it does not prove its topic.
    """
    genesis = proof.genesis.genesis()
    headers = HeaderVerifier(genesis, proof.changes)
    signed = headers.check(proof.block)
    header, topic = signed.header, proof.topic.topic()
    path = TopicPath(
        index=proof.index,
        path=[unhex(sibling, 32) for sibling in proof.topicPath],
        topics=proof.topicCount,
        senderRoot=unhex(proof.accountRoot, 32),
        senders=proof.accountCount,
    )
    try:
        root = path.rootWith(topic)
    except StructError as error:
        raise Malformed(f"the topic is not one: {error}") from None
    if root != header.stateRoot:
        raise Malformed(f"the topic is not in the state after block {header.height}")
    headers.finish(header)
    return ProvedTopic(
        group=genesis.group,
        chain=genesis.chain,
        topic=topic.name,
        isOpen=topic.isOpen,
        count=topic.sequence,
        latest=topic.height,
        authors=topic.authors,
        block=Checkpoint.of(header),
        timestamp=header.timestamp,
        ledger=kindOf(signed.certificate),
        signers=signed.signers,
        nodes=len(signed.validators.keys),
        changes=signed.validators.generation,
        headers=headers.signed,
    )
