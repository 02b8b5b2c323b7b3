"""
A mosquitto to compare with.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time

from twisted.trial.unittest import SynchronousTestCase

from tests.carriers.mqtt.conformance.brokers import IConnection, SocketBroker
from tests.carriers.mqtt.conformance.client import MqttClient
from tests.carriers.mqtt.conformance.packets import V5
from tests.directories import shortDirectory
from tests.needed import neededProgram
from tests.waiting import TIMEOUT as TIMEOUT


class Mosquitto(SocketBroker):
    """
    A mosquitto that listens on a UNIX socket, with a password file and an ACL file.

    @ivar passwords: the password file. It is read when mosquitto starts, and by L{reload}.
    @ivar acl: the ACL file, likewise.
    """

    def __init__(self, test: SynchronousTestCase) -> None:
        super().__init__(("", 0), isForeign=True)
        self._test = test
        self._program = neededProgram("mosquitto")
        self._tool = neededProgram("mosquitto_passwd")
        directory = shortDirectory(test)
        self._socket = directory / "socket"
        self._configuration = directory / "mosquitto.conf"
        self.passwords, self.acl = directory / "passwords", directory / "acl"
        self.passwords.touch()
        self.acl.touch()
        self._configuration.write_text(
            f"listener 0 {self._socket}\nallow_anonymous true\npassword_file {self.passwords}\n"
            f"acl_file {self.acl}\nlog_type error\n" + ("user root\n" if os.getuid() == 0 else "")
            # Where it is started by root it drops its rights, and could not read the files.
        )

    def addUser(self, name: str, password: str, hash: str = "sha512") -> None:
        """Have C{mosquitto_passwd} add a user."""
        command = [self._tool, "-H", hash, "-b", str(self.passwords), name, password]
        subprocess.run(command, check=True, timeout=TIMEOUT, capture_output=True)

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._test.addCleanup(self._stop)
        self._test.assertTrue(self._listens())

    def _listens(self) -> bool:
        """Start it, and wait until it listens, or has ended."""
        self.process = subprocess.Popen(
            [self._program, "-c", str(self._configuration)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + TIMEOUT
        while self.process.poll() is None:
            # The socket is there before it listens.
            try:
                self.connect(TIMEOUT).close()
            except (FileNotFoundError, ConnectionRefusedError):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            else:
                return True
        return False

    def _stop(self) -> None:
        self.process.kill()
        self.process.wait()

    def accepts(self) -> bool:
        """Whether it starts with its files."""
        try:
            return self._listens()
        finally:
            self._stop()
            self._socket.unlink(missing_ok=True)

    def reload(self) -> None:
        """Have it read its files again. That happens some time later."""
        self.process.send_signal(signal.SIGHUP)

    def connect(self, timeout: float) -> IConnection:
        """See L{IBroker}."""
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(timeout)
        connection.connect(str(self._socket))
        return connection

    def client(self, clientId: str, user: str | None, password: bytes | None) -> MqttClient:
        """A client that has sent CONNECT and got an answer; see its C{connack}."""
        client = MqttClient(self, V5)
        self._test.addCleanup(client.close)
        client.connect(clientId, user=user, password=password)
        return client
