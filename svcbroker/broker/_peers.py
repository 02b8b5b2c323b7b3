"""
Other brokers, as this one asks them.
"""

# Methods of a zope.interface take no "self".
# ruff: noqa: N805

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from twisted.internet.defer import Deferred
from zope.interface import Attribute, Interface

from ..model import SubscriptionRecord


@frozen(kw_only=True)
class Identity:
    """
    Which broker one is.

    @ivar address: what it is called, C{host:port}.
    @ivar instance: what tells its process from every other one; another one at each start.
    """

    address: str
    instance: str


class PeerError(Exception):
    """
    A peer gives no answer that can be used. The text is the end of a sentence that begins with
    the peer: C{gave no answer in 5 seconds}. Clients are shown it.
    """


class IPeer(Interface):
    """
    Another broker. It is asked for itself alone: none of the questions has it ask a third one,
    so however brokers know each other, no question goes round.

    Cancelling an answer ends the question.
    """

    name: str = Attribute("What it is called until it has told its address: C{host:port}.")

    def getIdentity(timeout: float) -> Deferred[Identity]:
        """
        Which broker it is. Called by the broker, not twice at the same time.

        @param timeout: how long that may take, in seconds.
        @raise PeerError: there is no answer.
        """

    def listSubscriptions(
        group: str | None, timeout: float
    ) -> Deferred[tuple[str, Sequence[SubscriptionRecord]]]:
        """
        Its live subscriptions, all of them. Called by the broker for each client that asks.

        @param group: only those of this group; C{None} asks for all.
        @param timeout: how long that may take, in seconds.
        @return: fires with the address that it has now, and the subscriptions.
        @raise PeerError: there is no answer.
        @raise GroupUnknown: it does not serve the group.
        @raise Overloaded: it is asked too often at the same time.
        """
