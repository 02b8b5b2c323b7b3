"""
Curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ._svg import COLOURS, DASHES, WIDTH, Axis, drawing, element, line, short, text

_LEFT, _RIGHT, _TOP, _HEIGHT = 78.0, WIDTH - 24.0, 40.0, 300.0
_LEGEND_COLUMNS = 3


def drawCurves(
    *,
    title: str,
    labels: tuple[str, str],
    isLog: tuple[bool, bool],
    curves: Sequence[tuple[str, Sequence[tuple[float, float, str]]]],
) -> str:
    """
    Draw curves.

    @param labels: of the axes.
    @param isLog: whether the axes are logarithmic.
    @param curves: the name of each, and its points with what is written beside them.
    @return: SVG.
    """
    across = Axis.over([x for _, points in curves for x, _, _ in points], isLog[0])
    upward = Axis.over([y for _, points in curves for _, y, _ in points], isLog[1])
    bottom = _TOP + _HEIGHT

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            round(_LEFT + across.place(x) * (_RIGHT - _LEFT), 1),
            round(bottom - upward.place(y) * _HEIGHT, 1),
        )

    parts = [text(_LEFT, 24, title, "title")]
    for tick in across.ticks:
        x, _ = at(tick, upward.low)
        parts += [line(x, _TOP, x, bottom), text(x, bottom + 18, short(tick), "middle")]
    for tick in upward.ticks:
        _, y = at(across.low, tick)
        parts += [line(_LEFT, y, _RIGHT, y), text(_LEFT - 8, y + 4, short(tick), "end")]
    parts.append(text((_LEFT + _RIGHT) / 2, bottom + 38, labels[0], "middle"))
    parts.append(text(18, (_TOP + bottom) / 2, labels[1], "middle", rotate=-90))
    for number, (name, points) in enumerate(curves):
        column, row = number % _LEGEND_COLUMNS, number // _LEGEND_COLUMNS
        x, y = _LEFT + column * (_RIGHT - _LEFT) / _LEGEND_COLUMNS, bottom + 62 + 18 * row
        look = _look(number)
        parts.append(element("path", {"d": f"M{x} {y}h24", **look}))
        parts.append(text(x + 30, y + 4, name))
        places = [at(one, two) for one, two, _ in points]
        path = "L".join(f"{one} {two}" for one, two in places)
        parts.append(element("path", {"d": f"M{path}", **look}))
        for (one, two), (xValue, yValue, words) in zip(places, points, strict=True):
            tip = element("title", {}, escape(f"{name}: {xValue:g}, {yValue:g} {words}".strip()))
            parts.append(
                element("circle", {"cx": one, "cy": two, "r": 3, "fill": look["stroke"]}, tip)
            )
            if words:
                isLast = one > _RIGHT - 80
                place = one - 6 if isLast else one + 6
                parts.append(text(place, two - 7, words, "note end" if isLast else "note"))
    rows = -(-len(curves) // _LEGEND_COLUMNS)
    return drawing(bottom + 62 + 18 * rows, parts)


def _look(number: int) -> dict[str, object]:
    look: dict[str, object] = {
        "stroke": COLOURS[number % len(COLOURS)],
        "stroke-width": 2,
        "fill": "none",
    }
    dashes = DASHES[number // len(COLOURS) % len(DASHES)]
    return look | {"stroke-dasharray": dashes} if dashes else look
