"""
One subscription, as its session sees it.
"""

from __future__ import annotations

from attrs import define

from .messages import MessageHeads
from .window import Window


@define(eq=False)
class StompSubscription:
    """
    A subscription of a connection.

    @ivar number: its number in the connection, from 1.
    @ivar key: what the client calls it; see
        L{readSubscriptionKey<svcbroker.carriers.stomp.requests.readSubscriptionKey>}.
    @ivar window: what is between broker and client; C{None} where nothing is acknowledged.
    @ivar subscriptionId: its UUID; C{None} until the broker has made it.
    @ivar heads: how its messages begin; C{None} until then too.
    @ivar hasBegun: whether the client has been told all that comes before the first message.
    @ivar isFlowing: whether the broker was last told to let events flow.
    """

    number: int
    key: tuple[str, str]
    window: Window | None
    subscriptionId: str | None = None
    heads: MessageHeads | None = None
    hasBegun: bool = False
    isFlowing: bool = False

    @property
    def id(self) -> str | None:
        """The C{id} that the client gave, if it did."""
        kind, name = self.key
        return name if kind == "id" else None

    @property
    def takesMore(self) -> bool:
        """Whether events may flow, as far as this subscription is concerned."""
        if not self.hasBegun:
            return False
        return self.window is None or (self.window.isIdle and self.window.isOpen)
