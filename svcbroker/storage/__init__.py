"""
One chain on disk, in one SQLite file.

The store keeps rows of bytes and numbers. It knows nothing of consensus, encodings or threads;
every call is synchronous. Appends may come from one thread while reads come from another: the
two use connections of their own, and a read sees what was synced before it began.
"""

from ._errors import StorageDamaged, StorageError, StorageFailed, StorageRefused
from ._notes import NoteStore, noteChecksum
from ._reader import ChainReader
from ._rows import (
    AccountRow,
    Append,
    BlockHeadRow,
    BlockRow,
    EventPlace,
    HistoryRow,
    TopicBlockRow,
    TopicRow,
    TransactionPlace,
    ValidatorsRow,
    packPositions,
)
from ._schema import syncFile
from ._snapshot import Snapshot
from ._store import Store

__all__ = [
    "AccountRow",
    "Append",
    "BlockHeadRow",
    "BlockRow",
    "ChainReader",
    "EventPlace",
    "HistoryRow",
    "NoteStore",
    "Snapshot",
    "StorageDamaged",
    "StorageError",
    "StorageFailed",
    "StorageRefused",
    "Store",
    "TopicBlockRow",
    "TopicRow",
    "TransactionPlace",
    "ValidatorsRow",
    "noteChecksum",
    "packPositions",
    "syncFile",
]
