"""
Runs the load program.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from time import sleep

from svcbroker.commands.bench import TIMEOUT, Broken, Measured, allowFiles

from ..building import buildLoader
from ._plan import Load, decodeFound, encodePlan

_SETTLING = 0.1
"""Seconds in which a server ends what it does for new connections after it has greeted them."""


def connect(port: int) -> socket.socket:
    """A connection to a server here, that blocks."""
    opened = socket.create_connection(("127.0.0.1", port), TIMEOUT)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def drive(
    port: int | Sequence[int],
    load: Load,
    connections: int,
    seconds: float,
    requests: int | None = None,
) -> Measured:
    """
    Load a server on 127.0.0.1. Everything that was asked is answered and checked when it ends.

    @param port: where it is; several are servers to which the clients are dealt out.
    @param connections: how many clients there are.
    @param seconds: after this time nothing more is asked.
    @param requests: after this number nothing more is asked either.
    @raise Broken: an answer is wrong, or there is none for L{TIMEOUT} seconds.
    @raise Missing: the load program cannot be built.
    """
    with connected(port, load, connections, settling=0.0) as sockets:
        return driveOn(sockets, load, seconds, requests)


@contextmanager
def connected(
    port: int | Sequence[int], load: Load, connections: int, settling: float = _SETTLING
) -> Iterator[Sequence[socket.socket]]:
    """
    Connections that are greeted, for L{driveOn}: what a server has to do for that comes before
    its processor time is looked at, where it is to be that of the load alone.

    @param settling: seconds that it has for what it still does afterwards.
    """
    ports = [port] if isinstance(port, int) else port
    allowFiles(connections)
    with ExitStack() as stack:
        sockets = []
        for number in range(connections):
            opened = stack.enter_context(connect(ports[number % len(ports)]))
            load.greet(opened, number)
            sockets.append(opened)
        sleep(settling)
        yield sockets


def driveOn(
    sockets: Sequence[socket.socket], load: Load, seconds: float, requests: int | None = None
) -> Measured:
    """
    The same on connections that are L{connected}. They are of no use afterwards.
    """
    numbers = [opened.fileno() for opened in sockets]
    plan = encodePlan(load, numbers, seconds, requests)
    program = buildLoader()
    for opened in sockets:
        opened.setblocking(False)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [program], stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=numbers
    ) as running:
        try:
            found, errors = running.communicate(plan, seconds + 2 * TIMEOUT)
        except subprocess.TimeoutExpired:
            raise Broken("the load does not end") from None
        finally:
            running.kill()
    if running.returncode:
        raise Broken(errors.decode("utf-8", "replace") or f"it ended with {running.returncode}")
    return decodeFound(found)
