"""
Tables and numbers in Markdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10


def amount(value: float) -> str:
    """
    A number as people read it: three digits that count, or all of a large one, in groups.
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
    @param words: how many of the first columns are words, to be read from the left.
    """
    lines = [header, ["---"] * words + ["--:"] * (len(header) - words), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
