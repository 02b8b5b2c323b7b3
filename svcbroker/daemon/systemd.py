"""
The protocols of systemd: messages to the service manager with its watchdog (C{sd_notify(3)}), and
entries of the journal.

The manager names a datagram socket in C{NOTIFY_SOCKET}, and in C{WATCHDOG_USEC} the time after
which it restarts a daemon that has sent no C{WATCHDOG=1}. The reactor sends that, so a reactor that
is blocked is found.

Each entry of the journal has C{MESSAGE}, C{PRIORITY}, C{SYSLOG_IDENTIFIER} and C{SVCBROKER_LOGGER};
the event's own plain values follow as C{SVCBROKER_GROUP} and the like. The entry of a failure has
its traceback in the message, and the place that raised it in C{CODE_FILE}, C{CODE_LINE} and
C{CODE_FUNC}.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from errno import EMSGSIZE
from textwrap import shorten
from typing import IO, Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel, formatEvent
from twisted.python.failure import Failure
from zope.interface import implementer

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


SOCKET: Final = "/run/systemd/journal/socket"
"""The socket where the journal takes entries."""

IDENTIFIER: Final = "svcbroker"

_PRIORITIES: Final = {
    LogLevel.debug: 7,
    LogLevel.info: 6,
    LogLevel.warn: 4,
    LogLevel.error: 3,
    LogLevel.critical: 2,
}
# The journal takes only files that are sealed against changes.
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_MAX_NAME: Final = 64
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NO_NAME = re.compile(r"[^A-Z0-9_]")


def isJournal(stream: IO[Any], environment: Mapping[str, str]) -> bool:
    """
    Whether what is written to a stream goes to the journal.

    @param environment: the variables of this process: C{os.environ}.
    """
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return environment.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def encodeEntry(fields: Mapping[str, str]) -> bytes:
    """
    An entry as it is sent. A value of several lines is sent with its length.
    """
    encoded = bytearray()
    for name, text in fields.items():
        value = text.encode("utf-8", "backslashreplace")
        if b"\n" in value:
            encoded += b"%s\n%s%s\n" % (name.encode(), len(value).to_bytes(8, "little"), value)
        else:
            encoded += b"%s=%s\n" % (name.encode(), value)
    return bytes(encoded)


def sender(path: str = SOCKET) -> Callable[[bytes], object]:
    """
    Return the function that sends entries to the journal without blocking. It raises C{OSError}
    where the journal does not take an entry.
    """
    toJournal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    toJournal.setblocking(False)

    def send(entry: bytes) -> None:
        try:
            toJournal.sendto(entry, path)
        except OSError as error:
            if error.errno != EMSGSIZE:
                raise
            _sendFile(toJournal, path, entry)

    return send


def _sendFile(toJournal: socket.socket, path: str, entry: bytes) -> None:
    """Send an entry that is too large for a datagram as a file in memory."""
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    with open(os.memfd_create("svcbroker-entry", flags), "wb", buffering=0) as file:
        file.write(entry)
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
        descriptors = array("i", [file.fileno()])
        toJournal.sendmsg([], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)], 0, path)


@implementer(ILogObserver)
class JournalObserver:
    """
    A log observer that sends entries to the journal.
    """

    def __init__(
        self,
        send: Callable[[bytes], object],
        stream: IO[Any],
        plainValues: Callable[[LogEvent], Iterator[tuple[str, Any]]],
    ) -> None:
        """
        @param send: sends an entry; see L{sender}.
        @param stream: takes the message, with its priority in front, where the journal does not
            take the entry.
        @param plainValues: the values of an event that may be logged, by their names.
        """
        self._send = send
        self._stream = stream
        self._plainValues = plainValues

    def __call__(self, event: LogEvent) -> None:
        """See C{ILogObserver}."""
        fields = self._fields(event)
        try:
            self._send(encodeEntry(fields))
        except OSError:
            prefix = f"<{fields['PRIORITY']}>"
            for line in fields["MESSAGE"].splitlines():
                self._stream.write(f"{prefix}{line}\n")
            self._stream.flush()

    def _fields(self, event: LogEvent) -> dict[str, str]:
        level = event.get("log_level") or LogLevel.info
        fields = {
            "MESSAGE": formatEvent(event),
            "PRIORITY": str(_PRIORITIES[level]),
            "SYSLOG_IDENTIFIER": IDENTIFIER,
            "SVCBROKER_LOGGER": event.get("log_namespace", "unknown"),
        }
        for name, value in self._plainValues(event):
            key = "SVCBROKER_" + _NO_NAME.sub("_", _WORDS.sub("_", name).upper())
            if value is not None and len(key) <= _MAX_NAME:
                fields.setdefault(key, str(value))
        failure = event.get("log_failure")
        if isinstance(failure, Failure):
            fields["MESSAGE"] += "\n" + failure.getTraceback().rstrip()
            if failure.frames:
                function, file, line = failure.frames[-1][:3]
                fields.update(CODE_FUNC=function, CODE_FILE=file, CODE_LINE=str(line))
        return fields
