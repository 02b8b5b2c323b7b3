"""
Opening the directory of a chain, or creating a new chain in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from struct import error as StructError
from typing import Final

from attrs import frozen
from twisted.logger import Logger

from ...archive import KEYS_NAME, ROUNDS_ASIDE, STORE_NAME, StoredChain, loadChain
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
from ...proofs import ledgerOfCertificate
from ...storage import StorageError, StorageLost, Store, StoreReader, lookAt, syncFile
from .._storedledger import refuseOther
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
    with _explained(directory):
        refuseOther(directory, "pbft")
        if not path.exists():
            _checkNew(directory)
            _layOut(directory, group, nodes, now, entropy)
        _finishLayout(directory)
        store = Store.open(path, mayLose=acceptLoss is not None)
        try:
            chain = _load(directory, store, group, acceptLoss)
        except BaseException:
            store.close()
            raise
    if len(chain.seeds) != nodes:
        _log.info(
            "group {group}: the chain keeps its {count} replicas, nodes={nodes} counts for a "
            "new chain only",
            group=group,
            count=len(chain.seeds),
            nodes=nodes,
        )
    return chain


def checkChain(directory: Path, group: str, acceptLoss: int | None = None) -> None:
    """
    Check that L{openChain} would open the chain in a directory, or create one. Nothing is changed.

    @param acceptLoss: as for L{openChain}.
    @raise LedgerUnavailable: it would not.
    """
    path, unused = directory / STORE_NAME, directory / _UNUSED_KEYS
    with _explained(directory):
        refuseOther(directory, "pbft")
        if not path.exists():
            _checkNew(directory)
            return
        with lookAt(path, mayLose=acceptLoss is not None) as store:
            chain = _checked(store, group, acceptLoss)
            keys = unused if unused.exists() else directory / KEYS_NAME
            loadSeeds(keys, chain.state.validators.keys)


@contextmanager
def _explained(directory: Path) -> Iterator[None]:
    """
    Turn what prevents the opening of a chain into one line for the operator.

    @raise LedgerUnavailable: in the place of any such error.
    """
    path = directory / STORE_NAME
    try:
        yield
    except StorageLost as error:
        raise _lost(error) from error
    except (StorageError, KeysDamaged) as error:
        raise LedgerUnavailable(str(error)) from error
    except OSError as error:
        raise LedgerUnavailable(f"{directory} cannot be written: {error.strerror}") from error
    except VersionUnknown as error:
        raise LedgerUnavailable(
            f"{path} has another format ({error}): run the svcbroker that wrote it, on the copy "
            "that was made before the upgrade where there is one"
        ) from error
    except (CertificateInvalid, ValueError, OverflowError, StructError) as error:
        raise LedgerUnavailable(f"{path} is damaged ({error}): restore it from a backup") from error


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


def _checked(store: StoreReader, group: str, acceptLoss: int | None) -> StoredChain:
    """Load a chain, and check that it is this group's, and whole where its loss is not accepted."""
    stored = loadChain(store)
    genesis, head = stored.genesis, stored.head
    row = store.tip()
    if row is not None:
        refuseOther(store.path.parent, "pbft", ledgerOfCertificate(row.certificate))
    if genesis.group != group:
        raise LedgerUnavailable(
            f"{store.path} is the chain of group {genesis.group}, not of group {group}: "
            "move it back to where it was"
        )
    if row is not None:
        validators = stored.headValidators
        certificate = Certificate.decode(row.certificate)
        checkCertificate(certificate, head, len(validators.keys), validators.verify)
    if store.loss and acceptLoss != head.height:
        raise _lost(StorageLost(store.loss, head.height))
    return stored


def _load(directory: Path, store: Store, group: str, acceptLoss: int | None) -> OpenedChain:
    stored = _checked(store, group, acceptLoss)
    genesis, head = stored.genesis, stored.head
    if store.loss:
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
