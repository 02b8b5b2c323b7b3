"""
One chain on disk, in one SQLite file.

The store keeps rows of bytes and numbers. It knows nothing of consensus or threads, and of the
encoding of a block only which parts of headers are alike; every call is synchronous. Appends may
come from one thread while reads come from another: the two use connections of their own, and a read
sees what was synced before it began.
"""

from ._erasure import ErasableBlock, StrippedBlock
from ._errors import (
    StorageDamaged,
    StorageError,
    StorageFailed,
    StorageLost,
    StorageOutdated,
    StorageRefused,
    StorageUnknown,
)
from ._files import CACHE_BYTES
from ._headers import HEADER_LENGTH, HEADS, wholeHeader
from ._keyuses import ScratchKeys, gapsIn
from ._metadata import (
    LAST_SUFFIX,
    METADATA_WRITES,
    MetadataFile,
    findLostWrites,
    metadataChecksum,
    readWrites,
    writeWrites,
)
from ._reader import ChainReader
from ._rows import (
    POSITION_SIZE,
    PRINT_SIZE,
    SEGMENT,
    Append,
    BlockHeadRow,
    BlockRow,
    EventPlace,
    HistoryRow,
    SenderRow,
    TopicBlockRow,
    TopicRow,
    ValidatorsRow,
    findItem,
    packPositions,
)
from ._schema import compatibility, syncFile, writeFile
from ._snapshot import Snapshot, lookAtMetadata
from ._store import Store, StoreReader, lookAt
from ._tip import TIP_SUFFIX, Tip, findLoss, logProblem, readTip, suspectLoss, tipPath
from ._treefile import TreeFile, TreeLeaf, TreePlace
