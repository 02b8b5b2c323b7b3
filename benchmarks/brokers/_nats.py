"""
NATS JetStream: a stream in files, of which every message is synced before it is acknowledged.
"""

from __future__ import annotations

from pathlib import Path

from ..building import HERE, buildGo
from ..children import awaitPorts, freePorts, start
from ..wires.nats import call
from ._broker import TOPIC, Broker, versionOf

_MODULE = "github.com/nats-io/nats-server/v2"
_STREAM = {
    "name": TOPIC,
    "subjects": [TOPIC],
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "num_replicas": 1,
    "duplicate_window": 0,
}


def startNats(directory: Path, cores: set[int]) -> Broker:
    """
    With C{sync_interval: always}.

    @raise Missing: it cannot be built, or does not start.
    """
    program = buildGo(HERE / "foreign" / "nats", _MODULE)
    (port,) = freePorts(1)
    directory.mkdir(parents=True)
    settings = directory / "nats.conf"
    settings.write_text(
        f"listen: 127.0.0.1:{port}\nping_interval: 10m\nwrite_deadline: 60s\n"
        f'jetstream {{ store_dir: "{directory}", sync_interval: always }}\n',
        "utf-8",
    )
    # As many threads as there are processors for it, as in a container of that size.
    processors = {"GOMAXPROCS": str(len(cores))}
    process = start([program, "-c", settings], directory, cores, processors)
    awaitPorts([process], [port], directory)
    call(port, f"$JS.API.STREAM.CREATE.{TOPIC}", _STREAM)

    def count(topic: str) -> int:
        number: int = call(port, f"$JS.API.STREAM.INFO.{topic}")["state"]["messages"]
        return number

    return Broker(
        name="NATS JetStream, sync always",
        version=versionOf([program, "--version"]),
        processes=[process],
        ports={"nats": port},
        count=count,
        refresh=lambda: call(port, f"$JS.API.STREAM.PURGE.{TOPIC}"),
    )
