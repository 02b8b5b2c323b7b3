"""
What is exported, as a test reads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

Samples: TypeAlias = dict[tuple[str, ...], float]
"""Values by the name of a metric and those of its labels, in the order of the labels' names."""


def samplesOf(families: Iterable[Metric]) -> Samples:
    """All samples of metric families."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in families
        for sample in family.samples
    }


def parsed(text: bytes) -> Samples:
    """All samples of the text format."""
    return samplesOf(text_string_to_metric_families(text.decode("utf-8")))
