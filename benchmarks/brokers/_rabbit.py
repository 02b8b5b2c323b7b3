"""
RabbitMQ: a quorum queue of one node, which has every message on disk before it confirms it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from time import perf_counter, sleep

import msgspec

from svcbroker.commands.bench import Broken

from ..children import START_SECONDS, Missing, awaitPorts, freePorts, start, stop
from ..wires.amqp import QueueControl
from ._broker import TOPIC, Broker, versionOf

_RABBIT = Path("/usr/lib/rabbitmq/bin")


def startRabbit(directory: Path, cores: set[int]) -> Broker:
    """
    With its plugins for MQTT and STOMP. The queue gets every publish to the topic by MQTT, too:
    only with a queue is anything on disk before it is acknowledged.

    @raise Missing: there is none, or it does not start.
    """
    epmd = shutil.which("epmd")
    if epmd is None or not (_RABBIT / "rabbitmq-server").exists():
        raise Missing("not installed: apt-get install rabbitmq-server")
    mapper, amqp, distribution, mqtt, stomp = freePorts(5)
    directory.mkdir(parents=True)
    queue = {"name": TOPIC, "vhost": "/", "durable": True, "auto_delete": False}
    bound = {"source": "amq.topic", "vhost": "/", "routing_key": TOPIC, "arguments": {}}
    definitions = {
        "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
        "vhosts": [{"name": "/"}],
        "permissions": [
            {"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
        ],
        "queues": [queue | {"arguments": {"x-queue-type": "quorum"}}],
        "bindings": [bound | {"destination": TOPIC, "destination_type": "queue"}],
    }
    (directory / "definitions.json").write_bytes(msgspec.json.encode(definitions))
    (directory / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{amqp}\nmqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}\n"
        f"stomp.listeners.tcp.1 = 127.0.0.1:{stomp}\nmqtt.allow_anonymous = true\n"
        "stomp.default_user = guest\nstomp.default_pass = guest\nstomp.implicit_connect = false\n"
        f"log.file.level = error\nload_definitions = {directory}/definitions.json\n",
        "utf-8",
    )
    (directory / "plugins").write_text("[rabbitmq_mqtt,rabbitmq_stomp].\n", "ascii")
    extra = {
        "HOME": str(directory),
        "ERL_EPMD_PORT": str(mapper),
        "RABBITMQ_NODENAME": "bench@localhost",
        "RABBITMQ_NODE_PORT": str(amqp),
        "RABBITMQ_DIST_PORT": str(distribution),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "logs"),
        "RABBITMQ_PID_FILE": str(directory / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    processes = [
        start([epmd, "-port", str(mapper), "-address", "127.0.0.1"], directory, cores, extra)
    ]
    awaitPorts(processes, [mapper], directory)
    processes.append(start([_RABBIT / "rabbitmq-server"], directory, cores, extra))
    awaitPorts(processes, [amqp, mqtt, stomp], directory)
    try:
        control = _awaitQueue(amqp)
    except Missing:
        stop(processes)
        raise

    def count(topic: str) -> int | None:
        return control.count() if topic == TOPIC else None

    return Broker(
        name="RabbitMQ, quorum queue",
        version=versionOf(
            ["dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server"], r"(\d+(?:\.\d+)+)"
        ),
        processes=processes,
        ports={"amqp": amqp, "mqtt": mqtt, "stomp": stomp},
        destination=f"/amq/queue/{TOPIC}",
        count=count,
        refresh=control.purge,
    )


def _awaitQueue(port: int) -> QueueControl:
    """Definitions are loaded, and queues elect their leaders, after the port is open."""
    deadline = perf_counter() + START_SECONDS
    while True:
        try:
            control = QueueControl(port, TOPIC)
            control.count()
        except (Broken, OSError) as error:
            if perf_counter() > deadline:
                raise Missing(f"it does not start: {error}") from None
            sleep(0.2)
        else:
            return control
