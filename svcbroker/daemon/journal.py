"""
The log as entries of systemd's journal, with their fields, by its native protocol.

Each entry has C{MESSAGE}, C{PRIORITY}, C{SYSLOG_IDENTIFIER} and C{SVCBROKER_LOGGER}; the event's
own plain values follow as C{SVCBROKER_GROUP} and the like. The entry of a failure has its traceback
in the message, and the place that raised it in C{CODE_FILE}, C{CODE_LINE} and C{CODE_FUNC}.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
from array import array
from collections.abc import Callable, Iterator, Mapping
from errno import EMSGSIZE
from typing import IO, Any, Final

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent
from twisted.python.failure import Failure
from zope.interface import implementer

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
