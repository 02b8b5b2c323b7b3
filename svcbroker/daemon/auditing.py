"""
The scheduled audit: C{svcbroker chain audit} as a child process of the daemon, from time to time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger

from ..archive import groupsIn
from ..broker import MetadataStore
from ..broker.features import Feature, RunningFeature, Services, StoredData
from ..net.alarms import Alarm, Condition
from ..net.findings import DAY, Finding, Level, date, good, problem, span, warning
from ..net.metrics import Metric, gauge
from ..net.processes import IProcessReactor, ProcessEnd, ProcessLimits, Supervisor
from ..net.settings import Period, Text, declareSetting, period

AUDIT: Final = "audit"
"""The kind of the results in the metadata store. Their name is the group's id."""

FIRST: Final = 300.0
"""Seconds after the start before which no audit begins: a start is work enough for a machine."""

_DAMAGE: Final = "{problem} (audit of {date})"
_LATE: Final = "the last one ended {time} ago; one is due every {every}"
AUDIT_FAILED: Final = Condition(
    name="audit-failed",
    level=Level.PROBLEM,
    title="The audit has found damage",
    meaning="What the chain says there cannot be trusted, and cannot be proved.",
    remedy="Keep the directory as it is. svcbroker chain audit DATA-DIR names every place; "
    "docs/backup says how to go on.",
    page="blocks",
    phrases=(_DAMAGE,),
)
AUDIT_OLD: Final = Condition(
    name="audit-old",
    level=Level.WARNING,
    title="No audit for too long",
    meaning="Audits do not come to their end. Damage of the chain would not be seen.",
    remedy="Look for 'scheduled audit' in the log; by hand: svcbroker chain audit DATA-DIR.",
    page="blocks",
    phrases=(_LATE,),
)

_END_TIMEOUT: Final = 5.0
_SHOWN: Final = 20  # findings of each group
_MAX_OUTPUT: Final = 1024 * 1024
_MAX_ERRORS: Final = 4096
RESULTS: Final = (0, 1)
"""The exit codes of an audit that has come to its end: good, and not good."""


@frozen(kw_only=True)
class LastAudit:
    """
    The result of the last audit of a group's chain.

    @ivar isGood: whether the whole chain is as it must be.
    @ivar endedAt: when it ended, in seconds since the epoch.
    @ivar seconds: how long it took.
    @ivar height: the height of the last block that it has checked.
    @ivar problem: the first damage that it has found; empty where there is none.
    """

    isGood: bool
    endedAt: float
    seconds: float
    height: int
    problem: str = ""


readAudit: Final = msgspec.json.Decoder(LastAudit).decode
"""Read a result in the metadata store. Raises C{msgspec.MsgspecError}."""


def auditGroup(kind: str, name: str, value: bytes) -> str:
    """See L{GroupOf<svcbroker.broker.GroupOf>}."""
    return name


