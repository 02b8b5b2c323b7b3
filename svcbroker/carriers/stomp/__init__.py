"""
STOMP 1.0, 1.1 and 1.2, over TCP and over WebSocket.

L{frames<svcbroker.carriers.stomp.frames>} knows bytes, L{session<svcbroker.carriers.stomp.session>}
knows the protocol, L{carrier<svcbroker.carriers.stomp.carrier>} knows transports and the
broker.
"""
