"""
The types of public keys, signatures and idempotency keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from ..errors import ParameterInvalid, SignatureInvalid
from ..model import AUTHOR_KEY_SIZE, MAX_KEY_LENGTH, isIdempotencyKey
from ._types import ParameterType

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
