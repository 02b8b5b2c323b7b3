"""
Bringing the blocks of one data directory into another.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from threading import Thread

from ..storage import StorageError
from ._export import RangeUnknown, exportChain
from ._findings import Report, noReport
from ._import import Imported, importChain
from ._stream import StreamBroken


def transferChain(
    source: Path,
    dataDir: Path,
    *,
    group: str,
    first: int = 1,
    last: int | None = None,
    report: Report = noReport,
) -> Imported:
    """
    Export a chain and import it at the same time. Each block is checked.

    @param source: the group's directory to export from; a broker may be running on it.
    @param dataDir: the data directory to import into; the caller holds its lock.
    @param first: the first height.
    @param last: the last height; C{None} for that of the latest block.
    @param report: as for L{importChain<svcbroker.archive.importChain>}.
    @raise RangeUnknown: the source does not have these blocks.
    @raise StreamBroken, ImportRefused, StorageError: as for export and import.
    """
    reading, writing = os.pipe()
    failures: list[Exception] = []

    def export() -> None:
        # The import may have failed before all was written, and says why.
        with suppress(BrokenPipeError), os.fdopen(writing, "wb") as file:
            try:
                exportChain(source, file, first=first, last=last)
            except (RangeUnknown, StorageError) as error:
                failures.append(error)

    exporting = Thread(target=export, name="export")
    exporting.start()
    try:
        with os.fdopen(reading, "rb") as file:
            return importChain(file, dataDir, group=group, report=report)
    except StreamBroken:
        exporting.join()
        for failure in failures:
            raise failure from None
        raise
    finally:
        exporting.join()
