"""
mosquitto's own broker tests, with this broker in the place of mosquitto.

A program, which L{.test_mosquitto_suite} runs::

    python mosquittosuite.py FOLDER JOBS FILE...

Each file runs in a process of its own, which is forked from this one, and so does each broker that
it starts. A broker listens on a socket that its file keeps, so that no port is taken meanwhile. A
line for each file that has ended says C{passed}, C{failed}, or C{option} where it needs an option
that is mosquitto's own, then the file, and where its output is or which option.
"""

from __future__ import annotations

import contextlib
import gc
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests.carriers.mqtt.conformance.packets import (
    CONNACK,
    DISCONNECT,
    PUBLISH,
    V4,
    V5,
    Packet,
    WireError,
    parse,
)

FILE_TIME: Final = 90.0
"""Seconds after which a file has failed."""

_LOCAL: Final = "interface=127.0.0.1"
REACTOR: Final = "twisted.internet.reactor"
LIBRARIES: Final = (
    "twisted.internet.default",
    "twisted.scripts.twistd",
    "svcbroker.tap",
    "svcbroker.ledgers.memory",
    "svcbroker.ledgers.pbft",
)
FIRST_DESCRIPTOR: Final = 3
"""That of the first socket which a program finds as if systemd had opened it."""


MAPPED: Final = (
    *("acl_file", "allow_anonymous", "cafile", "certfile", "keyfile", "listener", "port"),
    *("message_size_limit", "password_file", "persistence", "persistence_file"),
    "require_certificate",
)
"""The options that this broker has, too."""

IGNORED: Final = (
    *("allow_zero_length_clientid", "log_type", "max_inflight_bytes", "max_inflight_messages"),
    *("max_keepalive", "max_queued_bytes", "max_queued_messages", "per_listener_settings"),
    "sys_interval",
)
"""Options of what is fixed here, or is not there: files are tried without them."""

NO_SUBSCRIBERS: Final = 0x10
DEFAULTS: Final = {"receiveMaximum": 20, "topicAliasMaximum": 10}
"""The limits that mosquitto tells each client."""


def importLibraries() -> None:
    """Import what the broker takes long to import, without the reactor, which no fork survives."""
    # Read when it is imported, and true after each fork.
    os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()), LISTEN_FDNAMES="mqtt")
    sys.modules[REACTOR] = ModuleType(REACTOR)
    for name in LIBRARIES:
        import_module(name)
    del sys.modules[REACTOR]
    gc.collect()
    gc.freeze()


class Configuration:
    """
    A configuration file of mosquitto.

    @ivar settings: the last value of each option; that of a listener is its port.
    @ivar own: an option in it that is mosquitto's own; empty where there is none.
    """

    def __init__(self, text: str) -> None:
        self.settings: dict[str, str] = {}
        self.own = ""
        for line in text.splitlines():
            name, _, value = line.strip().partition(" ")
            if name and not name.startswith("#"):
                if name not in (*MAPPED, *IGNORED):
                    self.own = self.own or name
                self.settings["port" if name == "listener" else name] = value.strip()

    def __getitem__(self, name: str) -> str:
        return self.settings.get(name, "")

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self["port"].split()[0]) if self["port"] else 0

    @property
    def isLasting(self) -> bool:
        """Whether anything is kept."""
        return self["persistence"] == "true"

    def arguments(self, directory: Path) -> list[str]:
        """
        The options of this broker that say the same.

        @param directory: where files may be written.
        """
        found = [self._listening(directory), "--http=", "--stomp=", "--log-level=debug"]
        if self["message_size_limit"]:
            found.append(f"--max-content={self['message_size_limit']}")
        users, acl = self["password_file"], self["acl_file"]
        if users or acl:
            everything = directory / "acl"
            everything.write_text("pattern readwrite #\n")
            nobody = directory / "passwords"
            nobody.touch()
            found.append(f"--auth=mosquitto:passwords={users or nobody}:acl={acl or everything}")
            grants = self._anonymous(acl)
            if self["allow_anonymous"] == "true" and grants:
                found.append(f"--anonymous={grants}")
        elif self.settings and self["allow_anonymous"] != "true":
            accounts = directory / "accounts.toml"
            accounts.write_text("")
            accounts.chmod(0o600)
            found.append(f"--accounts={accounts}")
        return found

    def _anonymous(self, acl: str) -> str:
        """The grants to clients without a name, which are the lines before the first C{user}."""
        if not acl:
            return "everything"
        grants = []
        for line in Path(acl).read_text().splitlines():
            kind, _, rest = line.partition(" ")
            if kind == "user":
                break
            if kind == "topic":
                access, _, topic = rest.rpartition(" ")
                if access in ("", "write", "readwrite"):
                    grants += [f"publish * {topic}", f"open * {topic}"]
                if access in ("", "read", "readwrite"):
                    grants.append(f"subscribe * {topic}")
        return ",".join(grants)

    def _listening(self, directory: Path) -> str:
        if not self["keyfile"]:
            return "--mqtt=systemd:index=0"
        key, certificate, authorities = (
            Path(self[name]).resolve() for name in ("keyfile", "certfile", "cafile")
        )
        # mosquitto sends the authorities between, too.
        if self["require_certificate"] != "true":
            files = f"privateKey={key}:certKey={certificate}:extraCertChain={authorities}"
            return f"--mqtt=ssl:{self.port}:{files}:{_LOCAL}"
        folder = directory / "certificates"
        folder.mkdir(exist_ok=True)
        chain = [each.read_text() for each in (key, certificate, authorities)]
        (folder / "server.pem").write_text("".join(chain))
        where = f"certs={folder}:clients={authorities}:require=yes"
        return f"--mqtt=mtls:{self.port}:{where}:{_LOCAL}"


