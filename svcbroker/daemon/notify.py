"""
Messages to the service manager (systemd): C{sd_notify(3)} and its watchdog.

The manager names a datagram socket in C{NOTIFY_SOCKET}, and in C{WATCHDOG_USEC} the time after
which it restarts a daemon that has sent no C{WATCHDOG=1}. The reactor sends that, so a reactor that
is blocked is found.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from textwrap import shorten
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

STATUS_INTERVAL: Final = 30.0
"""The time between two statuses sent where there is no watchdog, in seconds."""

START_EXTENSION: Final = 600.0
"""The time that each step of the start may take before the manager gives up, in seconds."""

RETRY_INTERVAL: Final = 0.1
"""After how many seconds a message is sent again that the manager's full socket did not take."""

_MAX_STATUS: Final = 400
_MAX_WAITING: Final = 100

_log = Logger()


class ServiceManager:
    """
    The service manager, as the daemon talks to it. Without one, all methods do nothing.
    """

    def __init__(
        self,
        clock: Any,
        send: Callable[[bytes], object] | None = None,
        watchdog: float | None = None,
        monotonic: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """
        @param send: sends a datagram without blocking, or raises C{OSError}; C{None} where there is
            no manager.
        @param watchdog: the seconds after which the manager restarts a silent daemon; C{None} for
            never.
        @param monotonic: the clock by which a reload is dated: C{CLOCK_MONOTONIC} in nanoseconds.
        """
        self._clock = clock
        self._send = send
        self._monotonic = monotonic
        self._interval = STATUS_INTERVAL if watchdog is None else watchdog / 2
        self._waiting: list[bytes] = []
        self._describe: Callable[[], Deferred[str]] | None = None
        self._isDescribing = False
        self._reloadError = ""
        self._status = ""

    def starting(self, step: str) -> None:
        """The start goes on. The manager waits L{START_EXTENSION} more seconds."""
        self._tell(f"EXTEND_TIMEOUT_USEC={START_EXTENSION * 1e6:.0f}")
        self._setStatus(f"Starting: {step}")

    def ready(self, describe: Callable[[], Deferred[str]]) -> None:
        """
        The daemon serves its clients. From now on the watchdog gets its pings.

        @param describe: fires with the status in a line. It is called after each ping.
        """
        self._tell("READY=1")
        if self._send is not None:
            self._describe = describe
            loop = LoopingCall(self._ping)
            loop.clock = self._clock
            loop.start(self._interval)

    def reloading(self) -> None:
        """A reload begins."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={self._monotonic() // 1000}")

    def reloaded(self, error: str) -> None:
        """
        The reload is over.

        @param error: why it has failed, for the status; empty where it has not.
        """
        self._reloadError = error
        self._tell("READY=1")
        self._updateStatus()

    def stopping(self) -> None:
        """The daemon stops in order. The watchdog gets its pings as long as the reactor runs."""
        self._describe = None
        self._tell("STOPPING=1")
        self._setStatus("Stopping")

    def _ping(self) -> None:
        self._tell("WATCHDOG=1")
        self._updateStatus()

    def _updateStatus(self) -> None:
        if self._describe is not None and not self._isDescribing:
            self._isDescribing = True
            self._describe().addCallback(self._described).addErrback(
                lambda failure: _log.failure("The status is not known", failure)
            ).addBoth(self._endDescribing)

    def _endDescribing(self, _: object) -> None:
        self._isDescribing = False

    def _described(self, text: str) -> None:
        # It may have begun to stop meanwhile.
        if self._describe is not None:
            error = self._reloadError and f"; the last reload failed: {self._reloadError}"
            self._setStatus(text + error)

    def _setStatus(self, text: str) -> None:
        if text != self._status:
            self._status = text
            self._tell(f"STATUS={shorten(text, _MAX_STATUS, placeholder=' ...')}")

    def _tell(self, *lines: str) -> None:
        if self._send is not None and len(self._waiting) < _MAX_WAITING:
            self._waiting.append("\n".join(lines).encode("utf-8", "backslashreplace"))
            if len(self._waiting) == 1:
                self._flush()

    def _flush(self) -> None:
        assert self._send is not None
        while self._waiting:
            try:
                self._send(self._waiting[0])
            except BlockingIOError:
                self._clock.callLater(RETRY_INTERVAL, self._flush)
                return
            except OSError as error:
                _log.warn("The service manager was not told: {reason}", reason=error.strerror)
            self._waiting.pop(0)


def findServiceManager(environment: Mapping[str, str], pid: int, clock: Any) -> ServiceManager:
    """
    The service manager that has started this process, if one has.

    @param environment: the variables of this process: C{os.environ}.
    @param pid: the number of this process.
    """
    name = environment.get("NOTIFY_SOCKET", "")
    if name[:1] not in ("/", "@"):
        return ServiceManager(clock)
    # A name that begins with @ is one of Linux's abstract sockets.
    address = f"\0{name[1:]}" if name.startswith("@") else name
    toManager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    toManager.setblocking(False)
    return ServiceManager(
        clock, lambda message: toManager.sendto(message, address), _watchdog(environment, pid)
    )


def _watchdog(environment: Mapping[str, str], pid: int) -> float | None:
    microseconds = environment.get("WATCHDOG_USEC", "")
    isOurs = environment.get("WATCHDOG_PID", str(pid)) == str(pid)
    if not isOurs or not microseconds.isascii() or not microseconds.isdigit():
        return None
    return int(microseconds) / 1e6 or None
