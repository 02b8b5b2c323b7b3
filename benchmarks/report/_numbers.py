"""
What is made of many measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import median
from typing import TypeVar

from attrs import AttrsInstance, asdict

_Numbers = TypeVar("_Numbers", bound=AttrsInstance)


def percentile(ordered: Sequence[float], share: float) -> float:
    """
    The least value that C{share} per cent of the values do not exceed.

    @param ordered: one value or more, in rising order.
    """
    # Rounded first: 99.9 per cent of 1000 is 999, and not a little more.
    return ordered[max(0, ceil(round(len(ordered) * share / 100, 9)) - 1)]


def middle(rounds: Sequence[_Numbers]) -> _Numbers:
    """
    The median of each number.

    @param rounds: one or more instances of an attrs class of which all fields are numbers.
    """
    each = [asdict(one) for one in rounds]
    return type(rounds[0])(**{name: median(one[name] for one in each) for name in each[0]})
