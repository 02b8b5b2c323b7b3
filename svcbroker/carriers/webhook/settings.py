"""
The settings of webhooks.

A module of its own: what keeps webhooks and what sends events read it alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import field, frozen
from attrs.validators import ge, gt

from ...net.endpoints import AddressPolicy
from .signing import WebhookSigner

_MOST_DOUBLINGS: Final = 30

MAX_REQUESTS: Final = 64
"""The most requests under way to webhooks at the same time."""


@frozen(kw_only=True)
class WebhookSettings:
    """
    The settings of webhooks.

    @ivar policy: where events may be sent.
    @ivar signer: signs them.
    @ivar timeout: how long a receiver may take for one event, from connecting to the end of its
        answer, in seconds.
    @ivar connections: the most requests under way, over all receivers. A quarter of them may go
        to one host and port.
    @ivar firstDelay: the delay after a first failure, in seconds; each further one doubles it.
    @ivar maxDelay: the longest delay, in seconds.
    @ivar maxWebhooks: the most webhooks that there may be.
    @ivar turn: for how many seconds a delivery may keep its slot while others wait.
    """

    policy: AddressPolicy = AddressPolicy()
    signer: WebhookSigner = field(factory=WebhookSigner)
    timeout: float = field(default=10.0, validator=gt(0))
    connections: int = field(default=MAX_REQUESTS, validator=ge(1))
    firstDelay: float = field(default=0.5, validator=gt(0))
    maxDelay: float = field(default=300.0, validator=gt(0))
    maxWebhooks: int = field(default=10_000, validator=ge(0))
    turn: float = field(default=1.0, validator=ge(0))

    @property
    def connectionsPerHost(self) -> int:
        """The most requests under way to one host and port."""
        return max(1, self.connections // 4)

    def delay(self, failures: int, retryAfter: float, random: Callable[[], float]) -> float:
        """
        The delay after failures in a row: doubled each time, spread over its upper half so that
        those that failed together are not retried together.

        @param failures: how many there were, from 1.
        @param retryAfter: the least that the receiver asks for; it gets no more than L{maxDelay}.
        @param random: gives a number of [0, 1).
        """
        longest = min(self.maxDelay, self.firstDelay * (1 << min(failures - 1, _MOST_DOUBLINGS)))
        return max(longest * (1 + random()) / 2, min(retryAfter, self.maxDelay))
