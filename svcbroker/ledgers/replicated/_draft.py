"""
Batches of transactions in a block that others have ordered: the results of batches, and the draft
of a block, which decides which of them are executed.

All nodes of a network decide alike: every result follows from the chain's state and the batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, Protocol

from ...chain import NONCE_WINDOW, ChainState, Kind, Transaction
from ...model import topicPrefix

NEWEST: Final = 3
"""The highest version of transactions that this code executes."""

MAX_AHEAD: Final = 24 * 3600 * 1_000_000
"""
The most that a nonce may be ahead of the time, in microseconds. A broker starts with the time as
its nonce; a single nonce near the highest one, sent with a copy of its key, would leave it none.
"""


class Code(IntEnum):
    """The result of a batch. The engine hashes it into the next header."""

    OK = 0
    MALFORMED = 1
    UNAUTHORIZED = 2
    REPEATED = 3
    CONFLICT = 4
    OUT_OF_ORDER = 5
    AHEAD = 6
    TOO_NEW = 7
    NO_CHAIN = 8


class BlockRefused(Exception):
    """A batch that is not valid in a block now. The text says why."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class Batch(Protocol):
    """
    Transactions of one broker, in order.

    @ivar previous: the nonce before which the batch may not be executed: that of the last
        transaction in the broker's batch before it; 0 where the network keeps them in order.
    """

    @property
    def previous(self) -> int: ...

    @property
    def transactions(self) -> Sequence[Transaction]: ...


class BlockDraft:
    """
    A block under construction, to which batches are added one by one.
    """

    def __init__(
        self, state: ChainState, timestamp: int | None = None, newest: int = NEWEST
    ) -> None:
        """
        @param timestamp: the time in milliseconds since the epoch, which nonces may not be far
            ahead of; C{None} to execute a block that is decided, whatever its nonces.
        @param newest: the highest version of transactions that are valid.
        """
        self._newest = newest
        self._state = state
        self._latest = None if timestamp is None else timestamp * 1000 + MAX_AHEAD
        self._nonces: set[tuple[bytes, int]] = set()
        self._highest: dict[bytes, int] = {}
        self._topics: dict[str, str] = {}
        self.transactions: list[Transaction] = []

    def add(self, batch: Batch) -> None:
        """
        Add a batch.

        @raise BlockRefused: all of it was executed before, the ids of its events collide with those
            of another topic in the block, a nonce is too far ahead, the batch before it is
            missing, or it is of a format that the network does not have yet.
        """
        newest = max(one.version for one in batch.transactions)
        if newest > self._newest:
            raise BlockRefused(Code.TOO_NEW, f"this network does not have format {newest + 1} yet")
        nonces = {(one.sender, one.nonce) for one in batch.transactions} - self._nonces
        if not any(self._state.nonces(sender).accepts(nonce) for sender, nonce in nonces):
            raise BlockRefused(Code.REPEATED, "everything in the batch was executed already")
        topics = dict(self._topics)
        for one in batch.transactions:
            if one.kind is Kind.PUBLISH:
                prefix = topicPrefix(one.topic)
                if topics.setdefault(prefix, one.topic) != one.topic:
                    raise BlockRefused(Code.CONFLICT, "two topics of the block share event ids")
        # All of a batch's transactions are of one sender.
        sender = batch.transactions[0].sender
        highest = self._highest.get(sender, self._state.nonces(sender).highest)
        last = max(one.nonce for one in batch.transactions)
        # An account that is ahead already, by a clock that was wrong, goes on in small steps.
        near = highest + NONCE_WINDOW + len(batch.transactions)
        if self._latest is not None and last > max(self._latest, near):
            raise BlockRefused(
                Code.AHEAD,
                "a nonce is more than a day ahead of the time: set the clock of this broker's "
                "machine, and restart the broker",
            )
        if batch.previous > highest:
            raise BlockRefused(
                Code.OUT_OF_ORDER, "the broker's batch before it was not executed yet"
            )
        self._highest[sender] = max(highest, last)
        self._topics = topics
        self._nonces |= nonces
        self.transactions += batch.transactions
