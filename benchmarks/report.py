"""
Reports in Markdown with plots as SVG.

 1. L{Chart}: curves, each a L{Series} of L{Point}s; L{Bars}: one L{Bar} for each value
 2. L{Section}: text and pictures; L{writeReport} writes a page of sections
 3. L{amount} and L{markdownTable}: numbers and tables in Markdown
 4. L{middle}: what is computed from many measurements

L{benchmarks.drawing} draws the plots.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from pathlib import Path
from statistics import median
from typing import TypeVar

from attrs import AttrsInstance, asdict, field, frozen

_Numbers = TypeVar("_Numbers", bound=AttrsInstance)


@frozen
class Point:
    """
    A measurement.

    @ivar x: the value that was varied.
    @ivar y: the measured value.
    @ivar label: written beside the point.
    """

    x: float
    y: float
    label: str = ""


@frozen
class Series:
    """
    A curve.

    @ivar name: its name in the legend and in the table.
    @ivar points: in the order in which they are connected.
    """

    name: str
    points: Sequence[Point]


@frozen(kw_only=True)
class Chart:
    """
    Curves over something that was varied.

    @ivar name: the file name, without its suffix.
    @ivar title: the title above the plot.
    @ivar xLabel: what was varied, with its unit.
    @ivar yLabel: what was measured, with its unit.
    @ivar series: at least one, with at least one point.
    @ivar isLogX: whether the axis is logarithmic; all values are above 0 then.
    @ivar isLogY: the same.
    """

    name: str
    title: str
    xLabel: str
    yLabel: str
    series: Sequence[Series]
    isLogX: bool = False
    isLogY: bool = False

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
    One of the values that are compared.

    @ivar label: what was measured.
    @ivar value: its value; C{None} where it could not be measured.
    @ivar group: bars of a group have the same colour.
    @ivar note: written after the value.
    """

    label: str
    value: float | None
    group: str = ""
    note: str = ""


@frozen(kw_only=True)
class Bars:
    """
    Values beside each other.

    @ivar name: see L{Chart}.
    @ivar title: see L{Chart}.
    @ivar label: what the bars show, with its unit.
    @ivar bars: at least one, from the top.
    @ivar groups: in the order of their colours, so that several plots agree; others follow.
    """

    name: str
    title: str
    label: str
    bars: Sequence[Bar]
    groups: Sequence[str] = ()

    def table(self) -> str:
        """Empty: the section has a table with more columns."""
        return ""


Picture = Chart | Bars
"""A plot, with its numbers as a table."""


@frozen(kw_only=True)
class Section:
    """
    A part of a report.

    @ivar title: its heading.
    @ivar text: Markdown that comes first.
    @ivar pictures: each is shown with its table below it.
    """

    title: str
    text: str = ""
    pictures: Sequence[Picture] = field(default=())


def writeReport(directory: Path, name: str, title: str, sections: Sequence[Section]) -> Path:
    """
    Write the page C{NAME.md} and its plots C{plots/*.svg}.

    @param directory: created if missing; files of an earlier report are replaced.
    @param title: the page's heading.
    @return: the page.
    """
    # matplotlib takes a second to import, and only a report needs it.
    from .drawing import svg

    plots = directory / "plots"
    plots.mkdir(parents=True, exist_ok=True)
    parts = [f"# {title}"]
    for section in sections:
        parts.append(f"## {section.title}")
        if section.text:
            parts.append(section.text)
        for picture in section.pictures:
            (plots / f"{picture.name}.svg").write_text(svg(picture), "utf-8")
            parts.append(f"![{picture.title}](plots/{picture.name}.svg)")
            if table := picture.table():
                parts.append(table)
    page = directory / f"{name}.md"
    page.write_text("\n\n".join(parts) + "\n", "utf-8")
    return page


def amount(value: float) -> str:
    """
    A number for people: three significant digits, or all digits of a large number, in groups.
    """
    if not value:
        return "0"
    size = floor(log10(abs(value)))
    if size >= 2 or value == int(value):
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.{2 - size}f}"


def markdownTable(header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """
    A table.

    @param header: the titles of the columns.
    @param rows: the cells, as many in each row.
    @param words: how many of the first columns are text, aligned to the left.
    """
    lines = [header, ["---"] * words + ["--:"] * (len(header) - words), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def middle(rounds: Sequence[_Numbers]) -> _Numbers:
    """
    The median of each number.

    @param rounds: one or more instances of an attrs class of which all fields are numbers.
    """
    each = [asdict(one) for one in rounds]
    return type(rounds[0])(**{name: median(one[name] for one in each) for name in each[0]})
