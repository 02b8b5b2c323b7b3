"""
What the admin query C{group/measures} answers.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from .. import model
from ..histogram import Histogram
from ._results import envelope


class LatencyCounts(Struct, frozen=True):
    """
    How long publishes took until they were final and on disk, since the start: how many fell into
    the range up to each bound, in seconds. One more count has all above the last one.
    """

    bounds: list[float]
    counts: list[int]


class GroupMeasures(Struct, frozen=True):
    """
    What a group's ledger tells of itself: how many transactions of this broker wait to become
    final, their bytes, and how many seconds the oldest one has waited; and how many bytes of the
    disk of the data directory are free, of how many. What is not known is null.
    """

    waiting: int | None
    waitingBytes: int | None
    oldestWaiting: float | None
    latency: LatencyCounts | None
    diskFree: int | None
    diskSize: int | None


def measuresOf(measures: model.GroupMeasures) -> GroupMeasures:
    """Make the record of the measures of a group."""
    ledger, disk = measures.ledger, measures.disk
    return GroupMeasures(
        waiting=None if ledger is None else ledger.waiting,
        waitingBytes=None if ledger is None else ledger.waitingBytes,
        oldestWaiting=None if ledger is None else ledger.oldest,
        latency=None if ledger is None or ledger.latency is None else _latency(ledger.latency),
        diskFree=None if disk is None else disk.free,
        diskSize=None if disk is None else disk.size,
    )


def _latency(histogram: Histogram) -> LatencyCounts:
    return LatencyCounts(bounds=list(histogram.bounds), counts=list(histogram.counts))


MEASURES: Final = envelope(GroupMeasures, measuresOf)
