"""
The parameters of a publish that say who signed it, and that it is to be executed once or at one
place only; and the headers of STOMP and user properties of MQTT 5 that carry them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ..broker import Publication, authorshipOf
from ..errors import ParameterInvalid, SignatureInvalid
from ..model import AUTHOR_KEY_SIZE, SIGNATURE_SIZE, Event
from ._declarations import OMITTED, Parameter
from ._keytypes import HexType, IdempotencyKeyType
from ._types import NumberType

AUTHOR: Final = Parameter(
    name="author",
    type=HexType(AUTHOR_KEY_SIZE),
    default=OMITTED,
    description="The Ed25519 public key of the author who has signed the event: 64 hex digits.",
)
SIGNATURE: Final = Parameter(
    name="signature",
    type=HexType(SIGNATURE_SIZE),
    default=OMITTED,
    description="The author's signature of the event's statement: 128 hex digits.",
)
SIGNED_AT: Final = Parameter(
    name="signedAt",
    type=NumberType(ParameterInvalid, 0),
    default=OMITTED,
    description="The author's own time that is in the statement, in milliseconds since the epoch.",
)
IDEMPOTENCY_KEY: Final = Parameter(
    name="idempotencyKey",
    type=IdempotencyKeyType(),
    default=OMITTED,
    description="A key that publishes the event once, however often it is sent: 1 to 64 "
    "characters from ! to ~.",
)
EXPECTED_SEQUENCE: Final = Parameter(
    name="expectedSequence",
    type=NumberType(ParameterInvalid, 0),
    default=OMITTED,
    description="Publish only if this is the sequence number of the topic's latest event; 0 where "
    "it has none.",
)

SIGNED_PARAMETERS: Final = (AUTHOR.name, SIGNATURE.name, SIGNED_AT.name)
"""The parameters of a signed publish."""

PUBLISH_HEADERS: Final[Mapping[str, Parameter]] = {
    "svc-author": AUTHOR,
    "svc-signature": SIGNATURE,
    "svc-signed-at": SIGNED_AT,
    "svc-idempotency-key": IDEMPOTENCY_KEY,
    "svc-expected-sequence": EXPECTED_SEQUENCE,
}
"""The parameters by their names on STOMP and MQTT 5, where they are not extensions."""


def eventHeaders(event: Event) -> dict[str, str]:
    """
    Who has signed an event, and whether it was erased, as headers of STOMP and user properties of
    MQTT 5.
    """
    headers = {}
    if event.author is not None:
        headers["svc-author"] = event.author.key.hex()
        if event.author.signature:
            headers["svc-signature"] = event.author.signature.hex()
        headers["svc-signed-at"] = str(event.author.signedAt)
    if event.isErased:
        headers["svc-erased"] = "true"
    return headers


def readPublishHeaders(headers: Mapping[str, str]) -> dict[str, Any]:
    """
    Read those headers or user properties of a publish that are parameters.

    @return: the arguments of L{makePublication}.
    @raise SignatureInvalid, ParameterInvalid: one of them cannot be read.
    """
    arguments: dict[str, Any] = {}
    for name, parameter in PUBLISH_HEADERS.items():
        text = headers.get(name)
        if text:
            try:
                arguments[parameter.argument] = parameter.type.fromText(text.encode("utf-8"))
            except (ParameterInvalid, SignatureInvalid) as error:
                raise type(error)(f"{name}: {error.message}") from None
    return arguments


def makePublication(
    topic: str,
    groupId: str | None,
    content: bytes,
    extensions: Mapping[str, str],
    author: bytes | None = None,
    signature: bytes | None = None,
    signedAt: int | None = None,
    idempotencyKey: str | None = None,
    expectedSequence: int | None = None,
) -> Publication:
    """
    Make an event to be published of the parameters of its publish, which are in their order.

    @raise SignatureInvalid: there are not all three of author, signature and time.
    """
    return Publication(
        topic=topic,
        groupId=groupId,
        content=content,
        extensions=extensions,
        author=authorshipOf(author, signature, signedAt),
        idempotencyKey=idempotencyKey,
        expectedSequence=expectedSequence,
    )
