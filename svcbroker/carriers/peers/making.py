"""
Peers over the real network.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.web.client import BrowserLikePolicyForHTTPS

from .asking import Peers
from .connecting import makeAgent, makePool


def makePeers(reactor: Any, urls: Iterable[str]) -> Peers:
    """
    The brokers at these base URLs; by HTTPS with the trust roots of the system. Nobody is asked
    before there is a question.
    """
    pool = makePool(reactor)
    agent = makeAgent(reactor, BrowserLikePolicyForHTTPS(), pool)
    return Peers(urls, agent, reactor, pool.closeCachedConnections)
