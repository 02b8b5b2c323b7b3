"""
What a delivery does while it has a slot: it sends the events in hand, one or some at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final, Protocol

from attrs import define, field, frozen
from msgspec.structs import replace
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from ...errors import BrokerError
from ...interfaces import Batch, ISubscriber, ISubscription
from ...model import Event, EventId, Position, SubscribeRequest
from ...net.turns import Slots
from .messages import NotAcknowledged, Payload
from .posting import IPoster, Receiver
from .records import WebhookRecord
from .settings import WebhookSettings

MAX_BATCH: Final = 1024 * 1024
"""How large the body of a batch becomes, but for its last event, in bytes."""


class IDeliveryOwner(Protocol):
    """
    What a delivery needs of its webhook.

    @ivar record: the webhook as it is kept.
    """

    record: WebhookRecord

    def subscribe(
        self, request: SubscribeRequest, subscriber: ISubscriber
    ) -> Deferred[ISubscription]:
        """Make the subscription. Called at first, and whenever the broker has ended it."""

    def keepFailed(self, position: Position, count: int) -> None:
        """Keep how often the first event that waits has failed."""

    def publishDeadLetter(self, event: Event, attempts: int, reason: str) -> Deferred[None]:
        """
        Publish the dead letter of an event, if it has one.

        @return: fires when it is in the log.
        @raise BrokerError: it cannot be published now.
        """


@frozen
class WaitingEvent:
    """
    The oldest event that waits.

    @ivar event: the event, without its content and extensions.
    @ivar timestamp: the time of its block, in milliseconds since the epoch.
    """

    event: Event
    timestamp: int


@define
class RequestCounts:
    """
    How many requests were made, by what became of them.

    @ivar acknowledged: the receiver has acknowledged the events.
    @ivar failed: it has not, and the events are sent again.
    @ivar unsent: the broker could not make the request: no attempt was made.
    @ivar givenUp: how many events were given up after their last attempt.
    """

    acknowledged: int = 0
    failed: int = 0
    unsent: int = 0
    givenUp: int = 0


@frozen(kw_only=True)
class DeliveryContext:
    """
    The dependencies of all deliveries.

    @ivar clock: measures time.
    @ivar now: the wall clock: seconds since the epoch.
    @ivar random: gives a number of [0, 1).
    @ivar poster: sends events.
    @ivar slots: bounds how many are sent at the same time.
    @ivar counts: counts the requests of all deliveries.
    """

    clock: IReactorTime
    now: Callable[[], float]
    random: Callable[[], float]
    poster: IPoster
    slots: Slots
    settings: WebhookSettings
    counts: RequestCounts = field(factory=RequestCounts)


class Sender:
    """
    Sends the events of one webhook, in order. Its methods are called by the delivery alone.

    A batch that fails is sent again as half of it, down to a single event, so the event that a
    receiver refuses is found, and those before it arrive. Each success doubles it again.

    @ivar isStopping: whether no further request is made.
    @ivar ended: the error that the subscription has ended with.
    @ivar skipped: an event that is acknowledged when it comes, and not sent.
    @ivar sending: the events of the request under way.
    @ivar limit: the most events in the next request.
    @ivar size: how many events are to be read again for it.
    @ivar failures: how many requests have failed since the last success.
    @ivar lastError: why the last request failed; empty where none has since the start.
    @ivar lastErrorAt: when that was, in milliseconds since the epoch.
    """

    _log = Logger()

    def __init__(
        self,
        subscriptionId: str,
        receiver: Receiver,
        context: DeliveryContext,
        owner: IDeliveryOwner,
    ) -> None:
        self._id = subscriptionId
        self._receiver = receiver
        self._lane = receiver.target.authority
        self._context = context
        self._owner = owner
        self._hand: Sequence[Batch] = ()
        self._first: WaitingEvent | None = None
        self._reason = "it has failed before the broker was started"
        self.isStopping = False
        self.ended: BrokerError | None = None
        self.skipped: EventId | None = None
        self.sending: Sequence[Event] = ()
        self._maxBatch = self.limit = max(1, owner.record.batch)
        self.size = 1
        self.failures = 0
        self.lastError = ""
        self.lastErrorAt = 0

    @property
    def oldest(self) -> WaitingEvent | None:
        """The oldest event that waits; C{None} where there is none, or none was read so far."""
        if self.sending:
            return self._waiting(self.sending[0])
        return self._first

    def forgetOldest(self) -> None:
        """The oldest event was acknowledged."""
        self._first = None

    def putBack(self, hand: Sequence[Batch]) -> Sequence[Batch]:
        """Let go of events that will be read again: what is in hand then."""
        if hand:
            self._hand = hand
            self._first = self._waiting(hand[0].events[0])
            self._hand = ()
        return ()

    async def takeTurn(self, subscription: ISubscription, hand: Sequence[Batch]) -> bool:
        """
        Send while there is a slot.

        @param hand: the events to send.
        @return: whether all are sent. Otherwise another delivery waits for the slot, or this one
            is paused.
        @raise NotAcknowledged: an event was not acknowledged.
        @raise BrokerError: the broker has ended the subscription.
        """
        self._hand = hand
        try:
            return await self._sendAll(subscription, hand)
        finally:
            self._hand = ()

    async def _sendAll(self, subscription: ISubscription, hand: Sequence[Batch]) -> bool:
        slots, clock, record = self._context.slots, self._context.clock, self._owner.record
        self._first = None
        until = clock.seconds() + self._context.settings.turn
        encoded = self._encode(hand)
        isFirst = True
        while True:
            events, payloads = self._nextRequest(subscription, encoded)
            if not events:
                return True
            isOver = not isFirst and clock.seconds() >= until and slots.isWanted(self._lane)
            if isOver or self.isStopping or self._owner.record.isPaused:
                self._first = self._waiting(events[0])
                self.size = 1
                return False
            isFirst = False
            if record.maxAttempts and self._attempts(events[0]) >= record.maxAttempts:
                # Its dead letter could not be published.
                await self._giveUp(subscription, events[0])
                events, payloads = events[1:], payloads[1:]
            if events:
                await self._send(subscription, events, payloads)

    def _encode(self, hand: Sequence[Batch]) -> Iterator[tuple[Event, Payload]]:
        """The events in hand with their payloads."""
        if self.failures:
            # The receiver may refuse the first one again.
            hand = [Batch((event,), batch.timestamp) for batch in hand for event in batch.events]
        encode = self._receiver.form.encode
        return chain.from_iterable(zip(batch.events, encode(batch), strict=True) for batch in hand)

    def _nextRequest(
        self, subscription: ISubscription, encoded: Iterator[tuple[Event, Payload]]
    ) -> tuple[list[Event], list[Payload]]:
        """
        The events of the next request, each with its payload; empty where none is left.

        @raise BrokerError: the broker has ended the subscription.
        """
        events: list[Event] = []
        payloads: list[Payload] = []
        size = 0
        for event, payload in encoded:
            if self.ended is not None:
                raise self.ended
            if event.eventId == self.skipped or not subscription.mayRead(event):
                # It is skipped, or grants have changed since it was read.
                subscription.acknowledge((event,))
                continue
            events.append(event)
            payloads.append(payload)
            size += len(payload.body)
            if len(events) >= self.limit or size >= MAX_BATCH:
                break
        return events, payloads

    async def _send(
        self, subscription: ISubscription, events: Sequence[Event], payloads: Sequence[Payload]
    ) -> None:
        """
        Make one request.

        @raise NotAcknowledged: it is to be made again.
        """
        payload = self._receiver.form.join(payloads)
        self.sending = events
        try:
            await self._context.poster.post(self._receiver, events, payload)
        except NotAcknowledged as error:
            counts = self._context.counts
            if error.isAttempt:
                counts.failed += 1
            else:
                counts.unsent += 1
            if not await self._isDoneWith(subscription, events, error):
                raise
            # No delay follows, after which it would be counted.
            self.failures += 1
        else:
            self._context.counts.acknowledged += 1
            subscription.acknowledge(events)
            self._tellSuccess()
        finally:
            self.sending = ()

    async def _isDoneWith(
        self, subscription: ISubscription, events: Sequence[Event], error: NotAcknowledged
    ) -> bool:
        """Whether events that were not acknowledged are not to be sent again nevertheless."""
        event, record = events[0], self._owner.record
        self._first = self._waiting(event)
        if self.isStopping:
            # The webhook may be gone: nothing of it is kept.
            return False
        self.size = (len(events) + 1) // 2
        if len(events) > 1:
            self.limit = self.size
            return False
        if event.eventId == self.skipped:
            subscription.acknowledge(events)
            self._first = None
            return True
        if not record.maxAttempts or not error.isAttempt:
            return False
        attempts = self._attempts(event) + 1
        self._reason = str(error)
        self._owner.keepFailed(event.position, attempts)
        if attempts < record.maxAttempts:
            return False
        await self._giveUp(subscription, event)
        return True

    def _attempts(self, event: Event) -> int:
        """How often an event was tried alone."""
        failed = self._owner.record.failed
        return failed[2] if failed is not None and failed[:2] == event.position else 0

    async def _giveUp(self, subscription: ISubscription, event: Event) -> None:
        """
        Publish the dead letter of an event, and go on.

        @raise NotAcknowledged: it cannot be published now.
        """
        attempts = self._attempts(event)
        self._first = self._waiting(event)
        self.size = 1
        try:
            await self._owner.publishDeadLetter(event, attempts, self._reason)
        except BrokerError as error:
            raise NotAcknowledged(
                f"its dead letter cannot be published: {error.message}", isAttempt=False
            ) from None
        self._context.counts.givenUp += 1
        subscription.acknowledge((event,))
        self._first = None
        self.note(self._reason)
        self._log.warn(
            "Webhook {id} at {target} has given up event {event} after {attempts} attempts: "
            "{reason}",
            id=self._id,
            target=self._lane,
            event=str(event.eventId),
            attempts=attempts,
            reason=self._reason,
        )

    def _waiting(self, event: Event) -> WaitingEvent:
        """An event in hand as it is kept without being in hand."""
        height = event.eventId.height
        batch = next(each for each in self._hand if each.events[0].eventId.height == height)
        return WaitingEvent(replace(event, content=b"", extensions={}), batch.timestamp)

    def note(self, reason: str) -> None:
        """Remember an error."""
        self.lastError = reason
        self.lastErrorAt = int(self._context.now() * 1000)

    def tellFailure(self, error: NotAcknowledged) -> None:
        """Remember why a request failed, and log the first failure."""
        if self.isStopping:
            return
        self.note(str(error))
        # Once an outage, and without the path, which may hold a secret.
        if not self.failures:
            self._log.warn(
                "Webhook {id} at {target} does not take its events, and will be tried again: "
                "{reason}",
                id=self._id,
                target=self._lane,
                reason=str(error),
            )

    def _tellSuccess(self) -> None:
        if self.limit < self._maxBatch:
            self.limit = min(self._maxBatch, self.limit * 2)
        if self.failures:
            self._log.info(
                "Webhook {id} at {target} takes its events again",
                id=self._id,
                target=self._lane,
            )
            self.failures = 0