class Program:
    """
    A program that runs, with the methods of C{subprocess.Popen} that the tests use. It is returned
    in the child, too.

    @ivar pid: its process identifier; 0 in the child.
    """

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """End it."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        """Its exit status, if it has ended."""
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended."""
        while self.poll() is None:
            time.sleep(0.005)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Wait until it has ended."""
        self.wait()
        return b"", b""


class Broker(Program):
    """
    A broker that runs.
    """

    def __init__(self, configuration: Configuration, directory: Path, port: socket.socket) -> None:
        """
        @param directory: where it keeps its data.
        @param port: where it listens.
        """
        self._isLasting = configuration.isLasting
        ledger = "pbft:nodes=4" if self._isLasting else "memory"
        self._log = directory / "log"
        arguments = [*configuration.arguments(directory), f"--ledger={ledger}"]
        arguments.append(f"--data-dir={directory / 'data'}")
        before = len(self._logged())
        sys.stdout.flush()
        super().__init__()
        if not self.pid:
            serve(arguments, port, self._log)
        while b" serves MQTT" not in self._logged()[before:]:
            if self.poll() is not None:
                raise OSError(f"the broker has ended: {self._logged().decode()}")
            time.sleep(0.01)

    def _logged(self) -> bytes:
        return self._log.read_bytes() if self._log.exists() else b""

    def terminate(self) -> None:
        """End it. One of which nothing is kept need not finish."""
        self.send_signal(signal.SIGTERM if self._isLasting else signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Wait until it has ended; it has logged what is returned last."""
        self.wait()
        return b"", self._logged()


def helpers(open: Callable[..., Any]) -> Callable[..., Any]:
    """
    Have the files that a file starts as programs be run with what is replaced here.

    @param open: C{subprocess.Popen}.
    """

    def openOrFork(arguments: Sequence[str], *args: Any, **others: Any) -> Any:
        if not str(arguments[0]).endswith(".py"):
            return open(arguments, *args, **others)
        sys.stdout.flush()
        program = Program()
        if not program.pid:
            try:
                sys.argv = list(arguments)
                runpy.run_path(arguments[0], run_name="__main__")
            finally:
                os._exit(0)
        return program

    return openOrFork


def serve(arguments: Sequence[str], port: socket.socket, log: Path) -> None:
    """Be the broker, and end."""
    try:
        os.dup2(port.fileno(), FIRST_DESCRIPTOR)
        os.closerange(FIRST_DESCRIPTOR + 1, 256)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv = ["twistd", "-n", "--pidfile=", "svcbroker", *arguments]
        import_module("twisted.scripts.twistd").run()
    finally:
        os._exit(1)


