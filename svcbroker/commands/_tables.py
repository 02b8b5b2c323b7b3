"""
Tables: on a terminal as people read them, else the same as lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ._command import Console


def showTable(
    console: Console,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    lines: Iterable[str],
) -> None:
    """
    Show records.

    @param rows: the cells of each, for a terminal. Unprintable characters are escaped by now.
    @param lines: each in a line, for everything else.
    """
    if not console.output.isatty():
        for line in lines:
            console.say(line)
        return
    from rich.console import Console as Terminal
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns)
    for row in rows:
        table.add_row(*map(Text, row))
    Terminal(file=console.output).print(table)
