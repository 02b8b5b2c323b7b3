"""
Webhooks as they are kept in the metadata store, and the delivery of one: events are sent one after
the other, or some at a time, until each is acknowledged, skipped or a dead letter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, Protocol

import msgspec
from attrs import define, evolve, field, frozen
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ...errors import BrokerError, EventNotFound, Overloaded
from ...interfaces import Batch, ISubscriber, ISubscription
from ...model import (
    Event,
    EventFormat,
    EventId,
    InterfaceType,
    Offset,
    Position,
    SubscribeRequest,
    WebhookAnswer,
)
from ...net.deferreds import asDeferred
from ...net.turns import Slots
from ...operations import sourceOf
from .posting import (
    IPoster,
    NotAcknowledged,
    Payload,
    RequestForm,
    WebhookReceiver,
    WebhookSettings,
    WebhookTarget,
)

KIND: Final = "webhook"
"""The kind of these entries in the metadata store."""
DEAD_LETTERS: Final = "$svc/dead/"
"""The beginning of the topic of a webhook's dead letters where it names none; its id follows."""


class WebhookRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    A webhook in the metadata store. Fields with defaults are absent where an earlier release has
    written it.

    @ivar start: where it began: the height of a block, and the index of a transaction.
    @ivar account: the name of the account that made it; empty where there were no credentials.
    @ivar headers: more headers of each request. They may hold secrets.
    @ivar secret: the name of the secret that signs; empty for the shared ones.
    @ivar certificate: the name of the certificate that is shown; empty for none.
    @ivar batch: the most events in a request; 0 sends one, and not in an array.
    @ivar batchSeconds: how long the first event of a batch waits for others.
    @ivar maxAttempts: how often an event is tried; 0 has no end.
    @ivar deadLetter: the topic of its dead letters; empty for its own below L{DEAD_LETTERS}.
    @ivar format: how its events are written.
    @ivar hasTombstones: whether erased events are sent too.
    @ivar isPaused: whether nothing is sent for now.
    @ivar failed: the event that has failed, by the height of its block and the index of its
        transaction, and how often. It means nothing once that event is acknowledged.
    """

    interfaceType: InterfaceType
    group: str
    filters: tuple[str, ...]
    tag: str | None
    url: str
    start: tuple[int, int]
    account: str = ""
    headers: Mapping[str, str] = {}
    secret: str = ""
    certificate: str = ""
    batch: int = 0
    batchSeconds: int = 0
    maxAttempts: int = 0
    deadLetter: str = ""
    format: EventFormat = EventFormat.SVC
    hasTombstones: bool = False
    isPaused: bool = False
    failed: tuple[int, int, int] | None = None

    def __repr__(self) -> str:
        return f"<WebhookRecord in group {self.group}>"

    def isSameAs(self, other: WebhookRecord) -> bool:
        """Whether the same was asked for: its state and where it began do not count."""
        return self._asked() == other._asked()

    def _asked(self) -> WebhookRecord:
        return replace(self, start=(0, 0), isPaused=False, failed=None)

    def request(
        self, subscriptionId: str, target: WebhookTarget, offset: Offset, *, mustExist: bool
    ) -> SubscribeRequest:
        """The request to the subscription core."""
        return SubscribeRequest(
            interfaceType=self.interfaceType,
            kind=KIND,
            group=self.group,
            filters=self.filters,
            offset=offset,
            tag=self.tag,
            subscriptionId=subscriptionId,
            remote=target.authority,
            mustExist=mustExist,
            isResumed=not mustExist,
            isDurable=True,
            isAcknowledged=True,
            hasTombstones=self.hasTombstones,
        )

    def receiver(self, subscriptionId: str, target: WebhookTarget, base: str) -> WebhookReceiver:
        """
        The receiver of its events, and how they are sent.

        @param base: the base path, with which the C{source} of CloudEvents begins.
        """
        form = RequestForm(
            interfaceType=self.interfaceType,
            subscriptionId=subscriptionId,
            format=self.format,
            source=sourceOf(base, self.group),
            isBatch=self.batch > 0,
        )
        return WebhookReceiver(
            target=target,
            form=form,
            secret=self.secret,
            certificate=self.certificate,
            headers=self.headers,
            group=self.group,
        )

    def deadLetterTopic(self, subscriptionId: str) -> str:
        """The topic of its dead letters."""
        return self.deadLetter or DEAD_LETTERS + subscriptionId


_decoder = msgspec.json.Decoder(WebhookRecord)


def decodeRecord(value: bytes) -> WebhookRecord:
    """
    Read an entry of the metadata store.

    @raise msgspec.MsgspecError: it is none.
    """
    return _decoder.decode(value)


def webhookGroup(kind: str, name: str, value: bytes) -> str:
    """See L{GroupOf<svcbroker.broker.GroupOf>}."""
    return decodeRecord(value).group


MAX_BATCH: Final = 1024 * 1024
"""The largest body of a batch, but for its last event, in bytes."""
MAX_ANSWERS: Final = 5
"""The number of requests of a webhook whose answers are kept."""


class IDeliveryOwner(Protocol):
    """
    The part of a webhook that its delivery needs.

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
    The numbers of requests that were made, by their outcomes.

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


