"""
Networking that carriers, ledgers and commands share.

C{http} makes requests with treq on C{agent}, the bounded HTTP agent over the connections of
C{endpoints} and the permitted addresses of C{policy}. C{tls} has the server endpoints that
speak TLS, C{certificates} reads what they serve, and C{proxied} listens behind proxies.
C{processes} supervises child processes. C{turns} is the queue for the end of a turn of the
reactor, C{timers} has timers that are moved cheaply, C{deferreds} the decorator for coroutines
behind interfaces, C{sending} writes to transports without waiting for a turn, and C{addresses}
writes addresses as text.
"""
