"""
Answers of brokers to clients. Fields that are not known here are ignored, since a broker may be
newer than its clients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Annotated, Final, TypeAlias

from attrs import field, frozen
from attrs.converters import optional
from msgspec import Meta, Struct

from ._confidential import AuthorKey, checkRecipients

_NUMBER = r"[1-9][0-9]{0,18}"
_EVENT_ID: Final = Meta(pattern=rf"^[0-9a-f]{{8}}-{_NUMBER}-{_NUMBER}\Z")
EventIdText: TypeAlias = Annotated[str, _EVENT_ID]
"""An event's id; an answer with another text is none of a broker."""


class Event(Struct, frozen=True, kw_only=True):
    """
    A published event.

    @ivar topic: its topic.
    @ivar content: exactly the bytes that were published.
    @ivar extensions: what its publisher added, under keys that start with C{svc-}.
    @ivar eventId: its id, which is the position after it.
    @ivar timestamp: the time of its block in milliseconds since the epoch; C{None} from
        C{getEvent}.
    @ivar author: the public key of its author in hexadecimal digits; C{None} where it is unsigned.
    @ivar signature: the author's signature of its statement, in hexadecimal digits.
    @ivar signedAt: the author's own time in milliseconds since the epoch.
    @ivar erased: whether its content was erased. Then there are no content, signature and private
        extensions.
    """

    topic: str
    content: bytes
    extensions: dict[str, str]
    eventId: EventIdText
    timestamp: int | None = None
    author: str | None = None
    signature: str | None = None
    signedAt: int | None = None
    erased: bool = False

    @property
    def sequence(self) -> int:
        """Its number in its topic, from 1."""
        return int(self.eventId.split("-")[1])

    @property
    def height(self) -> int:
        """The height of its block."""
        return int(self.eventId.split("-")[2])


class ClosedEvent(Event, frozen=True, kw_only=True):
    """
    An event whose content is closed. C{content} is as it was published.

    @ivar reason: why it was not opened, in one line.
    """

    reason: str


class OpenedEvent(Event, frozen=True, kw_only=True):
    """
    An event whose content was closed, and was opened by an identity. C{content} is in plain.
    """


class EventPageRecord(Struct, frozen=True):
    """A page of C{events}."""

    events: list[Event]
    next: str
    atEnd: bool


class Found(Struct, frozen=True):
    """
    Events that C{find} has found.

    @ivar atEnd: whether these are all up to the block C{height}; otherwise the limit was reached.
    @ivar height: the height of the last block that the broker's index has.
    @ivar chainHeight: the height of the last block of the log.
    """

    events: list[Event]
    next: str
    atEnd: bool
    height: int
    chainHeight: int


class SendAnswer(Struct, frozen=True):
    """The answer to a publish."""

    topic: str
    eventId: EventIdText | None
    status: str


class TopicInfo(Struct, frozen=True):
    """
    A topic.

    @ivar createdTimestamp: the time of the block that created it, in milliseconds since the epoch.
    """

    topicName: str
    topicAddress: str
    senderAddress: str
    createdTimestamp: int


class TopicState(TopicInfo, frozen=True):
    """
    A topic, and how far it has come.

    @ivar sequenceNumber: how many events were published to it.
    @ivar blockNumber: the height of the block of the latest event; 0 where there is none.
    @ivar authors: the public keys of those who may publish to it, in hexadecimal digits; C{None}
        for everybody.
    @ivar admins: the public keys of those who may change the authors.
    """

    sequenceNumber: int
    blockNumber: int
    authors: list[str] | None = None
    admins: list[str] | None = None


class TopicPage(Struct, frozen=True):
    """A page of C{list}."""

    total: int
    topicInfoList: list[TopicInfo]


class CheckpointRecord(Struct, frozen=True, kw_only=True):
    """
    A block's hash.

    @ivar chain: the chain's id.
    @ivar timestamp: the block's time in milliseconds since the epoch.
    @ivar checkpoint: C{HEIGHT:HASH}, which is all that one needs to keep.
    """

    group: str
    chain: str
    height: int
    hash: str
    timestamp: int
    checkpoint: str


class NewKey(Enum):
    """An idempotency key that the client makes."""

    NEW = "a new key"


@frozen(kw_only=True)
class Published:
    """
    A published event: it is final and on stable storage.

    @ivar eventId: the event's id.
    @ivar idempotencyKey: the key that it was published with; C{None} where it had none.
    """

    topic: str
    eventId: str
    idempotencyKey: str | None


def _encoded(content: bytes | str) -> bytes:
    # Not bytes(content): that of a number has as many zeros.
    return content.encode("utf-8") if isinstance(content, str) else bytes(memoryview(content))


@frozen
class Publication:
    """
    An event that is to be published.

    @ivar topic: an open topic.
    @ivar content: the content; text is published as its UTF-8 bytes.
    @ivar extensions: texts under keys that start with C{svc-}.
    @ivar idempotencyKey: at most 64 characters; a publish of this key is executed once, however
        often it is sent. By default one is made. C{None} publishes without a key, for a ledger that
        refuses keys; then it is not sent again when its outcome is unknown.
    @ivar expectedSequence: the sequence number that the topic must have for it; C{None} for any.
    @ivar author: signs it; C{None} for the client's key, if it has one.
    @ivar recipients: to whom the content is closed; C{None} for the client's recipients, none for
        an open content.
    """

    topic: str
    content: bytes = field(converter=_encoded)
    extensions: Mapping[str, str] = field(factory=dict)
    idempotencyKey: str | NewKey | None = field(default=NewKey.NEW, kw_only=True)
    expectedSequence: int | None = field(default=None, kw_only=True)
    author: AuthorKey | None = field(default=None, kw_only=True)
    recipients: Sequence[str] | None = field(
        default=None, converter=optional(checkRecipients), kw_only=True
    )


def offsetText(offset: str | int | datetime) -> str:
    """
    A position as the interface writes it.

    @param offset: an event's id or another offset as it is, a block's height, or a time. A time
        without a zone is local time.
    """
    if isinstance(offset, datetime):
        return f"OFFSET_TIME:{offset.astimezone().isoformat()}"
    return str(offset)
