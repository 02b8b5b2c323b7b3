"""
The state machine that the engine replicates: which batches may stand in a block, and what a block
of them does.

Deterministic, as the engine demands: everything follows from the state and what the engine hands
over. It is L{svcbroker.chain} that executes; here is what lies between batches and it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from enum import IntEnum
from hashlib import sha256

from attrs import frozen

from ...chain import (
    Candidate,
    ChainState,
    Header,
    Kind,
    Malformed,
    Transaction,
    leaderIndex,
    proposeBlock,
)
from ...model import topicPrefix
from ._batch import Batch, Unauthorized, checkSponsor, readBatch
from .abci import framedSize

KNOWN_BYTES = 64 * 1024 * 1024
"""Bytes of batches that are kept, so that none is read twice on its way into a block."""


class Code(IntEnum):
    """What becomes of a batch. The engine hashes it into the header that comes next."""

    OK = 0
    MALFORMED = 1
    UNAUTHORIZED = 2
    REPEATED = 3
    CONFLICT = 4
    OUT_OF_ORDER = 5


class Refused(Exception):
    """A batch that may not stand in a block now. The text says why."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


@frozen(kw_only=True)
class Execution:
    """
    What a block of batches does.

    @ivar codes: what became of each batch.
    """

    candidate: Candidate
    codes: Sequence[Code]


class _Draft:
    """
    The block that batches are put into one by one.
    """

    def __init__(self, state: ChainState) -> None:
        self._state = state
        self._nonces: set[tuple[bytes, int]] = set()
        self._highest: dict[bytes, int] = {}
        self._topics: dict[str, str] = {}
        self.transactions: list[Transaction] = []

    def add(self, batch: Batch) -> None:
        """
        Put a batch in, where it fits.

        @raise Refused: it has nothing new, publishes to a topic whose event ids begin as those
            of another topic in the block do, or comes before one that it must follow.
        """
        nonces = {(one.sender, one.nonce) for one in batch.transactions} - self._nonces
        if not any(self._state.account(sender).accepts(nonce) for sender, nonce in nonces):
            raise Refused(Code.REPEATED, "everything in the batch was executed already")
        topics = dict(self._topics)
        for one in batch.transactions:
            if one.kind is Kind.PUBLISH:
                prefix = topicPrefix(one.topic)
                if topics.setdefault(prefix, one.topic) != one.topic:
                    raise Refused(Code.CONFLICT, "two topics of the block share event ids")
        # All of a batch's transactions are of one sender.
        sender = batch.transactions[0].sender
        highest = self._highest.get(sender, self._state.account(sender).highest)
        if batch.previous > highest:
            raise Refused(Code.OUT_OF_ORDER, "the broker's batch before it was not executed yet")
        self._highest[sender] = max(highest, *(one.nonce for one in batch.transactions))
        self._topics = topics
        self._nonces |= nonces
        self.transactions += batch.transactions


