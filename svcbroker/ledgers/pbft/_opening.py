"""
Opening the directory of a chain, or creating a new chain in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from struct import error as StructError

from attrs import frozen
from twisted.logger import Logger

from ...archive import KEYS_NAME, STORE_NAME, StoredChain, loadChain
from ...chain import (
    Certificate,
    CertificateInvalid,
    ChainState,
    Genesis,
    Header,
    Malformed,
    ValidatorSet,
    VersionUnknown,
    checkCertificate,
)
from ...errors import LedgerUnavailable
from ...storage import StorageError, Store, syncFile
from ._keyfiles import KeysDamaged, loadSeeds, makeSeeds, removeSeeds
from ._keys import publicKey

_log = Logger()


@frozen(kw_only=True)
class OpenedChain:
    """
    An open chain.

    @ivar seeds: the private keys of its nodes, by index.
    @ivar state: the state after its last block.
    @ivar head: the header of its last block, or of its genesis.
    """

    genesis: Genesis
    seeds: Sequence[bytes]
    store: Store
    state: ChainState
    head: Header


def openChain(
    directory: Path,
    group: str,
    nodes: int,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
) -> OpenedChain:
    """
    Open the chain in a directory, or create one if there is none.

    @param nodes: the number of nodes of a new chain. An existing chain keeps its own number.
    @param now: the wall clock: seconds since the epoch.
    @param entropy: C{entropy(n)} returns C{n} random bytes for keys.
    @raise LedgerUnavailable: the chain cannot be opened. The message is one line for the operator.
    """
    path = directory / STORE_NAME
    try:
        if not path.exists():
            _layOut(directory, group, nodes, now, entropy)
        store = Store.open(path)
    except (StorageError, KeysDamaged) as error:
        raise LedgerUnavailable(str(error)) from error
    except OSError as error:
        raise LedgerUnavailable(f"{directory} cannot be written: {error.strerror}") from error
    try:
        return _load(directory, store, group)
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


def _layOut(
    directory: Path,
    group: str,
    nodes: int,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
) -> None:
    directory.mkdir(mode=0o700, exist_ok=True)
    seeds = makeSeeds(directory / KEYS_NAME, nodes, entropy)
    genesis = Genesis(
        group=group,
        created=int(now() * 1000),
        validators=tuple(publicKey(seed) for seed in seeds),
    )
    store = Store.create(directory / STORE_NAME, chainId=genesis.chain, genesis=genesis.encoded)
    store.close()
    # The directory entry itself must survive a crash.
    syncFile(directory.parent)


def _load(directory: Path, store: Store, group: str) -> OpenedChain:
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
    height, _ = store.reservation()
    if height > head.height + 1:
        raise Malformed(f"blocks after {head.height} are missing")
    seeds = loadSeeds(directory / KEYS_NAME, stored.state.validators.keys)
    _removeOldKeys(directory / KEYS_NAME, store, stored)
    return OpenedChain(
        genesis=genesis,
        seeds=seeds,
        store=store,
        state=stored.state,
        head=head,
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
