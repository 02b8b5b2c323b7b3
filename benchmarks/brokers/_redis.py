"""
Redis: a stream, of which every entry is on disk before it is answered.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from ..children import Missing, awaitPorts, freePorts, start
from ..wires.resp import askNumber
from ._broker import TOPIC, Broker, versionOf


def startRedis(directory: Path, cores: set[int]) -> Broker:
    """
    With C{appendfsync always}. Its log is never rewritten, which would disturb a measurement.

    @raise Missing: there is none, or it does not start.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise Missing("not installed: apt-get install redis-server")
    (port,) = freePorts(1)
    directory.mkdir(parents=True)
    settings = directory / "redis.conf"
    settings.write_text(
        f'bind 127.0.0.1\nport {port}\ndir {directory}\nsave ""\nappendonly yes\n'
        "appendfsync always\nauto-aof-rewrite-percentage 0\ntcp-backlog 1024\n"
        "lazyfree-lazy-user-del no\n",
        "utf-8",
    )
    process = start([program, settings], directory, cores)
    awaitPorts([process], [port], directory)
    return Broker(
        name="Redis Streams, appendfsync always",
        version=versionOf([program, "--version"]),
        processes=[process],
        ports={"resp": port},
        count=lambda topic: askNumber(port, b"XLEN", topic.encode("ascii")),
        refresh=lambda: _void(askNumber(port, b"DEL", TOPIC.encode("ascii"))),
    )


def _void(_: int) -> None:
    """Nothing."""
