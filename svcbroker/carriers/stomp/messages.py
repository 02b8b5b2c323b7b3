"""
MESSAGE frames: what all subscribers of an event are sent alike, made once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...interfaces import Batch
from ...model import Event
from .frames import Version, encodeHeader


class EncodedEvent(NamedTuple):
    """
    An event as one version of STOMP has it.

    @ivar eventId: its id, with which the values of C{message-id} and C{ack} end.
    @ivar rest: the end of its MESSAGE frame, from the event's id in C{message-id} on.
    """

    eventId: bytes
    rest: bytes


def encodeEvent(event: Event, version: Version) -> EncodedEvent:
    """
    What is the same in an event's MESSAGE for every subscriber.

    An extension that the version cannot carry is left out: one with NUL, and in 1.0, which has no
    escapes, one with a line end, or with a colon in its name.
    """
    eventId = str(event.eventId)
    extensions = "".join(
        encodeHeader(name, value, version) for name, value in event.extensions.items()
    )
    head = (
        f"{eventId}\n{encodeHeader('destination', event.topic, version)}eventId:{eventId}\n"
        f"content-length:{len(event.content)}\n{extensions}\n"
    )
    return EncodedEvent(eventId.encode("ascii"), b"%b%b\0" % (head.encode("utf-8"), event.content))


def encodedEvents(batch: Batch, version: Version) -> Sequence[EncodedEvent]:
    """The events of a batch, encoded by whoever asks first."""
    return batch.encoded(
        ("stomp", version), lambda events: [encodeEvent(event, version) for event in events]
    )


class MessageHeads:
    """
    The beginnings of one subscription's MESSAGE frames ("MESSAGE").

    C{message-id} and C{ack} are the subscription's number and the event's id: unique in the
    connection, and the same when an event is sent again.
    """

    def __init__(self, number: int, id: str | None, subscriptionId: str, version: Version) -> None:
        """
        @param id: the client's own name for the subscription; STOMP 1.0 can do without.
        """
        names = "" if id is None else encodeHeader("subscription", id, version)
        start = f"MESSAGE\n{names}subscription-id:{subscriptionId}\n"
        self._plain = f"{start}message-id:{number}-".encode()
        self._first = f"{start}ack:{number}-".encode()
        self._redelivered = f"{start}redelivered:true\nack:{number}-".encode()
        self._between = f"\nmessage-id:{number}-".encode()

    def messages(self, events: Iterable[EncodedEvent]) -> bytes:
        """The frames of events that need no acknowledgement."""
        plain = self._plain
        return plain + plain.join([event.rest for event in events])

    def message(self, event: EncodedEvent, isRedelivered: bool) -> bytes:
        """The frame of an event that needs one."""
        first = self._redelivered if isRedelivered else self._first
        return first + event.eventId + self._between + event.rest
