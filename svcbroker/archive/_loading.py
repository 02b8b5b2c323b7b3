"""
Going on from a chain that is in a store.
"""

from __future__ import annotations

from attrs import frozen

from ..chain import Account, ChainState, Genesis, Header, History, Malformed, ValidatorSet
from ..storage import BlockHeadRow, Store
from ._history import storedHistory


@frozen(kw_only=True)
class StoredChain:
    """
    A chain as a store has it, made sure of as far as that goes without looking at all of it.

    @ivar head: the header of the last block, or that of genesis.
    @ivar deciders: the set of nodes that decided the last block.
    @ivar state: the state after it.
    """

    genesis: Genesis
    head: Header
    deciders: ValidatorSet
    state: ChainState


def loadChain(store: Store) -> StoredChain:
    """
    Load a chain, and make sure that its state is the one that its last header stands for.
    Whether that header is final is left to the caller.

    @raise svcbroker.chain.VersionUnknown: it is of another format.
    @raise ValueError: it is damaged.
    """
    genesis = Genesis.decode(store.genesis)
    if genesis.chain != store.chainId:
        raise Malformed("its genesis is not the one it was made with")
    row = store.tip()
    deciders, validators = _lastSets(store, genesis, 0 if row is None else row.height)
    head = genesis.header() if row is None else _checkedHead(genesis, row, deciders)
    return StoredChain(
        genesis=genesis,
        head=head,
        deciders=deciders,
        state=_checkedState(genesis, store, head, validators),
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


def _checkedHead(genesis: Genesis, row: BlockHeadRow, deciders: ValidatorSet) -> Header:
    """
    The header of the last block, made sure of: it is the one that its row says.
    """
    head = Header.decode(row.header)
    said = (row.hash, row.height, row.transactionTotal, genesis.chain, deciders.hash)
    if (head.hash, head.height, head.transactionTotal, head.chain, head.validators) != said:
        raise Malformed("the last block is not the one it is said to be")
    return head


def _checkedState(
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
