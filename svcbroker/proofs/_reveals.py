"""
Reveals: documents that show the content of one event, which its proof leaves out, or which is
closed.

B{Frozen}: pinned by C{docs/vectors/closed.json}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import evolve
from msgspec import UNSET, Struct, UnsetType
from msgspec.json import encode
from msgspec.structs import replace

from ..chain import Malformed
from ._age import FILE_KEY_SIZE, AgeFile, AgeIdentity, NotOpened, openWithKey
from ._certificates import unhex
from ._documents import Checkpoint, ProofInvalid, checkTrusted, readFields
from ._eventproofs import eventFieldsOf, transactionOf
from ._format import VERSIONED, EventProof
from ._verification import ProvedEvent, verifyEvent


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
