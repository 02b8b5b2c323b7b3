"""
Events and their ids, the signatures of their authors, and the sets of authors that topics may have.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from attrs import frozen
from msgspec import Struct

from ..errors import (
    ContentBlank,
    ContentTooLarge,
    EventIdBlank,
    EventIdInvalid,
    EventIdTooLong,
    ExtensionKeyInvalid,
    ExtensionsTooLarge,
    ParameterInvalid,
)

AUTHOR_KEY_SIZE: Final = 32
"""Bytes of an Ed25519 public key."""
SIGNATURE_SIZE: Final = 64
"""Bytes of an Ed25519 signature."""
MAX_AUTHORS: Final = 64
"""The most authors that a topic may have."""
MAX_ADMINS: Final = 16
"""The most keys that may change them."""
MAX_KEY_LENGTH: Final = 64
"""The most characters that an idempotency key may have."""


_IDEMPOTENCY_KEY = re.compile(rf"[!-~]{{1,{MAX_KEY_LENGTH}}}", re.ASCII)


def isIdempotencyKey(text: str) -> bool:
    """
    Whether a text can be an idempotency key: 1 to L{MAX_KEY_LENGTH} characters from U+0021 to
    U+007E.
    """
    return _IDEMPOTENCY_KEY.fullmatch(text) is not None


class Authorship(Struct, frozen=True, kw_only=True, gc=False):
    """
    The author's signature of an event.

    @ivar key: the author's Ed25519 public key: 32 bytes.
    @ivar signedAt: the author's own time in milliseconds since the epoch.
    @ivar signature: the signature of the statement: 64 bytes; empty where it was erased with the
        content.
    @ivar statement: the version of the statement that is signed, 1 or 2. One of version 1 leaves
        the expected sequence number open.
    """

    key: bytes
    signedAt: int
    signature: bytes
    statement: int = 1


@frozen(kw_only=True)
class AuthorSet:
    """
    The authors who may publish to a topic.

    @ivar generation: how many sets there were before it.
    @ivar authors: the Ed25519 public keys (32 bytes each) of those who may publish, rising.
    @ivar admins: the public keys of those who may change the set, rising.
    """

    generation: int = 0
    authors: tuple[bytes, ...]
    admins: tuple[bytes, ...] = ()


@frozen(kw_only=True)
class AuthorChange:
    """
    A signed change of a topic's authors.

    @ivar following: the new set.
    @ivar admin: the public key of an admin of the current set.
    @ivar signature: its signature of the change.
    """

    following: AuthorSet
    admin: bytes
    signature: bytes


MAX_EVENT_ID_LENGTH: Final = 64
MAX_EXTENSIONS_SIZE: Final = 8192
EXTENSION_PREFIX: Final = "svc-"
"""The beginning of the names of extensions."""
PRIVATE_PREFIX: Final = "svc-private-"
"""The beginning of the names of extensions that are erased with the content."""

ENCRYPTED: Final = "svc-encrypted"
"""The extension of an event with a closed content; its value is C{age}."""

PADDING: Final = "svc-padding"
"""The extension of an event with a closed content that is padded; its value is C{spaces}."""

RESERVED_NAMES: Final = frozenset(
    {
        *("svc-author", "svc-signature", "svc-signed-at"),
        *("svc-idempotency-key", "svc-expected-sequence", "svc-erased"),
    }
)
"""
Names that no extension may have: headers of STOMP and user properties of MQTT that carry what is
not an extension. Otherwise an unsigned event could be delivered as a signed one.
"""
WEEVENT_PREFIX: Final = "weevent-"
"""Their beginning on the wire for clients of WeEvent 1.1."""
TAG: Final = "svc-tag"
"""The extension by which subscriptions choose events."""

_EVENT_ID = re.compile(r"([0-9a-f]{8})-([1-9][0-9]{0,18})-([1-9][0-9]{0,18})", re.ASCII)
_MAX_NUMBER = 2**63 - 1


class EventId(Struct, frozen=True, gc=False):
    """
    The id of an event, which says where it stands: C{<8 hex digits>-<sequence>-<height>}.

    @ivar prefix: L{topicPrefix<svcbroker.model.topicPrefix>} of the event's topic.
    @ivar sequence: the event's number in its topic, from 1.
    @ivar height: the height of the event's block, from 1.
    """

    prefix: str
    sequence: int
    height: int

    def __str__(self) -> str:
        return f"{self.prefix}-{self.sequence}-{self.height}"

    @classmethod
    def parse(cls, text: str) -> EventId:
        """
        Read an event id.

        @raise EventIdBlank: there is nothing but spaces.
        @raise EventIdTooLong: it has more than 64 characters.
        @raise EventIdInvalid: it does not have the form of an event id.
        """
        if not text.strip(" "):
            raise EventIdBlank()
        if len(text) > MAX_EVENT_ID_LENGTH:
            raise EventIdTooLong()
        found = _EVENT_ID.fullmatch(text)
        if found is None:
            raise EventIdInvalid()
        prefix, sequence, height = found[1], int(found[2]), int(found[3])
        if sequence > _MAX_NUMBER or height > _MAX_NUMBER:
            raise EventIdInvalid()
        return cls(prefix, sequence, height)


class Position(NamedTuple):
    """
    A place in a group's log: everything up to and including one transaction. Positions are
    ordered as the log is.

    @ivar height: the height of a block.
    @ivar index: the index of a transaction in it; -1 stands for before the first.
    """

    height: int
    index: int  # type: ignore[assignment]  # tuple has a method of this name


BEGINNING = Position(0, 0)
"""Before everything."""


class Event(Struct, frozen=True, kw_only=True, gc=False):
    """
    One published event, as the ledger holds it.

    @ivar topic: the name of its topic.
    @ivar content: its content, exactly the bytes that were published.
    @ivar extensions: what its publisher added; every key starts with C{svc-}.
    @ivar eventId: where it stands.
    @ivar index: the index of its transaction in its block.
    @ivar author: who has signed it; C{None} where nobody has.
    @ivar isErased: whether its content was erased. Then C{content} is empty and private extensions
        are missing.
    """

    topic: str
    content: bytes
    extensions: Mapping[str, str]
    eventId: EventId
    index: int = 0
    author: Authorship | None = None
    isErased: bool = False

    @property
    def position(self) -> Position:
        """Its place in the log."""
        return Position(self.eventId.height, self.index)


def checkContent(content: bytes, limit: int) -> None:
    """
    Refuse what a request/response carrier may not publish.

    @param limit: the most bytes that the broker takes.
    @raise ContentBlank: there are no bytes.
    @raise ContentTooLarge: there are more than C{limit}.
    """
    if not content:
        raise ContentBlank()
    if len(content) > limit:
        raise ContentTooLarge(f"content is larger than {limit} bytes")


def extensionKeyError(key: str) -> ExtensionKeyInvalid:
    """
    The error for an extension whose key does not start with L{EXTENSION_PREFIX}. It names the
    option that makes keys with L{WEEVENT_PREFIX} valid.
    """
    if not key.startswith(WEEVENT_PREFIX):
        return ExtensionKeyInvalid()
    return ExtensionKeyInvalid(
        f"{ExtensionKeyInvalid.text}; {key[:100]} is taken below /weevent of a broker with "
        "--dialect weevent-1.1"
    )


def checkExtensions(extensions: Mapping[str, str]) -> None:
    """
    Refuse extensions that cannot be stored.

    @raise ExtensionKeyInvalid: a key does not start with C{svc-}, or is one of L{RESERVED_NAMES}.
    @raise ExtensionsTooLarge: keys and values have more than 8 KiB of UTF-8 together.
    @raise ParameterInvalid: a key or a value cannot be written in UTF-8 (a lone surrogate).
    """
    if not RESERVED_NAMES.isdisjoint(extensions):
        key = min(RESERVED_NAMES.intersection(extensions))
        raise ExtensionKeyInvalid(f"{key} is not the name of an extension")
    size = 0
    for key, value in extensions.items():
        if not key.startswith(EXTENSION_PREFIX):
            raise extensionKeyError(key)
        try:
            size += len(key.encode("utf-8")) + len(value.encode("utf-8"))
        except UnicodeEncodeError:
            raise ParameterInvalid("an extension is not valid Unicode text") from None
    if size > MAX_EXTENSIONS_SIZE:
        raise ExtensionsTooLarge()
