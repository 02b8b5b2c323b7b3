"""
Where the broker learns of subscriptions.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import frozen
from zope.interface import Interface, implementer


class InterfaceType(Enum):
    """How a subscriber is reached."""

    REST = "RESTful"
    JSON_RPC = "JsonRPC"
    MQTT = "MQTT"
    STOMP = "STOMP"


@frozen(kw_only=True)
class SubscriptionRecord:
    """
    A live subscription as an operator sees it.

    @ivar subscriptionId: its id.
    @ivar interfaceType: how its subscriber is reached.
    @ivar group: the group whose events it gets.
    @ivar topics: its topics and patterns.
    @ivar remote: the subscriber's address.
    @ivar created: when it was made, in milliseconds since the epoch.
    @ivar notified: when its subscriber was last told of an event, in milliseconds since the
        epoch; the time of its creation until then.
    @ivar notifiedCount: how many events its subscriber was told of.
    @ivar waitingCount: how many events its subscriber has yet to be told of.
    """

    subscriptionId: str
    interfaceType: InterfaceType
    group: str
    topics: Sequence[str]
    remote: str
    created: int
    notified: int
    notifiedCount: int
    waitingCount: int


class ISubscriptionDirectory(Interface):
    """
    Something that knows this node's live subscriptions.
    """

    def listSubscriptions(group: str | None) -> Sequence[SubscriptionRecord]:
        """
        The live subscriptions, for C{listSubscription}. Called by the broker, once a query.

        @param group: only those of this group; C{None} asks for all.
        """


@implementer(ISubscriptionDirectory)
class NoSubscriptions:
    """The directory of a broker without streaming carriers."""

    def listSubscriptions(self, group: str | None) -> Sequence[SubscriptionRecord]:
        return ()
