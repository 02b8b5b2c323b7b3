"""
ABCI 2.0, the protocol by which CometBFT drives an application over a socket.

C{protobuf} and C{messages} are its encoding; C{abciserver} frames it, opens the socket, and is the
one module that touches a transport. L{AbciApplication} is the contract of an application.
"""

from .abciserver import AbciApplication, AbciFactory, framedSize, listenUnix, removeSocket

__all__ = ["AbciApplication", "AbciFactory", "framedSize", "listenUnix", "removeSocket"]
