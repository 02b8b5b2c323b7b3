"""
A real daemon under a service manager: its messages, its watchdog, and sockets that it inherits.
"""

from __future__ import annotations

import signal
import socket
import sys
import tempfile
from pathlib import Path

from twisted.internet.defer import Deferred
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.threads import deferToThread

from .daemon import OFF, RUN, TIMEOUT, Daemon, DaemonTestCase, reactor

INHERIT = """
import fcntl, os, socket, sys
names, interface, *command = sys.argv[1:]
made = [
    fcntl.fcntl(socket.create_server((interface, 0)), fcntl.F_DUPFD, 100)
    for name in names.split(":")
]
for number, each in enumerate(made):
    os.dup2(each, 3 + number)
os.environ.update(
    LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(made)), LISTEN_FDNAMES=names
)
os.execv(command[0], command)
"""
"""A program that opens sockets as systemd does, and becomes the daemon."""

STOMP_CONNECT = b"CONNECT\naccept-version:1.2\nhost:h\n\n\0"
MQTT_CONNECT = b"\x10\x10\0\4MQTT\5\2\0\0\0\0\3abc"


class ManagerProtocol(DatagramProtocol):
    """
    The socket of a service manager.

    @ivar messages: what the daemon has sent.
    """

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._wanted = ""
        self._found: Deferred[None] = Deferred()

    def datagramReceived(self, datagram: bytes, addr: object) -> None:
        self.messages.append(datagram.decode())
        self._look()

    def waitFor(self, wanted: str) -> Deferred[None]:
        """Fires when a message begins so. All messages up to it are taken."""
        self._wanted, self._found = wanted, Deferred()
        self._look()
        return self._found.addTimeout(TIMEOUT, reactor)

    def _look(self) -> None:
        for number, message in enumerate(self.messages):
            if self._wanted and message.startswith(self._wanted):
                del self.messages[: number + 1]
                self._wanted = ""
                self._found.callback(None)
                return


class SystemdTests(DaemonTestCase):
    """
    A daemon as systemd starts it.
    """

    isForked = False

    def inherit(self, names: str, interface: str, *arguments: str) -> Daemon:
        """A daemon that was passed sockets of these names."""
        command = [sys.executable, "-c", RUN, "-n", "--pidfile=", "svcbroker", *OFF]
        command += [f"--data-dir={self.dataDir}", "--ledger=memory", *arguments]
        return self.spawn(sys.executable, "-c", INHERIT, names, interface, *command)

    async def asked(self, daemon: Daemon, name: str, request: bytes) -> bytes:
        """What a port answers."""
        found = await daemon.protocol.waitFor(rf"{name} on 127\.0\.0\.1:(\d+)")

        def ask() -> bytes:
            with socket.create_connection(("127.0.0.1", int(found[1])), TIMEOUT) as connection:
                connection.sendall(request)
                return connection.recv(100)

        return await deferToThread(ask)

    async def test_managerIsToldOfStartReloadAndStop(self) -> None:
        """
        On sockets that it inherits: clients are served once it is ready, the watchdog gets its
        pings, a reload and a stop are told, and a reload changes the level of the log.
        """
        # The path of a socket is short.
        root = Path(self.enterContext(tempfile.TemporaryDirectory()))
        manager = ManagerProtocol()
        port = reactor.listenUNIXDatagram(str(root / "notify"), manager)
        self.addCleanup(port.stopListening)
        self.environment.update(NOTIFY_SOCKET=str(root / "notify"), WATCHDOG_USEC="200000")
        config = root / "svcbroker.toml"
        config.write_text("")
        daemon = self.inherit(
            "web:stomp:mqtt",
            "127.0.0.1",
            f"--config={config}",
            *("--http=systemd:name=web", "--stomp=systemd:domain=INET:index=1"),
            "--mqtt=systemd:INET:name=mqtt",
        )
        await manager.waitFor("EXTEND_TIMEOUT_USEC=")
        await manager.waitFor("STATUS=Starting: opening group 1")
        await manager.waitFor("READY=1")
        await daemon.serves()
        await daemon.call("/rest/open", topic="t")
        self.assertEqual(
            (await daemon.call("/rest/publish", topic="t", content="x"))["status"], "SUCCESS"
        )
        self.assertIn(b"CONNECTED", await self.asked(daemon, "STOMP", STOMP_CONNECT))
        self.assertEqual((await self.asked(daemon, "MQTT", MQTT_CONNECT))[:1], b"\x20")
        await manager.waitFor("STATUS=Serves group 1 at block 2")
        for _ in range(3):
            await manager.waitFor("WATCHDOG=1")
        for level in ("error", "info"):
            config.write_text(f'log-level = "{level}"\n')
            daemon.process.signalProcess(signal.SIGHUP)
            await manager.waitFor("RELOADING=1\nMONOTONIC_USEC=")
            await manager.waitFor("READY=1")
        await daemon.protocol.waitFor("settings were read again")
        self.assertEqual(daemon.protocol.output.count("settings were read again"), 1)
        daemon.process.signalProcess(signal.SIGTERM)
        await manager.waitFor("STOPPING=1")
        self.assertEqual(await daemon.exits(), 0)

    async def test_unsafeOrMissingSocketIsRefused(self) -> None:
        """What counts is where the socket listens."""
        for interface, option, reason in (
            ("0.0.0.0", "systemd:name=web", "systemd:name=web is not known to be on loopback"),
            ("127.0.0.1", "systemd:name=a", "cannot listen on systemd:name=a: systemd has not"),
        ):
            daemon = self.inherit("web", interface, f"--http={option}")
            self.assertEqual(await daemon.exits(), 1, daemon.protocol.output)
            self.assertIn(f"svcbroker: http: {reason}", daemon.protocol.errors)

    async def test_socketOfTwoPortsIsRefused(self) -> None:
        daemon = self.inherit(
            "web", "127.0.0.1", "--http=systemd:name=web", "--mqtt=systemd:index=0"
        )
        self.assertEqual(await daemon.exits(), 2)
        self.assertIn("mqtt: systemd:index=0 is the socket of http, too", daemon.protocol.errors)
