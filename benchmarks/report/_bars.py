"""
Bars.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._markdown import amount
from ._svg import COLOURS, WIDTH, Axis, drawing, element, line, short, text

_LEFT, _RIGHT, _TOP, _STEP = 300.0, WIDTH - 130.0, 40.0, 22.0


def drawBars(*, title: str, label: str, bars: Sequence[tuple[str, float | None, str, str]]) -> str:
    """
    Draw bars.

    @param label: what they show.
    @param bars: of each its label, its value if it has one, its group and what is written
        after the value.
    @return: SVG.
    """
    values = [value for _, value, _, _ in bars if value is not None]
    axis = Axis.over(values or [1.0], False)
    bottom = _TOP + _STEP * len(bars)
    groups = list(dict.fromkeys(group for _, _, group, _ in bars))
    parts = [text(16, 24, title, "title")]
    for tick in axis.ticks:
        x = _LEFT + axis.place(tick) * (_RIGHT - _LEFT)
        parts += [line(x, _TOP, x, bottom), text(x, bottom + 16, short(tick), "middle")]
    parts.append(text((_LEFT + _RIGHT) / 2, bottom + 34, label, "middle"))
    for number, (name, value, group, note) in enumerate(bars):
        y = _TOP + _STEP * number
        length = 0.0 if value is None else axis.place(value) * (_RIGHT - _LEFT)
        colour = COLOURS[groups.index(group) % len(COLOURS)]
        place = {"x": _LEFT, "y": y + 3, "width": round(length, 1), "height": _STEP - 6}
        words = note if value is None else f"{amount(value)} {note}"
        parts += [
            text(_LEFT - 8, y + 15, name, "end"),
            element("rect", {**place, "fill": colour}),
            text(_LEFT + length + 6, y + 15, words.strip()),
        ]
    if any(groups):
        width = (WIDTH - 32) / len(groups)
        for number, group in enumerate(groups):
            x = 16 + number * width
            square = {"x": round(x), "y": bottom + 46, "width": 12, "height": 12}
            parts.append(element("rect", {**square, "fill": COLOURS[number % len(COLOURS)]}))
            parts.append(text(x + 18, bottom + 56, group))
    return drawing(bottom + (68 if any(groups) else 44), parts)
