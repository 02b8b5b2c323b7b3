"""
The proof that none of a topic's events is a document: all of them, each proved, and compared.

A module of its own: it keeps no contents, so that topics of any size can be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from attrs import frozen

from ._documents import ProofInvalid
from ._verification import ProvedTopic, verifyProof


@frozen(kw_only=True)
class ProvedAbsence:
    """
    The events of a topic that are a document, and those of which that cannot be said.

    @ivar found: the ids of the events that are the document.
    @ivar erased: how many events have no content any more.
    @ivar closed: how many contents are closed, so that it may be inside.
    """

    found: Sequence[str]
    erased: int
    closed: int


def verifyAbsence(topic: ProvedTopic, proofs: Iterable[bytes], hash: bytes) -> ProvedAbsence:
    """
    Check all events that a topic has, and tell which of them are a document. Contents are not kept.

    @param proofs: the proofs of the events in the order of their numbers. Each has to lead to the
        block of the topic proof.
    @param hash: the SHA-256 of the document.
    @raise ProofInvalid: a proof does not hold, is of another topic, or one is missing.
    """
    found: list[str] = []
    count = erased = closed = 0
    for count, data in enumerate(proofs, start=1):
        try:
            event = verifyProof(data, chain=topic.chain, checkpoint=topic.block)
        except ProofInvalid as error:
            raise ProofInvalid(f"event proof {count}: {error}") from None
        if event.topic != topic.topic:
            raise ProofInvalid(f"event proof {count} is of another topic")
        if event.sequence != count:
            raise ProofInvalid(f"in the place of event number {count} is number {event.sequence}")
        if event.content is None:
            erased += 1
        elif sha256(event.content).digest() == hash:
            found.append(event.eventId)
        else:
            closed += event.isClosed
    if count != topic.count:
        raise ProofInvalid(f"there are {count} of the {topic.count} events of the topic")
    return ProvedAbsence(found=found, erased=erased, closed=closed)
