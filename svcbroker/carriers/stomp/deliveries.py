"""
The subscriptions of one session: their messages, their acknowledgements, their flow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from attrs import define

from ...errors import Overloaded, ParameterInvalid, SubscriptionExists
from ...interfaces import Batch, ISubscription
from ...model import Event
from ...net.budgets import ByteCount
from .answers import Acknowledge, Effect, Pause, Resume
from .frames import StompSettings, StompVersion
from .messages import AckMode, AckWindow, MessageHeads, UnacknowledgedBytes, Waiting, encodedEvents
from .requests import Acknowledgement
from .stompdialects import PLAIN, StompDialect

MESSAGES_AT_ONCE: Final = 1000
"""The number of messages that are sent between two looks at the time: some milliseconds."""


@define(eq=False)
class StompSubscription:
    """
    A subscription of a connection.

    @ivar number: its number in the connection, from 1.
    @ivar key: what the client calls it; see
        L{readSubscriptionKey<svcbroker.carriers.stomp.requests.readSubscriptionKey>}.
    @ivar filterBytes: the bytes of its topics and patterns.
    @ivar window: what is between broker and client; C{None} where nothing is acknowledged.
    @ivar subscriptionId: its UUID; C{None} until the broker has made it.
    @ivar heads: how its messages begin; C{None} until then too.
    @ivar mayRead: whether its client may still read an event.
    @ivar hasBegun: whether the client has been told all that comes before the first message.
    @ivar isFlowing: whether the broker was last told to let events flow.
    """

    number: int
    key: tuple[str, str]
    window: AckWindow | None
    filterBytes: int = 0
    subscriptionId: str | None = None
    heads: MessageHeads | None = None
    mayRead: Callable[[Event], bool] = lambda event: False
    hasBegun: bool = False
    isFlowing: bool = False

    @property
    def id(self) -> str | None:
        """The C{id} that the client gave, if it did."""
        kind, name = self.key
        return name if kind == "id" else None

    @property
    def takesMore(self) -> bool:
        """Whether events may flow, as far as this subscription is concerned."""
        if not self.hasBegun:
            return False
        return self.window is None or (self.window.isIdle and self.window.isOpen)


class Deliveries:
    """
    The subscriptions of one session.

    What is to be sent gathers in L{output}, what is to be done in L{effects}; the session takes
    both.

    @ivar version: the version that was agreed on.
    @ivar starting: times, and the numbers of the subscriptions that begin then, in their order.
    """

    version = StompVersion.V10

    def __init__(
        self,
        settings: StompSettings,
        windows: ByteCount,
        dialect: StompDialect = PLAIN,
        *,
        isMessages: bool = False,
    ) -> None:
        """
        @param windows: counts what is not acknowledged with that of all connections.
        @param isMessages: whether the frames in L{output} may not be joined before.
        """
        self._isMessages = isMessages
        self.output: list[bytes] = []
        self.effects: list[Effect] = []
        self._settings = settings
        self._dialect = dialect
        self._byKey: dict[tuple[str, str], StompSubscription] = {}
        self._byNumber: dict[int, StompSubscription] = {}
        self._count = 0
        self._filterBytes = 0
        self._unacknowledged = windows
        self._account = UnacknowledgedBytes(settings.maxUnacknowledgedBytes, self._unacknowledged)
        # Those that may send now what they could not before.
        self._due: dict[int, StompSubscription] = {}
        self._isStalled = False
        self.starting: deque[tuple[float, int]] = deque()

    def add(
        self, key: tuple[str, str], mode: AckMode, prefetch: int, filterBytes: int
    ) -> StompSubscription:
        """
        A new subscription, which has not begun.

        @raise SubscriptionExists: there is one that the client calls the same.
        @raise Overloaded: there are too many.
        """
        if key in self._byKey:
            raise SubscriptionExists("the connection has a subscription of this id")
        if len(self._byKey) >= self._settings.maxSubscriptions:
            raise Overloaded(
                f"a connection has at most {self._settings.maxSubscriptions} subscriptions"
            )
        most = self._settings.maxFilterBytes
        if self._filterBytes + filterBytes > most:
            raise Overloaded(f"the destinations of a connection have at most {most} bytes")
        self._filterBytes += filterBytes
        window = None if mode is AckMode.AUTO else AckWindow(mode, prefetch, self._account)
        self._count += 1
        added = StompSubscription(self._count, key, window, filterBytes)
        self._byKey[key] = self._byNumber[added.number] = added
        return added

    def close(self) -> None:
        """The connection is closed."""
        self._unacknowledged.close()

    def made(self, number: int, subscription: ISubscription) -> None:
        """The broker has made a subscription."""
        made = self._byNumber[number]
        made.mayRead = subscription.mayRead
        made.subscriptionId = id = subscription.subscriptionId
        messageId = self._dialect.messageId(number, made.id, self.version)
        made.heads = MessageHeads(number, made.id, id, self.version, messageId)

    def begin(self, number: int, now: float) -> None:
        """
        Everything is said that comes before the first message, which may be sent now, or a while
        later where the dialect has it so.
        """
        if self._dialect.beginDelay:
            self.starting.append((now + self._dialect.beginDelay, number))
        else:
            self._begin(number)

    def beginDue(self, now: float) -> None:
        """Let those begin whose time has come. Called at the latest when the first is due."""
        while self.starting and self.starting[0][0] <= now:
            self._begin(self.starting.popleft()[1])

    def _begin(self, number: int) -> None:
        subscription = self._byNumber.get(number)
        if subscription is not None:
            subscription.hasBegun = True
            self._due[number] = subscription

    def abandon(self, number: int) -> None:
        """The broker has refused to make a subscription."""
        self._remove(self._byNumber[number])

    def end(self, key: tuple[str, str], named: str | None) -> int:
        """
        End a subscription.

        @param named: the UUID that the client gives it; C{None} for none.
        @return: its number.
        @raise ParameterInvalid: there is none that the client calls so, or it has another UUID.
        """
        ended = self._byKey.get(key)
        if ended is None:
            raise ParameterInvalid("the connection has no such subscription")
        if named is not None and named.lower() != ended.subscriptionId:
            raise ParameterInvalid("svc-subscriptionId is not this subscription's")
        self._remove(ended)
        return ended.number

    def _remove(self, removed: StompSubscription) -> None:
        del self._byKey[removed.key]
        del self._byNumber[removed.number]
        self._filterBytes -= removed.filterBytes
        self._due.pop(removed.number, None)
        if removed.window is not None:
            wasFull = self._account.isFull
            removed.window.clear()
            self._roomMade(wasFull)

    def deliver(self, number: int, batch: Batch) -> None:
        """The broker hands over a subscription's next events."""
        subscription = self._byNumber.get(number)
        if subscription is None or subscription.heads is None:
            return
        encoded = encodedEvents(batch, self.version, self._dialect.encodeEvent)
        if subscription.window is None:
            if self._isMessages:
                self.output += subscription.heads.each(encoded)
            else:
                self.output.append(subscription.heads.messages(encoded))
            return
        subscription.window.add(
            Waiting(event, each, False) for event, each in zip(batch.events, encoded, strict=True)
        )
        self._due[number] = subscription

    def checkAcknowledgement(self, acknowledgement: Acknowledgement) -> None:
        """
        @raise ParameterInvalid: it is for no subscription that there ever was.
        """
        if not 1 <= acknowledgement.number <= self._count:
            raise ParameterInvalid("no message of this connection is named so")

    def settle(self, acknowledgement: Acknowledgement) -> None:
        """
        Carry out an ACK or NACK. One that comes too late, after its message was settled or its
        subscription has ended, changes nothing: client and broker may well have crossed.
        """
        subscription = self._byNumber.get(acknowledgement.number)
        if subscription is None or subscription.window is None:
            return
        window, wasFull = subscription.window, self._account.isFull
        events = window.take(acknowledgement.eventId)
        if not events:
            return
        if acknowledgement.isGood:
            self.effects.append(Acknowledge(subscription.number, events))
        else:
            window.again(Waiting(event, None, True) for event in events)
        self._due[subscription.number] = subscription
        self._roomMade(wasFull)

    def stall(self, isStalled: bool) -> None:
        """
        The client has stopped to read what it is sent, or goes on.
        """
        self._isStalled = isStalled
        self._due.update(self._byNumber)

    def flow(self) -> bool:
        """
        Send what may be sent, and tell the broker of whom it may hand over more. Called once
        after everything that arrived together.

        @return: whether there is more to send, which would take too long now.
        """
        if not self._byNumber:
            return False
        due, self._due = self._due, {}
        left = MESSAGES_AT_ONCE
        for subscription in due.values():
            window = subscription.window
            if window is not None and not self._isStalled and subscription.hasBegun:
                left -= self._send(subscription, window, left)
                if not window.isIdle and window.isOpen:
                    self._due[subscription.number] = subscription
            wantsFlow = not self._isStalled and subscription.takesMore
            if wantsFlow is not subscription.isFlowing:
                subscription.isFlowing = wantsFlow
                change = Resume if wantsFlow else Pause
                self.effects.append(change(subscription.number))
        if self._account.isFull:
            self._pauseAll()
        return bool(self._due)

    def _send(self, subscription: StompSubscription, window: AckWindow, limit: int) -> int:
        """Send what a subscription may send, and tell how many events that were."""
        heads, version, encode = subscription.heads, self.version, self._dialect.encodeEvent
        assert heads is not None
        sent, dropped = window.send(subscription.mayRead, limit)
        self.output.extend(
            heads.message(encoded or encode(event, version), isRedelivered)
            for event, encoded, isRedelivered in sent
        )
        if dropped:
            self.effects.append(Acknowledge(subscription.number, dropped))
        return len(sent) + len(dropped)

    def _roomMade(self, wasFull: bool) -> None:
        if wasFull and not self._account.isFull:
            # Subscriptions that waited for room may go on.
            self._due.update(self._byNumber)

    def _pauseAll(self) -> None:
        for subscription in self._byNumber.values():
            if subscription.isFlowing and subscription.window is not None:
                subscription.isFlowing = False
                self.effects.append(Pause(subscription.number))
