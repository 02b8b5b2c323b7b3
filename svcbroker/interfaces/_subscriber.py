"""
The contract between the subscription core and those who carry events to subscribers.

A module of its own: the room has one module for each contract.
"""

# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from msgspec import Struct
from zope.interface import Attribute, Interface

from ..errors import BrokerError
from ..model import Event, Position, SubscribeRequest

T = TypeVar("T")


class Batch(Struct, frozen=True, eq=False):
    """
    Some events of one block, in order. All subscriptions with the same filters are given the
    same batch, so what one of them encodes serves all of them.

    @ivar events: the events; at least one.
    @ivar timestamp: the time of their block, in milliseconds since the epoch.
    """

    events: Sequence[Event]
    timestamp: int
    _encoded: dict[Hashable, object] = {}

    def encoded(self, key: Hashable, encode: Callable[..., T], *given: object) -> T:
        """
        A form of these events that is made once. Hot path: called for each subscriber.

        @param key: what names the form: the protocol and all that it depends on.
        @param encode: makes it of the events and of C{given}; called the first time only.
        """
        made = self._encoded.get(key)
        if made is None:
            made = self._encoded[key] = encode(self.events, *given)
        return made  # type: ignore[return-value]


class ISubscriber(Interface):
    """
    Somebody who takes the events of one subscription. Carriers implement it; the subscription
    core calls it in the reactor thread.
    """

    def deliver(batch: Batch) -> None:
        """
        Take the next events.

        Called only while the subscription flows, never from inside a call that the subscriber
        makes to the core, each matching event once, in the order of the log, without gap. A
        batch has at most 256 KiB of events or one event. A subscriber that cannot take more for
        now calls L{ISubscription.pause} before it returns: then this batch is the last one
        until L{ISubscription.resume}. Must not raise.
        """

    def subscriptionEnded(error: BrokerError) -> None:
        """
        The subscription has ended from the broker's side. Called at most once, and not after
        L{ISubscription.close}.
        """


class ISubscription(Interface):
    """
    One live subscription, as its carrier holds it. Made by C{Subscriptions.subscribe}; it is
    paused at first, so that the carrier can say what it has to say before the first event.
    """

    subscriptionId: str = Attribute("Its id: a UUID.")

    request: SubscribeRequest = Attribute("What was asked for.")

    position: Position = Attribute(
        "The place up to which everything was handed over, also what did not match."
    )

    def resume() -> None:
        """
        Let events flow. Resuming a flowing one changes nothing.
        """

    def pause() -> None:
        """
        Stop the flow of events for now. Costs no memory: the log has the events.
        """

    def acknowledge(events: Sequence[Event]) -> None:
        """
        The subscriber has got these events for good, in any order. Only where the request says
        that it acknowledges. A durable subscription resumes after the last event before which
        all were acknowledged, leaving out those acknowledged beyond it.
        """

    def mayRead(event: Event) -> bool:
        """
        Whether an event that was handed over may still be sent. Called before an event is sent that
        had to wait, or is sent again: grants may have changed, or the account may be gone.
        """

    def rewind() -> None:
        """
        Hand over again, in order, whatever was handed over and not acknowledged, before
        anything else.
        """

    def storePosition() -> None:
        """
        Give the position of a durable subscription to the metadata store at once, rather than some
        moments later: it reaches the disk together with the carrier's changes of this turn.
        """

    def isAcknowledged(position: Position) -> bool:
        """
        Whether an event was acknowledged before this subscription was opened, so that it will not
        be handed over.
        """

    def addFilter(filter: str) -> Position:
        """
        Add a filter. The position stays where it is: events before the place that is returned may
        be handed over as well where the filter matches them, and the carrier leaves them out.

        @return: the place after which the filter's events begin.
        @raise svcbroker.errors.BrokerError: as C{Subscriptions.subscribe} does for the filter.
        """

    def removeFilter(filter: str) -> None:
        """
        Remove one of several filters. Events that it matched, and that were handed over, are still
        to be acknowledged; one that was being read may still be handed over.
        """

    def close(*, forget: bool = False) -> None:
        """
        End it. Nothing is delivered from now on.

        @param forget: whether a durable subscription's position is forgotten; otherwise the
            same id resumes it later, also after the broker has started again.
        """