class Brokers:
    """
    Starts the brokers of a file.
    """

    def __init__(self, directory: Path, ports: Mapping[int, socket.socket]) -> None:
        """
        @param directory: where they keep their data.
        @param ports: where they may listen, by number.
        """
        self._directory = directory
        self._ports = ports
        self._count = 0
        self._lasting: dict[str, Path] = {}

    def start(
        self,
        filename: str,
        cmd: Sequence[str] | None = None,
        port: int = 0,
        use_conf: bool = False,
        expect_fail: bool = False,
        **others: object,
    ) -> Broker:
        """See C{start_broker} of mosquitto's C{mosq_test}."""
        if cmd is not None and "-c" in cmd:
            text = Path(cmd[list(cmd).index("-c") + 1]).read_text()
        else:
            text = Path(filename.replace(".py", ".conf")).read_text() if use_conf else ""
        configuration = Configuration(text)
        if configuration.own:
            # Kept, since the files' own ends hide what is raised here.
            (self._directory / "option").write_text(configuration.own)
            raise OSError(f"there is no option {configuration.own}")
        self._count += 1
        directory = self._directory / str(self._count)
        if configuration.isLasting:
            kept = Path(configuration["persistence_file"])
            if not kept.exists():
                kept.touch()
                self._lasting[kept.name] = directory
            directory = self._lasting.setdefault(kept.name, directory)
        directory.mkdir(exist_ok=True)
        port = port or configuration.port
        listening = self._ports.get(port)
        if listening is None:
            raise OSError(f"nothing listens on {port}")
        # Endpoints of TLS have no socket that is open already.
        if not configuration["keyfile"]:
            listening.listen(50)
        return Broker(configuration, directory, listening)


def plain(genConnect: Callable[..., bytes]) -> Callable[..., bytes]:
    """
    Have clients of MQTT 5 ask for packets without the broker's own properties.

    @param genConnect: C{gen_connect} of C{mosq_test}.
    """

    def connect(*args: Any, **others: Any) -> bytes:
        if others.get("proto_ver") == V5:
            # What it adds itself where there are none.
            given = others.get("properties") or b"\x21\0\x14"
            others["properties"] = given + b"\x26\0\x09svc-plain\0\x011"
        return genConnect(*args, **others)

    return connect


def patient(connect: Callable[..., socket.socket]) -> Callable[..., socket.socket]:
    """
    Let answers take long on a busy machine.

    @param connect: C{do_client_connect} of C{mosq_test}.
    """

    def connectPatiently(*args: Any, **others: Any) -> socket.socket:
        return connect(*args, **{**others, "timeout": FILE_TIME})

    return connectPatiently


def expect(suite: Any) -> Callable[..., bool]:
    """
    C{expect_packet} of C{mosq_test}, which compares what the specification asks for: not the order
    of properties, nor which limits and reasons a server tells.
    """

    def expectPacket(sock: socket.socket, name: str, expected: bytes) -> bool:
        wanted = packetsOf(expected)
        if not wanted:
            received = sock.recv(1)
            # [MQTT5-4.13.1-1] A server may say why it closes.
            if received and received[0] >> 4 in (CONNACK, DISCONNECT):
                rest = receive(sock, received)
                isRefusal = rest[2:] and rest[-1 if len(rest) == 4 else 3] >= 1
                received = sock.recv(1) if rest[0] >> 4 == DISCONNECT or isRefusal else rest
        else:
            received = b"".join([receive(sock) for _ in wanted])
        found = packetsOf(received)
        if len(found) == len(wanted) and all(map(isSame, found, wanted)) and bool(wanted):
            return True
        if suite.packet_matches(name, received, expected):
            return True
        raise suite.TestError

    return expectPacket


def receive(sock: socket.socket, data: bytes = b"") -> bytes:
    """A packet, or what has come of it when the connection ends."""
    while (size := sizeOf(data)) is None or len(data) < size:
        more = sock.recv(1 if size is None else size - len(data))
        if not more:
            break
        data += more
    return data


def sizeOf(data: bytes) -> int | None:
    """The size of the packet that bytes begin with; C{None} where that is not there yet."""
    length = 0
    for place, byte in enumerate(data[1:5]):
        length |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return 2 + place + length
    return None


