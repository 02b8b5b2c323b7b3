"""
Jobs: commands that the daemon runs for its operators, each as a child process.

A job is the command that an operator of the machine would type, so both do the same. One runs at a
time, and its last lines are kept in memory.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from attrs import evolve
from twisted.internet.defer import Deferred, succeed
from twisted.internet.protocol import ProcessProtocol
from zope.interface import implementer

from ..broker import IJobs, JobReport
from ..broker.features import Feature, RunningFeature, Services
from ..errors import ParameterInvalid
from ..net.alarms import Alarm
from ..net.processes import IProcessReactor, ProcessEnd, ProcessLimits, Supervisor
from ..net.settings import NoSettings, maskSecrets
from .auditing import AUDIT_FAILED, RESULTS

_LINES: Final = 60
"""The number of last lines of a job that are kept."""
_LINE: Final = 500
"""The most characters of a line that are kept."""
_LIMITS: Final = ProcessLimits(firstDelay=1.0, maxDelay=1.0, endTimeout=5.0)


@implementer(IJobs)
class Jobs:
    """
    The jobs of a data directory.

    @ivar damage: a line of the last audit, where that has found damage; otherwise empty.
    """

    def __init__(
        self,
        dataDir: Path,
        reactor: IProcessReactor,
        now: Callable[[], float],
        arguments: Sequence[str] = (),
    ) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        @param arguments: the options that the daemon was given.
        """
        self._dataDir = dataDir.absolute()
        self._backups = self._dataDir.with_name(f"{self._dataDir.name}-backups")
        self._reactor = reactor
        self._now = now
        self._arguments = arguments
        self._reports: dict[str, JobReport] = {}
        self._lines: deque[str] = deque(maxlen=_LINES)
        self._unread = ""
        self.damage = ""
        self._process: Supervisor | None = None

    def start(self, name: str) -> None:
        """See L{IJobs<svcbroker.broker.IJobs>}."""
        command = self._commands().get(name)
        if command is None:
            raise ParameterInvalid("name: there is no such job: it is audit, backup or doctor")
        if self._process is not None:
            raise ParameterInvalid("name: a job runs already: wait until it has ended")
        try:
            if name == "backup":
                self._backups.mkdir(0o700, exist_ok=True)
        except OSError as error:
            raise ParameterInvalid(f"name: cannot make {self._backups}: {error.strerror}") from None
        self._lines.clear()
        self._unread = ""
        self._reports.pop(name, None)
        shown = tuple(map(maskSecrets, command))
        report = JobReport(name=name, command=shown, startedAt=int(self._now() * 1000))
        self._reports = {name: report, **self._reports}
        program = [sys.executable, "-P", "-m", "svcbroker.commands", *command[1:]]
        if name != "doctor":
            program.append("--progress")
        self._process = Supervisor(
            f"the job {name}",
            program,
            clock=self._reactor,
            limits=_LIMITS,
            launch=self._launch,
            output=self._outputReceived,
            ended=self._ended,
        )
        self._process.start()

    def reports(self) -> Sequence[JobReport]:
        """See L{IJobs<svcbroker.broker.IJobs>}."""
        if self._process is None:
            return [*self._reports.values()]
        running, *others = self._reports.values()
        return [evolve(running, output=tuple(self._lines)), *others]

    def stop(self) -> Deferred[None]:
        """End the job that runs."""
        return succeed(None) if self._process is None else self._process.stop()

    def _commands(self) -> Mapping[str, Sequence[str]]:
        """The commands by the names of the jobs."""
        data, time = str(self._dataDir), datetime.fromtimestamp(self._now(), UTC)
        target = self._backups / f"{time:%Y%m%dT%H%M%SZ}"
        return {
            "audit": ["svcbroker", "chain", "audit", "--background", data],
            "backup": ["svcbroker", "chain", "backup", data, str(target)],
            # The last of two directories is taken: the daemon may have gone to another one since.
            "doctor": ["svcbroker", "doctor", "--quiet", *self._arguments, f"--data-dir={data}"],
        }

    def _launch(self, protocol: ProcessProtocol, program: str, arguments: Sequence[str]) -> object:
        path = os.pathsep.join(filter(None, sys.path))
        return self._reactor.spawnProcess(protocol, program, arguments, env={"PYTHONPATH": path})

    def _outputReceived(self, data: bytes, isError: bool) -> None:
        text = self._unread + data.decode("utf-8", "replace").replace("\r", "\n")
        *lines, self._unread = text[-_LINES * _LINE :].split("\n")
        self._lines.extend(each[:_LINE] for each in lines if each.strip())

    def _ended(self, end: ProcessEnd) -> None:
        assert self._process is not None
        # It is not started again.
        self._process.isWanted = False
        self._process = None
        if self._unread.strip() or not self._lines:
            self._lines.append(self._unread[:_LINE] or f"ended {end}")
        name, report = next(iter(self._reports.items()))
        if name == "audit" and end.status in RESULTS:
            found = [each for each in self._lines if "NOT GOOD" in each] or [*self._lines]
            self.damage = found[0] if end.status else ""
        self._reports[name] = evolve(
            report,
            endedAt=int(self._now() * 1000),
            isGood=end.status == 0,
            output=tuple(self._lines),
        )


class JobsFeature(RunningFeature):
    """The jobs as a feature of the daemon."""

    def __init__(self, options: NoSettings, services: Services) -> None:
        self._jobs = Jobs(*(services.dataDir, services.reactor, services.now), services.arguments)
        self.answers = {IJobs: self._jobs}

    def alarms(self) -> Iterable[Alarm]:
        """See L{RunningFeature}."""
        if self._jobs.damage:
            yield Alarm(condition=AUDIT_FAILED, text=self._jobs.damage)

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._jobs.stop()


FEATURE: Final = Feature(name="jobs", make=JobsFeature)
