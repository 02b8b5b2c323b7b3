"""
Readers of the embedded ledger: subscriptions, whose events are compared with the final ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from twisted.python.failure import Failure
from zope.interface import implementer

from svcbroker.access import ANYBODY
from svcbroker.broker.subscriptions import Subscriptions
from svcbroker.errors import BrokerError
from svcbroker.interfaces import Batch, ISubscriber, ISubscription
from svcbroker.model import Edge, InterfaceType, Offset, SubscribeRequest

if TYPE_CHECKING:
    from .embedded import Embedded

LONGEST_PAUSE = 0.5
"""The longest time for which a reader pauses, or does not, in seconds."""


@implementer(ISubscriber)
class LedgerReader:
    """
    Reads all events that match some filters, from the first on. It pauses at times and falls
    behind; when the process has ended, it subscribes again after the last event that it got.

    @ivar sequences: the sequence number of the last event of each topic.
    """

    def __init__(self, embedded: Embedded, filters: Sequence[str]) -> None:
        self.sequences: dict[str, int] = {}
        self._embedded = embedded
        self._filters = tuple(filters)
        self._offset: Offset = Edge.FIRST
        self._subscription: ISubscription | None = None
        self._isFlowing = self._isFinishing = False

    def hasRead(self, sequences: Mapping[str, int]) -> bool:
        """Whether it has got the events up to these, by topic."""
        return all(self.sequences.get(topic, 0) >= last for topic, last in sequences.items())

    def start(self, subscriptions: Subscriptions) -> None:
        """Subscribe with a process that has started."""
        request = SubscribeRequest(
            interfaceType=InterfaceType.RESTFUL,
            group="1",
            filters=self._filters,
            offset=self._offset,
            mustExist=False,
        )
        subscribing = subscriptions.subscribe(ANYBODY, request, self)
        subscribing.addCallbacks(self._subscribed, self._refused, callbackArgs=(subscriptions,))

    def _subscribed(self, subscription: ISubscription, subscriptions: Subscriptions) -> None:
        if subscriptions is self._embedded.subscriptions:
            self._subscription, self._isFlowing = subscription, True
            subscription.resume()

    def _refused(self, failure: Failure) -> None:
        failure.trap(BrokerError)

    def disconnect(self) -> None:
        """Forget the subscription: the process has ended."""
        self._subscription = None

    def toggle(self) -> None:
        """Pause or go on, again and again."""
        embedded = self._embedded
        if self._isFinishing:
            return
        embedded.clock.callLater(embedded.random.uniform(0.01, LONGEST_PAUSE), self.toggle)
        if self._subscription is not None:
            self._isFlowing = not self._isFlowing
            if self._isFlowing:
                self._subscription.resume()
            else:
                self._subscription.pause()

    def finish(self) -> None:
        """Take all that is left."""
        self._isFinishing = True
        if self._subscription is not None:
            self._subscription.resume()
        elif self._embedded.subscriptions is not None:
            self.start(self._embedded.subscriptions)

    def deliver(self, batch: Batch) -> None:
        """See L{ISubscriber}."""
        for event in batch.events:
            sequence = self.sequences.get(event.topic, 0)
            self._embedded.delivered(event, sequence + 1)
            self.sequences[event.topic] = sequence + 1
            self._offset = event.eventId

    def subscriptionEnded(self, error: BrokerError) -> None:
        """See L{ISubscriber}."""
        self._subscription = None