def packetsOf(data: bytes) -> list[bytes]:
    """Bytes as packets; the rest is one, too."""
    found = []
    while data:
        size = sizeOf(data) or len(data)
        found.append(data[:size])
        data = data[size:]
    return found


def isSame(found: bytes, wanted: bytes) -> bool:
    """Whether two packets say the same."""
    if found == wanted:
        return True
    for version in (V5, V4):
        try:
            packets = [parsed(version, each) for each in (found, wanted)]
        except (WireError, IndexError, ValueError):
            continue
        ours, theirs = packets
        return (ours.kind, ours.flags) == (theirs.kind, theirs.flags) and (
            essence(ours, theirs) == essence(theirs, theirs)
        )
    return False


def parsed(version: int, data: bytes) -> Packet:
    """A packet whose bytes are all there."""
    size = sizeOf(data)
    if size != len(data):
        raise WireError("incomplete")
    start = 2
    while data[start - 1] >= 0x80:
        start += 1
    return parse(version, data[0] >> 4, data[0] & 0x0F, data[start:], size)


def essence(packet: Packet, wanted: Packet) -> object:
    """
    What of a packet is compared.

    @param wanted: the packet that the test asks for: a property of CONNACK that it does not have,
        or that is mosquitto's own limit, is left out.
    """
    if packet.kind == PUBLISH:
        return packet.topic, packet.payload, packet.packetId, sorted(map(repr, packet.properties))
    told = [
        (name, value)
        for name, value in packet.properties
        if packet.kind == CONNACK
        and wanted.get(name) is not None
        and wanted.get(name) != DEFAULTS.get(name)
    ]
    # [MQTT5-3.4.2-1] A server may say that nobody has subscribed.
    codes = tuple(0 if code == NO_SUBSCRIBERS else code for code in packet.codes)
    return packet.packetId, codes, packet.sessionPresent, sorted(map(repr, told))


def reserve() -> socket.socket:
    """A socket on a free port of 127.0.0.1, which does not listen yet."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", 0))
    return listening


def run(file: Path, directory: Path) -> None:
    """Run a file, and end with its status."""
    status = 1
    try:
        os.setpgid(0, 0)
        output = os.open(directory / "output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(file.parent)
        sys.path[:0] = [str(file.parent), str(file.parent.parent)]
        sockets = [reserve() for _ in range(3)]
        ports = {each.getsockname()[1]: each for each in sockets}
        suite: Any = import_module("mosq_test")
        suite.start_broker = Brokers(directory, ports).start
        suite.gen_connect = plain(suite.gen_connect)
        suite.expect_packet = expect(suite)
        suite.do_client_connect = patient(suite.do_client_connect)
        subprocess.Popen = helpers(subprocess.Popen)  # type: ignore[assignment,misc]
        # The tests ask for as many ports as they need.
        suite.get_port = lambda count=1: next(iter(ports)) if count == 1 else tuple(ports)[:count]
        sys.argv = [str(file)]
        runpy.run_path(str(file), run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = 0 if ended.code in (None, 0) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def main(folder: Path, jobs: int, names: Sequence[str]) -> None:
    """Run files, some at the same time."""
    importLibraries()
    root = Path(tempfile.mkdtemp(prefix="mosquitto-suite-", dir=folder))
    left = list(reversed(names))
    running: dict[int, tuple[str, Path, float]] = {}
    while left or running:
        while left and len(running) < jobs:
            name = left.pop()
            directory = root / f"{len(left)}-{name}"
            directory.mkdir()
            pid = os.fork()
            if not pid:
                run(folder / "test" / "broker" / name, directory)
            running[pid] = name, directory, time.monotonic() + FILE_TIME
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid in running:
            name, directory, _ = running.pop(pid)
            end(pid)
            option = directory / "option"
            how, why = "failed" if status else "passed", str(directory / "output")
            if option.exists():
                how, why = "option", option.read_text()
            sys.stdout.write(f"{how} {name} {why}\n")
            sys.stdout.flush()
            continue
        for each, (_, _, deadline) in running.items():
            if time.monotonic() > deadline:
                end(each)
        time.sleep(0.01)


def end(group: int) -> None:
    """Kill what a file has left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
