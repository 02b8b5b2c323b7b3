"""
Runs the load program.
"""

from __future__ import annotations

import resource
import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack

from ..building import buildLoader
from ..load import PATIENCE, Broken, Measured
from ._plan import Load, decodeFound, encodePlan

_SPARE_FILES = 64


def connect(port: int) -> socket.socket:
    """A connection to a server here, that blocks."""
    opened = socket.create_connection(("127.0.0.1", port), PATIENCE)
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
    @raise Broken: an answer is wrong, or there is none for L{PATIENCE} seconds.
    @raise Missing: the load program cannot be built.
    """
    program = buildLoader()
    ports = [port] if isinstance(port, int) else port
    _allowFiles(connections + _SPARE_FILES)
    with ExitStack() as stack:
        sockets = []
        for number in range(connections):
            opened = stack.enter_context(connect(ports[number % len(ports)]))
            load.greet(opened, number)
            opened.setblocking(False)
            sockets.append(opened.fileno())
        running = stack.enter_context(
            subprocess.Popen(
                [program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=sockets,
            )
        )
        stack.callback(running.kill)
        plan = encodePlan(load, sockets, seconds, requests)
        try:
            found, errors = running.communicate(plan, seconds + 2 * PATIENCE)
        except subprocess.TimeoutExpired:
            raise Broken("the load does not end") from None
    if running.returncode:
        raise Broken(errors.decode("utf-8", "replace") or f"it ended with {running.returncode}")
    return decodeFound(found)


def _allowFiles(count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise Broken(f"there may be only {hard} open files here, {count} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
