"""
Pictures of the running software as SVG: a terminal with what was typed and printed, and a page as
Chromium has laid it out. They are text, so that they stay sharp and their words can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

from attrs import frozen

from .chromium import Chromium

_SIZE: Final = 13.0
_ADVANCE: Final = 0.602
"""The width of a character of a font for terminals, in parts of its size."""
_LEADING: Final = 19
_PADDING: Final = 16
_BAR: Final = 30
_MONOSPACE: Final = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_SANS: Final = "system-ui, 'DejaVu Sans', 'Segoe UI', Helvetica, Arial, sans-serif"
_VARYING: Final = re.compile(
    r"[0-9a-f]{10,}…?|\w+(?=:notlaterthan)|\d+bytes|\d{4}-\d\d-\d\d[T ]?(\d\d:\d\d:\d\d(\.\d+)?Z?)?"
    r"|validator\d,|(?<=[0-9a-f]{8}-\d)-(\d+?(?=\d{4}-\d\d-\d\d)|\d+)|(?<=block)\d+:?"
    r"|(?<=Block)\d+|svcbroker\d\S*?(?=serves)"
)

_LAYOUT: Final = """
(() => {
  const shapes = [];
  const canvas = document.createElement("canvas").getContext("2d");
  for (const each of document.querySelectorAll("main *")) {
    const style = getComputedStyle(each), box = each.getBoundingClientRect();
    if (parseFloat(style.borderTopWidth) > 0 && box.height > 0 && style.visibility === "visible")
      shapes.push({ x: box.x, y: box.y, width: box.width, height: box.height,
        line: parseFloat(style.borderTopWidth), radius: parseFloat(style.borderTopLeftRadius),
        color: style.borderTopColor });
  }
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, style = getComputedStyle(node.parentElement);
    if (["TEXTAREA", "SCRIPT"].includes(node.parentElement.tagName)) continue;
    canvas.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    const ascent = canvas.measureText("x").fontBoundingBoxAscent;
    let run = null;
    const range = document.createRange();
    for (let index = 0; index < node.data.length; index++) {
      range.setStart(node, index);
      range.setEnd(node, index + 1);
      const box = range.getClientRects()[0];
      if (!box || box.width === 0) continue;
      if (run && Math.abs(run.top - box.top) < 2) {
        run.text += node.data[index];
        run.width = box.right - run.x;
      } else {
        run = { x: box.x, top: box.top, y: box.top + ascent, width: box.width,
          text: node.data[index], size: parseFloat(style.fontSize), weight: style.fontWeight,
          color: style.color, isMono: style.fontFamily.includes("mono") };
        shapes.push(run);
      }
    }
  }
  const { bottom } = document.querySelector("main").getBoundingClientRect();
  return { shapes, bottom, back: getComputedStyle(document.body).backgroundColor };
})()
"""


@frozen
class Pane:
    """
    A part of a picture.

    @ivar shapes: its elements of SVG, with its upper left corner at 0, 0.
    """

    width: float
    height: float
    shapes: Sequence[str]


def _text(x: float, y: float, text: str, size: float, width: float, style: str) -> str:
    stretched = f' textLength="{width:.1f}" lengthAdjust="spacingAndGlyphs"' if text.strip() else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" xml:space="preserve"'
        f"{stretched} {style}>{escape(text)}</text>"
    )


def _frame(pane: Pane, title: str, back: str, line: str, ink: str) -> Pane:
    """A pane in a window with a title."""
    height = pane.height + _BAR
    return Pane(
        pane.width,
        height,
        [
            f'<rect x="0.5" y="0.5" width="{pane.width - 1:g}" height="{height - 1:g}" rx="8" '
            f'fill="{back}" stroke="{line}"/>',
            f'<path d="M0 {_BAR}H{pane.width:g}" stroke="{line}"/>',
            *(f'<circle cx="{18 + 16 * each}" cy="15" r="5" fill="{line}"/>' for each in range(3)),
            _text(76, 19.5, title, 12, len(title) * 6.6, f'fill="{ink}" font-family="{_SANS}"'),
            f'<svg y="{_BAR}" width="{pane.width:g}" height="{pane.height:g}">',
            *pane.shapes,
            "</svg>",
        ],
    )


def terminal(lines: Sequence[str], columns: int, isDark: bool) -> Pane:
    """
    A terminal.

    @param lines: what is on it; what begins with C{$ } was typed. They are cut at the edge.
    """
    plain, typed = ("#d1d7e0", "#79c0ff") if isDark else ("#24292f", "#0550ae")
    shapes = []
    for number, line in enumerate(lines):
        text = line if len(line) <= columns else line[: columns - 1] + "…"
        ink = typed if text.startswith("$ ") else plain
        weight = ' font-weight="600"' if text.startswith("$ ") else ""
        shapes.append(
            _text(
                _PADDING,
                _PADDING + _LEADING * number + 11,
                text,
                _SIZE,
                len(text) * _SIZE * _ADVANCE,
                f'fill="{ink}"{weight} font-family="{_MONOSPACE}"',
            )
        )
    width = round(columns * _SIZE * _ADVANCE) + 2 * _PADDING
    height = len(lines) * _LEADING + 2 * _PADDING - 4
    colors = ("#161b22", "#3d444d", "#9198a1") if isDark else ("#f6f8fa", "#d1d9e0", "#59636e")
    return _frame(Pane(width, height, shapes), "terminal", *colors)


async def page(
    browser: Chromium,
    width: int,
    scale: float,
    isDark: bool,
    hidden: str,
    title: str = "verify.html",
) -> Pane:
    """
    The page that a browser shows.

    @param width: that of the window in which the page is laid out.
    @param scale: how much smaller the pane is.
    @param hidden: the selector of what is left out.
    @param title: that of the window.
    """
    await browser.resize(width)
    await browser.emulate(prefers_color_scheme="dark" if isDark else "light")
    await browser.evaluate(
        f"document.querySelectorAll({hidden!r}).forEach((each) => void (each.hidden = true))"
    )
    laid = await browser.evaluate(_LAYOUT)
    shapes = [f'<g transform="scale({scale:g})">', *map(_shape, laid["shapes"]), "</g>"]
    colors = ("#3d444d", "#9198a1") if isDark else ("#d1d9e0", "#59636e")
    pane = Pane(round(width * scale), round(laid["bottom"] * scale), shapes)
    return _frame(pane, title, laid["back"], *colors)


def _shape(found: dict[str, Any]) -> str:
    """An element of SVG for a box or a run of text of a page."""
    if "text" not in found:
        line = found["line"]
        return (
            f'<rect x="{found["x"] + line / 2:.1f}" y="{found["y"] + line / 2:.1f}" '
            f'width="{found["width"] - line:.1f}" height="{found["height"] - line:.1f}" '
            f'rx="{found["radius"]:g}" fill="none" stroke="{found["color"]}" '
            f'stroke-width="{line:g}"/>'
        )
    family = _MONOSPACE if found["isMono"] else _SANS
    style = f'fill="{found["color"]}" font-weight="{found["weight"]}" font-family="{family}"'
    return _text(found["x"], found["y"], found["text"], found["size"], found["width"], style)


def beside(panes: Iterable[Pane], label: str) -> str:
    """
    A picture of panes side by side.

    @param label: says what it shows.
    """
    shapes, x, height = [], 0.0, 0.0
    for pane in panes:
        shapes += [f'<g transform="translate({x:g} 0)">', *pane.shapes, "</g>"]
        x += pane.width + _PADDING
        height = max(height, pane.height)
    width = x - _PADDING
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'width="{width:g}" height="{height:g}" role="img" aria-label={quoteattr(label)}>',
            *shapes,
            "</svg>\n",
        ]
    )


def _texts(picture: str) -> Iterator[str]:
    root = ElementTree.fromstring(picture)
    yield root.attrib["aria-label"]
    for each in root.iter("{http://www.w3.org/2000/svg}text"):
        yield each.text or ""


def words(picture: str) -> str:
    """
    The words of a picture, without white space and without what differs from run to run. Where
    lines are broken depends on the fonts of a machine.
    """
    return _VARYING.sub("…", re.sub(r"\s", "", "".join(_texts(picture))))
