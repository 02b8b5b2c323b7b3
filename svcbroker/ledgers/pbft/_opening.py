"""
Opening a chain's directory, or laying out a new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import error as StructError

from attrs import frozen

from ...archive import storedHistory
from ...chain import (
    Account,
    Certificate,
    CertificateInvalid,
    ChainState,
    Genesis,
    Header,
    History,
    Malformed,
    ValidatorSet,
    VersionUnknown,
    checkCertificate,
)
from ...errors import LedgerUnavailable
from ...storage import BlockHeadRow, StorageError, Store
from ._keyfiles import KeysDamaged, loadSeeds, makeSeeds
from ._keys import publicKey

STORE_NAME = "ledger.sqlite"
KEYS_NAME = "keys"


@frozen(kw_only=True)
class OpenedChain:
    """
    A chain that can go on.

    @ivar seeds: the private keys of its nodes, by index.
    @ivar state: the state after its last block.
    @ivar head: the header of its last block, or that of its genesis.
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
    Open the chain in a directory. Where there is none, begin one.

    @param nodes: how many nodes a new chain gets. One that exists keeps its own.
    @param now: the wall clock: seconds since the epoch.
    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @raise LedgerUnavailable: it cannot be opened. The message is one line for the operator.
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
            f"{path} has another format ({error}): run the svcbroker that wrote it"
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
    # The directory's own entry must outlive a crash as the blocks in it do.
    handle = os.open(directory.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _load(directory: Path, store: Store, group: str) -> OpenedChain:
    genesis = Genesis.decode(store.genesis)
    if genesis.chain != store.chainId:
        raise Malformed("its genesis is not the one it was made with")
    if genesis.group != group:
        raise LedgerUnavailable(
            f"{store.path} is the chain of group {genesis.group}, not of group {group}: "
            "move it back to where it was"
        )
    row = store.tip()
    deciders, validators = _lastSets(store, genesis, 0 if row is None else row.height)
    head = genesis.header() if row is None else _verifiedHead(genesis, row, deciders)
    state = _verifiedState(genesis, store, head, validators)
    height, _ = store.reservation()
    if height > head.height + 1:
        raise Malformed(f"blocks after {head.height} are missing")
    return OpenedChain(
        genesis=genesis,
        seeds=loadSeeds(directory / KEYS_NAME, validators.keys),
        store=store,
        state=state,
        head=head,
    )


def _lastSets(store: Store, genesis: Genesis, height: int) -> tuple[ValidatorSet, ValidatorSet]:
    """
    The set of nodes that decided the last block, and the one that decides the next.
    """
    rows = store.validatorSets()
    sets = [genesis.validatorSet, *(ValidatorSet.decode(row.encoded) for row in rows)]
    if rows and rows[-1].height == height:
        return sets[-2], sets[-1]
    return sets[-1], sets[-1]


def _verifiedHead(genesis: Genesis, row: BlockHeadRow, deciders: ValidatorSet) -> Header:
    """
    The header of the last block, made sure of: it is signed by a quorum.
    """
    head = Header.decode(row.header)
    said = (row.hash, row.height, row.transactionTotal, genesis.chain, deciders.hash)
    if (head.hash, head.height, head.transactionTotal, head.chain, head.validators) != said:
        raise Malformed("the last block is not the one it is said to be")
    certificate = Certificate.decode(row.certificate)
    checkCertificate(certificate, head, len(deciders.keys), deciders.verify)
    return head


def _verifiedState(
    genesis: Genesis, store: Store, head: Header, validators: ValidatorSet
) -> ChainState:
    """
    The state after the last block, made sure of: it is the one that the header stands for.
    """
    history = History.load(head.height, storedHistory(store, genesis.header().hash))
    if history.root != head.history:
        raise Malformed("the history is not that of the last block")
    if validators.hash != head.nextValidators:
        raise Malformed("the set of nodes is not that of the last block")
    state = ChainState(
        genesis.chain,
        validators,
        history.after(head.hash),
        (row.topic for row in store.topics()),
        ((row.address, Account.decode(row.state)) for row in store.accounts()),
    )
    if state.root != head.stateRoot:
        raise Malformed("the topics are not those of the last block")
    return state
