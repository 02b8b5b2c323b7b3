"""
From what is counted to metric families.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from ..histogram import Histogram

Labelled: TypeAlias = Iterable[tuple[Sequence[str], float]]
"""The values of labels, in their order, each with the value of the metric."""


def gauge(name: str, help: str, labels: Sequence[str] = (), values: Labelled = ()) -> Metric:
    """What goes up and down."""
    family = GaugeMetricFamily(name, help, labels=labels)
    for labelled, value in values:
        family.add_metric(labelled, value)
    return family


def counter(name: str, help: str, labels: Sequence[str] = (), values: Labelled = ()) -> Metric:
    """What only grows while the broker runs. The name is exported with C{_total}."""
    family = CounterMetricFamily(name, help, labels=labels)
    for labelled, value in values:
        family.add_metric(labelled, value)
    return family


def only(value: float) -> Labelled:
    """The value of a metric without labels."""
    return [((), value)]


def histogram(
    name: str,
    help: str,
    labels: Sequence[str] = (),
    values: Iterable[tuple[Sequence[str], Histogram]] = (),
) -> Metric:
    """Histograms, with cumulative counts as Prometheus wants them."""
    family = HistogramMetricFamily(name, help, labels=labels)
    for labelled, each in values:
        bounds = [*map(floatToGoString, each.bounds), "+Inf"]
        buckets = list(zip(bounds, accumulate(each.counts), strict=True))
        family.add_metric(labelled, buckets, each.sum)
    return family
