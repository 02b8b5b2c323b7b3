"""
Other brokers, asked over HTTP.
"""

from .asking import MAX_SUBSCRIPTIONS, MAX_UNDER_WAY, HttpPeer, Peers
from .making import makePeers

__all__ = ["MAX_SUBSCRIPTIONS", "MAX_UNDER_WAY", "HttpPeer", "Peers", "makePeers"]
