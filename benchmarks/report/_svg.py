"""
The few things that plots are drawn of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10

from attrs import frozen

WIDTH = 800
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31")
"""Told apart by the colour-blind, too. After the last comes the first again, with other dashes."""
DASHES = ("", "6 3", "2 3")
_STYLE = (
    "text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}"
    ".end{text-anchor:end}.middle{text-anchor:middle}.note{font-size:10px;fill:#555}"
)
_STEPS = (1, 2, 5, 10)


def element(name: str, attributes: Mapping[str, object], content: str = "") -> str:
    """An element, of which the content is SVG."""
    words = "".join(f' {key}="{escape(str(value))}"' for key, value in attributes.items())
    return f"<{name}{words}>{content}</{name}>" if content else f"<{name}{words}/>"


def text(x: float, y: float, words: str, style: str = "", rotate: int = 0) -> str:
    """Words at a place."""
    attributes: dict[str, object] = {"x": round(x, 1), "y": round(y, 1)}
    if style:
        attributes["class"] = style
    if rotate:
        attributes["transform"] = f"rotate({rotate} {x:.1f} {y:.1f})"
    return element("text", attributes, escape(words) or " ")


def line(x1: float, y1: float, x2: float, y2: float, colour: str = "#ddd") -> str:
    """A straight line."""
    places = dict(zip(("x1", "y1", "x2", "y2"), (x1, y1, x2, y2), strict=True))
    return element(
        "line", {key: round(value, 1) for key, value in places.items()} | {"stroke": colour}
    )


def drawing(height: float, parts: Sequence[str]) -> str:
    """The whole picture, on white."""
    size = {"width": WIDTH, "height": round(height), "viewBox": f"0 0 {WIDTH} {round(height)}"}
    return element(
        "svg",
        {"xmlns": "http://www.w3.org/2000/svg", **size},
        "\n".join(
            [
                "",
                element("style", {}, _STYLE),
                element("rect", {"width": "100%", "height": "100%", "fill": "#fff"}),
                *parts,
                "",
            ]
        ),
    )


@frozen
class Axis:
    """
    Where values stand.

    @ivar low: the value at the beginning.
    @ivar high: the value at the end.
    @ivar ticks: the values that are marked.
    """

    low: float
    high: float
    ticks: Sequence[float]
    isLog: bool

    @classmethod
    def over(cls, values: Sequence[float], isLog: bool) -> Axis:
        """
        One on which all the values have room: from 0, or from a power of ten.

        @param values: at least one, none below 0, and above 0 where it is logarithmic.
        """
        if isLog:
            first, last = floor(log10(min(values))), ceil(log10(max(values)))
            last = max(last, first + 1)
            return cls(
                10.0**first, 10.0**last, [10.0**each for each in range(first, last + 1)], True
            )
        most = max(values) or 1.0
        size = 10.0 ** floor(log10(most / 5))
        step = next(each * size for each in _STEPS if most / (each * size) <= 6)
        count = ceil(round(most / step, 9))
        return cls(0.0, count * step, [each * step for each in range(count + 1)], False)

    def place(self, value: float) -> float:
        """Where a value stands, from 0 to 1."""
        if self.isLog:
            return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return (value - self.low) / (self.high - self.low)


def short(value: float) -> str:
    """A value at an axis: as short as it can be."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g} {letter}"
    return f"{value:g}"
