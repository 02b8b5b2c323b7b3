"""
Bars.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._markdown import amount
from ._svg import COLOURS, WIDTH, Axis, drawing, element, line, short, text

_RIGHT, _TOP, _STEP = WIDTH - 130.0, 40.0, 22.0
_LETTER, _WIDEST = 6.4, 440.0
"""How wide a letter of a label is, about, and a label at most."""


def drawBars(
    *,
    title: str,
    label: str,
    bars: Sequence[tuple[str, float | None, str, str]],
    colours: Sequence[str] = (),
) -> str:
    """
    Draw bars.

    @param label: what they show.
    @param bars: of each its label, its value if it has one, its group and what is written
        after the value.
    @param colours: the groups in the order of their colours; others follow these.
    @return: SVG.
    """
    values = [value for _, value, _, _ in bars if value is not None]
    axis = Axis.over(values or [1.0], False)
    bottom = _TOP + _STEP * len(bars)
    shown = list(dict.fromkeys(group for _, _, group, _ in bars))
    groups = list(dict.fromkeys([*colours, *shown]))
    left = 24 + min(_WIDEST, _LETTER * max(len(name) for name, _, _, _ in bars))
    parts = [text(16, 24, title, "title")]
    for tick in axis.ticks:
        x = left + axis.place(tick) * (_RIGHT - left)
        parts += [line(x, _TOP, x, bottom), text(x, bottom + 16, short(tick), "middle")]
    parts.append(text((left + _RIGHT) / 2, bottom + 34, label, "middle"))
    for number, (name, value, group, note) in enumerate(bars):
        y = _TOP + _STEP * number
        length = 0.0 if value is None else axis.place(value) * (_RIGHT - left)
        colour = COLOURS[groups.index(group) % len(COLOURS)]
        place = {"x": left, "y": y + 3, "width": round(length, 1), "height": _STEP - 6}
        words = note if value is None else f"{amount(value)} {note}"
        parts += [
            text(left - 8, y + 15, name, "end"),
            element("rect", {**place, "fill": colour}),
            text(left + length + 6, y + 15, words.strip()),
        ]
    if not any(shown):
        return drawing(bottom + 44, parts)
    width = (WIDTH - 32) / len(shown)
    for number, group in enumerate(shown):
        x = 16 + number * width
        square = {"x": round(x), "y": bottom + 46, "width": 12, "height": 12}
        colour = COLOURS[groups.index(group) % len(COLOURS)]
        parts.append(element("rect", {**square, "fill": colour}))
        parts.append(text(x + 18, bottom + 56, group))
    return drawing(bottom + 68, parts)
