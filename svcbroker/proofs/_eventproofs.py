"""
The transaction that an event proof speaks of, and the signature of its author.

B{Frozen}: pinned by C{events} and C{badEvents} in C{docs/vectors/proofs.json}, of all formats.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from ..chain import SALT_SIZE, Claims, Kind, Malformed, Transaction
from ..errors import BrokerError
from ..model import (
    AUTHOR_KEY_SIZE,
    PRIVATE_PREFIX,
    SIGNATURE_SIZE,
    Authorship,
    EventId,
    TopicRule,
    checkExtensions,
    checkTopicName,
    isIdempotencyKey,
)
from ._certificates import contentFields, unhex
from ._format import EventFields

T = TypeVar("T")

_COMMITMENT = slice(38, 70)
"""The place at which a head commits to the content."""


def transactionOf(event: EventFields) -> Transaction:
    """
    The transaction that published an event.

    @raise Malformed: the fields are not those of one.
    """
    sender = unhex(event.sender, 20)
    nonce, timestamp = _number(event.nonce), _number(event.timestamp)
    try:
        checkTopicName(event.topicName, TopicRule.UTF8)
        checkExtensions(event.extensions)
    except BrokerError as error:
        raise Malformed(error.message) from None
    isErased = event.commitment is not UNSET
    if isErased and (event.content, event.contentBase64) != (UNSET, UNSET):
        raise Malformed("an erased event has no content")
    content = b"" if isErased else event.contentBytes
    if event.version is not UNSET and event.version != 1:
        claims, salt = _claims(event, isErased), b""
        extensions = dict(event.extensions)
        if not isErased:
            salt = unhex(_given(event.salt, "salt"), SALT_SIZE)
        elif event.hasPrivateExtensions is not UNSET:
            # Sets the option in the head, which does not have the extensions themselves.
            extensions[PRIVATE_PREFIX] = ""
        made = Transaction.publish(
            sender,
            nonce,
            timestamp,
            event.topicName,
            content,
            extensions,
            salt,
            claims,
            event.version,
        )
    else:
        made = Transaction.create(
            Kind.PUBLISH, sender, nonce, timestamp, event.topicName, content, event.extensions
        )
    entry = made.head + made.seal + content
    if event.commitment is not UNSET:
        commitment = unhex(event.commitment, 32)
        entry = made.head[: _COMMITMENT.start] + commitment + made.head[_COMMITMENT.stop :]
    transaction = Transaction.decode(entry, mayBeErased=isErased)
    if transaction.isErased != isErased or transaction.extensions != event.extensions:
        raise Malformed("the event has more extensions than its transaction")
    return transaction


def eventFieldsOf(eventId: EventId, transaction: Transaction) -> EventFields:
    """
    The fields of an event and of the transaction that published it.
    """
    fields: dict[str, Any] = {
        "eventId": str(eventId),
        "topicName": transaction.topic,
        "extensions": transaction.extensions,
        "sender": transaction.sender.hex(),
        "nonce": transaction.nonce,
        "timestamp": transaction.timestamp,
    }
    if transaction.isErased:
        fields["commitment"] = transaction.head[_COMMITMENT].hex()
        if transaction.hasPrivateExtensions:
            fields["hasPrivateExtensions"] = True
    else:
        fields |= contentFields(transaction.content)
    if transaction.version == 1 and not transaction.isErased:
        return EventFields(**fields)
    fields["version"] = transaction.version
    if transaction.seal:
        fields["salt"] = transaction.seal[:SALT_SIZE].hex()
    if transaction.claims is not None:
        fields |= _claimFields(transaction.claims)
    return EventFields(**fields)


def _claimFields(claims: Claims) -> Mapping[str, Any]:
    fields: dict[str, Any] = {}
    if claims.author is not None:
        fields |= {"author": claims.author.key.hex(), "signedAt": claims.author.signedAt}
        if claims.author.signature:
            fields["signature"] = claims.author.signature.hex()
        if claims.author.statement != 1:
            fields["statement"] = claims.author.statement
    if claims.owner is not None:
        fields["owner"] = claims.owner.hex()
    if claims.key is not None:
        fields["idempotencyKey"] = claims.key
    if claims.expected is not None:
        fields["expectedSequence"] = claims.expected
    return fields


def checkMembers(event: EventFields, isVersioned: bool) -> None:
    """
    Check that an event has no members of another version or form than its own.

    @param isVersioned: whether the format of the proof has versions of events.
    @raise Malformed: it has.
    """
    if isVersioned != (event.version is not UNSET):
        raise Malformed("an event has a version in format 3 of event proofs, and in no other one")
    isErased = event.commitment is not UNSET
    refused: set[str] = set()
    if not isVersioned:
        refused |= {"commitment"}
    if event.version is UNSET or event.version == 1:
        refused |= _OF_VERSION_2
    if event.version != 3:
        refused |= {"statement"}
    if event.author is UNSET:
        refused |= {"signedAt", "signature", "statement"}
    if event.author is not UNSET or event.idempotencyKey is UNSET:
        refused |= {"owner"}
    refused |= {"salt", "signature"} if isErased else {"hasPrivateExtensions"}
    for name in sorted(refused):
        if getattr(event, name) is not UNSET:
            raise Malformed(f"the event has a member that is not its own: {name}")
    if event.hasPrivateExtensions is False:
        raise Malformed("hasPrivateExtensions is true or absent")


_OF_VERSION_2 = {
    "salt",
    "author",
    "signedAt",
    "signature",
    "owner",
    "idempotencyKey",
    "expectedSequence",
    "hasPrivateExtensions",
}


def _claims(event: EventFields, isErased: bool) -> Claims | None:
    author = key = owner = expected = None
    if event.author is not UNSET:
        signature = b""
        if not isErased:
            signature = unhex(_given(event.signature, "signature"), SIGNATURE_SIZE)
        author = Authorship(
            key=unhex(event.author, AUTHOR_KEY_SIZE),
            signedAt=_number(_given(event.signedAt, "signedAt")),
            signature=signature,
            statement=1 if event.statement is UNSET else event.statement,
        )
    if event.idempotencyKey is not UNSET:
        key = event.idempotencyKey
        if not isIdempotencyKey(key):
            raise Malformed("the idempotency key is not one")
        if author is None:
            owner = unhex(_given(event.owner, "owner"), 20)
    if event.expectedSequence is not UNSET:
        expected = _number(event.expectedSequence)
    if author is None and key is None and expected is None:
        return None
    return Claims(author=author, key=key, owner=owner, expected=expected)


def checkSignature(transaction: Transaction, chain: bytes) -> Authorship | None:
    """
    Check the signature of an event's author, unless it was erased with the content.

    @param chain: the chain's id.
    @return: the author, or C{None} where the event has none.
    @raise Malformed: it does not hold.
    """
    claims = transaction.claims
    if claims is None or claims.author is None:
        return None
    if not transaction.isErased and not transaction.isSigned(chain):
        raise Malformed("the signature of the event's author does not hold")
    return claims.author


def _given(value: T | UnsetType, name: str) -> T:
    if isinstance(value, UnsetType):
        raise Malformed(f"the event has no {name}")
    return value


def _number(value: int) -> int:
    if not 0 <= value < 2**64:
        raise Malformed("a number of the event is not one of 64 bits")
    return value
