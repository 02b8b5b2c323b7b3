"""
Parameter types: how values are read from text and from JSON.

Text is what URLs and forms carry: bytes. JSON is what JSON-RPC carries.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

from attrs import field, frozen

from ..broker import MAX_PAGE_NUMBER
from ..errors import (
    BrokerError,
    EventIdBlank,
    EventIdInvalid,
    EventIdTooLong,
    ParameterInvalid,
    SubscriptionIdBlank,
    SubscriptionIdInvalid,
    TopicInvalid,
)
from ..model import (
    EXTENSION_PREFIX,
    WEEVENT_PREFIX,
    EventFormat,
    EventId,
    Offset,
    checkFilter,
    checkTopicName,
    parseOffset,
)

_MAX_FILTERS: Final = 100
"""The most topics and patterns that one subscription may have."""
_MAX_TAG: Final = 8192
"""The longest tag in bytes: as long as extensions may be."""

_PREFIXES: Final = (EXTENSION_PREFIX.encode("ascii"), WEEVENT_PREFIX.encode("ascii"))
_NO_STRING = "is not a string"
_INTEGER = re.compile(rb"-?[0-9]+")
_LONGEST_INTEGER = 16
_HASH = re.compile(r"(?:0[xX])?([0-9a-fA-F]{64})")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)


class ParameterType:
    """
    The type of a parameter: text, unless a subclass says otherwise.

    @cvar schema: what it looks like in JSON, as JSON Schema.
    @cvar textSchema: what it looks like as text, where that differs.
    @cvar isPrivate: whether values may be secrets, so that errors do not show them.
    @cvar jsonType: what JSON text may be decoded into at once: every such value that can be is
        one that L{fromJSON} takes too. C{Any} is always right.
    """

    schema: Mapping[str, Any] = {"type": "string"}
    textSchema: Mapping[str, Any] | None = None
    isPrivate: bool = False
    jsonType: Any = Any

    def fromText(self, raw: bytes) -> Any:
        """
        Read a value that is not empty.

        @raise BrokerError: it cannot be read.
        """
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise ParameterInvalid("is not UTF-8") from None

    def fromJSON(self, value: object) -> Any:
        """
        Read a value that is not C{null}.

        @raise BrokerError: it cannot be read.
        """
        if not isinstance(value, str):
            raise ParameterInvalid(_NO_STRING)
        return value

    def fromTyped(self, value: Any) -> Any:
        """
        Read a value that was decoded into L{jsonType} and is not C{null}.

        @raise BrokerError: it cannot be read.
        """
        return self.fromJSON(value)


class GroupType(ParameterType):
    """The id of a group, which is looked up as soon as it is read."""

    jsonType: Any = str


class TopicType(ParameterType):
    """A topic's name."""

    schema: Mapping[str, Any] = {"type": "string", "minLength": 1, "maxLength": 256}
    jsonType: Any = str

    def fromText(self, raw: bytes) -> str:
        try:
            return self.fromJSON(raw.decode("utf-8"))
        except UnicodeDecodeError:
            raise TopicInvalid() from None

    def fromJSON(self, value: object) -> str:
        if not isinstance(value, str):
            raise ParameterInvalid(_NO_STRING)
        # Names beyond ASCII are checked by the rule of their group.
        if value.isascii():
            checkTopicName(value)
        return value


class ContentType(ParameterType):
    """An event's content: any bytes; Base64 with padding in JSON."""

    schema: Mapping[str, Any] = {"type": "string", "contentEncoding": "base64", "minLength": 1}
    textSchema: Mapping[str, Any] | None = {"type": "string", "minLength": 1}
    jsonType: Any = bytes

    def fromText(self, raw: bytes) -> bytes:
        return raw

    def fromTyped(self, value: bytes) -> bytes:
        return value

    def fromJSON(self, value: object) -> bytes:
        if not isinstance(value, str):
            raise ParameterInvalid(_NO_STRING)
        try:
            return a2b_base64(value, strict_mode=True)
        except ValueError:
            raise ParameterInvalid("is not standard Base64 with padding") from None


class EventIdType(ParameterType):
    """An event's id."""

    schema: Mapping[str, Any] = {"type": "string", "minLength": 1, "maxLength": 64}

    def fromText(self, raw: bytes) -> EventId:
        return EventId.parse(super().fromText(raw))

    def fromJSON(self, value: object) -> EventId:
        return EventId.parse(super().fromJSON(value))


