"""
Metrics for Prometheus.

What is measured is counted where it happens, in plain numbers; a source makes metric families of
these numbers when it is asked, which is once for each scrape. To add metrics, write such a source
and give it to L{Metrics.add}.
"""

from ._audit import AuditMetrics, IAuditSchedule, LastAudit
from ._backlog import BacklogMetrics
from ._broker import BrokerMetrics
from ._families import counter, gauge, histogram, only
from ._ledgers import LedgerMetrics
from ._metrics import Metrics, Source
from ._process import DiskMetrics, ProcessMetrics, ReactorLag
from ._route import MetricsRoute
from ._witnesses import WitnessMetrics

__all__ = [
    "AuditMetrics",
    "BacklogMetrics",
    "BrokerMetrics",
    "DiskMetrics",
    "IAuditSchedule",
    "LastAudit",
    "LedgerMetrics",
    "Metrics",
    "MetricsRoute",
    "ProcessMetrics",
    "ReactorLag",
    "Source",
    "WitnessMetrics",
    "counter",
    "gauge",
    "histogram",
    "only",
]
