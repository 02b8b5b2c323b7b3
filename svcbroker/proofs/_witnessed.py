"""
Verifying that an event is in a transparency log that witnesses watch.
"""

from __future__ import annotations

from attrs import frozen

from ..chain import Malformed
from ..tlog import LogProof, Policy, SignatureRefused, Witnessed
from ._checkpoint import Checkpoint
from ._format import EventProof
from ._reading import ProofInvalid, readFields
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


def verifyWitnessed(data: bytes, policy: Policy) -> WitnessedEvent:
    """
    Check the proof that an event is in a log: a C{tlog-proof} whose extra data is an event proof.
    The entry is the hash of the header of the event's block. Validators are not trusted: the log's
    key and the witnesses are.

    @param data: the proof: the text of the file.
    @param policy: which logs and witnesses are trusted.
    @raise ProofInvalid: it does not prove an event, or the policy does not accept its checkpoint.
    """
    try:
        proof = LogProof.decode(data)
        witnessed = policy.check(proof.checkpoint)
        block = readFields(EventProof, proof.extra, "an event proof").block
        entry = Checkpoint.of(block.header.header())
        proof.check(entry.hash)
    except (Malformed, SignatureRefused) as error:
        raise ProofInvalid(str(error)) from None
    if entry.height != proof.index:
        raise ProofInvalid(f"block {entry.height} is entry {proof.index} of the log")
    return WitnessedEvent(verifyProof(proof.extra, checkpoint=entry), witnessed)