class SeenEventType(EventIdType):
    """The id of an event that a client has seen, beside what it asks for."""

    def fromText(self, raw: bytes) -> EventId:
        return self._named(super().fromText, raw)

    def fromJSON(self, value: object) -> EventId:
        return self._named(super().fromJSON, value)

    def _named(self, read: Callable[[Any], EventId], value: Any) -> EventId:
        # The errors of event ids would be taken for those of the event that is asked for.
        try:
            return read(value)
        except (EventIdBlank, EventIdTooLong, EventIdInvalid):
            raise ParameterInvalid("is not an event id") from None


class TextsType(ParameterType):
    """Texts under keys: in JSON an object of strings."""

    jsonType: Any = dict[str, str]

    def fromJSON(self, value: object) -> Mapping[str, str]:
        if not isinstance(value, dict):
            raise ParameterInvalid("is not an object")
        if not all(isinstance(text, str) for text in value.values()):
            raise ParameterInvalid("one of them is not a string")
        return value

    def fromTyped(self, value: dict[str, str]) -> Mapping[str, str]:
        return value


class ExtensionsType(TextsType):
    """
    A publisher's additions. As text they are all parameters whose names begin as those of
    extensions do, here or in a dialect (the broker refuses the latter without it); in JSON an
    object of strings.
    """

    schema: Mapping[str, Any] = {
        "type": "object",
        "propertyNames": {"pattern": f"^{EXTENSION_PREFIX}"},
        "additionalProperties": {"type": "string"},
    }

    def fromFields(self, fields: Mapping[bytes, bytes]) -> Mapping[str, str]:
        """
        Pick the extensions out of all the fields of a URL or a form.

        @raise ParameterInvalid: one of them is not UTF-8.
        """
        try:
            return {
                name.decode("utf-8"): value.decode("utf-8")
                for name, value in fields.items()
                if name.startswith(_PREFIXES)
            }
        except UnicodeDecodeError:
            raise ParameterInvalid("an extension is not UTF-8") from None


@frozen
class NumberType(ParameterType):
    """
    A whole number.

    @ivar error: what is said of anything else.
    @ivar minimum: the least that is taken, where there is one.
    @ivar maximum: the most that is taken, where there is a least.
    """

    error: type[BrokerError]
    minimum: int | None = None
    maximum: int = MAX_PAGE_NUMBER
    schema: Mapping[str, Any] = field(init=False)

    @schema.default
    def _schema(self) -> Mapping[str, Any]:
        if self.minimum is None:
            return {"type": "integer"}
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}

    def fromText(self, raw: bytes) -> int:
        if _INTEGER.fullmatch(raw) is None:
            self._refuse()
        # The first digits tell that a long number is out of every range.
        return self._check(int(raw[: _LONGEST_INTEGER + 1]))

    def fromJSON(self, value: object) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            self._refuse()
        return self._check(value)

    def _check(self, number: int) -> int:
        if self.minimum is not None and not self.minimum <= number <= self.maximum:
            self._refuse()
        return number

    def _refuse(self) -> NoReturn:
        if self.minimum is None:
            raise self.error()
        allowed = f"a whole number from {self.minimum} to {self.maximum}"
        if self.error is ParameterInvalid:
            raise ParameterInvalid(f"is not {allowed}")
        raise self.error(f"{self.error.text}: it is {allowed}")