class AuditSchedule:
    """
    Audits all chains of the data directory, again and again, each time so many seconds after the
    end of the time before.

    The audit is a process of its own with the least priority, which reads the files as they are
    written: it takes neither the reactor nor Python's lock. The results survive restarts, and
    the time until the next audit does, too.

    @ivar lastAudit: the last audit of each group, by its id.
    """

    _log = Logger()

    def __init__(
        self,
        dataDir: Path,
        every: float,
        metadata: MetadataStore,
        reactor: IProcessReactor,
        now: Callable[[], float],
    ) -> None:
        """
        @param every: seconds from the end of one audit to the next; 0 for none.
        @param now: the wall clock: seconds since the epoch.
        """
        self.lastAudit: dict[str, LastAudit] = {}
        self._dataDir = dataDir.absolute()
        self._every = every
        self._metadata = metadata
        self._reactor = reactor
        self._now = now
        self._startedAt = 0.0
        self._output = bytearray()
        self._errors = bytearray()
        self._first: IDelayedCall | None = None
        self._process = Supervisor(
            "the scheduled audit",
            self._program(),
            clock=reactor,
            limits=ProcessLimits(firstDelay=every, maxDelay=every, endTimeout=_END_TIMEOUT),
            launch=self._launch,
            output=self._outputReceived,
            ended=self._ended,
        )

    def _program(self) -> Sequence[str]:
        # -P: not from the working directory, where others may be able to write.
        program = [sys.executable, "-P", "-m", "svcbroker.commands", "audit"]
        return [*program, "--json", "--background", f"--limit={_SHOWN}", str(self._dataDir)]

    def endOf(self, group: str) -> float | None:
        """The end of the last audit of a group, in seconds since the epoch."""
        audit = self.lastAudit.get(group)
        return None if audit is None else audit.endedAt

    def start(self) -> Deferred[None]:
        """Wait for the time of the first audit. The ledgers have started."""
        if not self._every:
            return succeed(None)
        for group, value in self._metadata.items(AUDIT):
            self.lastAudit[group] = readAudit(value)
        if groupsIn(self._dataDir):
            last = max((each.endedAt for each in self.lastAudit.values()), default=0.0)
            delay = max(min(FIRST, self._every), last + self._every - self._now())
            # A clock that was wrong must not put the audit off for years.
            self._first = self._reactor.callLater(min(delay, self._every), self._begin)
        return succeed(None)

    def stop(self) -> Deferred[None]:
        """End the audit that is under way; it is begun anew after the next start."""
        if self._first is not None:
            self._first.cancel()
            self._first = None
        return self._process.stop()

    def _begin(self) -> None:
        self._first = None
        self._process.start()

    def _launch(self, protocol: ProcessProtocol, program: str, arguments: Sequence[str]) -> object:
        self._startedAt = self._now()
        self._output.clear()
        self._errors.clear()
        path = os.pathsep.join(filter(None, sys.path))
        return self._reactor.spawnProcess(protocol, program, arguments, env={"PYTHONPATH": path})

    def _outputReceived(self, data: bytes, isError: bool) -> None:
        kept, most = (self._errors, _MAX_ERRORS) if isError else (self._output, _MAX_OUTPUT)
        kept += data[: most - len(kept)]

    def _ended(self, end: ProcessEnd) -> None:
        if not self._process.isWanted:
            return
        if end.status not in RESULTS:
            reason = " ".join(self._errors.decode("utf-8", "replace").split())
            self._log.error(
                "The scheduled audit ended {end}: {reason}",
                end=str(end),
                reason=reason or "it told no reason",
            )
            return
        try:
            self._take([json.loads(line) for line in self._output.splitlines()])
        except (ValueError, LookupError, TypeError):
            self._log.failure("The scheduled audit wrote what is no result")

    def _take(self, lines: Sequence[Mapping[str, Any]]) -> None:
        endedAt = self._now()
        first: dict[str, str] = {}
        for line in lines:
            if line.get("damage"):
                where = "" if line["block"] is None else f"block {line['block']}, "
                text = f"{where}{line['place']}: {line['problem']}"
                first.setdefault(line["group"] or "", text)
        for line in lines:
            if "good" in line:
                group = line["group"]
                height = int(str(line["checkpoint"] or "0").partition(":")[0])
                audit = LastAudit(
                    isGood=line["good"],
                    endedAt=endedAt,
                    seconds=endedAt - self._startedAt,
                    height=height,
                    problem=first.get(group, ""),
                )
                self.lastAudit[group] = audit
                self._metadata.put(AUDIT, group, msgspec.json.encode(audit))
                self._tell(group, audit)
        if "" in first:
            self._log.error(
                "The scheduled audit found damage: {problem}. svcbroker chain audit {dataDir} "
                "tells all",
                problem=first[""],
                dataDir=str(self._dataDir),
            )

    def _tell(self, group: str, audit: LastAudit) -> None:
        if audit.isGood:
            self._log.info(
                "group {group}: audited up to block {height} in {seconds:.1f} seconds: good",
                group=group,
                height=audit.height,
                seconds=audit.seconds,
            )
        else:
            self._log.error(
                "group {group}: the scheduled audit found damage: {problem}. svcbroker chain audit "
                "{dataDir} tells all",
                group=group,
                problem=audit.problem,
                dataDir=str(self._dataDir),
            )


@frozen(kw_only=True)
class AuditOptions:
    """The settings of the scheduled audit."""

    every: Period = declareSetting(
        "audit-every",
        Text(metavar="TIME", normalise=period, type=Period),
        Period(0),
        "how often all chains are audited beside their work, such as 24h; see svcbroker chain "
        "audit",
        shown="never",
    )


