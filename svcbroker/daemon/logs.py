"""
The log: where it goes, from which level on, and as JSON lines or entries of the journal.

As JSON, each line is an object: C{time} (RFC 3339, UTC), C{level}, C{logger}, C{message}, then the
event's own plain values under their names, and C{traceback} where a failure was logged.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import msgspec
from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    PredicateResult,
    formatEvent,
    textFileLogObserver,
)
from twisted.python.failure import Failure
from twisted.python.logfile import LogFile

from .config import Config
from .systemd import JournalObserver, isJournal, sender

# These are told under names of our own, or are leftovers of the older logging interface.
_NOT_TOLD = frozenset(
    {"format", "isError", "log_level", "message", "system", "time", "failure", "why", "debug"}
)


_OF_PORTS: Final = re.compile(r"\S+ starting on .*|\(.*Port .*Closed\)")
"""The messages of Twisted's ports."""


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def plainValues(event: LogEvent) -> Iterator[tuple[str, Any]]:
    """
    The event's own values that are logged, by their names: only text, numbers, truth values and
    C{None}. Anything else may be bigger or more private than a log should be.
    """
    for name, value in event.items():
        if name in _NOT_TOLD or name.startswith("log_"):
            continue
        if value is None or isinstance(value, str | int | float | bool):
            yield name, value


def formatJSON(event: LogEvent) -> str:
    """
    One event as a line, with its end.
    """
    level = event.get("log_level")
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(event["log_time"], UTC).isoformat(),
        "level": "info" if level is None else level.name,
        "logger": event.get("log_namespace", "unknown"),
        "message": _plain(formatEvent(event)),
    }
    for name, value in plainValues(event):
        if name not in line:
            line[name] = _plain(value)
    failure = event.get("log_failure")
    if isinstance(failure, Failure):
        line["traceback"] = _plain(failure.getTraceback())
    return msgspec.json.encode(line, enc_hook=str).decode("utf-8") + "\n"


def jsonLogObserver(outFile: IO[Any]) -> ILogObserver:
    """
    An observer that writes JSON lines to a file.
    """
    observer: ILogObserver = FileLogObserver(outFile, formatJSON)
    return observer


class ReopenedFile(LogFile):
    """
    A log file that rotates itself by size, and that another program may move aside.
    """

    def reopen(self) -> None:
        """
        Write to the file that has the name now.

        @raise OSError: it cannot be opened. The one before is kept.
        """
        before = self._file
        self._openFile()
        before.close()


class LogFilter:
    """
    Keeps events below a level out of a log, whose file it knows. What Twisted tells of the
    beginning and the end of a process, and of its ports, the daemon tells itself: that is logged at
    C{debug}.

    @ivar file: the file; C{None} where the log goes elsewhere.
    """

    def __init__(self, level: str) -> None:
        """
        @param level: the lowest level that is logged.
        """
        self.file: ReopenedFile | None = None
        self._predicate = LogLevelFilterPredicate()
        self.use(level)

    def use(self, level: str) -> None:
        """Log from another level on."""
        found = LogLevel.levelWithName(level)
        self._isDebug = found == LogLevel.debug
        self._predicate.setLogLevelForNamespace("", found)
        self._predicate.setLogLevelForNamespace(
            "twisted", LogLevel.warn if found == LogLevel.info else found
        )

    def _skipPorts(self, event: LogEvent) -> Any:
        isSkipped = (
            not self._isDebug
            and event.get("log_system") == "-"
            and _OF_PORTS.fullmatch(formatEvent(event)) is not None
        )
        return PredicateResult.no if isSkipped else PredicateResult.maybe

    def reopen(self) -> None:
        """
        Write to the file that has the log's name now, after another program has moved it aside.

        @raise OSError: it cannot be opened.
        """
        if self.file is not None:
            self.file.reopen()

    def observe(self, observer: ILogObserver) -> ILogObserver:
        """An observer that passes the events on that are logged."""
        skipPorts: Any = self._skipPorts
        filtering: ILogObserver = FilteringLogObserver(observer, [self._predicate, skipPorts])
        return filtering


def openLogFile(path: Path, reactor: Any) -> ReopenedFile:
    """
    A log file that rotates itself by size and on SIGUSR1, as twistd's own.
    """
    file = ReopenedFile(path.name, str(path.parent))
    if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:
        signal.signal(signal.SIGUSR1, lambda *_: reactor.callFromThread(file.rotate))
    return file


def observerMaker(
    config: Config, twistd: Mapping[str, Any], filter: LogFilter, reactor: Any
) -> Callable[[], ILogObserver] | None:
    """
    Return the maker of the log observer that the configuration asks for.

    @param twistd: twistd's own options.
    @return: C{None} for the log of the system, which has levels and a form of its own.
    """
    if twistd.get("syslog"):
        return None
    name = twistd.get("logfile") or ("-" if twistd.get("nodaemon", True) else "twistd.log")
    format = config.logFormat
    if format == "auto":
        format = "journal" if name == "-" and isJournal(sys.stdout, os.environ) else "text"

    def observer() -> ILogObserver:
        if format == "journal":
            return filter.observe(JournalObserver(sender(), sys.stdout, plainValues))
        file: Any = sys.stdout
        if name != "-":
            file = filter.file = openLogFile(Path(name).absolute(), reactor)
        make = textFileLogObserver if format == "text" else jsonLogObserver
        return filter.observe(make(file))

    return observer
