"""
MQTT 3.1.1 and 5, over TCP and WebSocket.

Clauses are cited where they are obeyed: C{[MQTT-3.1.2-24]} is one of the OASIS standard 3.1.1,
C{[MQTT5-3.1.2-24]} one of the OASIS standard 5.0.
"""
