"""
Drawing of the rooms of the package, C{docs/rooms.svg}, from the table of floors of
C{tests/test_imports.py}: C{python -m tools.rooms} writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.test_imports import FLOORS, KIT

PICTURE: Final = Path(__file__).parents[1] / "docs" / "rooms.svg"

GROUPS: Final = (
    ("#f7eee0", "#c9a86a", ("commands", "tap", "daemon", "console", "client")),
    ("#eef3fb", "#9db4d6", ("carriers", "operations", "broker")),
    ("#f4f7ef", "#aebd92", ("ledgers", "access", "net", "archive", "storage", "interfaces")),
    ("#f6eef6", "#c3a3c3", ("proofs", "chain", "model")),
)
"""Rooms of one colour: of the fill and of the border, and the names."""

SUMMARIES: Final = {
    "commands": "the command line, and doctor",
    "daemon": "the list of features, configuration, start and stop",
    "carriers": "HTTP, STOMP, MQTT, webhooks",
    "operations": "each call, declared once",
    "broker": "publishing, reading, subscriptions, transparency",
    "ledgers": "pbft, cometbft, evm, copy, memory",
    "access": "accounts, grants, limits, log-ins",
    "net": "what carriers and ledgers share",
    "archive": "audit, export, import, backup",
    "storage": "one chain in one file",
    "interfaces": "the contracts",
    "proofs.bundle": "evidence in one file",
    "proofs": "what convinces others",
    "proofs.tlog": "transparency logs",
    "chain": "the replicated state machine",
    "model": "values that all share",
}
"""A few words about the rooms that have a floor of their own."""

_PLAIN: Final = ("#fff", "#bbb")
_WIDTH: Final = 760
_LEFT: Final = 60
_ROW: Final = 34
_BOX: Final = 26
_GAP: Final = 10


def drawRooms() -> str:
    """The picture: each floor is a row, and imports run downwards."""
    rows = [row for floor in reversed(FLOORS) if (row := _shown(floor))]
    height = len(rows) * _ROW + 2 * _GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" font-family="DejaVu Sans, Helvetica, Arial, '
        'sans-serif" font-size="13" role="img" aria-labelledby="title desc">',
        '  <title id="title">The rooms of the package</title>',
        '  <desc id="desc">From the top: '
        + "; ".join(", ".join(row) for row in rows)
        + f". A room imports those below it only. {KIT} stands beside them.</desc>",
        f'  <rect width="{_WIDTH}" height="{height}" fill="#fcfcfa"/>',
        *_arrow(height),
    ]
    for number, row in enumerate(rows):
        lines += _row(row, _GAP + number * _ROW)
    lines += _kit(height)
    return "\n".join([*lines, "</svg>", ""])


def _shown(floor: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(room for room in floor if room.strip("_") == room != "")


def _coloured(room: str) -> tuple[str, str]:
    for fill, stroke, rooms in GROUPS:
        if room.partition(".")[0] in rooms:
            return fill, stroke
    return _PLAIN


def _row(row: tuple[str, ...], y: int) -> Iterator[str]:
    width = (_WIDTH - 2 * _LEFT - 110 - (len(row) - 1) * _GAP) // len(row)
    for number, room in enumerate(row):
        yield from _box(room, _LEFT + number * (width + _GAP), y + 4, width, _BOX)


def _box(room: str, x: int, y: int, width: int, height: int) -> Iterator[str]:
    fill, stroke = _coloured(room)
    note = f'<tspan fill="#666">: {SUMMARIES[room]}</tspan>' if room in SUMMARIES else ""
    yield (
        f'  <rect x="{x}" y="{y}" width="{width}" height="{height}" rx="5" fill="{fill}" '
        f'stroke="{stroke}"/>'
    )
    yield (
        f'  <text x="{x + width // 2}" y="{y + height // 2 + 5}" text-anchor="middle" '
        f'fill="#222">{room}{note}</text>'
    )


def _arrow(height: int) -> Iterator[str]:
    end = height - 2 * _GAP
    yield (
        f'  <path d="M30,{2 * _GAP} V{end} m-5,-8 l5,8 l5,-8" fill="none" stroke="#2b5fa8" '
        'stroke-width="2"/>'
    )
    middle = height // 2
    yield (
        f'  <text x="22" y="{middle}" text-anchor="middle" fill="#2b5fa8" '
        f'transform="rotate(-90 22 {middle})">imports</text>'
    )


def _kit(height: int) -> Iterator[str]:
    yield from _box(
        KIT, _WIDTH - _LEFT - 50, _GAP + 4 + 3 * _ROW, 100, height - 2 * _GAP - 3 * _ROW - 8
    )


if __name__ == "__main__":
    PICTURE.write_text(drawRooms(), encoding="utf-8")
