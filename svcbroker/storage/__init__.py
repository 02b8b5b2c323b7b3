"""
One chain on disk, in one SQLite file.

The store keeps rows of bytes and numbers. It knows nothing of consensus, encodings or threads;
every call is synchronous. Appends may come from one thread while reads come from another: the
two use connections of their own, and a read sees what was synced before it began.
"""

from ._errors import StorageDamaged, StorageError, StorageFailed, StorageLost, StorageRefused
from ._metadata import MetadataFile, metadataChecksum
from ._reader import PRINT_SIZE, SEGMENT, ChainReader, findItem
from ._rows import (
    POSITION_SIZE,
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
from ._tip import TIP_SUFFIX, Tip, readTip, tipPath

__all__ = [
    "POSITION_SIZE",
    "PRINT_SIZE",
    "SEGMENT",
    "TIP_SUFFIX",
    "AccountRow",
    "Append",
    "BlockHeadRow",
    "BlockRow",
    "ChainReader",
    "EventPlace",
    "HistoryRow",
    "MetadataFile",
    "Snapshot",
    "StorageDamaged",
    "StorageError",
    "StorageFailed",
    "StorageLost",
    "StorageRefused",
    "Store",
    "Tip",
    "TopicBlockRow",
    "TopicRow",
    "TransactionPlace",
    "ValidatorsRow",
    "findItem",
    "metadataChecksum",
    "packPositions",
    "readTip",
    "syncFile",
    "tipPath",
]
