"""
The delivery of one webhook: events are sent one after the other until each is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import evolve, frozen
from twisted.internet.defer import CancelledError, Deferred, TimeoutError, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from ...errors import BrokerError
from ...interfaces import Batch, ISubscriber, ISubscription
from ...model import Position, SubscribeRequest
from ...net.deferreds import asDeferred
from ...net.slots import Slots
from .messages import NotAcknowledged, encodeBody, encodeEvents
from .posting import IPoster, Receiver
from .settings import WebhookSettings
from .targets import Target


@frozen(kw_only=True)
class DeliveryContext:
    """
    The dependencies of all deliveries.

    @ivar clock: measures time.
    @ivar random: gives a number of [0, 1).
    @ivar poster: sends events.
    @ivar slots: bounds how many are sent at the same time.
    """

    clock: IReactorTime
    random: Callable[[], float]
    poster: IPoster
    slots: Slots
    settings: WebhookSettings


@implementer(ISubscriber)
class Delivery:
    """
    Sends one subscription's events.

    It keeps events in memory only while it has a slot to send them, and reads them from the log
    again for the next attempt: thousands of receivers that do not answer cost next to nothing.
    """

    _log = Logger()

    def __init__(
        self,
        request: SubscribeRequest,
        target: Target,
        context: DeliveryContext,
        subscribe: Callable[[SubscribeRequest, ISubscriber], Deferred[ISubscription]],
    ) -> None:
        """
        @param request: what is subscribed to, with an id.
        @param subscribe: makes the subscription, the first time and whenever the broker ended it.
        """
        assert request.subscriptionId is not None
        self._id = request.subscriptionId
        self._request = request
        self._receiver = Receiver(
            target=target, interfaceType=request.interfaceType, subscriptionId=self._id
        )
        self._lane = target.authority
        self._context = context
        self._subscribe = subscribe
        self._subscription: ISubscription | None = None
        self._ended: BrokerError | None = None
        self._wanted: Deferred[Batch] | None = None
        self._running: Deferred[None] | None = None
        self._failures = 0
        self._isPosting = False
        self._isStopping = False

    # Called by the subscription.

    def deliver(self, batch: Batch) -> None:
        """See L{ISubscriber.deliver}."""
        assert self._subscription is not None
        self._subscription.pause()
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted.callback(batch)

    def subscriptionEnded(self, error: BrokerError) -> None:
        """See L{ISubscriber.subscriptionEnded}."""
        self._ended = error
        wanted, self._wanted = self._wanted, None
        if wanted is not None:
            wanted.errback(error)

    # Called by Webhooks.

    @asDeferred
    async def attach(self) -> Position:
        """
        Subscribe, and send nothing yet.

        @return: where the subscription stands.
        @raise BrokerError: the subscription is refused. Nothing is left behind.
        """
        self._ended = None
        self._subscription = subscription = await self._subscribe(self._request, self)
        # Its topics may be closed from now on. What was published before is still to be sent.
        self._request = evolve(self._request, mustExist=False, isResumed=True)
        return subscription.position

    def run(self) -> None:
        """
        Send events. Called once. Where there is no subscription, subscribing is tried until it
        succeeds.
        """
        if not self._isStopping:
            self._running = self._run()
            self._running.addErrback(self._halted)

    def stop(self) -> Deferred[None]:
        """
        Send nothing more, and wait for the answer to the request under way.

        @return: fires when there is none. Cancelling cancels that request.
        """
        self._isStopping = True
        if self._running is None:
            return succeed(None)
        done: Deferred[None] = Deferred(lambda _: self._abandon())

        def ended(_: None) -> None:
            if not done.called:
                done.callback(None)

        self._running.addCallback(ended)
        if not self._isPosting:
            self._abandon()
        return done

    def close(self, *, forget: bool) -> None:
        """
        Send nothing more, and end the subscription.

        @param forget: whether its position is forgotten.
        """
        self._isStopping = True
        self._abandon()
        if self._subscription is not None:
            self._subscription.close(forget=forget)

    def _abandon(self) -> None:
        if self._running is not None:
            self._running.cancel()

    def _halted(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self._log.failure("Webhook {id} halted", failure, id=self._id)

    # The loop.

    @asDeferred
    async def _run(self) -> None:
        while not self._isStopping:
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
                await self._pauseAfterFailure(0)

    async def _serve(self, subscription: ISubscription) -> None:
        """Send events as they come. Raises the error that the subscription ended with."""
        while not self._isStopping:
            batch: Batch | None = await self._next(subscription)
            isDone = False
            while not (isDone or self._isStopping):
                if not self._context.slots.take(self._lane):
                    batch = None
                    await self._context.slots.wait(self._lane)
                wait: float | None = None
                try:
                    isDone = await self._takeTurn(subscription, batch)
                except NotAcknowledged as error:
                    # Not kept: its traceback holds the events.
                    self._tellFailure(error)
                    wait = error.retryAfter
                finally:
                    self._context.slots.release(self._lane)
                batch = None
                if wait is not None and not self._isStopping:
                    await self._pauseAfterFailure(wait)

    async def _takeTurn(self, subscription: ISubscription, batch: Batch | None) -> bool:
        """
        Send while there is a slot.

        @param batch: the events to send; C{None} reads them again.
        @return: whether all are sent. Otherwise another delivery waits for the slot.
        @raise NotAcknowledged: an event was not acknowledged.
        @raise BrokerError: the broker has ended the subscription.
        """
        slots, clock = self._context.slots, self._context.clock
        if batch is None:
            subscription.rewind()
            # A log that cannot be read now must not hold the slot.
            reading = self._next(subscription)
            reading.addTimeout(self._context.settings.timeout, clock)
            try:
                batch = await reading
            except TimeoutError:
                subscription.pause()
                raise NotAcknowledged("the log could not be read in time") from None
        until = clock.seconds() + self._context.settings.turn
        texts: Iterable[bytes]
        if self._failures:
            # The receiver may refuse the first one again.
            texts = (encodeEvents((event,))[0] for event in batch.events)
        else:
            texts = batch.encoded("webhook", encodeEvents)
        for number, (event, text) in enumerate(zip(batch.events, texts, strict=True)):
            isOver = clock.seconds() >= until and slots.isWanted(self._lane)
            if self._isStopping or (number and isOver):
                return False
            if self._ended is not None:
                raise self._ended
            if not subscription.mayRead(event):
                # Grants have changed since it was read.
                subscription.acknowledge((event,))
                continue
            self._isPosting = True
            try:
                body = encodeBody(self._request.interfaceType, self._id, event, text)
                await self._context.poster.post(self._receiver, (event,), body)
            finally:
                self._isPosting = False
            subscription.acknowledge((event,))
            self._tellSuccess()
        return True

    def _next(self, subscription: ISubscription) -> Deferred[Batch]:
        """
        The next events, as soon as there are some.

        @raise BrokerError: the broker has ended the subscription.
        """
        wanted: Deferred[Batch] = Deferred(lambda _: self._wantNothing())
        if self._ended is not None:
            wanted.errback(self._ended)
        else:
            self._wanted = wanted
            subscription.resume()
        return wanted

    def _wantNothing(self) -> None:
        self._wanted = None

    def _pauseAfterFailure(self, retryAfter: float) -> Deferred[None]:
        self._failures += 1
        settings = self._context.settings
        delay = settings.delay(self._failures, retryAfter, self._context.random)
        return deferLater(self._context.clock, delay)

    def _tellFailure(self, error: NotAcknowledged) -> None:
        # Once an outage, and without the path, which may hold a secret.
        if not self._failures and not self._isStopping:
            self._log.warn(
                "Webhook {id} at {target} does not take its events, and will be tried again: "
                "{reason}",
                id=self._id,
                target=self._lane,
                reason=str(error),
            )

    def _tellSuccess(self) -> None:
        if self._failures:
            self._log.info(
                "Webhook {id} at {target} takes its events again",
                id=self._id,
                target=self._lane,
            )
            self._failures = 0
