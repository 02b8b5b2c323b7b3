"""
MESSAGE frames: the part that all subscribers of an event are sent alike, made once; and the windows
of subscriptions: messages that were sent and not acknowledged, and that wait to be sent.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from msgspec import DecodeError
from msgspec.json import Decoder

from ...interfaces import Batch
from ...model import RESERVED_NAMES, Event
from ...net.budgets import ByteCount
from ...operations import FRAME_HEADERS, eventHeaders, traceNames
from .frames import StompVersion, encodeHeader

USER_HEADERS: Final = "svc-stomp"
"""The extension that holds the other headers of a SEND: a JSON object of texts."""

MESSAGE_HEADERS: Final = frozenset(header.name for header in FRAME_HEADERS.message)
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


def encodeEvent(event: Event, version: StompVersion) -> EncodedEvent:
    """
    Encode the part of an event's MESSAGE that all subscribers share.

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
    batch: Batch, version: StompVersion, encode: Callable[[Event, StompVersion], EncodedEvent]
) -> Sequence[EncodedEvent]:
    """
    The events of a batch, encoded for the first subscription that asks.

    @param encode: encodes one, as the dialect of the connection has it.
    """
    return batch.encoded((encode, version), _encodeEach, encode, version)


def _encodeEach(
    events: Sequence[Event],
    encode: Callable[[Event, StompVersion], EncodedEvent],
    version: StompVersion,
) -> Sequence[EncodedEvent]:
    return [encode(event, version) for event in events]


class MessageHeads:
    """
    The beginnings of one subscription's MESSAGE frames ("MESSAGE").

    C{ack}, and by default C{message-id}, are the subscription's number and the event's id: unique
    in the connection, and the same when an event is sent again.
    """

    def __init__(
        self,
        number: int,
        id: str | None,
        subscriptionId: str,
        version: StompVersion,
        messageId: str,
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


_EVENT_BYTES: Final = 512
"""The bytes that an event costs beside its content, roughly."""


class AckMode(Enum):
    """The mode of acknowledgement ("SUBSCRIBE ack Header")."""

    AUTO = "auto"
    """Not at all: what was sent is done."""
    CLIENT = "client"
    """An ACK or NACK counts for all messages up to it."""
    INDIVIDUAL = "client-individual"
    """An ACK or NACK counts for one message."""


class Waiting(NamedTuple):
    """
    An event that waits to be sent, and whether it was sent before. One that was is encoded anew:
    an acknowledgement may be for ten thousand.
    """

    event: Event
    encoded: EncodedEvent | None
    isRedelivered: bool


class UnacknowledgedBytes:
    """
    The bytes that all subscriptions of one connection have sent ahead of acknowledgements.
    """

    def __init__(self, limit: int, counted: ByteCount) -> None:
        """
        @param counted: counts it with that of all connections.
        """
        self._limit = limit
        self._bytes = counted

    @property
    def used(self) -> int:
        """The number of these bytes."""
        return self._bytes.size

    @property
    def isFull(self) -> bool:
        """Whether no more may be sent."""
        return self.used >= self._limit or self._bytes.isFull

    def add(self, size: int) -> None:
        """Count so many bytes more, or fewer."""
        self._bytes.add(size)


class AckWindow:
    """
    The events of a subscription that acknowledges, between the broker and the client: some wait
    to be sent, some were sent and wait to be acknowledged. Those sent are held by their ids, in
    the order of sending.

    @ivar prefetch: how many may be sent ahead of acknowledgements.
    """

    def __init__(self, mode: AckMode, prefetch: int, account: UnacknowledgedBytes) -> None:
        self._mode = mode
        self.prefetch = prefetch
        self._account = account
        self._waiting: deque[Waiting] = deque()
        # Whether some of them had to wait, so that grants may have changed meanwhile.
        self._hasWaited = False
        self._sent: OrderedDict[str, Event] = OrderedDict()

    @property
    def isOpen(self) -> bool:
        """Whether more may be sent."""
        return len(self._sent) < self.prefetch and not self._account.isFull

    @property
    def isIdle(self) -> bool:
        """Whether nothing waits to be sent."""
        return not self._waiting

    def add(self, waiting: Iterable[Waiting]) -> None:
        """Events are to be sent after all others."""
        self._waiting.extend(waiting)

    def send(
        self, mayRead: Callable[[Event], bool], limit: int
    ) -> tuple[list[Waiting], list[Event]]:
        """
        Take out what may be sent now; it counts as sent.

        @param mayRead: whether the client may still read an event that had to wait.
        @param limit: how many are looked at, at the most.
        @return: that, and events that the client may not read any more.
        """
        taken: list[Waiting] = []
        dropped: list[Event] = []
        while self._waiting and self.isOpen and len(taken) + len(dropped) < limit:
            waiting = self._waiting.popleft()
            event = waiting.event
            if self._hasWaited and not mayRead(event):
                dropped.append(event)
                continue
            self._sent[str(event.eventId)] = event
            self._account.add(_weight(event))
            taken.append(waiting)
        self._hasWaited = bool(self._waiting)
        return taken, dropped

    def take(self, eventId: str) -> list[Event]:
        """
        Take out what an ACK or NACK is for; nothing where that is settled already.
        """
        sent = self._sent
        if eventId not in sent:
            return []
        if self._mode is AckMode.INDIVIDUAL:
            events = [sent.pop(eventId)]
        else:
            events = []
            isThere = False
            while not isThere:
                found, event = sent.popitem(last=False)
                events.append(event)
                isThere = found == eventId
        self._account.add(-sum(map(_weight, events)))
        return events

    def again(self, waiting: Iterable[Waiting]) -> None:
        """Events that were taken are to be sent again, before all others."""
        self._hasWaited = True
        self._waiting.extendleft(reversed(list(waiting)))

    def clear(self) -> None:
        """The subscription has ended."""
        self._account.add(-sum(map(_weight, self._sent.values())))
        self._sent.clear()
        self._waiting.clear()


def _weight(event: Event) -> int:
    return len(event.content) + _EVENT_BYTES