class FlagType(ParameterType):
    """Yes or no: C{true} or C{false}."""

    schema: Mapping[str, Any] = {"type": "boolean"}

    def fromText(self, raw: bytes) -> bool:
        return self.fromJSON({b"true": True, b"false": False}.get(raw))

    def fromJSON(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ParameterInvalid("is not true or false")
        return value


class ErasedType(ParameterType):
    """The treatment of erased events: whether there are tombstones, C{tombstone} or C{skip}."""

    schema: Mapping[str, Any] = {"enum": ["skip", "tombstone"]}

    def fromText(self, raw: bytes) -> bool:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> bool:
        text: str = super().fromJSON(value)
        if text not in ("skip", "tombstone"):
            raise ParameterInvalid("is not skip or tombstone")
        return text == "tombstone"


@frozen
class FormatType(ParameterType):
    """
    The name of an L{EventFormat}.

    @ivar formats: those that are taken.
    """

    formats: Sequence[EventFormat]
    schema: Mapping[str, Any] = field(init=False)

    @schema.default
    def _schema(self) -> Mapping[str, Any]:
        return {"enum": [each.value for each in self.formats]}

    def fromText(self, raw: bytes) -> EventFormat:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> EventFormat:
        text = super().fromJSON(value)
        for each in self.formats:
            if each.value == text:
                return each
        names = " or ".join(each.value for each in self.formats)
        raise ParameterInvalid(f"is not {names}")


class HashType(ParameterType):
    """A hash of 32 bytes: hex digits of either case, with or without C{0x}."""

    schema: Mapping[str, Any] = {"type": "string", "pattern": "^(0[xX])?[0-9a-fA-F]{64}$"}

    def fromText(self, raw: bytes) -> bytes:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> bytes:
        found = _HASH.fullmatch(super().fromJSON(value))
        if found is None:
            raise ParameterInvalid("is not 64 hex digits, with or without 0x")
        return bytes.fromhex(found[1])


class ListType(ParameterType):
    """Several texts with commas between them."""

    def fromText(self, raw: bytes) -> list[str]:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> list[str]:
        pieces = super().fromJSON(value).split(",")
        return [piece.strip() for piece in pieces if piece.strip()]


class FiltersType(ParameterType):
    """
    Topics and patterns with commas between them. So a topic with a comma in its name is
    subscribed to with a pattern only.
    """

    schema: Mapping[str, Any] = {"type": "string", "minLength": 1}

    def fromText(self, raw: bytes) -> tuple[str, ...]:
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise TopicInvalid() from None
        return self.fromJSON(text)

    def fromJSON(self, value: object) -> tuple[str, ...]:
        text: str = super().fromJSON(value)
        if text.count(",") >= _MAX_FILTERS:
            raise ParameterInvalid(f"there are more than {_MAX_FILTERS} topics")
        filters = tuple(dict.fromkeys(text.split(",")))
        for filter in filters:
            if filter.isascii():
                checkFilter(filter)
        return filters


class FilterType(ParameterType):
    """A topic or a pattern."""

    schema: Mapping[str, Any] = {"type": "string", "minLength": 1, "maxLength": 256}

    def fromText(self, raw: bytes) -> str:
        try:
            return self.fromJSON(raw.decode("utf-8"))
        except UnicodeDecodeError:
            raise TopicInvalid() from None

    def fromJSON(self, value: object) -> str:
        filter: str = super().fromJSON(value)
        if filter.isascii():
            checkFilter(filter)
        return filter


class SubscriptionIdType(ParameterType):
    """A subscription's id: a UUID, of either case."""

    schema: Mapping[str, Any] = {"type": "string", "format": "uuid"}

    def fromText(self, raw: bytes) -> str | None:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> str | None:
        text: str = super().fromJSON(value).lower()
        if not text.strip():
            return self.blank()
        if _UUID.fullmatch(text) is None:
            raise SubscriptionIdInvalid()
        return text

    def blank(self) -> str | None:
        """The value of a text of spaces only."""
        raise SubscriptionIdBlank()


class OptionalSubscriptionIdType(SubscriptionIdType):
    """A subscription's id, where only spaces are none."""

    def blank(self) -> str | None:
        return None


class OffsetType(ParameterType):
    """The place where a subscription starts."""

    def fromText(self, raw: bytes) -> Offset:
        return parseOffset(super().fromText(raw))

    def fromJSON(self, value: object) -> Offset:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        return parseOffset(super().fromJSON(value))


class TagType(ParameterType):
    """A tag: any text that an extension can hold."""

    def fromText(self, raw: bytes) -> str:
        return self.fromJSON(super().fromText(raw))

    def fromJSON(self, value: object) -> str:
        text: str = super().fromJSON(value)
        try:
            size = len(text.encode("utf-8"))
        except UnicodeEncodeError:
            raise ParameterInvalid("tag is not valid Unicode text") from None
        if size > _MAX_TAG:
            raise ParameterInvalid(f"tag is longer than {_MAX_TAG} bytes")
        return text
