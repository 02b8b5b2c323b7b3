"""
STOMP 1.0, 1.1 and 1.2, over TCP and over WebSocket.

L{frames<svcbroker.carriers.stomp.frames>} knows bytes, L{session<svcbroker.carriers.stomp.session>}
knows the protocol, L{connection<svcbroker.carriers.stomp.connection>} knows transports and the
broker.
"""

from .carrier import StompFactory, webSocketRoute
from .dialects import WEEVENT_1_1
from .frames import FrameLimits
from .settings import StompSettings

__all__ = [
    "WEEVENT_1_1",
    "FrameLimits",
    "StompFactory",
    "StompSettings",
    "webSocketRoute",
]
