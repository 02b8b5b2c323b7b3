"""
mosquitto, as it comes, but without its bounds on what waits: they would drop messages.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..children import Missing, awaitPorts, freePorts, start
from ._broker import Broker, versionOf


def startMosquitto(directory: Path, cores: set[int]) -> Broker:
    """
    It keeps nothing on disk.

    @raise Missing: there is none, or it does not start.
    """
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise Missing("not installed: apt-get install mosquitto")
    (port,) = freePorts(1)
    directory.mkdir(parents=True)
    settings = directory / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n"
        "max_queued_messages 0\nmax_inflight_messages 1024\nset_tcp_nodelay true\n"
        "log_dest stderr\nlog_type error\nuser root\n",
        "ascii",
    )
    process = start([program, "-c", settings], directory, cores)
    awaitPorts([process], [port], directory)
    return Broker(
        name="mosquitto",
        version=versionOf([program, "-h"]),
        processes=[process],
        ports={"mqtt": port},
    )
