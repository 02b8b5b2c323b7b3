"""
A client that publishes one event after the other, as a program of its own: what the test does
meanwhile, such as reading all that a hostile client is sent, does not slow it down.

C{python innocent.py PORT TOPIC [AUTHORIZATION]} writes a line for each window of publishes: the
99th percentile and the longest time that one of them took, in seconds.
"""

from __future__ import annotations

import socket
import sys
from time import perf_counter

WINDOW = 100
"""Publishes in a window."""


def main(port: int, topic: str, authorization: str = "") -> None:
    """Publish until the standard output is closed."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    path = f"/svcbroker/rest/publish?topic={topic}&content=x"
    credentials = f"Authorization: {authorization}\r\n" if authorization else ""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{credentials}\r\n"
    while True:
        took = []
        for _ in range(WINDOW):
            started = perf_counter()
            connection.sendall(request.encode())
            answer = connection.recv(65536)
            took.append(perf_counter() - started)
            if b'"status":"SUCCESS"' not in answer:
                raise SystemExit(f"the event was not published: {answer!r}")
        took.sort()
        sys.stdout.write(f"{took[WINDOW * 99 // 100 - 1]} {took[-1]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
