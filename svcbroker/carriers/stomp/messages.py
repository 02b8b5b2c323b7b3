"""
MESSAGE frames: what all subscribers of an event are sent alike, made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import DecodeError
from msgspec.json import Decoder

from ...interfaces import Batch
from ...model import RESERVED_NAMES, Event
from ...operations import STOMP, eventHeaders, traceNames
from .frames import Version, encodeHeader

USER_HEADERS: Final = "svc-stomp"
"""The extension that holds the other headers of a SEND: a JSON object of texts."""

MESSAGE_HEADERS: Final = frozenset(header.name for header in STOMP.message)
"""Headers that the broker sets on MESSAGE. A user's headers never take their place."""

_userHeaders = Decoder(dict[str, str])


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

    Headers that the version cannot carry are left out: those with NUL, and in 1.0, which has no
    escapes, those with a line end, or with a colon in the name.
    """
    eventId = str(event.eventId)
    headers = event.extensions
    if headers or event.author is not None or event.isErased:
        headers = shownHeaders(event)
    extensions = "".join([encodeHeader(name, value, version) for name, value in headers.items()])
    head = (
        f"{eventId}\n{encodeHeader('destination', event.topic, version)}eventId:{eventId}\n"
        f"content-length:{len(event.content)}\n{extensions}\n"
    )
    return EncodedEvent(eventId.encode("ascii"), b"%b%b\0" % (head.encode("utf-8"), event.content))


def shownHeaders(event: Event) -> Mapping[str, str]:
    """
    The headers that an event brings: its extensions, the user's headers of the SEND, and who has
    signed it.
    """
    headers = event.extensions
    if USER_HEADERS in headers:
        headers = _withUserHeaders(headers)
    if not RESERVED_NAMES.isdisjoint(headers):
        # A broker of an earlier release has let them in.
        headers = {k: value for k, value in headers.items() if k not in RESERVED_NAMES}
    names = traceNames(headers)
    if names:
        headers = {names.get(name, name): value for name, value in headers.items()}
    if event.author is not None or event.isErased:
        headers = {**headers, **eventHeaders(event)}
    return headers


def _withUserHeaders(extensions: Mapping[str, str]) -> Mapping[str, str]:
    """The extensions, with the headers of the SEND in place of the extension that has them."""
    try:
        user = _userHeaders.decode(extensions[USER_HEADERS])
    except DecodeError:
        # Any publisher may write this extension.
        return extensions
    headers = {name: value for name, value in extensions.items() if name != USER_HEADERS}
    for name, value in user.items():
        if name and name not in MESSAGE_HEADERS:
            # An extension of the same name stands.
            headers.setdefault(name, value)
    return headers


def encodedEvents(
    batch: Batch, version: Version, encode: Callable[[Event, Version], EncodedEvent]
) -> Sequence[EncodedEvent]:
    """
    The events of a batch, encoded for the first subscription that asks.

    @param encode: encodes one, as the dialect of the connection has it.
    """
    return batch.encoded(
        (encode, version), lambda events: [encode(event, version) for event in events]
    )


class MessageHeads:
    """
    The beginnings of one subscription's MESSAGE frames ("MESSAGE").

    C{ack}, and by default C{message-id}, are the subscription's number and the event's id: unique
    in the connection, and the same when an event is sent again.
    """

    def __init__(
        self, number: int, id: str | None, subscriptionId: str, version: Version, messageId: str
    ) -> None:
        """
        @param id: the client's own name for the subscription; STOMP 1.0 can do without.
        @param messageId: the header C{message-id}, up to where the event's id comes.
        """
        names = "" if id is None else encodeHeader("subscription", id, version)
        start = f"MESSAGE\n{names}subscription-id:{subscriptionId}\n"
        self._plain = f"{start}{messageId}".encode()
        self._first = f"{start}ack:{number}-".encode()
        self._redelivered = f"{start}redelivered:true\nack:{number}-".encode()
        self._between = f"\n{messageId}".encode()

    def messages(self, events: Iterable[EncodedEvent]) -> bytes:
        """The frames of events that need no acknowledgement."""
        plain = self._plain
        return plain + plain.join([event.rest for event in events])

    def each(self, events: Iterable[EncodedEvent]) -> Sequence[bytes]:
        """The same, one for each."""
        plain = self._plain
        return [plain + event.rest for event in events]

    def message(self, event: EncodedEvent, isRedelivered: bool) -> bytes:
        """The frame of an event that needs one."""
        first = self._redelivered if isRedelivered else self._first
        return first + event.eventId + self._between + event.rest
