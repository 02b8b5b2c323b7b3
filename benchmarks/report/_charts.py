"""
What can be plotted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attrs import frozen

from ._bars import drawBars
from ._curves import drawCurves
from ._markdown import amount, markdownTable


@frozen
class Point:
    """
    A measurement.

    @ivar x: what was varied.
    @ivar y: what was found.
    @ivar label: what is written beside it, if anything.
    """

    x: float
    y: float
    label: str = ""


@frozen
class Series:
    """
    A curve.

    @ivar name: what it is called in the legend, and in the table.
    @ivar points: in the order in which they are connected.
    """

    name: str
    points: Sequence[Point]


class Picture(Protocol):
    """
    What a section shows: a plot, and the numbers in it as a table.
    """

    @property
    def name(self) -> str:
        """What its file is called, without the end."""

    @property
    def title(self) -> str:
        """What stands above it."""

    def svg(self) -> str:
        """The plot."""

    def table(self) -> str:
        """The numbers, as Markdown; nothing where they stand elsewhere."""


@frozen(kw_only=True)
class Chart:
    """
    Curves over something that was varied.

    @ivar name: see L{Picture}.
    @ivar title: see L{Picture}.
    @ivar xLabel: what was varied, with its unit.
    @ivar yLabel: what was found, with its unit.
    @ivar series: at least one, with at least one point.
    @ivar isLogX: whether the axis is logarithmic; everything is above 0 then.
    @ivar isLogY: the same.
    """

    name: str
    title: str
    xLabel: str
    yLabel: str
    series: Sequence[Series]
    isLogX: bool = False
    isLogY: bool = False

    def svg(self) -> str:
        """The plot. An axis that is not logarithmic begins at 0."""
        return drawCurves(
            title=self.title,
            labels=(self.xLabel, self.yLabel),
            isLog=(self.isLogX, self.isLogY),
            curves=[
                (one.name, [(each.x, each.y, each.label) for each in one.points])
                for one in self.series
            ],
        )

    def table(self) -> str:
        """One line for each value that was varied, one column for each curve."""
        found = {(one.name, each.x): each for one in self.series for each in one.points}
        rows = []
        for x in sorted({x for _, x in found}):
            cells = [amount(x)]
            for one in self.series:
                point = found.get((one.name, x))
                words = "" if point is None or not point.label else f" ({point.label})"
                cells.append("-" if point is None else amount(point.y) + words)
            rows.append(cells)
        return markdownTable([self.xLabel, *(one.name for one in self.series)], rows)


@frozen
class Bar:
    """
    One of what is compared.

    @ivar label: what it is.
    @ivar value: what was found; C{None} where it could not be measured.
    @ivar group: bars of a group have the same colour.
    @ivar note: what is written after the value.
    """

    label: str
    value: float | None
    group: str = ""
    note: str = ""


@frozen(kw_only=True)
class Bars:
    """
    Several things beside each other.

    @ivar name: see L{Picture}.
    @ivar title: see L{Picture}.
    @ivar label: what the bars show, with its unit.
    @ivar bars: at least one, from the top.
    @ivar groups: in the order of their colours, so that several plots have the same; others follow.
    """

    name: str
    title: str
    label: str
    bars: Sequence[Bar]
    groups: Sequence[str] = ()

    def svg(self) -> str:
        """The plot, from 0."""
        return drawBars(
            title=self.title,
            label=self.label,
            bars=[(one.label, one.value, one.group, one.note) for one in self.bars],
            colours=self.groups,
        )

    def table(self) -> str:
        """Nothing: bars pick out of a table that the section has anyway."""
        return ""