class WebhookSender:
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
    @ivar answers: what came of the last requests.
    @ivar nextAttemptAt: when a request that has failed is made again, in milliseconds since the
        epoch; C{None} where none is waited for.
    """

    _log = Logger()

    def __init__(
        self,
        subscriptionId: str,
        receiver: WebhookReceiver,
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
        self.answers: deque[WebhookAnswer] = deque(maxlen=MAX_ANSWERS)
        self.nextAttemptAt: int | None = None

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
        """Drop events that will be read again, and return those that stay in hand: none."""
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
        self.sending = events
        try:
            await self._post(events, payloads)
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

    async def sendAgain(self, batch: Batch) -> bool:
        """
        Send a dead letter's event once more, whatever is under way.

        @return: whether it was acknowledged.
        @raise Overloaded: as many requests as may be are under way.
        """
        context = self._context
        if not context.slots.take(self._lane):
            raise Overloaded("too many requests to webhooks are under way: ask again later")
        try:
            await self._post(batch.events, [*self._receiver.form.encode(batch)])
        except NotAcknowledged:
            context.counts.failed += 1
            return False
        finally:
            context.slots.release(self._lane)
        context.counts.acknowledged += 1
        return True

    async def _post(self, events: Sequence[Event], payloads: Sequence[Payload]) -> None:
        """
        Make a request, and remember what came of it.

        @raise NotAcknowledged: the events were not acknowledged.
        """
        context, error = self._context, ""
        begun = context.clock.seconds()
        try:
            payload = self._receiver.form.join(payloads)
            await context.poster.post(self._receiver, events, payload)
        except NotAcknowledged as refused:
            error = str(refused)
            raise
        finally:
            seconds = context.clock.seconds() - begun
            self.answers.append(WebhookAnswer(int(context.now() * 1000), error, seconds))

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
        """The number of times an event was tried alone."""
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


@implementer(ISubscriber)
class WebhookDelivery:
    """
    Sends one subscription's events.

    It keeps events in memory only while it has a slot to send them, and reads them from the log
    again for the next attempt: thousands of receivers that do not answer cost next to nothing.

    @ivar sender: sends them during a turn, and knows what waits and what has failed.
    """

    _log = Logger()

    def __init__(
        self,
        request: SubscribeRequest,
        receiver: WebhookReceiver,
        context: DeliveryContext,
        owner: IDeliveryOwner,
    ) -> None:
        """
        @param request: the subscription, with an id.
        """
        assert request.subscriptionId is not None
        self._id = request.subscriptionId
        self._request = request
        self._lane = receiver.target.authority
        self._context = context
        self._owner = owner
        self.sender = WebhookSender(self._id, receiver, context, owner)
        self._subscription: ISubscription | None = None
        self._wanted: Deferred[Batch] | None = None
        self._running: Deferred[None] | None = None
        self._isInTurn = False
        # Whether what waits has changed, so that it is read anew.
        self._hasSkipped = False
        # The events that have come while a batch waits for more, and what fires when it is full.
        self._counted = 0
        self._full: Deferred[None] | None = None
        # Fire when it is time to try again, and at the end of a pause.
        self._wake: Deferred[None] | None = None
        self._resumed: Deferred[None] | None = None

    # Called by the subscription.

    def deliver(self, batch: Batch) -> None:
        """See L{ISubscriber.deliver}."""
        assert self._subscription is not None
        if self._full is not None:
            self._counted += len(batch.events)
            if self._counted < self.sender.limit:
                return
            full, self._full = self._full, None
            self._subscription.pause()
            full.callback(None)
            return
        self._subscription.pause()
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted.callback(batch)

    def subscriptionEnded(self, error: BrokerError) -> None:
        """See L{ISubscriber.subscriptionEnded}."""
        self.sender.ended = error
        waiters: tuple[Deferred[Batch] | Deferred[None] | None, ...] = (self._wanted, self._full)
        self._wanted = self._full = None
        for waiter in waiters:
            if waiter is not None:
                waiter.errback(error)

    # Called by Webhooks.

    @asDeferred
    async def attach(self) -> Position:
        """
        Subscribe, and send nothing yet.

        @return: where the subscription stands.
        @raise BrokerError: the subscription is refused. Nothing is left behind.
        """
        self.sender.ended = None
        self._subscription = subscription = await self._owner.subscribe(self._request, self)
        # Its topics may be closed from now on. What was published before is still to be sent.
        self._request = evolve(self._request, mustExist=False, isResumed=True)
        return subscription.position

    def run(self) -> None:
        """
        Send events. Called once. Where there is no subscription, subscribing is tried until it
        succeeds.
        """
        if not self.sender.isStopping:
            self._running = self._run()
            self._running.addErrback(self._halted)

    def stop(self) -> Deferred[None]:
        """
        Send nothing more, and wait for the answer to the request under way.

        @return: fires when there is none. Cancelling cancels that request.
        """
        self.sender.isStopping = True
        if self._running is None:
            return succeed(None)
        done: Deferred[None] = Deferred(lambda _: self._abandon())

        def ended(_: None) -> None:
            if not done.called:
                done.callback(None)

        self._running.addCallback(ended)
        if not self.sender.sending:
            self._abandon()
        return done

    def close(self, *, forget: bool) -> None:
        """
        Send nothing more, and end the subscription.

        @param forget: whether its position is forgotten.
        """
        self.sender.isStopping = True
        self._abandon()
        if self._subscription is not None:
            self._subscription.close(forget=forget)

    def resume(self) -> None:
        """Look again whether it is paused, and do not wait for the next attempt."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            resumed.callback(None)
        self.retry()

    def retry(self) -> None:
        """Try again now where the next attempt is waited for."""
        wake, self._wake = self._wake, None
        if wake is not None:
            wake.callback(None)

    def skip(self, eventId: EventId) -> None:
        """
        Acknowledge the oldest event that waits, and go on. No further attempt is begun for it.

        @raise EventNotFound: this is not that event.
        """
        first = self.sender.oldest
        if first is None or first.event.eventId != eventId:
            raise EventNotFound("this is not the oldest event that waits")
        subscription = None if self.sender.ended is not None else self._subscription
        if self._isInTurn or subscription is None:
            self.sender.skipped = eventId
        else:
            subscription.acknowledge((first.event,))
            subscription.storePosition()
            self.sender.forgetOldest()
            self._hasSkipped = True
        # A paused one reads which event is the oldest now.
        self.resume()

    def _abandon(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def _halted(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("Webhook {id} halted", failure, id=self._id)

    # The loop.

    @asDeferred
    async def _run(self) -> None:
        while not self.sender.isStopping:
            try:
                if self._subscription is None:
                    await self.attach()
                if self._subscription is not None:
                    await self._serve(self._subscription)
            except BrokerError as error:
                self._subscription = None
                self._log.warn(
                    "Webhook {id} cannot read its events, and will try again: {reason}",
                    id=self._id,
                    reason=error.message,
                )
                self.sender.note(f"its events cannot be read: {error.message}")
                await self._waitAfterFailure(0)

    async def _serve(self, subscription: ISubscription) -> None:
        """Send events as they come. Raises the error that the subscription ended with."""
        sender, slots, lane = self.sender, self._context.slots, self._lane
        while not sender.isStopping:
            sender.size = 1
            hand: Sequence[Batch] = (await self._next(subscription),)
            if self._owner.record.batchSeconds and len(hand[0].events) < sender.limit:
                self._counted = len(hand[0].events)
                hand = sender.putBack(hand)
                await self._waitForMore(subscription)
            isDone = False
            while not (isDone or sender.isStopping):
                if self._hasSkipped:
                    self._hasSkipped = False
                    sender.putBack(hand)
                    subscription.rewind()
                    break
                if self._owner.record.isPaused:
                    hand = sender.putBack(hand)
                    self._resumed = Deferred()
                    await self._resumed
                    continue
                if not slots.take(lane):
                    hand = sender.putBack(hand)
                    await slots.wait(lane)
                wait: float | None = None
                self._isInTurn = True
                try:
                    if not self._hasSkipped:
                        hand = hand or await self._readAgain(subscription)
                        isDone = await sender.takeTurn(subscription, hand)
                except NotAcknowledged as error:
                    # Not kept: its traceback holds the events.
                    sender.tellFailure(error)
                    wait = error.retryAfter
                finally:
                    self._isInTurn = False
                    slots.release(lane)
                hand = ()
                if wait is not None and not sender.isStopping:
                    await self._waitAfterFailure(wait)

    async def _waitForMore(self, subscription: ISubscription) -> None:
        """
        Wait until a batch is full or has waited long enough. The events are only counted, so those
        of many webhooks take no memory meanwhile.
        """
        self._full = full = Deferred[None]()
        seconds = self._owner.record.batchSeconds
        full.addTimeout(seconds, self._context.clock, lambda result, timeout: None)
        subscription.resume()
        try:
            await full
        finally:
            self._full = None
            subscription.pause()
        self.sender.size = min(self._counted, self.sender.limit)

    async def _readAgain(self, subscription: ISubscription) -> Sequence[Batch]:
        """
        Read what was not acknowledged.

        @raise NotAcknowledged: a log that cannot be read now must not hold the slot.
        """
        subscription.rewind()
        hand: list[Batch] = []
        count = size = 0
        while count < self.sender.size and size < MAX_BATCH:
            reading = self._next(subscription)
            reading.addTimeout(self._context.settings.timeout, self._context.clock)
            try:
                batch = await reading
            except TimeoutError:
                subscription.pause()
                if hand:
                    # Fewer than there were: grants have changed.
                    break
                raise NotAcknowledged(
                    "the log could not be read in time", isAttempt=False
                ) from None
            hand.append(batch)
            count += len(batch.events)
            size += sum(len(event.content) for event in batch.events)
        return hand

    def _next(self, subscription: ISubscription) -> Deferred[Batch]:
        """
        The next events, as soon as there are some.

        @raise BrokerError: the broker has ended the subscription.
        """
        wanted: Deferred[Batch] = Deferred(lambda _: self._wantNothing())
        if self.sender.ended is not None:
            wanted.errback(self.sender.ended)
        else:
            self._wanted = wanted
            subscription.resume()
        return wanted

    def _wantNothing(self) -> None:
        self._wanted = None

    async def _waitAfterFailure(self, retryAfter: float) -> None:
        self.sender.failures += 1
        settings, clock = self._context.settings, self._context.clock
        delay = settings.delay(self.sender.failures, retryAfter, self._context.random)
        self.sender.nextAttemptAt = int((self._context.now() + delay) * 1000)
        self._wake = wake = Deferred[None]()
        call = clock.callLater(delay, self.retry)
        try:
            await wake
        finally:
            self._wake = self.sender.nextAttemptAt = None
            if call.active():
                call.cancel()
