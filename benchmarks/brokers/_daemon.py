"""
svcbroker.
"""

from __future__ import annotations

import sys
from pathlib import Path

from svcbroker import __version__
from svcbroker.commands.bench import Broken

from ..children import CHECKOUT, Missing, awaitPorts, freePorts, start, stop
from ..servers import TWISTD, Server
from ._broker import TOPIC, Broker

_LOCAL = "tcp:{}:interface=127.0.0.1"


def startDaemon(
    directory: Path, cores: set[int], tree: Path = CHECKOUT, python: str = sys.executable
) -> Broker:
    """
    The daemon with default settings, a new chain and the topic open.

    @param tree: the checkout whose code it runs.
    @param python: the Python that runs it, which has what it needs.
    @raise Broken: it does not serve.
    """
    http, mqtt, stomp = freePorts(3)
    command = [python, "-c", TWISTD, "-n", "--pidfile=", "svcbroker"]
    for option, port in (("--http", http), ("--mqtt", mqtt), ("--stomp", stomp)):
        command += [option, _LOCAL.format(port)]
    command += ["--data-dir", "data"]
    process = start(command, directory, cores, {"PYTHONPATH": str(tree)})
    server = Server(process, [http])
    try:
        awaitPorts([process], (http, mqtt, stomp), directory)
        if server.call("/rest/open", topic=TOPIC) is not True:
            raise Broken("the topic cannot be opened")
    except (Broken, Missing, OSError) as error:
        stop([process])
        log = (directory / "log").read_text("utf-8", "replace")
        raise Broken(f"svcbroker does not serve: {error}: {log[-2000:]}") from None

    def count(topic: str) -> int:
        number: int = server.call("/rest/state", topic=topic)["sequenceNumber"]
        return number

    return Broker(
        name="svcbroker",
        version=__version__,
        processes=[process],
        ports={"http": http, "mqtt": mqtt, "stomp": stomp},
        count=count,
        daemon=server,
    )
