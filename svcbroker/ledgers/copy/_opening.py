"""
Opening the directory of a copy, or creating a copy in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from struct import error as StructError

from ...archive import (
    KEYS_NAME,
    STORE_NAME,
    StoredChain,
    StreamBroken,
    StreamReader,
    checkEnd,
    loadChain,
    markCopy,
)
from ...chain import CertificateInvalid, Genesis, Malformed, VersionUnknown
from ...errors import LedgerUnavailable
from ...net.pem import CertificateError
from ...storage import StorageError, Store, syncFile
from ._settings import CopySettings


@contextmanager
def explaining(place: object) -> Iterator[None]:
    """
    Turn what prevents a start into one line for the operator.

    @param place: what the line begins with, where the error does not name it.
    @raise LedgerUnavailable: in the place of any such error.
    """
    try:
        yield
    except (StorageError, CertificateError) as error:
        raise LedgerUnavailable(str(error)) from error
    except OSError as error:
        raise LedgerUnavailable(f"{error.filename or place}: {error.strerror}") from error
    except VersionUnknown as error:
        raise LedgerUnavailable(f"{place} has another format: {error}") from error
    except (StreamBroken, CertificateInvalid, ValueError, OverflowError, StructError) as error:
        raise LedgerUnavailable(f"{place}: {error}") from error


def hasCopy(directory: Path) -> bool:
    """
    Whether there is a copy in a directory already.

    @raise LedgerUnavailable: a chain with keys is in it.
    """
    keys = directory / KEYS_NAME
    if any(keys.glob("*")):
        raise LedgerUnavailable(
            f"{keys} has keys, so the chain beside it is no copy: where it is to become one, move "
            "the keys away for good (docs/replication.rst)"
        )
    return (directory / STORE_NAME).exists()


def createCopy(directory: Path, settings: CopySettings, stream: bytes) -> Genesis:
    """
    Create a copy without blocks.

    @param stream: an export, whose genesis is taken.
    @raise StreamBroken, Malformed, StorageError, OSError: it cannot be created.
    """
    genesis = StreamReader(BytesIO(stream)).begin().genesis
    _checkGenesis(genesis, settings)
    directory.mkdir(mode=0o700, exist_ok=True)
    # Before the store: the embedded ledger must not take it for a chain of its own.
    markCopy(directory, settings.url)
    path = directory / STORE_NAME
    Store.create(path, chainId=genesis.chain, genesis=genesis.encoded).close()
    syncFile(directory.parent)
    return genesis


def openCopy(directory: Path, settings: CopySettings) -> tuple[Store, StoredChain]:
    """
    Open a copy. One whose end is lost is opened, too: the original has it.

    @raise Malformed, CertificateInvalid, StorageError, OSError: it cannot be opened.
    """
    markCopy(directory, settings.url)
    store = Store.open(directory / STORE_NAME, mayLose=True)
    try:
        chain = loadChain(store)
        _checkGenesis(chain.genesis, settings)
        checkEnd(store, chain)
        wanted = settings.checkpoint
        if wanted is not None and wanted.height <= chain.head.height:
            [found] = store.blockHashes(wanted.height, 1) or [chain.genesis.header().hash]
            if found != wanted.hash:
                raise Malformed(f"block {wanted.height} is not the one of the checkpoint")
        return store, chain
    except BaseException:
        store.close()
        raise


def _checkGenesis(genesis: Genesis, settings: CopySettings) -> None:
    # Its group is not compared: a network's genesis has the name of the network instead.
    if settings.genesis not in (None, genesis.chain):
        raise Malformed(f"the chain has another genesis: {genesis.chain.hex()}")
