"""
Lines of mosquitto's files.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

BLANKS: Final = " \t\n\v\f\r"
"""What C{isspace} of C takes for blank, which is less than Python does."""


class LineError(ValueError):
    """
    A line that cannot be used. The text names it by its number.
    """

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"line {number}: {text}")


def readLines(raw: bytes) -> Iterator[tuple[int, str]]:
    """
    The lines of a file without comments, with their numbers.

    @raise LineError: one is not UTF-8.
    """
    for number, line in enumerate(raw.split(b"\n"), 1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise LineError(number, "is not UTF-8") from None
        if not text.startswith("#"):
            yield number, text
