"""
The promotion of a copy of a chain, with which its replicas go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from attrs import frozen

from ..chain import CertificateInvalid, Malformed
from ..files import readFile
from ..proofs import Checkpoint
from ..storage import Snapshot, Store, readTip, suspectLoss, syncFile
from ._importer import transferChain
from ._layout import COPY_NAME, KEYS_NAME, STORE_NAME, KeyFile, readKeyFiles, writeKeyFiles
from ._replay import StoredChain, checkEnd, decidedByEngine, loadChain

Reservation: TypeAlias = tuple[int, int]
"""A height, and a round of it."""


class PromotionRefused(Exception):
    """
    A copy cannot be promoted. The text is one line. Nothing has changed but what it says.
    """


@frozen(kw_only=True)
class Copy:
    """
    A copy of a chain.

    @ivar original: what it is a copy of, as its directory says.
    @ivar tip: its last block.
    @ivar timestamp: the time of that block, in milliseconds since the epoch.
    """

    original: str
    tip: Checkpoint
    timestamp: int


def readCopy(directory: Path) -> Copy:
    """
    Look at a copy.

    @param directory: the group's directory; the caller holds the lock of the data directory.
    @raise PromotionRefused: there is no copy that could be promoted.
    @raise StorageError: it cannot be opened.
    """
    try:
        original = readFile(directory / COPY_NAME).decode("utf-8").strip()
    except FileNotFoundError:
        raise PromotionRefused(f"{directory} has no copy of a chain") from None
    store, chain = _open(directory)
    store.close()
    return Copy(original=original, tip=Checkpoint.of(chain.head), timestamp=chain.head.timestamp)


def takeOver(directory: Path, original: Path) -> Reservation:
    """
    Bring the blocks of the original that the copy does not have into the copy. They are checked.

    @param directory: the group's directory of the copy; the caller holds the locks of both data
        directories.
    @param original: the group's directory of the original.
    @return: the last round that the original has reserved.
    @raise StreamBroken, ImportRefused, StorageError: as for an import.
    @raise PromotionRefused: the copy cannot be opened.
    """
    store, chain = _open(directory)
    store.close()
    with Snapshot.ofLedger(original / STORE_NAME) as snapshot:
        tip, reserved = snapshot.reader().tip(), snapshot.reader().reservation()
    height = 0 if tip is None else tip.height
    written = readTip(original / STORE_NAME)
    if written is not None and written.height > max(height, chain.head.height):
        raise PromotionRefused(
            f"{original} ends at block {height}, and block {written.height} had been stored: use "
            "--keys and --accept-loss"
        )
    # The last common block is compared.
    first = max(1, min(height, chain.head.height))
    transferChain(original, directory.parent, group=directory.name, first=first)
    return reserved if written is None else max(reserved, written.reservation)


def promote(
    directory: Path, keys: Path, *, reserved: Reservation = (0, 0), mayRemove: bool = False
) -> Checkpoint:
    """
    Put the keys of a chain's replicas into a copy. The embedded ledger then starts on it where its
    setting accept-loss names the last block, and gives all replicas new keys in the next one: so no
    key signs two blocks of one height and round, whatever the original has signed.

    It can be repeated where it was interrupted.

    @param directory: the group's directory; the caller holds the lock of the data directory.
    @param keys: a directory of key files.
    @param reserved: the last round that the original is known to have reserved.
    @param mayRemove: whether the keys are removed from there.
    @return: the last block.
    @raise PromotionRefused: keys are missing, or an engine decided the chain.
    @raise StorageError, OSError: a file cannot be read or written.
    """
    target = directory / KEYS_NAME
    found: Mapping[bytes, KeyFile] = {
        each.key: each
        for each in (*readKeyFiles(keys), *readKeyFiles(target))
        if each.key is not None
    }
    store, chain = _open(directory)
    try:
        validators = chain.state.validators.keys
        for index, key in enumerate(validators):
            if key not in found:
                raise PromotionRefused(
                    f"{keys} has no key of replica {index} ({key.hex()[:16]}...) as it is after "
                    f"block {chain.head.height}: give the keys that the original had last"
                )
        reservation = store.reservation()
    finally:
        store.close()
    suspectLoss(directory / STORE_NAME, chain.head.height, max(reservation, reserved))
    writeKeyFiles(target, validators, found)
    if mayRemove:
        for each in readKeyFiles(keys):
            each.path.unlink()
        syncFile(keys)
    # Last: from here on the embedded ledger may start.
    (directory / COPY_NAME).unlink(missing_ok=True)
    syncFile(directory)
    return Checkpoint.of(chain.head)


def _open(directory: Path) -> tuple[Store, StoredChain]:
    store = Store.open(directory / STORE_NAME, mayLose=True)
    try:
        chain = loadChain(store)
        checkEnd(store, chain)
        if decidedByEngine(store):
            raise PromotionRefused(
                "an engine decided this chain: it goes on with the other nodes of its network"
            )
        return store, chain
    except (Malformed, CertificateInvalid, ValueError) as error:
        store.close()
        raise PromotionRefused(f"{directory} is damaged ({error}): audit it") from None
    except BaseException:
        store.close()
        raise
