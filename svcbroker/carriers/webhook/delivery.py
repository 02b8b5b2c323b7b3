"""
The delivery of one webhook: events are sent one after the other, or some at a time, until each is
acknowledged, skipped or a dead letter.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ...errors import BrokerError, EventNotFound
from ...interfaces import Batch, ISubscriber, ISubscription
from ...model import EventId, Position, SubscribeRequest
from ...net.deferreds import asDeferred
from .messages import NotAcknowledged
from .posting import Receiver
from .sending import MAX_BATCH, DeliveryContext, IDeliveryOwner, Sender


@implementer(ISubscriber)
class Delivery:
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
        receiver: Receiver,
        context: DeliveryContext,
        owner: IDeliveryOwner,
    ) -> None:
        """
        @param request: what is subscribed to, with an id.
        """
        assert request.subscriptionId is not None
        self._id = request.subscriptionId
        self._request = request
        self._lane = receiver.target.authority
        self._context = context
        self._owner = owner
        self.sender = Sender(self._id, receiver, context, owner)
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
        self._wake = wake = Deferred[None]()
        call = clock.callLater(delay, self.retry)
        try:
            await wake
        finally:
            self._wake = None
            if call.active():
                call.cancel()