class Machine:
    """
    One chain's state machine.

    @ivar state: the state after L{head}; it changes with L{apply} alone.
    @ivar head: the header of the last block.
    """

    def __init__(self, state: ChainState, head: Header) -> None:
        self.state = state
        self.head = head
        self._known: OrderedDict[bytes, tuple[int, Batch]] = OrderedDict()
        self._knownBytes = 0
        self._waiting: dict[tuple[bytes, int], int] = {}

    def check(self, data: bytes, *, isRecheck: bool = False) -> None:
        """
        See whether a batch may wait for a block.

        @param isRecheck: whether it has waited while the last block was decided.
        @raise Refused: it may not.
        """
        batch = self._read(data)
        try:
            _Draft(self.state).add(batch)
        except Refused as refusal:
            # The one before it is on its way, by all likelihood, or waits here. Where it does
            # not, and a block had nothing in it, nobody had that one: then this one waits for it
            # with its broker, who hands both in again, and does not keep the engines making
            # blocks.
            if refusal.code is not Code.OUT_OF_ORDER:
                raise
            if isRecheck and not self.head.transactionCount and not self._waits(batch):
                raise
        last = batch.transactions[-1]
        self._waiting[last.sender, last.nonce] = self.head.height

    def _waits(self, batch: Batch) -> bool:
        """Whether the batch that comes before another one was here since the last block but one."""
        before = batch.transactions[0].sender, batch.previous
        return self._waiting.get(before, -2) >= self.head.height - 1

    def select(self, waiting: Iterable[bytes], maxBytes: int) -> Sequence[bytes]:
        """
        What of the waiting batches goes into the next block, in order.

        It ends before one that would not fit, so that none overtakes another; those that may
        not stand in a block at all are left out.

        @param maxBytes: the most bytes that the engine takes, with its own framing.
        """
        draft, left = _Draft(self.state), maxBytes
        chosen: list[bytes] = []
        outOfOrder: list[bytes] = []
        for data in waiting:
            size = framedSize(data)
            if size > left:
                return chosen
            code = self._put(draft, data)
            if code is Code.OK:
                left -= size
                chosen.append(data)
            elif code is Code.OUT_OF_ORDER:
                outOfOrder.append(data)
            elif code is Code.CONFLICT and chosen:
                return chosen
        # These came here in another order than they were made in; each follows lower numbers.
        for data in sorted(outOfOrder, key=lambda each: self._read(each).previous):
            size = framedSize(data)
            if size <= left and self._put(draft, data) is Code.OK:
                left -= size
                chosen.append(data)
        return chosen

    def isValid(self, block: Sequence[bytes]) -> bool:
        """Whether a block of these batches may be voted for: all of them may stand in it."""
        draft = _Draft(self.state)
        return all(self._put(draft, data) is Code.OK for data in block)

    def execute(
        self, block: Sequence[bytes], height: int, timestamp: int, proposer: bytes
    ) -> Execution:
        """
        Execute a decided block. Changes nothing.

        @param timestamp: its time in milliseconds since the epoch.
        @param proposer: the public key of the validator that proposed it, if it is known.
        """
        draft = _Draft(self.state)
        # Something else than OK only where more than a third of the validators are at fault.
        codes = [self._put(draft, data) for data in block]
        view = self._viewOf(proposer, height)
        candidate = proposeBlock(self.state, self.head, view, timestamp, draft.transactions)
        return Execution(candidate=candidate, codes=codes)

    def apply(self, candidate: Candidate) -> None:
        """Make an executed block, which is stored, the last one."""
        self.state.apply(candidate.outcome, candidate.history)
        self.head = candidate.header
        # Whatever waits still is checked again now.
        oldest = self.head.height - 1
        self._waiting = {key: height for key, height in self._waiting.items() if height >= oldest}

    def _viewOf(self, proposer: bytes, height: int) -> int:
        """
        The lowest view that names this proposer: so our headers name the engine's, by the same
        rule as on every chain.
        """
        keys, view = self.state.validators.keys, self.head.view
        if proposer not in keys:
            # One that is leaving the set, or whose turn in it has not come in our headers.
            return view
        return view + (keys.index(proposer) - leaderIndex(view, height, len(keys))) % len(keys)

    def _put(self, draft: _Draft, data: bytes) -> Code:
        """Put a batch into a block, where that may be; whether it was."""
        try:
            draft.add(self._read(data))
        except Refused as refusal:
            return refusal.code
        return Code.OK

    def _read(self, data: bytes) -> Batch:
        digest = sha256(data).digest()
        known = self._known.get(digest)
        if known is not None:
            self._known.move_to_end(digest)
            batch = known[1]
        else:
            try:
                batch = readBatch(data, self.state.chain)
            except Malformed as error:
                raise Refused(Code.MALFORMED, str(error)) from None
            except Unauthorized as error:
                raise Refused(Code.UNAUTHORIZED, str(error)) from None
            self._remember(digest, len(data), batch)
        try:
            checkSponsor(batch, self.state.validators)
        except Unauthorized as error:
            raise Refused(Code.UNAUTHORIZED, str(error)) from None
        return batch

    def _remember(self, digest: bytes, size: int, batch: Batch) -> None:
        self._known[digest] = (size, batch)
        self._knownBytes += size
        while self._knownBytes > KNOWN_BYTES:
            _, (oldest, _) = self._known.popitem(last=False)
            self._knownBytes -= oldest
