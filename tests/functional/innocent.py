"""
A client that publishes one event after the other, as a program of its own: what the test does
meanwhile, such as reading all that a hostile client is sent, does not slow it down.

C{python innocent.py PORT PID TOPIC [AUTHORIZATION]} writes a line for each window of publishes: the
99th percentile and the longest of what they took, in seconds of a processor that the daemon, which
has this process id, used meanwhile: what a busy machine does for other programs does not count. An
answer that takes L{TIMEOUT} ends it.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

WINDOW = 100
"""Publishes in a window."""

TIMEOUT = 60.0
"""Seconds of the clock."""

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")


def main(port: int, pid: int, topic: str, authorization: str = "") -> None:
    """Publish until the standard output is closed."""
    connection = socket.create_connection(("127.0.0.1", port), TIMEOUT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    path = f"/svcbroker/rest/publish?topic={topic}&content=x"
    credentials = f"Authorization: {authorization}\r\n" if authorization else ""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{credentials}\r\n"
    while True:
        took = []
        for _ in range(WINDOW):
            started = used(pid)
            connection.sendall(request.encode())
            answer = connection.recv(65536)
            took.append(used(pid) - started)
            if b'"status":"SUCCESS"' not in answer:
                raise SystemExit(f"the event was not published: {answer!r}")
        took.sort()
        sys.stdout.write(f"{took[WINDOW * 99 // 100 - 1]} {took[-1]}\n")
        sys.stdout.flush()


def used(pid: int) -> float:
    """The seconds of a processor that a process has used."""
    # The name of the program, in parentheses, may have spaces.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
