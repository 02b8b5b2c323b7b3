"""
A program in Python as a shell starts it, but forked from one that has imported the broker already:
C{python -IS forkclient.py SOCKET -m MODULE ARGUMENT...}, which L{.forking} writes.

It imports nothing that takes long. The program has its files, directory and environment, and it
ends as the program does.
"""

from __future__ import annotations

import json
import os
import socket
import sys


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
    with open(report) as lines:
        _, status = lines.read().split()
    return int(status)


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    if status < 0:
        os.kill(os.getpid(), -status)
    sys.exit(status)
