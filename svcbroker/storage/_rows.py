"""
The rows that go into a store and come out of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct

from ..chain import ErasedRange, KeyUse
from ..model import Topic

_PAIR: Final = struct.Struct(">II")

POSITION_SIZE: Final = _PAIR.size
"""Bytes of one event's place in L{TopicBlockRow.positions}."""


class BlockHeadRow(Struct, frozen=True, kw_only=True):
    """
    A block without its body.

    @ivar height: its height, from 1.
    @ivar hash: its hash: 32 bytes, no two blocks share one.
    @ivar header: its encoded header.
    @ivar certificate: its encoded commit certificate.
    @ivar transactionTotal: how many transactions are in the chain up to and including it.
    """

    height: int
    hash: bytes
    header: bytes
    certificate: bytes
    transactionTotal: int


class BlockRow(BlockHeadRow, frozen=True, kw_only=True):
    """
    A whole block.

    @ivar body: its encoded transactions.
    @ivar receipts: its encoded receipts.
    """

    body: bytes
    receipts: bytes


class TopicRow(Struct, frozen=True, kw_only=True):
    """
    What the chain knows of one topic.

    @ivar index: the topic's number in the order of creation, from 0.
    @ivar topic: the topic. Its name, address, sender and creation time never change.
    """

    index: int
    topic: Topic


class SenderRow(Struct, frozen=True, kw_only=True):
    """
    What the chain knows of one sender.

    @ivar index: the account's number in the order of creation, from 0.
    @ivar address: its address: 20 bytes; it never changes.
    @ivar state: its encoded state.
    """

    index: int
    address: bytes
    state: bytes


class TopicBlockRow(Struct, frozen=True, kw_only=True):
    """
    Where the events of one topic stand in one block.

    @ivar topicIndex: the topic's index.
    @ivar height: the block's height.
    @ivar firstSequence: the sequence number of the first of them.
    @ivar positions: what L{packPositions} makes of their places in the body, in order.
    """

    topicIndex: int
    height: int
    firstSequence: int
    positions: bytes

    @property
    def count(self) -> int:
        """How many events there are."""
        return len(self.positions) // _PAIR.size

    def position(self, sequence: int) -> tuple[int, int] | None:
        """
        Offset and length of the event of this sequence number in the block's body; C{None}
        where it is not in this block.
        """
        number = sequence - self.firstSequence
        if not 0 <= number < self.count:
            return None
        return _PAIR.unpack_from(self.positions, number * _PAIR.size)


class EventPlace(Struct, frozen=True):
    """
    Where one event stands in its block.

    @ivar offset: where its transaction starts in the block's body.
    @ivar length: how many bytes it has there.
    @ivar number: which of the block's events of its topic it is, from 0.
    @ivar count: how many events of its topic the block has.
    """

    offset: int
    length: int
    number: int
    count: int

    @classmethod
    def of(cls, packed: bytes, number: int, size: int) -> EventPlace:
        """
        @param packed: its part of the positions.
        @param size: how many bytes all of the positions have.
        """
        offset, length = _PAIR.unpack(packed)
        return cls(offset, length, number, size // POSITION_SIZE)


class HistoryRow(Struct, frozen=True, kw_only=True):
    """
    An inner node of the history tree.

    @ivar level: its level; the leaves have 0.
    @ivar position: its place in its level, from 0.
    @ivar hash: 32 bytes.
    """

    level: int
    position: int
    hash: bytes


class ValidatorsRow(Struct, frozen=True, kw_only=True):
    """
    A validator set that came after the first one.

    @ivar generation: how many sets there were before it.
    @ivar height: the height of the block that brought it.
    @ivar encoded: the set, encoded.
    """

    generation: int
    height: int
    encoded: bytes


class TransactionPlace(Struct, frozen=True, kw_only=True):
    """
    Where a transaction stands.

    @ivar height: the height of its block.
    @ivar index: its index in the block, from 0.
    """

    height: int
    index: int


class Append(Struct, frozen=True, kw_only=True):
    """
    Everything that one block changes, stored together or not at all.

    @ivar block: the block; its height follows the tip's.
    @ivar transactionHashes: the hashes of its transactions, in order, 4 bytes or more each.
    @ivar topics: topics that it created or changed.
    @ivar senders: senders that it added, and those with changed nonces.
    @ivar topicBlocks: for each topic with events in it, where they stand.
    @ivar history: inner nodes of the history tree that it completed.
    @ivar validators: the validator set that it brought; C{None} where the set stays.
    @ivar uses: the idempotency keys that it used, in order.
    @ivar erased: the events that it erased. Their contents are removed later.
    """

    block: BlockRow
    transactionHashes: Sequence[bytes]
    topics: Sequence[TopicRow] = ()
    senders: Sequence[SenderRow] = ()
    topicBlocks: Sequence[TopicBlockRow] = ()
    history: Sequence[HistoryRow] = ()
    validators: ValidatorsRow | None = None
    uses: Sequence[KeyUse] = ()
    erased: Sequence[ErasedRange] = ()


def packPositions(positions: Iterable[tuple[int, int]]) -> bytes:
    """
    Pack pairs of offset and length, each below 2 to the 32, as L{TopicBlockRow.positions}.

    @raise struct.error: a number is out of range.
    """
    numbers = tuple(chain.from_iterable(positions))
    return struct.pack(f">{len(numbers)}I", *numbers)
