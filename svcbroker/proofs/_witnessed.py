"""
Verifying that an event, or the block of a topic proof, is in a transparency log that witnesses
watch.
"""

from __future__ import annotations

from attrs import frozen

from ..chain import Malformed
from ..tlog import LogProof, Policy, SignatureRefused, Witnessed
from ._checkpoint import Checkpoint
from ._format import EventProof, HeaderFields, TopicProof
from ._reading import ProofInvalid, readFields
from ._topics import ProvedTopic, verifyTopic
from ._verify import ProvedEvent, verifyProof


@frozen
class WitnessedEvent:
    """
    The facts that the proof of a logged event proves.

    @ivar event: the event.
    @ivar witnessed: the log's checkpoint, and the witnesses that have cosigned it.
    """

    event: ProvedEvent
    witnessed: Witnessed


@frozen
class WitnessedTopic:
    """
    The facts that the proof of a topic proves, whose block is in a log.

    @ivar topic: the topic.
    @ivar witnessed: the log's checkpoint, and the witnesses that have cosigned it.
    """

    topic: ProvedTopic
    witnessed: Witnessed


def verifyWitnessed(data: bytes, policy: Policy) -> WitnessedEvent:
    """
    Check the proof that an event is in a log: a C{tlog-proof} whose extra data is an event proof.
    The entry is the hash of the header of the event's block. Validators are not trusted: the log's
    key and the witnesses are.

    @param data: the proof: the text of the file.
    @param policy: which logs and witnesses are trusted.
    @raise ProofInvalid: it does not prove an event, or the policy does not accept its checkpoint.
    """
    proof, witnessed = _accepted(data, policy)
    block = readFields(EventProof, proof.extra, "an event proof").block
    entry = checkEntry(proof, block.header)
    return WitnessedEvent(verifyProof(proof.extra, checkpoint=entry), witnessed)


def verifyWitnessedTopic(data: bytes, policy: Policy) -> WitnessedTopic:
    """
    Check the proof that the block of a topic proof is in a log: a C{tlog-proof} whose extra data is
    that topic proof.

    @param data: the proof: the text of the file.
    @param policy: which logs and witnesses are trusted.
    @raise ProofInvalid: it does not prove a topic, or the policy does not accept its checkpoint.
    """
    proof, witnessed = _accepted(data, policy)
    block = readFields(TopicProof, proof.extra, "a topic proof").block
    entry = checkEntry(proof, block.header)
    return WitnessedTopic(verifyTopic(proof.extra, checkpoint=entry), witnessed)


def extraOf(data: bytes) -> bytes:
    """
    The event proof or topic proof in a C{tlog-proof}. Nothing is checked.

    @raise ProofInvalid: it is no C{tlog-proof}.
    """
    try:
        return LogProof.decode(data).extra
    except Malformed as error:
        raise ProofInvalid(str(error)) from None


def blockOfTopic(data: bytes) -> Checkpoint:
    """
    The block of a topic proof. Nothing is checked.

    @raise ProofInvalid: it is no topic proof.
    """
    try:
        fields = readFields(TopicProof, data, "a topic proof").block.header
        return Checkpoint.of(fields.header())
    except Malformed as error:
        raise ProofInvalid(str(error)) from None


def checkEntry(proof: LogProof, fields: HeaderFields) -> Checkpoint:
    """
    Check that the entry of a proof is a header.

    @return: its block.
    @raise ProofInvalid: it is not.
    """
    try:
        entry = Checkpoint.of(fields.header())
        proof.check(entry.hash)
    except Malformed as error:
        raise ProofInvalid(str(error)) from None
    if entry.height != proof.index:
        raise ProofInvalid(f"block {entry.height} is entry {proof.index} of the log")
    return entry


def _accepted(data: bytes, policy: Policy) -> tuple[LogProof, Witnessed]:
    try:
        proof = LogProof.decode(data)
        return proof, policy.check(proof.checkpoint)
    except (Malformed, SignatureRefused) as error:
        raise ProofInvalid(str(error)) from None
