"""
Metrics of the scheduled audit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from attrs import frozen
from prometheus_client.core import Metric

from ._families import gauge


@frozen(kw_only=True)
class LastAudit:
    """
    What the last audit of a group's chain has found.

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


class IAuditSchedule(Protocol):
    """
    What audits the chains of the broker from time to time.

    @ivar lastAudit: the last audit of each group that was audited, by its id.
    """

    @property
    def lastAudit(self) -> Mapping[str, LastAudit]: ...


@frozen
class AuditMetrics:
    """
    The metrics of the scheduled audit: nothing for a group that was not audited yet.
    """

    schedule: IAuditSchedule

    def collect(self) -> Iterator[Metric]:
        """The families. See L{Source<svcbroker.metrics.Source>}."""
        audits = [((group,), audit) for group, audit in self.schedule.lastAudit.items()]
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
