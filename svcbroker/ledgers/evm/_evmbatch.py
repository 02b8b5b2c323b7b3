"""
Batches of transactions as a broker puts them onto a chain, and the blocks that they become.

A batch is a form, the id of the group's chain, and its transactions, packed where that is shorter.
Its sender is the account that has submitted it, so it needs no signature of its own. All brokers
find the same blocks in the same logs.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Final

from attrs import frozen

from ...chain import (
    Candidate,
    ChainState,
    Genesis,
    Header,
    Malformed,
    Transaction,
    accountAddress,
    decodeBody,
    encodeBody,
    proposeBlock,
)
from ...model import TopicRule
from ...proofs import EvmPlace
from ..replicated import BlockDraft, BlockRefused, Code
from ._contract import LoggedBatch, LogState
from ._ethereum import word

MAX_BATCH: Final = 96 * 1024
"""The most bytes of a batch. Nodes refuse transactions of more than 128 KiB."""

MAX_UNPACKED: Final = 2 * 1024 * 1024
"""The most bytes of a batch's transactions: a packed batch may be a thousand times as small."""

BLOCK_BYTES: Final = 2 * MAX_UNPACKED
"""
The most bytes of a block's transactions. Where a block of the chain has more, it becomes several
blocks of ours. Brokers of all versions find the same blocks in the same logs, so neither this nor
what is refused can change.
"""

NEWEST: Final = 3
"""
The highest version of transactions in a contract's log, whatever svcbroker reads it: a member of
the network can put anything there, and all brokers have to find the same blocks. Newer ones take a
newer contract.
"""

_PLAIN, _PACKED = b"\x01", b"\x02"
_HEAD = 1 + 32
_NO_KEY = b"svcbroker/evm\x00"


def genesisOf(
    group: str, chainId: int, contract: bytes, born: int, topics: TopicRule = TopicRule.PUBLISHED
) -> Genesis:
    """
    The genesis of a group's chain, which all brokers of a contract find.

    Nobody has the private key of its only validator: the chain decides, and not a signature.

    @param born: when the contract was made, in milliseconds since the epoch.
    @param topics: the rule of topics' names, which all brokers of a contract must agree on.
    """
    validator = sha256(_NO_KEY + word(chainId) + contract).digest()
    return Genesis(group=group, created=born, validators=(validator,), topics=topics)


def senderOf(chain: bytes, account: bytes) -> bytes:
    """
    The address of an account's transactions on a group's chain.

    @param chain: the id of the group's chain.
    """
    return accountAddress(chain, f"evm:{account.hex()}")


def packBatch(chain: bytes, transactions: Sequence[Transaction]) -> bytes:
    """A batch of transactions."""
    body, _ = encodeBody(transactions)
    squeezed = zlib.compress(body, 1, -zlib.MAX_WBITS)
    form, body = (_PACKED, squeezed) if len(squeezed) < len(body) else (_PLAIN, body)
    return form + chain + body


@frozen(kw_only=True)
class UnpackedBatch:
    """
    Transactions of one account, in order. The chain keeps the batches of an account in order.
    """

    transactions: Sequence[Transaction]
    size: int
    previous: int = 0


def unpackBatch(chain: bytes, batch: LoggedBatch) -> UnpackedBatch:
    """
    Read a batch of the log.

    @param chain: the id of the group's chain.
    @raise Malformed: it is none of this chain and of its sender.
    """
    form, data = batch.data[:1], batch.data[_HEAD:]
    if batch.data[1:_HEAD] != chain or form not in (_PLAIN, _PACKED):
        raise Malformed("this is not a batch of this chain")
    if form == _PACKED:
        data = _inflate(data)
    if len(data) > MAX_UNPACKED:
        raise Malformed("the batch is too large")
    transactions = decodeBody(data)
    sender = senderOf(chain, batch.sender)
    if not transactions or any(each.sender != sender for each in transactions):
        raise Malformed("the batch is empty, or has transactions of somebody else")
    return UnpackedBatch(transactions=transactions, size=len(data))


def _inflate(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = unpacker.decompress(data, MAX_UNPACKED + 1)
    except zlib.error as error:
        raise Malformed(f"the batch cannot be unpacked: {error}") from None
    if not unpacker.eof or unpacker.unused_data:
        raise Malformed("the batch does not end where its packing does")
    return found


@frozen(kw_only=True)
class BatchBlock:
    """
    A block of the chain that has batches.

    @ivar number: its number.
    @ivar hash: its hash.
    @ivar time: its time, in milliseconds since the epoch.
    @ivar batches: those of its batches that are not executed yet, in order.
    """

    number: int
    hash: bytes
    time: int
    batches: Sequence[LoggedBatch]


@frozen(kw_only=True)
class EvmExecution:
    """
    The block of ours that batches of a block of the chain become.

    @ivar place: where it stands on the chain.
    @ivar refused: the batches that nothing of was executed, and why.
    """

    candidate: Candidate
    place: EvmPlace
    refused: Sequence[tuple[LoggedBatch, str]]

    @property
    def state(self) -> LogState:
        """The state of the log after its batches."""
        return LogState(self.place.count, self.place.head)


async def executeBlock(
    state: ChainState,
    head: Header,
    log: LogState,
    block: BatchBlock,
    turn: Callable[[], Awaitable[None]],
) -> EvmExecution:
    """
    Execute as many batches of a block as fit into one block of ours; one at least.

    @param head: the header of the last block of ours.
    @param log: the state of the log before the batches.
    @param turn: fires when reading the next batch may go on.
    """
    draft, size = BlockDraft(state, newest=NEWEST), 0
    refused: list[tuple[LoggedBatch, str]] = []
    for index, batch in enumerate(block.batches):
        if index:
            # A small batch may be packed so that reading it takes some milliseconds.
            await turn()
        try:
            unpacked = unpackBatch(state.chain, batch)
            if draft.transactions and size + unpacked.size > BLOCK_BYTES:
                break
            draft.add(unpacked)
            size += unpacked.size
        except BlockRefused as refusal:
            if refusal.code is Code.CONFLICT and draft.transactions:
                break
            refused.append((batch, str(refusal)))
        except Malformed as error:
            refused.append((batch, str(error)))
        log = log.after(batch)
    return EvmExecution(
        candidate=proposeBlock(state, head, 0, block.time, draft.transactions),
        place=EvmPlace(number=block.number, hash=block.hash, count=log.count, head=log.head),
        refused=refused,
    )
