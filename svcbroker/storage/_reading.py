"""
A connection that only reads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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

    @contextmanager
    def moment(self) -> Iterator[None]:
        """
        While the context lasts, all reads see the same state: an erasure that is done meanwhile
        moves the entries of a body. Keep it short.
        """
        self._rows("BEGIN")
        try:
            yield
        finally:
            with suppress(sqlite3.Error):
                self._reading.execute("ROLLBACK")

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
