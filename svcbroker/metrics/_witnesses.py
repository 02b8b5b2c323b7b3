"""
Metrics of the witnesses that cosign the transparency logs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from attrs import frozen
from prometheus_client.core import Metric

from ..broker.transparency import Witnessing
from ._families import counter, gauge

_LABELS = ["group", "witness"]


@frozen
class WitnessMetrics:
    """
    The metrics of the witnesses of each group: nothing where there are none.

    @ivar witnessings: what has the logs cosigned, by the id of the group.
    @ivar now: the wall clock: seconds since the epoch.
    """

    witnessings: Mapping[str, Witnessing]
    now: Callable[[], float]

    def collect(self) -> Iterator[Metric]:
        """The families. See L{Source<svcbroker.metrics.Source>}."""
        now = self.now()
        sizes, blocks, seconds, refusing, refusals, failures = [], [], [], [], [], []
        cosigned = []
        for group, witnessing in self.witnessings.items():
            newest, served = witnessing.newest, witnessing.cosigned.newest
            cosigned.append(((group,), 0 if served is None else served.head.size))
            for each in witnessing.witnesses:
                labels = (group, each.party.name)
                lag = 0 if newest is None else max(0, newest.head.size - each.size)
                sizes.append((labels, each.size))
                blocks.append((labels, lag))
                seconds.append((labels, max(0.0, now - each.time) if lag and each.time else 0.0))
                refusing.append((labels, each.isRefusing))
                refusals.append((labels, each.refusals))
                failures.append((labels, each.failures))
        yield gauge(
            "svcbroker_log_cosigned_size",
            "The size of the newest checkpoint that a quorum of witnesses has cosigned.",
            ["group"],
            cosigned,
        )
        yield gauge(
            "svcbroker_witness_size",
            "The size of the log that the witness has cosigned last.",
            _LABELS,
            sizes,
        )
        yield gauge(
            "svcbroker_witness_lag_blocks",
            "How many blocks of the newest checkpoint the witness has not cosigned.",
            _LABELS,
            blocks,
        )
        yield gauge(
            "svcbroker_witness_lag_seconds",
            "How long ago the witness has cosigned, while it is behind; else 0.",
            _LABELS,
            seconds,
        )
        yield gauge(
            "svcbroker_witness_refusing",
            "Whether the witness says that the log has not only grown.",
            _LABELS,
            refusing,
        )
        yield counter(
            "svcbroker_witness_refusals",
            "How often the witness has said that the log has not only grown.",
            _LABELS,
            refusals,
        )
        yield gauge(
            "svcbroker_witness_failures",
            "How often the witness has failed since it has cosigned last.",
            _LABELS,
            failures,
        )
