"""
ABCI 2.0, the protocol by which CometBFT drives an application over a socket.

L{codec} is sans-io, L{server} is the one module that touches a transport, L{listening} opens the
socket, and L{Application} is the contract of an application.
"""

from ....proofs.cometbft.wire import WireMalformed
from .application import Answer, Application, framedSize
from .codec import MAX_FRAME, FrameParser, decodeRequest, decodeResponse, encodeFrame
from .listening import listenUnix, removeSocket
from .server import AbciFactory

__all__ = [
    "MAX_FRAME",
    "AbciFactory",
    "Answer",
    "Application",
    "FrameParser",
    "WireMalformed",
    "decodeRequest",
    "decodeResponse",
    "encodeFrame",
    "framedSize",
    "listenUnix",
    "removeSocket",
]
