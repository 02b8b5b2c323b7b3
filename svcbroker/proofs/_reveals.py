"""
Proofs about contents: reveals, which show the content of one event that its proof leaves out or
that is closed, and the proof that none of a topic's events is a document.

B{Frozen}: reveals are pinned by C{docs/vectors/closed.json}.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal

from attrs import evolve, frozen
from msgspec import UNSET, Struct, UnsetType
from msgspec.json import encode
from msgspec.structs import replace

from ..chain import Malformed
from ._age import FILE_KEY_SIZE, AgeFile, AgeIdentity, NotOpened, openWithKey
from ._certificates import unhex
from ._documents import Checkpoint, ProofInvalid, checkTrusted, readFields
from ._format import VERSIONED, EventProof, eventFieldsOf, transactionOf
from ._verification import ProvedEvent, ProvedTopic, verifyEvent, verifyProof


class RevealFields(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """
    A reveal.

    @ivar proof: the proof of the event, with its content and salt.
    @ivar fileKey: the key of the age file that a closed content is: it opens no other one.
    """

    format: Literal["svcbroker/reveal/1"]
    proof: EventProof
    fileKey: str | UnsetType = UNSET


def withoutContent(proof: bytes) -> bytes:
    """
    A proof that shows nothing of the content, nor of private extensions.

    @param proof: a proof that was verified.
    @raise ProofInvalid: the event is of version 1, whose commitment has no salt.
    """
    fields = readFields(EventProof, proof, "an event proof")
    try:
        transaction = transactionOf(fields.event)
        if transaction.version == 1:
            raise ProofInvalid(
                "the event is of version 1, without a salt: a short content could be guessed"
            )
        if not transaction.isErased:
            transaction = transaction.withoutContent()
        event = eventFieldsOf(fields.event.id(), transaction)
    except Malformed as error:
        raise ProofInvalid(str(error)) from None
    return encode(replace(fields, format=VERSIONED, event=event))


def makeReveal(proof: bytes, proved: ProvedEvent, identities: Sequence[AgeIdentity]) -> bytes:
    """
    Reveal an event.

    @param proof: its proof, which was verified.
    @param proved: what it proves.
    @param identities: open it, if it is closed.
    @raise NotOpened: they do not.
    @raise ProofInvalid: the proof does not have the content.
    """
    if proved.content is None:
        raise ProofInvalid("the content was erased")
    fields = readFields(EventProof, proof, "an event proof")
    made = RevealFields(format="svcbroker/reveal/1", proof=fields)
    if proved.isClosed:
        key = AgeFile.parse(proved.content).fileKey(identities)
        openWithKey(proved.content, proved.extensions, key)
        made = replace(made, fileKey=key.hex())
    return encode(made)


def verifyReveal(
    data: bytes, *, chain: bytes | None = None, checkpoint: Checkpoint | None = None
) -> ProvedEvent:
    """
    Check a reveal: its proof, and that its key is that of the event's content.

    @param data: the reveal: JSON.
    @param chain: as for L{verifyProof}.
    @param checkpoint: likewise.
    @raise ProofInvalid: it does not prove the event, or does not open it.
    """
    checkTrusted(chain, checkpoint)
    reveal = readFields(RevealFields, data, "a reveal")
    proved = verifyEvent(reveal.proof, chain, checkpoint)
    if proved.content is None:
        raise ProofInvalid("the reveal does not have the content")
    if proved.isClosed == isinstance(reveal.fileKey, UnsetType):
        raise ProofInvalid("a reveal has a key if its event is closed, and else none")
    if isinstance(reveal.fileKey, UnsetType):
        return proved
    try:
        key = unhex(reveal.fileKey, FILE_KEY_SIZE)
        return evolve(proved, opened=openWithKey(proved.content, proved.extensions, key))
    except (Malformed, NotOpened) as error:
        raise ProofInvalid(f"the key of the reveal does not open the event: {error}") from None


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
    Check all events that a topic has, and tell which of them are a document. Contents are not kept,
    so that topics of any size can be checked.

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
