"""
The incidents as a feature of the daemon: what came before an alarm, in a file.

A ring in memory has the lines of the last minute, finer ones than the log has, too. An alarm writes
it to a file with what was measured in that minute. A file has no more than lines of the log have:
never the content of an event.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import ILogObserver, LogEvent, Logger, LogLevel, formatEvent, globalLogPublisher
from zope.interface import implementer

from ..broker.features import Feature, RunningFeature, Services
from ..files import newFile
from ..net.alarms import Alarm, Incident
from ..net.bounds import Bound, Sizing
from ..net.deferreds import asDeferred
from ..net.settings import NoSettings

DIRECTORY: Final = ".incidents"
"""The name of the directory of the files, in the data directory. No group can have it."""

FORMAT: Final = "svcbroker/incident/1"

MAX_FILES: Final = 20
"""The most files that are kept: the oldest are removed."""

PERIOD: Final = 60
"""The seconds before an alarm that its file has."""

REST: Final = 600.0
"""Seconds in which the same alarm of the same group writes no further file."""

MAX_LINES: Final = 500
"""The most lines that are kept below the level of a warning, and the most of all others."""

MAX_LINE: Final = 300
"""The longest line that is kept whole, in letters."""


@implementer(ILogObserver)
class LineRing:
    """
    The last lines of the log, of all levels. Many fine ones do not displace warnings.
    """

    def __init__(self) -> None:
        self._fine: deque[LogEvent] = deque(maxlen=MAX_LINES)
        self._grave: deque[LogEvent] = deque(maxlen=MAX_LINES)

    def __call__(self, event: LogEvent) -> None:
        """Keep a line. Called in any thread."""
        level = event.get("log_level") or LogLevel.info
        line = {
            "time": event.get("log_time", 0.0),
            "level": level.name,
            "logger": event.get("log_namespace", ""),
            "text": formatEvent(event)[:MAX_LINE],
        }
        (self._grave if level >= LogLevel.warn else self._fine).append(line)

    def since(self, time: float) -> list[LogEvent]:
        """The lines from a time on, in their order."""
        lines = [*self._fine, *self._grave]
        return sorted((x for x in lines if x["time"] >= time), key=lambda line: line["time"])


class IncidentFeature(RunningFeature):
    """
    Writes a file when an alarm begins, and knows those that there are.
    """

    _log = Logger()

    def __init__(self, options: NoSettings, services: Services) -> None:
        self._services = services
        self._directory = services.dataDir / DIRECTORY
        self._ring = LineRing()
        self._written: dict[tuple[str, str], float] = {}

    @asDeferred
    async def start(self) -> None:
        """Begin to keep lines. Files of before are listed."""
        services = self._services
        globalLogPublisher.addObserver(self._ring)
        services.alarms.onRaise = self._raised
        services.alarms.incidents = await services.runInThread(_readAll, self._directory)

    def drain(self) -> Deferred[Any]:
        """Write no more."""
        self._services.alarms.onRaise = id
        globalLogPublisher.removeObserver(self._ring)
        return succeed(None)

    def _raised(self, alarm: Alarm) -> None:
        now, key = self._services.reactor.seconds(), (alarm.condition.name, alarm.group)
        if now - self._written.get(key, -REST) >= REST:
            self._written[key] = now
            writing = self._write(alarm)
            writing.addErrback(lambda f: self._log.failure("An incident was not written", f))

    @asDeferred
    async def _write(self, alarm: Alarm) -> None:
        services = self._services
        part = services.history.part(PERIOD)
        told = {
            "format": FORMAT,
            "name": alarm.condition.name,
            "level": alarm.condition.level.value,
            "title": alarm.condition.title,
            "group": alarm.group,
            "at": alarm.since,
            "text": alarm.text,
            "measures": {"end": part.end, "step": part.step, "series": dict(part.series)},
            "lines": self._ring.since(alarm.since - PERIOD),
        }
        services.alarms.incidents = await services.runInThread(_keep, self._directory, told)


def _keep(directory: Path, told: Mapping[str, Any]) -> list[Incident]:
    """Write a file, and remove the oldest above L{MAX_FILES}. This blocks."""
    directory.mkdir(mode=0o700, exist_ok=True)
    time = datetime.fromtimestamp(told["at"], UTC).strftime("%Y%m%dT%H%M%SZ")
    number, path = 1, directory / f"{time}-{told['name']}.json"
    while path.exists():
        number += 1
        path = directory / f"{time}-{told['name']}-{number}.json"
    with newFile(path) as file:
        file.write(json.dumps(told, indent=1).encode("ascii"))
    for old in sorted(directory.glob("*.json"))[:-MAX_FILES]:
        old.unlink(missing_ok=True)
    return _readAll(directory)


def _readAll(directory: Path) -> list[Incident]:
    """The incidents that are kept, the newest first. This blocks."""
    found = []
    for path in sorted(directory.glob("*.json"), reverse=True)[:MAX_FILES]:
        try:
            told = json.loads(path.read_bytes())
            fields = {name: told[name] for name in ("name", "level", "title", "group", "text")}
            found.append(Incident(file=f"{DIRECTORY}/{path.name}", at=float(told["at"]), **fields))
        except (OSError, ValueError, LookupError, TypeError):
            continue  # Somebody has changed it: it is no incident of ours any more.
    return found


def incidentBounds(options: NoSettings, sizing: Sizing) -> Iterator[Bound]:
    """The memory of the ring, and of a file that is written."""
    yield Bound(
        name="lines of the last minute",
        bytes=4 * 2 * MAX_LINES * (MAX_LINE + 512),
        how=f"{2 * MAX_LINES:,} of at most {MAX_LINE} letters, and a copy that is written",
        holders=[f"svcbroker.daemon.incidents.LineRing.{name}" for name in ("_fine", "_grave")],
    )


FEATURE: Final = Feature(name="incidents", make=IncidentFeature, bounds=incidentBounds)
