"""
A connection that only reads.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from ._errors import StorageDamaged, translated


class Reading:
    """
    Runs queries on the reading connection of a store.

    No read leaves a cursor open when it returns or yields, so none keeps the write-ahead log from
    being folded in.

    @ivar path: the file.
    """

    def __init__(self, path: Path, reading: sqlite3.Connection) -> None:
        self.path = path
        self._reading = reading
        self._moment = _Moment(self)

    def moment(self) -> _Moment:
        """
        While the context lasts, all reads see the same state: an erasure that is done meanwhile
        moves the entries of a body. Keep it short.
        """
        return self._moment

    def _rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        try:
            return self._reading.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        except UnicodeDecodeError as error:
            raise self._damage("a text is not one") from error

    def _damage(self, what: str) -> StorageDamaged:
        return StorageDamaged(
            f"{self.path} is damaged ({what}): stop the broker and restore it from a backup"
        )


class _Moment:
    """
    What L{Reading.moment} gives. It is entered for each event that is read, and C{contextlib} would
    take 1 µs more.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def __enter__(self) -> None:
        self._reading._rows("BEGIN")

    def __exit__(self, *error: object) -> None:
        try:
            self._reading._reading.execute("ROLLBACK")
        except sqlite3.Error:
            return  # What was read counts.
