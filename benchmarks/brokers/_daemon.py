"""
svcbroker.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from svcbroker import __version__

from ..children import CHECKOUT, START_SECONDS, Missing, awaitPorts, freePorts, start, stop
from ..load import Broken
from ..servers import TWISTD, Server
from ._broker import TOPIC, Broker

_LOCAL = "tcp:{}:interface=127.0.0.1"


@cache
def hasDoors() -> bool:
    """Whether the daemon has more than one HTTP door to choose from."""
    command = [sys.executable, "-c", TWISTD, "svcbroker", "--help"]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, timeout=START_SECONDS)
    return b"--http-door" in done.stdout


def startDaemon(
    directory: Path, cores: set[int], *, ledger: str, options: Sequence[str] = ()
) -> Broker:
    """
    The daemon, with a new chain and the topic open.

    @param ledger: the description of its ledger.
    @param options: more options of the command line.
    @raise Broken: it does not serve.
    """
    http, mqtt, stomp = freePorts(3)
    command = [sys.executable, "-c", TWISTD, "-n", "--pidfile=", "svcbroker"]
    for option, port in (("--http", http), ("--mqtt", mqtt), ("--stomp", stomp)):
        command += [option, _LOCAL.format(port)]
    command += ["--ledger", ledger, "--data-dir", "data", *options]
    process = start(command, directory, cores)
    server = Server(process, [http])
    try:
        awaitPorts([process], (http, mqtt, stomp), directory)
        if server.call("/rest/open", topic=TOPIC) is not True:
            raise Broken("the topic cannot be opened")
    except (Broken, Missing, OSError) as error:
        stop([process])
        log = (directory / "log").read_text("utf-8", "replace")
        raise Broken(f"svcbroker does not serve: {error}: {log[-2000:]}") from None
    settings = [*ledger.split(":")[1:], *options]
    name = ", ".join(["svcbroker", *(settings or ["default settings"])])

    def count(topic: str) -> int:
        number: int = server.call("/rest/state", topic=topic)["sequenceNumber"]
        return number

    return Broker(
        name=name,
        version=__version__,
        processes=[process],
        ports={"http": http, "mqtt": mqtt, "stomp": stomp},
        count=count,
        daemon=server,
    )
