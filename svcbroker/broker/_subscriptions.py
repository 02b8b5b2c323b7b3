"""
Where the broker learns of subscriptions.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred, succeed
from zope.interface import Interface, implementer

from ..model import SubscriptionRecord


class ISubscriptionDirectory(Interface):
    """
    Something that knows this node's live subscriptions.
    """

    def listSubscriptions(group: str | None) -> Deferred[Sequence[SubscriptionRecord]]:
        """
        The live subscriptions, for C{listSubscription}. Called by the broker, once a query.

        @param group: only those of this group; C{None} asks for all.
        """


@implementer(ISubscriptionDirectory)
class NoSubscriptions:
    """The directory of a broker without streaming carriers."""

    def listSubscriptions(self, group: str | None) -> Deferred[Sequence[SubscriptionRecord]]:
        return succeed(())
