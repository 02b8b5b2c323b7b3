"""
Blocks that may come next: making one from waiting transactions, and checking one from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec import Struct

from ..model import topicPrefix
from ._body import TransactionReceipt, encodeBody, encodeReceipts, receiptRoot
from ._encoding import Malformed
from ._execution import PrefixConflict, execute
from ._header import Header, leaderIndex
from ._history import History
from ._merkle import merkleRoot
from ._state import ChainState, Outcome
from ._transaction import Kind, Transaction


class InvalidBlock(Exception):
    """A block that may not follow its parent. The text says why."""


class Candidate(Struct, frozen=True, kw_only=True):
    """
    A block that may come next, executed but not decided.

    @ivar transactions: what is in it.
    @ivar body: their canonical encoding.
    @ivar offsets: where each of them starts in C{body}, and after the last of these the end.
    @ivar outcome: what they do to the state.
    @ivar receipts: the canonical encoding of how each of them ended.
    @ivar history: the chain's history with this block's header.
    """

    header: Header
    transactions: Sequence[Transaction]
    body: bytes
    offsets: Sequence[int]
    outcome: Outcome
    receipts: bytes
    history: History


def selectTransactions(
    waiting: Iterable[Transaction], maxBytes: int, maxCount: int
) -> Sequence[Transaction]:
    """
    Choose transactions for the next block: as many of the waiting ones as fit, in order, and at
    least one. It ends before a publish that might get the event id of another one in it.

    @param maxBytes: the most bytes that they may take together, unless it is one alone.
    """
    chosen: list[Transaction] = []
    size = 0
    names: set[str] = set()
    prefixes: set[str] = set()
    publish = Kind.PUBLISH
    for transaction in islice(waiting, maxCount):
        size += transaction.size
        if size > maxBytes and chosen:
            break
        name = transaction.topic
        if name not in names and transaction.kind is publish:
            prefix = topicPrefix(name)
            if prefix in prefixes:
                break
            names.add(name)
            prefixes.add(prefix)
        chosen.append(transaction)
    return chosen


def proposeBlock(
    state: ChainState,
    parent: Header,
    view: int,
    timestamp: int,
    transactions: Sequence[Transaction],
    recorded: Sequence[TransactionReceipt] | None = None,
) -> Candidate:
    """
    Make the block that comes after C{parent}.

    @param state: the state after C{parent}.
    @param view: the view it is proposed in; it fixes the proposer.
    @param timestamp: the proposer's time in milliseconds since the epoch; a time before the
        parent's counts as the parent's.
    @param transactions: what L{selectTransactions} gave.
    @param recorded: see L{execute<svcbroker.chain.execute>}.
    """
    height = parent.height + 1
    timestamp = max(timestamp, parent.timestamp)
    # Blocks of format n + 1 may have transactions of version n; a chain's format never falls.
    newest = max([each.head[0] for each in transactions], default=0)
    version = max(parent.version, newest + 1)
    outcome = execute(state, transactions, height, timestamp, recorded, version)
    body, offsets = encodeBody(transactions)
    hashes = [transaction.hash for transaction in transactions]
    receipts = encodeReceipts(outcome.receipts)
    header = Header(
        version=version,
        chain=parent.chain,
        height=height,
        parent=parent.hash,
        history=state.history.root,
        view=view,
        proposer=leaderIndex(view, height, len(state.validators.keys)),
        timestamp=timestamp,
        transactionRoot=merkleRoot(hashes),
        receiptRoot=receiptRoot(hashes, receipts),
        stateRoot=outcome.stateRoot,
        validators=state.validators.hash,
        nextValidators=outcome.validators.hash,
        transactionCount=len(transactions),
        transactionTotal=parent.transactionTotal + len(transactions),
    )
    return Candidate(
        header=header,
        transactions=transactions,
        body=body,
        offsets=offsets,
        outcome=outcome,
        receipts=receipts,
        history=state.history.after(header.hash),
    )


def checkBlock(
    state: ChainState,
    parent: Header,
    header: Header,
    transactions: Sequence[Transaction],
    recorded: Sequence[TransactionReceipt] | None = None,
) -> Candidate:
    """
    Execute a proposed block, and check that it may follow C{parent}.

    @param state: the state after C{parent}.
    @param recorded: the receipts of a block that was decided, of which contents may be missing;
        C{None} for one that is to be decided.
    @raise InvalidBlock: anything in its header is not what it must be.
    """
    if header.view < parent.view:
        raise InvalidBlock("its view is below its parent's")
    if header.timestamp < parent.timestamp:
        raise InvalidBlock("its time is before its parent's")
    try:
        state.check(transactions)
        if recorded is None and any(each.isErased for each in transactions):
            raise InvalidBlock("contents of its transactions are missing")
        candidate = proposeBlock(
            state, parent, header.view, header.timestamp, transactions, recorded
        )
    except PrefixConflict:
        raise InvalidBlock("two of its events might have the same id") from None
    except Malformed as error:
        raise InvalidBlock(str(error)) from None
    if candidate.header != header:
        wrong = [
            name
            for name in Header.__struct_fields__
            if name not in ("encoded", "hash")
            and getattr(candidate.header, name) != getattr(header, name)
        ]
        raise InvalidBlock(
            f"{', '.join(wrong)} in its header do not follow from its parent and its transactions"
        )
    return candidate
