"""
Tests for L{svcbroker.daemon.systemd}: what the service manager is told.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.daemon.systemd import (
    RETRY_INTERVAL,
    STATUS_INTERVAL,
    ServiceManager,
    findServiceManager,
)


class ServiceManagerTests(SynchronousTestCase):
    """
    L{ServiceManager}
    """

    def setUp(self) -> None:
        self.clock = Clock()
        self.sent: list[str] = []
        self.errors: list[OSError] = []
        self.status = "Serves group 1 at block 1"
        self.manager = ServiceManager(self.clock, self.send, 30.0, lambda: 5_000_999)

    def send(self, message: bytes) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append(message.decode())

    def takeSent(self) -> list[str]:
        """What was sent since the last call."""
        sent, self.sent[:] = list(self.sent), []
        return sent

    def describe(self) -> Deferred[str]:
        return succeed(self.status)

    def test_everyStepExtendsStart(self) -> None:
        self.manager.starting("opening group 1")
        self.assertEqual(
            self.takeSent(), ["EXTEND_TIMEOUT_USEC=600000000", "STATUS=Starting: opening group 1"]
        )

    def test_watchdogIsPingedAtHalfItsTime(self) -> None:
        self.manager.ready(self.describe)
        self.assertEqual(self.takeSent(), ["READY=1", "WATCHDOG=1", f"STATUS={self.status}"])
        self.clock.advance(14.9)
        self.assertEqual(self.takeSent(), [])
        self.clock.advance(0.1)
        self.assertEqual(self.takeSent(), ["WATCHDOG=1"])

    def test_statusIsSentWhenItChanges(self) -> None:
        manager = ServiceManager(self.clock, self.send)
        manager.ready(self.describe)
        self.takeSent()
        self.status = "Serves group 1 at block 2\n" + 1000 * "word "
        self.clock.advance(STATUS_INTERVAL)
        ping, status = self.takeSent()
        self.assertEqual(ping, "WATCHDOG=1")
        self.assertEqual(status[:33], "STATUS=Serves group 1 at block 2 ")
        self.assertRegex(status, r" word word \.\.\.$")
        self.assertLess(len(status), 408)

    def test_ledgerThatFailsOrHangsKeepsPings(self) -> None:
        answers: list[Deferred[str]] = [fail(OSError("no")), Deferred()]
        self.manager.ready(lambda: answers.pop(0))
        self.clock.pump([15, 15, 15])
        self.assertEqual(self.takeSent(), ["READY=1", *(["WATCHDOG=1"] * 4)])
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 1)

    def test_reloadIsDatedAndItsErrorShown(self) -> None:
        self.manager.ready(self.describe)
        self.takeSent()
        self.manager.reloading()
        self.manager.reloaded("accounts: bad")
        self.manager.reloading()
        self.manager.reloaded("")
        self.assertEqual(
            self.takeSent(),
            [
                *("RELOADING=1\nMONOTONIC_USEC=5000", "READY=1"),
                f"STATUS={self.status}; the last reload failed: accounts: bad",
                *("RELOADING=1\nMONOTONIC_USEC=5000", "READY=1", f"STATUS={self.status}"),
            ],
        )

    def test_stopIsTheLastStatus(self) -> None:
        late: Deferred[str] = Deferred()
        self.manager.ready(lambda: late)
        self.takeSent()
        self.manager.stopping()
        late.callback("Serves")
        self.clock.advance(15)
        self.assertEqual(self.takeSent(), ["STOPPING=1", "STATUS=Stopping", "WATCHDOG=1"])

    def test_fullSocketIsTriedAgainInOrder(self) -> None:
        self.errors = [BlockingIOError(), BlockingIOError()]
        self.manager.ready(self.describe)
        self.clock.advance(RETRY_INTERVAL)
        self.assertEqual(self.takeSent(), [])
        self.clock.advance(RETRY_INTERVAL)
        self.assertEqual(self.takeSent(), ["READY=1", "WATCHDOG=1", f"STATUS={self.status}"])

    def test_absentManagerIsSkipped(self) -> None:
        """A manager that cannot be reached is logged, and does not end the daemon."""
        self.errors = [ConnectionRefusedError(111, "Connection refused")]
        self.manager.starting("x")
        self.assertEqual(self.takeSent(), ["STATUS=Starting: x"])


class FindServiceManagerTests(SynchronousTestCase):
    """
    L{findServiceManager}
    """

    def sockets(self) -> Iterator[tuple[socket.socket, str]]:
        """A socket with a path, and an abstract one, with their names in NOTIFY_SOCKET."""
        # mktemp() makes paths that are too long for a socket.
        with tempfile.TemporaryDirectory() as root:
            for name in (f"{root}/notify", f"@svcbroker-test-{os.getpid()}"):
                receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                receiver.bind(name.replace("@", "\0"))
                with receiver:
                    yield receiver, name

    def test_messagesReachNamedSocket(self) -> None:
        for receiver, name in self.sockets():
            clock = Clock()
            manager = findServiceManager({"NOTIFY_SOCKET": name}, 7, clock)
            manager.ready(lambda: succeed("Serves"))
            messages = [receiver.recv(1000) for _ in range(3)]
            self.assertEqual(messages, [b"READY=1", b"WATCHDOG=1", b"STATUS=Serves"])

    def test_watchdogOfOtherProcessIsIgnored(self) -> None:
        for receiver, name in self.sockets():
            for pid, usec, interval in (
                ("7", "4000000", 2.0),
                ("8", "4000000", STATUS_INTERVAL),
                ("7", "x", STATUS_INTERVAL),
                ("7", "0", STATUS_INTERVAL),
            ):
                clock = Clock()
                environment = {"NOTIFY_SOCKET": name, "WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}
                findServiceManager(environment, 7, clock).ready(lambda: succeed("Serves"))
                (call,) = clock.getDelayedCalls()
                self.assertEqual(call.getTime(), interval)
                for _ in range(3):
                    receiver.recv(1000)

    def test_missingOrUnknownSocketIsNoManager(self) -> None:
        for environment in ({}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}):
            clock = Clock()
            manager = findServiceManager(environment, os.getpid(), clock)
            manager.starting("x")
            manager.ready(lambda: succeed("Serves"))
            manager.stopping()
            self.assertEqual(clock.getDelayedCalls(), [])

    def test_socketThatIsGoneIsLogged(self) -> None:
        with capturedLogs() as logs:
            findServiceManager({"NOTIFY_SOCKET": "/nosuch/socket"}, 7, Clock()).reloading()
        [text] = map(formatEvent, logs)
        self.assertEqual(text, "The service manager was not told: No such file or directory")
