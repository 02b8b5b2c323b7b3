"""
Opening the directory of a chain, or creating a new chain in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from struct import error as StructError
from typing import Final

from attrs import frozen
from twisted.logger import Logger

from ...archive import COPY_NAME, KEYS_NAME, ROUNDS_ASIDE, STORE_NAME, StoredChain, loadChain
from ...chain import (
    Certificate,
    CertificateInvalid,
    ChainState,
    Genesis,
    Header,
    ValidatorSet,
    VersionUnknown,
    checkCertificate,
)
from ...errors import LedgerUnavailable
from ...storage import StorageError, StorageLost, Store, syncFile
from ._keys import KeysDamaged, loadSeeds, makeSeeds, publicKey, removeSeeds

_UNUSED_KEYS: Final = KEYS_NAME + ".new"
"""The directory of the keys until the ledger of a new chain exists."""

_log = Logger()


@frozen(kw_only=True)
class OpenedChain:
    """
    An open chain.

    @ivar seeds: the private keys of its nodes, by index.
    @ivar state: the state after its last block.
    @ivar head: the header of its last block, or of its genesis.
    @ivar hasLost: whether blocks behind C{head} are lost, which the replicas may have signed.
    """

    genesis: Genesis
    seeds: Sequence[bytes]
    store: Store
    state: ChainState
    head: Header
    hasLost: bool


def openChain(
    directory: Path,
    group: str,
    nodes: int,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
    acceptLoss: int | None = None,
) -> OpenedChain:
    """
    Open the chain in a directory, or create one if there is none.

    @param nodes: the number of nodes of a new chain. An existing chain keeps its own number.
    @param now: the wall clock: seconds since the epoch.
    @param entropy: C{entropy(n)} returns C{n} random bytes for keys.
    @param acceptLoss: the height of the last block that is left of a chain whose end is lost.
    @raise LedgerUnavailable: the chain cannot be opened. The message is one line for the operator.
    """
    path = directory / STORE_NAME
    if (directory / COPY_NAME).exists():
        raise LedgerUnavailable(
            f"{directory} is a copy, and the replicas of the original may go on: read it by the "
            "ledger copy, or see svcbroker chain promote (docs/replication.rst)"
        )
    try:
        if not path.exists():
            _checkNew(directory)
            _layOut(directory, group, nodes, now, entropy)
        _finishLayout(directory)
        store = Store.open(path, mayLose=acceptLoss is not None)
    except StorageLost as error:
        raise _lost(error) from error
    except (StorageError, KeysDamaged) as error:
        raise LedgerUnavailable(str(error)) from error
    except OSError as error:
        raise LedgerUnavailable(f"{directory} cannot be written: {error.strerror}") from error
    try:
        chain = _load(directory, store, group, acceptLoss)
        if len(chain.seeds) != nodes:
            _log.info(
                "group {group}: the chain keeps its {count} replicas, nodes={nodes} counts for a "
                "new chain only",
                group=group,
                count=len(chain.seeds),
                nodes=nodes,
            )
        return chain
    except (StorageError, KeysDamaged) as error:
        store.close()
        raise LedgerUnavailable(str(error)) from error
    except VersionUnknown as error:
        store.close()
        raise LedgerUnavailable(
            f"{path} has another format ({error}): run the svcbroker that wrote it, on the copy "
            "that was made before the upgrade where there is one"
        ) from error
    except (CertificateInvalid, ValueError, OverflowError, StructError) as error:
        store.close()
        raise LedgerUnavailable(f"{path} is damaged ({error}): restore it from a backup") from error
    except BaseException:
        store.close()
        raise


def _lost(error: StorageLost) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"{error}: restore a backup, or go on without what is missing by the ledger's setting "
        f"accept-loss={error.height} (docs/backup.rst)"
    )


def _checkNew(directory: Path) -> None:
    """
    Check that no chain has been in a directory that has no ledger.

    @raise LedgerUnavailable: it has keys, which may have signed blocks.
    """
    if any((directory / KEYS_NAME).glob("*")):
        raise LedgerUnavailable(
            f"{directory / STORE_NAME} is missing, but its keys are there: restore a backup, or "
            f"move {directory} away to begin a new chain"
        )


def _layOut(
    directory: Path,
    group: str,
    nodes: int,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    # The keys get their name last: keys without a ledger mean that the ledger is lost.
    seeds = makeSeeds(directory / _UNUSED_KEYS, nodes, entropy)
    genesis = Genesis(
        group=group,
        created=int(now() * 1000),
        validators=tuple(publicKey(seed) for seed in seeds),
    )
    store = Store.create(directory / STORE_NAME, chainId=genesis.chain, genesis=genesis.encoded)
    store.close()
    # The directory entry itself must survive a crash.
    syncFile(directory.parent)


def _finishLayout(directory: Path) -> None:
    """Give the keys of a new chain their name, also after a crash in between."""
    unused = directory / _UNUSED_KEYS
    if unused.exists():
        unused.rename(directory / KEYS_NAME)
        syncFile(directory)


def _load(directory: Path, store: Store, group: str, acceptLoss: int | None) -> OpenedChain:
    stored = loadChain(store)
    genesis, head = stored.genesis, stored.head
    if genesis.group != group:
        raise LedgerUnavailable(
            f"{store.path} is the chain of group {genesis.group}, not of group {group}: "
            "move it back to where it was"
        )
    row = store.tip()
    if row is not None:
        validators = stored.headValidators
        certificate = Certificate.decode(row.certificate)
        checkCertificate(certificate, head, len(validators.keys), validators.verify)
    if store.loss:
        if acceptLoss != head.height:
            raise _lost(StorageLost(store.loss, head.height))
        _log.warn(
            "{loss}: group {group} goes on after block {height}, and its replicas get new keys",
            loss=store.loss,
            group=group,
            height=head.height,
        )
        store.acceptLoss(ROUNDS_ASIDE)
    seeds = loadSeeds(directory / KEYS_NAME, stored.state.validators.keys)
    _removeOldKeys(directory / KEYS_NAME, store, stored)
    return OpenedChain(
        genesis=genesis,
        seeds=seeds,
        store=store,
        state=stored.state,
        head=head,
        hasLost=bool(store.loss),
    )


def _removeOldKeys(directory: Path, store: Store, stored: StoredChain) -> None:
    """
    Remove the keys of former nodes that a crash has left. Keys that were never in a validator set
    of this chain are kept: they may belong to a longer copy of it.
    """
    old = set(stored.genesis.validators)
    for row in store.validatorSets():
        old.update(ValidatorSet.decode(row.encoded).keys)
    try:
        removeSeeds(directory, old.difference(stored.state.validators.keys))
    except OSError:
        _log.failure("old keys could not be removed from {path}", path=directory)
