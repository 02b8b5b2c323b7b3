"""
The log as JSON lines.

One object a line: C{time} (RFC 3339, UTC), C{level}, C{logger}, C{message}, then the event's
own plain values under their names, and C{traceback} where a failure was logged.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec
from twisted.logger import FileLogObserver, ILogObserver, LogEvent, formatEvent
from twisted.python.failure import Failure
from twisted.python.logfile import LogFile

from .config import Config

# These are told under names of our own, or are leftovers of the older logging interface.
_NOT_TOLD = frozenset(
    {"format", "isError", "log_level", "message", "system", "time", "failure", "why", "debug"}
)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return value


def formatJSON(event: LogEvent) -> str:
    """
    One event as a line, with its end.

    Only text, numbers, truth values and C{None} are told under their names; anything else may
    be bigger or more private than a log should be.
    """
    level = event.get("log_level")
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(event["log_time"], UTC).isoformat(),
        "level": "info" if level is None else level.name,
        "logger": event.get("log_namespace", "unknown"),
        "message": _plain(formatEvent(event)),
    }
    for name, value in event.items():
        if name in line or name in _NOT_TOLD or name.startswith("log_"):
            continue
        if value is None or isinstance(value, str | int | float | bool):
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


def openLogFile(path: Path) -> IO[Any]:
    """
    A log file that rotates itself by size, as twistd's own.
    """
    file: IO[Any] = LogFile.fromFullPath(str(path))
    return file


def observerMaker(config: Config, twistd: Mapping[str, Any]) -> Callable[[], ILogObserver] | None:
    """
    What makes the log observer that the configuration asks for.

    @param twistd: twistd's own options.
    @return: C{None} where twistd's own observer does.
    """
    if config.logFormat == "text" or twistd.get("syslog"):
        return None
    name = twistd.get("logfile") or ("-" if twistd.get("nodaemon", True) else "twistd.log")
    if name == "-":
        return lambda: jsonLogObserver(sys.stdout)
    return lambda: jsonLogObserver(openLogFile(Path(name).absolute()))
