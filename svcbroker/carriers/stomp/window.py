"""
One subscription of a session: what was sent and not acknowledged, and what waits to be sent.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple

from ...model import Event
from ...net.budgets import ByteCount
from .messages import EncodedEvent

_EVENT_BYTES: Final = 512
"""What an event costs beside its content, roughly."""


class AckMode(Enum):
    """How messages are acknowledged ("SUBSCRIBE ack Header")."""

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


class Account:
    """
    How much all subscriptions of one connection have sent ahead of acknowledgements.
    """

    def __init__(self, limit: int, counted: ByteCount) -> None:
        """
        @param counted: counts it with that of all connections.
        """
        self._limit = limit
        self._bytes = counted

    @property
    def used(self) -> int:
        """How much that is, in bytes."""
        return self._bytes.size

    @property
    def isFull(self) -> bool:
        """Whether no more may be sent."""
        return self.used >= self._limit or self._bytes.isFull

    def add(self, size: int) -> None:
        """Count so many bytes more, or fewer."""
        self._bytes.add(size)


class Window:
    """
    The events of a subscription that acknowledges, between the broker and the client: some wait
    to be sent, some were sent and wait to be acknowledged. Those sent are held by their ids, in
    the order of sending.
    """

    def __init__(self, mode: AckMode, prefetch: int, account: Account) -> None:
        """
        @param prefetch: how many may be sent ahead of acknowledgements.
        """
        self._mode = mode
        self._prefetch = prefetch
        self._account = account
        self._waiting: deque[Waiting] = deque()
        # Whether some of them had to wait, so that grants may have changed meanwhile.
        self._hasWaited = False
        self._sent: OrderedDict[str, Event] = OrderedDict()

    @property
    def isOpen(self) -> bool:
        """Whether more may be sent."""
        return len(self._sent) < self._prefetch and not self._account.isFull

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
