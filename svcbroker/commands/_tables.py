"""
Tables, on a terminal as people read them, else the same as lines; and records, in lines or as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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


def showRecord(
    console: Console, record: Mapping[str, Any], lines: Iterable[str], asJson: bool
) -> None:
    """
    Show the result of a command: as a line of JSON, or in lines for people.
    """
    for line in [json.dumps(record)] if asJson else lines:
        console.say(line)
