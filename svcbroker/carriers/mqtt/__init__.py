"""
MQTT 3.1.1 and 5, over TCP and WebSocket.

Clauses are cited where they are obeyed: C{[MQTT-3.1.2-24]} is one of the OASIS standard 3.1.1,
C{[MQTT5-3.1.2-24]} one of the OASIS standard 5.0.

What arrives goes through L{decoder}, L{connection}, L{receiving} and L{publishing} into the log;
what the log has goes through L{subscription}, L{delivery} and L{output} to clients. L{session}
and L{sessions} remember what outlives a connection. Only L{carrier} touches a transport.
"""

from .carrier import MqttCarrier, MqttFactory, MqttProtocol, webSocketRoute
from .context import Context, makeContext
from .settings import MqttSettings

__all__ = [
    "Context",
    "MqttCarrier",
    "MqttFactory",
    "MqttProtocol",
    "MqttSettings",
    "makeContext",
    "webSocketRoute",
]
