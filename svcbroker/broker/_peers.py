"""
Other brokers, as this one asks them.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Sequence

from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from ..model import SubscriptionRecord


class PeerError(Exception):
    """
    A peer gives no answer that can be used. The text is the end of a sentence that begins with
    the peer: C{gave no answer in 5 seconds}. Clients are shown it.
    """


class IPeer(Interface):
    """
    Another broker. It is asked for itself alone: the question does not have it ask a third one,
    so however brokers know each other, no question goes round.
    """

    name: str = Attribute("What the operator calls it: C{host:port}.")

    def listSubscriptions(
        group: str | None, timeout: float
    ) -> Deferred[Sequence[SubscriptionRecord]]:
        """
        Its live subscriptions, all of them. Called by the broker for each client that asks.
        Cancelling ends the question.

        @param group: only those of this group; C{None} asks for all.
        @param timeout: how long that may take, in seconds.
        @raise PeerError: there is no answer.
        @raise GroupUnknown: it does not serve the group.
        @raise Overloaded: it is asked too often at the same time.
        """
