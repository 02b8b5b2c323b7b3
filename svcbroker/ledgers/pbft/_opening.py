"""
Opening a chain's directory, or laying out a new one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import error as StructError

from attrs import frozen

from ...chain import (
    Account,
    Certificate,
    CertificateInvalid,
    ChainState,
    Genesis,
    Header,
    Malformed,
    checkCertificate,
)
from ...errors import LedgerUnavailable
from ...storage import StorageError, Store
from ._keys import KeysDamaged, Verifier, loadSeeds, makeSeeds, publicKey
from ._settings import DEFAULT_NODES

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
    verifier: Verifier
    store: Store
    state: ChainState
    head: Header


def openChain(
    directory: Path,
    group: str,
    nodes: int | None,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
) -> OpenedChain:
    """
    Open the chain in a directory. Where there is none, begin one.

    @param nodes: how many nodes a new chain gets, and one that exists must have; C{None} where
        any number will do.
    @param now: the wall clock: seconds since the epoch.
    @param entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @raise LedgerUnavailable: it cannot be opened. The message is one line for the operator.
    """
    path = directory / STORE_NAME
    try:
        if not path.exists():
            _layOut(directory, group, DEFAULT_NODES if nodes is None else nodes, now, entropy)
        store = Store.open(path)
    except (StorageError, KeysDamaged) as error:
        raise LedgerUnavailable(str(error)) from error
    except OSError as error:
        raise LedgerUnavailable(f"{directory} cannot be written: {error.strerror}") from error
    try:
        return _load(directory, store, group, nodes)
    except (StorageError, KeysDamaged) as error:
        store.close()
        raise LedgerUnavailable(str(error)) from error
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


def _load(directory: Path, store: Store, group: str, nodes: int | None) -> OpenedChain:
    genesis = Genesis.decode(store.genesis)
    count = len(genesis.validators)
    if genesis.chain != store.chainId:
        raise Malformed("its genesis is not the one it was made with")
    if genesis.group != group:
        raise LedgerUnavailable(
            f"{store.path} is the chain of group {genesis.group}, not of group {group}: "
            "move it back to where it was"
        )
    if nodes not in (None, count):
        raise LedgerUnavailable(
            f"{store.path} is a chain of {count} nodes: start it with nodes={count}, or leave "
            "nodes out"
        )
    seeds = loadSeeds(directory / KEYS_NAME, count)
    if tuple(publicKey(seed) for seed in seeds) != genesis.validators:
        raise LedgerUnavailable(
            f"{directory / KEYS_NAME} has not the keys of this chain: put them back from a backup"
        )
    verifier = Verifier(genesis.validators)
    state = ChainState(
        genesis.chain,
        (row.topic for row in store.topics()),
        ((row.address, Account.decode(row.state)) for row in store.accounts()),
    )
    return OpenedChain(
        genesis=genesis,
        seeds=seeds,
        verifier=verifier,
        store=store,
        state=state,
        head=_verifiedHead(genesis, store, state, verifier),
    )


def _verifiedHead(genesis: Genesis, store: Store, state: ChainState, verifier: Verifier) -> Header:
    """
    The header of the last block, made sure of: it is signed by a quorum, and the topics and
    accounts in the store are those that it stands for.
    """
    head = genesis.header()
    row = store.tip()
    if row is not None:
        head = Header.decode(row.header)
        said = (row.hash, row.height, row.transactionTotal, genesis.chain)
        if (head.hash, head.height, head.transactionTotal, head.chain) != said:
            raise Malformed("the last block is not the one it is said to be")
        checkCertificate(
            Certificate.decode(row.certificate),
            head,
            len(genesis.validators),
            verifier.verify,
        )
    if state.root != head.stateRoot:
        raise Malformed("the topics are not those of the last block")
    height, _ = store.reservation()
    if height > head.height + 1:
        raise Malformed(f"blocks after {head.height} are missing")
    return head
