"""
ABCI 2.0, the protocol by which CometBFT drives an application over a socket.

L{codec} is sans-io, L{server} is the one module that touches a transport, L{listening} opens the
socket, and L{AbciApplication} is the contract of an application.
"""

from ....proofs.cometbft.wire import WireMalformed
from .abciserver import (
    MAX_FRAME,
    AbciApplication,
    AbciFactory,
    AbciFrameParser,
    Answer,
    decodeRequest,
    decodeResponse,
    encodeFrame,
    framedSize,
    listenUnix,
    removeSocket,
)

__all__ = [
    "MAX_FRAME",
    "AbciApplication",
    "AbciFactory",
    "AbciFrameParser",
    "Answer",
    "WireMalformed",
    "decodeRequest",
    "decodeResponse",
    "encodeFrame",
    "framedSize",
    "listenUnix",
    "removeSocket",
]
