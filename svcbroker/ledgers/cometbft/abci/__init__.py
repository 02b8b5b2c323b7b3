"""
ABCI 2.0, by which an engine of the CometBFT kind drives an application over a socket.

L{codec} knows bytes and no transport; L{server} is what touches one; L{Application} is what to
write.
"""

from ....proofs.cometbft.wire import Malformed
from .application import Answer, Application, BaseApplication, cutAt, framedSize
from .codec import MAX_FRAME, FrameParser, decodeRequest, decodeResponse, encodeFrame
from .server import AbciFactory, listenUnix, removeSocket

__all__ = [
    "MAX_FRAME",
    "AbciFactory",
    "Answer",
    "Application",
    "BaseApplication",
    "FrameParser",
    "Malformed",
    "cutAt",
    "decodeRequest",
    "decodeResponse",
    "encodeFrame",
    "framedSize",
    "listenUnix",
    "removeSocket",
]
