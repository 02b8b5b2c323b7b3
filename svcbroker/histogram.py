"""
Histograms: how often a measure fell into which range.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """
    Counts of values by range. Observing one takes a bisection and two additions, and what is
    exported is made of the counts when they are read.

    @ivar bounds: the upper bounds of the ranges, rising. A bound belongs to its range. One more
        range has all that is above.
    @ivar counts: how many values each range has.
    @ivar sum: the sum of all values.
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """
        Add a value.

        @param value: one below 0 counts as 0: a clock was set back.
        @param count: how many times.
        """
        if value > 0:
            self.counts[bisect_left(self.bounds, value)] += count
            self.sum += value * count
        else:
            self.counts[0] += count

    def observeSince(self, now: float, begun: Sequence[tuple[float, int]]) -> None:
        """
        Add the times from some moments until now. Hot path: one bisection, and a comparison for
        each moment.

        @param begun: moments in rising order, each with how many times it counts.
        """
        bounds, counts = self.bounds, self.counts
        place = bisect_left(bounds, now - begun[0][0]) if begun else 0
        total = 0.0
        for since, count in begun:
            value = now - since
            while place and value <= bounds[place - 1]:
                place -= 1
            counts[place] += count
            total += value * count
        self.sum += max(0.0, total)

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)


def quantile(
    before: Sequence[tuple[float, float]], now: Sequence[tuple[float, float]], share: float
) -> float | None:
    """
    The value that a share of those between two looks at a histogram does not exceed: between the
    bounds of its range values are taken to be spread evenly.

    @param before: each bound, and how many values are not above it; empty for those since the
        beginning.
    @return: C{None} without values; the highest bound for values above all bounds.
    """
    earlier = dict(before)
    counts = [(bound, count - earlier.get(bound, 0.0)) for bound, count in now]
    if not counts or counts[-1][1] <= 0:
        return None
    wanted, lower, below = counts[-1][1] * share, 0.0, 0.0
    for bound, count in counts:
        if count >= wanted:
            if bound == float("inf"):
                return lower
            return lower + (bound - lower) * (wanted - below) / (count - below)
        lower, below = bound, count
    return lower