class AuditFeature(RunningFeature):
    """The scheduled audit as a feature of the daemon."""

    def __init__(self, options: AuditOptions, services: Services) -> None:
        self._every, self._now = options.every.seconds, services.now
        self._schedule = AuditSchedule(
            services.dataDir,
            options.every.seconds,
            services.metadata,
            services.reactor,
            services.now,
        )
        services.alarms.auditedAt = self._schedule.endOf

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}: nothing for a group that was not audited yet."""
        return auditMetrics(self._schedule.lastAudit)

    def alarms(self) -> Iterator[Alarm]:
        """See L{RunningFeature}."""
        return auditAlarms(self._schedule.lastAudit, self._every, self._now())

    def start(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._schedule.start()

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._schedule.stop()


def auditMetrics(lastAudit: Mapping[str, LastAudit]) -> Iterator[Metric]:
    """
    The metrics of the last audit of each group.

    @param lastAudit: the audits, by the ids of the groups.
    """
    audits = [((group,), audit) for group, audit in lastAudit.items()]
    yield gauge(
        "svcbroker_audit_good",
        "Whether the last audit of the chain has found nothing wrong.",
        ["group"],
        [(group, audit.isGood) for group, audit in audits],
    )
    yield gauge(
        "svcbroker_audit_timestamp_seconds",
        "When the last audit of the chain ended, since the epoch.",
        ["group"],
        [(group, audit.endedAt) for group, audit in audits],
    )
    yield gauge(
        "svcbroker_audit_duration_seconds",
        "How long the last audit of the chain took.",
        ["group"],
        [(group, audit.seconds) for group, audit in audits],
    )
    yield gauge(
        "svcbroker_audit_height",
        "The height of the last block that the last audit has checked.",
        ["group"],
        [(group, audit.height) for group, audit in audits],
    )


LATE: Final = 3.0
"""Times that the interval between two audits may pass without one."""


def auditAlarms(audits: Mapping[str, LastAudit], every: float, now: float) -> Iterator[Alarm]:
    """
    The groups whose last audit has found damage, or is too old.

    @param every: seconds between two scheduled audits; 0 where there are none.
    """
    for group, audit in audits.items():
        if not audit.isGood:
            text = _DAMAGE.format(problem=audit.problem, date=date(audit.endedAt))
            yield Alarm(condition=AUDIT_FAILED, text=text, group=group)
        elif _isOld(audit, every, now):
            text = _LATE.format(time=span(now - audit.endedAt), every=span(every))
            yield Alarm(condition=AUDIT_OLD, text=text, group=group)


def _isOld(audit: LastAudit, every: float, now: float) -> bool:
    return every > 0 and now - audit.endedAt > LATE * every + DAY


def checkAudits(
    audits: Mapping[str, LastAudit], every: float, dataDir: str, now: float
) -> Iterator[Finding]:
    """
    Check the last audit of each group.

    @param every: seconds between two scheduled audits; 0 where there are none.
    """
    for group, audit in audits.items():
        when = f"group {group} was audited on {date(audit.endedAt)} up to block {audit.height:,}"
        if not audit.isGood:
            yield problem(
                AUDIT,
                f"{when}, and is damaged: {audit.problem}",
                "what the chain says there cannot be trusted, and cannot be proved",
                f"svcbroker chain audit {dataDir} names every place; docs/backup says how to go on",
            )
        elif _isOld(audit, every, now):
            yield warning(
                AUDIT,
                f"{when}, and not since, although it is to be every {span(every)}",
                "audits do not come to their end, or the daemon does not run for so long",
                f"look for 'scheduled audit' in the log; by hand: svcbroker chain audit {dataDir}",
            )
        else:
            yield good(AUDIT, when)
    if not every and not audits:
        yield good(
            AUDIT,
            f"none is scheduled (--audit-every); svcbroker chain audit {dataDir} reads everything",
        )


def checkStoredAudits(options: AuditOptions, data: StoredData) -> Iterator[Finding]:
    """Check the last audits of a data directory."""
    audits = {name: readAudit(value) for name, value in data.records.get(AUDIT, {}).items()}
    return checkAudits(audits, options.every.seconds, data.dataDir, data.now)


FEATURE: Final = Feature(
    name=AUDIT,
    settings=AuditOptions,
    make=AuditFeature,
    entries={AUDIT: auditGroup},
    dataChecks=checkStoredAudits,
    conditions=(AUDIT_FAILED, AUDIT_OLD),
)
