"""
The parameters of a publish that say who signed it, and that it is to be executed once or at one
place only, with their types; and the headers of STOMP and user properties of MQTT 5 that carry
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from attrs import field, frozen

from ..errors import ParameterInvalid, SignatureInvalid
from ..model import AUTHOR_KEY_SIZE, MAX_KEY_LENGTH, SIGNATURE_SIZE, Event, isIdempotencyKey
from ._declarations import OMITTED, Parameter
from ._types import NumberType, ParameterType

_HEX = re.compile(r"[0-9a-fA-F]*")


@frozen
class HexType(ParameterType):
    """
    A public key or a signature: hex digits of either case.

    @ivar size: how many bytes it has.
    """

    size: int
    schema: Mapping[str, Any] = field(init=False)

    @schema.default
    def _schema(self) -> Mapping[str, Any]:
        return {"type": "string", "pattern": f"^[0-9a-fA-F]{{{2 * self.size}}}$"}

    def fromText(self, raw: bytes) -> bytes:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> bytes:
        text: str = super().fromJSON(value)
        if len(text) != 2 * self.size or _HEX.fullmatch(text) is None:
            raise SignatureInvalid(f"is not {2 * self.size} hex digits")
        return bytes.fromhex(text)


@frozen
class KeysType(ParameterType):
    """
    Public keys: texts of hex digits; as text with commas between them. They are put in order.

    @ivar maximum: the most of them.
    @ivar minimum: the least.
    """

    maximum: int
    minimum: int = 0
    schema: Mapping[str, Any] = field(init=False)
    textSchema: Mapping[str, Any] | None = {"type": "string"}

    @schema.default
    def _schema(self) -> Mapping[str, Any]:
        return {
            "type": "array",
            "items": HexType(AUTHOR_KEY_SIZE).schema,
            "minItems": self.minimum,
            "maxItems": self.maximum,
            "uniqueItems": True,
        }

    def fromText(self, raw: bytes) -> tuple[bytes, ...]:
        return self.fromJSON(super().fromText(raw).split(","))

    def fromJSON(self, value: object) -> tuple[bytes, ...]:
        texts = value.split(",") if isinstance(value, str) else value
        if not isinstance(texts, list) or not self.minimum <= len(texts) <= self.maximum:
            raise ParameterInvalid(f"is not {self.minimum} to {self.maximum} public keys")
        type = HexType(AUTHOR_KEY_SIZE)
        return tuple(sorted({type.fromJSON(each) for each in texts}))


class IdempotencyKeyType(ParameterType):
    """An idempotency key."""

    schema: Mapping[str, Any] = {"type": "string", "pattern": f"^[!-~]{{1,{MAX_KEY_LENGTH}}}$"}

    def fromText(self, raw: bytes) -> str:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> str:
        text: str = super().fromJSON(value)
        if not isIdempotencyKey(text):
            raise ParameterInvalid(f"is not 1 to {MAX_KEY_LENGTH} characters from ! to ~")
        return text


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
    The author of an event, and whether it was erased, as headers of STOMP and user properties of
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

    @return: the arguments of L{makePublication<svcbroker.broker.makePublication>}.
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
