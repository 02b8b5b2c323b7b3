"""
Plots, drawn by matplotlib (C{pip install '.[bench]'}).
"""

from __future__ import annotations

import io
from itertools import cycle, product
from operator import attrgetter
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter

from .report import Bars, Chart, Picture, amount

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31")
"""Distinguishable for the colour-blind."""
_LOOKS = tuple((colour, dashes) for dashes, colour in product(("-", "--", ":"), _COLOURS))
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "svcbroker",  # the same numbers give the same bytes
    "font.size": 9.0,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#ddd",
    "legend.frameon": False,
}


def svg(picture: Picture) -> str:
    """The plot of a picture, as the text of a file."""
    text = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure = drawChart(picture) if isinstance(picture, Chart) else drawBars(picture)
        figure.savefig(text, format="svg", bbox_inches="tight", metadata={"Date": None})
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def drawChart(chart: Chart) -> Figure:
    """Draw curves. An axis that is not logarithmic begins at 0."""
    figure, axes = _blank(chart.title, 4.2)
    for one, (colour, dashes) in zip(chart.series, cycle(_LOOKS), strict=False):
        axes.plot(
            [point.x for point in one.points],
            [point.y for point in one.points],
            label=one.name,
            color=colour,
            linestyle=dashes,
            marker="o",
            markersize=4,
        )
        for point in filter(attrgetter("label"), one.points):
            axes.annotate(
                point.label, (point.x, point.y), (3, 5), textcoords="offset points", size=7
            )
    axes.set_xlabel(chart.xLabel)
    axes.set_ylabel(chart.yLabel)
    if chart.isLogX:
        axes.set_xscale("log")
    else:
        axes.set_xlim(left=0)
    if chart.isLogY:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(EngFormatter())
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.12), ncols=3)
    return figure


def drawBars(bars: Bars) -> Figure:
    """Draw bars, from 0. A value that could not be measured has only its note."""
    figure, axes = _blank(bars.title, 0.6 + 0.22 * len(bars.bars))
    shown = list(dict.fromkeys(bar.group for bar in bars.bars))
    colours = dict(zip(dict.fromkeys([*bars.groups, *shown]), cycle(_COLOURS), strict=False))
    rows = range(len(bars.bars))
    drawn = axes.barh(
        rows,
        [bar.value or 0.0 for bar in bars.bars],
        color=[colours[bar.group] for bar in bars.bars],
    )
    axes.bar_label(
        drawn,
        [
            bar.note if bar.value is None else f"{amount(bar.value)} {bar.note}".strip()
            for bar in bars.bars
        ],
        padding=4,
    )
    axes.set_yticks(rows, [bar.label for bar in bars.bars])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.18, y=0.01)
    axes.set_xlabel(bars.label)
    axes.xaxis.set_major_formatter(EngFormatter())
    if any(shown):
        figure.legend(
            handles=[Patch(color=colours[group], label=group) for group in shown],
            loc="upper center",
            bbox_to_anchor=(0.5, 0),
            ncols=len(shown),
        )
    return figure


def _blank(title: str, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    return figure, axes
