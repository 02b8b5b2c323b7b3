"""
A program in Python as a shell starts it, but forked from one that has imported the broker already:
C{python -IS forkclient.py SOCKET -m MODULE ARGUMENT...}, which L{.forking} writes.

It imports nothing that takes long. The program has its files, directory and environment, gets the
signals that end it, is killed with it, and it ends as the program does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress


def main(path: str, *arguments: str) -> int:
    """Ask for the program, and wait until it ends; its exit status, or its signal with a minus."""
    umask = os.umask(0)
    os.umask(umask)
    request = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "path": os.getcwd(),
        "umask": umask,
    }
    report, toReport = os.pipe()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.connect(path)
        socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2, toReport])
    os.close(toReport)
    with open(report, "rb", buffering=0) as lines:
        process = int(lines.readline())

        def pass_(number: int, frame: object) -> None:
            with suppress(ProcessLookupError):
                os.kill(process, number)

        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, pass_)
        return int(lines.readline())


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    if status < 0:
        if -status in (signal.SIGTERM, signal.SIGINT):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)
