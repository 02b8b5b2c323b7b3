"""
What the broker asks of those who carry events to webhooks.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from twisted.internet.defer import Deferred, fail
from zope.interface import Interface, implementer

from ..errors import NoSuchCall
from ..model import InterfaceType, Offset


class IWebhooks(Interface):
    """
    Makes and ends subscriptions whose events are sent to a URL. Called by the operations
    C{subscribe} and C{unSubscribe}.
    """

    def subscribe(
        interfaceType: InterfaceType,
        topic: tuple[str, ...],
        groupId: str,
        subscriptionId: str | None,
        url: str,
        offset: Offset,
        tag: str | None,
    ) -> Deferred[str]:
        """
        Send events to a URL from now on, also after the broker has started again.

        Calling it again with the same id and otherwise the same parameters, the offset aside,
        changes nothing and answers the id again, so that a call whose answer was lost can be
        repeated, and a receiver may subscribe whenever it starts.

        Cancelling the answer does not undo it.

        @param interfaceType: in which form: RESTful or JsonRPC.
        @param topic: topics or patterns, each valid.
        @param groupId: the id of a group that is served.
        @param subscriptionId: a UUID in its canonical form; C{None} has one made.
        @param tag: only events whose C{svc-tag} equals it.
        @return: the subscription's id. It is on stable storage by then.
        @raise UrlInvalid: events cannot be sent there, or may not be.
        @raise SubscriptionExists: the id is in use by another subscription.
        @raise TopicNotFound: a plain topic does not exist.
        @raise EventNotFound, HeightUnknown: the offset is no place in the log.
        @raise Overloaded: there are too many webhooks, or too many are being made.
        """

    def unSubscribe(subscriptionId: str) -> Deferred[bool]:
        """
        Send no more, and forget where the subscription stands.

        @param subscriptionId: a UUID in its canonical form.
        @return: C{True}. It is on stable storage by then.
        @raise SubscriptionNotFound: there is no such webhook.
        """


@implementer(IWebhooks)
class NoWebhooks:
    """What a broker has that sends to no webhooks."""

    def subscribe(
        self,
        interfaceType: InterfaceType,
        topic: tuple[str, ...],
        groupId: str,
        subscriptionId: str | None,
        url: str,
        offset: Offset,
        tag: str | None,
    ) -> Deferred[str]:
        return fail(NoSuchCall("this broker has no webhooks"))

    def unSubscribe(self, subscriptionId: str) -> Deferred[bool]:
        return fail(NoSuchCall("this broker has no webhooks"))
