"""
The brokers that streaming is measured on: the daemon, and those of others where they are
installed, as children.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter, sleep

import msgspec
from attrs import define

from .children import CHECKOUT
from .load import PATIENCE, Broken
from .servers import Server

TOPIC = "bench"
QUEUE = "bench"

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TWISTD = "from twisted.scripts.twistd import run; run()"
_LOCAL = "tcp:{}:interface=127.0.0.1"
_RABBIT = Path("/usr/lib/rabbitmq/bin")
_START_SECONDS = 90.0
_STOP_SECONDS = 60.0


class Missing(Exception):
    """A broker cannot be measured here. The text says why."""


@define(eq=False)
class Broker:
    """
    A broker that runs.

    @ivar name: how it is called in the table.
    @ivar mqtt: the port where it speaks MQTT.
    @ivar stomp: the port where it speaks STOMP, if it does.
    @ivar destination: what a STOMP client sends to.
    @ivar refresh: called before a measurement: forgets what earlier ones have left.
    @ivar daemon: the daemon's REST interface, where it is ours.
    """

    name: str
    processes: Sequence[subprocess.Popen[str]]
    mqtt: int
    stomp: int | None = None
    destination: str = TOPIC
    refresh: Callable[[], None] = lambda: None
    daemon: Server | None = None

    def pids(self) -> Sequence[int]:
        """Its processes and their children."""
        found = [process.pid for process in self.processes]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (task / "children").read_text("ascii").split())
        return found

    def cpu(self) -> float:
        """Seconds of processor time that it has used."""
        total = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / _TICKS

    def memory(self) -> int:
        """Bytes of memory that are its own now."""
        return sum(
            int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE
            for pid in self.pids()
        )

    def stop(self) -> None:
        """End it, the one that was started last first."""
        for process in reversed(self.processes):
            _signal(process, signal.SIGTERM)
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()


def _signal(process: subprocess.Popen[str], number: int) -> None:
    if process.poll() is None:
        # Each has a session of its own: its children end with it.
        os.killpg(process.pid, number)


def _child(
    command: Sequence[str], directory: Path, cores: set[int], extra: Mapping[str, str]
) -> subprocess.Popen[str]:
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "log").open("ab") as output:
        return subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **extra},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )


def _freePorts(count: int) -> Sequence[int]:
    # Only for brokers that cannot say which port they were given.
    opened = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in opened]
    for each in opened:
        each.close()
    return ports


def _awaitPorts(
    processes: Sequence[subprocess.Popen[str]], ports: Sequence[int], directory: Path
) -> None:
    """Wait until something listens everywhere; end everything where it does not come to that."""
    deadline = perf_counter() + _START_SECONDS
    waiting = list(ports)
    while waiting:
        try:
            socket.create_connection(("127.0.0.1", waiting[-1]), 1.0).close()
            waiting.pop()
            continue
        except OSError:
            sleep(0.1)
        if perf_counter() > deadline or any(each.poll() is not None for each in processes):
            for process in processes:
                _signal(process, signal.SIGKILL)
            log = (directory / "log").read_text("utf-8", "replace")
            raise Missing(f"it does not start: {log[-500:]}")


def startDaemon(directory: Path, ledger: str, cores: set[int]) -> Broker:
    """
    The daemon, with a new chain and the topic open.

    @param ledger: the description of its ledger.
    """
    http, mqtt, stomp = _freePorts(3)
    command = [sys.executable, "-c", _TWISTD, "-n", "--pidfile=", "svcbroker"]
    for option, port in (("--http", http), ("--mqtt", mqtt), ("--stomp", stomp)):
        command += [option, _LOCAL.format(port)]
    command += ["--ledger", ledger, "--data-dir", "data"]
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    process = _child(command, directory, cores, {"PYTHONPATH": path})
    _awaitPorts([process], (http, mqtt, stomp), directory)
    server = Server(process, [http])
    if server.call("/rest/open", topic=TOPIC) is not True:
        raise Broken("the topic cannot be opened")
    name = "svcbroker, " + ("default settings" if ledger == "pbft" else ledger.partition(":")[2])
    return Broker(name, [process], mqtt, stomp, daemon=server)


def startMosquitto(directory: Path, cores: set[int]) -> Broker:
    """
    mosquitto, as it comes, but without its bounds on what waits: they would drop messages.

    @raise Missing: there is none, or it does not start.
    """
    program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise Missing("mosquitto is not installed")
    (port,) = _freePorts(1)
    directory.mkdir(parents=True)
    settings = directory / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n"
        "max_queued_messages 0\nmax_inflight_messages 1024\nset_tcp_nodelay true\n"
        "log_dest stderr\nlog_type error\nuser root\n",
        "ascii",
    )
    process = _child([program, "-c", str(settings)], directory, cores, {})
    _awaitPorts([process], [port], directory)
    return Broker("mosquitto", [process], port)


def startRabbit(directory: Path, cores: set[int]) -> Broker:
    """
    RabbitMQ with its plugins for MQTT and STOMP, and a quorum queue that gets every publish to
    the topic: only with a queue is anything on disk before it is acknowledged.

    @raise Missing: there is none, or it does not start.
    """
    epmd = shutil.which("epmd")
    if epmd is None or not (_RABBIT / "rabbitmq-server").exists():
        raise Missing("RabbitMQ is not installed")
    mapper, amqp, distribution, mqtt, stomp = _freePorts(5)
    directory.mkdir(parents=True)
    (directory / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{amqp}\nmqtt.listeners.tcp.1 = 127.0.0.1:{mqtt}\n"
        f"stomp.listeners.tcp.1 = 127.0.0.1:{stomp}\nmqtt.allow_anonymous = true\n"
        "stomp.default_user = guest\nstomp.default_pass = guest\nstomp.implicit_connect = false\n"
        "log.file.level = error\n",
        "ascii",
    )
    (directory / "plugins").write_text("[rabbitmq_mqtt,rabbitmq_stomp].\n", "ascii")
    queue = {"name": QUEUE, "vhost": "/", "durable": True, "auto_delete": False}
    bound = {"source": "amq.topic", "vhost": "/", "routing_key": TOPIC, "arguments": {}}
    definitions = directory / "definitions.json"
    definitions.write_bytes(
        msgspec.json.encode(
            {
                "queues": [queue | {"arguments": {"x-queue-type": "quorum"}}],
                "bindings": [bound | {"destination": QUEUE, "destination_type": "queue"}],
            }
        )
    )
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
        _child([epmd, "-port", str(mapper), "-address", "127.0.0.1"], directory, cores, extra)
    ]
    _awaitPorts(processes, [mapper], directory)
    processes.append(_child([str(_RABBIT / "rabbitmq-server")], directory, cores, extra))
    _awaitPorts(processes, [mqtt, stomp], directory)

    def control(*arguments: str) -> None:
        done = subprocess.run(
            [_RABBIT / "rabbitmqctl", "--quiet", *arguments],
            env={**os.environ, **extra},
            capture_output=True,
            timeout=2 * PATIENCE,
        )
        if done.returncode:
            raise Broken(f"rabbitmqctl {arguments[0]}: {done.stderr.decode('utf-8', 'replace')}")

    control("await_startup")
    control("import_definitions", str(definitions))
    return Broker(
        "RabbitMQ",
        processes,
        mqtt,
        stomp,
        destination=f"/amq/queue/{QUEUE}",
        refresh=lambda: control("purge_queue", QUEUE),
    )
