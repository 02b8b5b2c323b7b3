"""
Web hooks over the real network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.web.client import BrowserLikePolicyForHTTPS

from ...broker import Keeper
from ...broker.subscriptions import Subscriptions
from .connecting import makeAgent, makePool
from .delivery import Surroundings
from .posting import Poster
from .settings import WebhookSettings
from .slots import Slots
from .webhooks import Webhooks


def makeWebhooks(
    reactor: Any,
    subscriptions: Subscriptions,
    keeper: Keeper,
    settings: WebhookSettings,
    *,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
    random: Callable[[], float],
) -> Webhooks:
    """
    Web hooks that send by HTTP, and by HTTPS with the trust roots of the system. Not started.

    @param now: the wall clock: seconds since the epoch.
    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @param random: gives a number of [0, 1).
    """
    pool = makePool(reactor)
    resolver = reactor.nameResolver
    agent = makeAgent(reactor, resolver, settings, BrowserLikePolicyForHTTPS(), pool)
    around = Surroundings(
        clock=reactor,
        random=random,
        poster=Poster(agent, reactor, now, settings),
        slots=Slots(settings.connections, settings.connectionsPerHost),
        settings=settings,
    )
    return Webhooks(subscriptions, keeper, resolver, around, entropy, pool.closeCachedConnections)
