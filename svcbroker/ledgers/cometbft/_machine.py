"""
The replicated state machine: decides which batches are valid in a block, and executes blocks.

It is deterministic, as ABCI requires: every result follows from the state and the arguments.
L{svcbroker.chain} executes transactions; this module maps batches to them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import sha256

from attrs import frozen

from ...chain import (
    Candidate,
    ChainState,
    ChangeRefused,
    Header,
    Malformed,
    ValidatorChange,
    ValidatorSet,
    VersionUnknown,
    leaderIndex,
    proposeBlock,
)
from ...errors import ParameterInvalid
from ...proofs.cometbft import engineOrder
from ..replicated import NEWEST, BlockDraft, BlockRefused, Code
from ._batch import EngineBatch, Unauthorized, checkSponsor, readBatch
from .abci import framedSize

KNOWN_BYTES = 64 * 1024 * 1024
"""Bytes of parsed batches that are cached: a batch is checked several times before it is final."""


@frozen(kw_only=True)
class BlockExecution:
    """
    The result of executing a block.

    @ivar codes: the result of each batch.
    """

    candidate: Candidate
    codes: Sequence[Code]


class ChainMachine:
    """
    One chain's state machine.

    @ivar state: the state after L{head}; only L{apply} changes it.
    @ivar head: the header of the last block.
    """

    def __init__(
        self,
        state: ChainState,
        head: Header,
        format3: int | None = None,
        format4: int | None = None,
    ) -> None:
        """
        @param format3: the height from which blocks may be of format 3; C{None} for never. A chain
            that has begun with format 3, or has no transactions yet, needs none.
        @param format4: the same for format 4.
        """
        self.state = state
        self.head = head
        self._since = {2: format3, NEWEST: format4}
        self._known: OrderedDict[bytes, tuple[int, EngineBatch]] = OrderedDict()
        self._knownBytes = 0
        self._waiting: dict[tuple[bytes, int], int] = {}

    @property
    def isNew(self) -> bool:
        """Whether there are no transactions yet."""
        return not self.head.transactionTotal

    @property
    def newest(self) -> int:
        """
        The highest version of transactions that the next block may have. Only what a node proposes
        and accepts depends on it: a block that is decided is executed.
        """
        if self.isNew:
            return NEWEST
        next = self.head.height + 1
        reached = [
            version for version, since in self._since.items() if since is not None and next >= since
        ]
        return max(self.head.version - 1, *reached, 1)

    def check(self, data: bytes, timestamp: int, *, isRecheck: bool = False) -> None:
        """
        Check whether a batch may enter the mempool, or stay in it.

        @param timestamp: the time in milliseconds since the epoch.
        @param isRecheck: whether it was in the mempool while the last block was decided.
        @raise Refused: it may not.
        """
        batch = self._read(data)
        try:
            BlockDraft(self.state, timestamp, self.newest).add(batch)
        except BlockRefused as refusal:
            # Its predecessor is probably on its way, or in the mempool. If an empty block was
            # decided meanwhile, no proposer had it. Then this batch leaves the mempool, because
            # the engines make blocks as long as the mempool is not empty; its broker sends both
            # again.
            if refusal.code is not Code.OUT_OF_ORDER:
                raise
            if isRecheck and not self.head.transactionCount and not self._waits(batch):
                raise
        last = batch.transactions[-1]
        self._waiting[last.sender, last.nonce] = self.head.height

    def _waits(self, batch: EngineBatch) -> bool:
        """Whether a batch's predecessor was checked since the last block but one."""
        before = batch.transactions[0].sender, batch.previous
        return self._waiting.get(before, -2) >= self.head.height - 1

    def select(self, waiting: Iterable[bytes], maxBytes: int, timestamp: int) -> Sequence[bytes]:
        """
        Select the batches of the next block, in order.

        The selection ends before a batch that does not fit, so that none overtakes another;
        invalid batches are left out.

        @param maxBytes: the most bytes of the block's transactions, framed.
        @param timestamp: the block's time in milliseconds since the epoch.
        """
        draft, left = BlockDraft(self.state, timestamp, self.newest), maxBytes
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
        # Batches that arrived before their predecessors; each follows lower nonces.
        for data in sorted(outOfOrder, key=lambda each: self._read(each).previous):
            size = framedSize(data)
            if size <= left and self._put(draft, data) is Code.OK:
                left -= size
                chosen.append(data)
        return chosen

    def isValid(self, block: Sequence[bytes], timestamp: int) -> bool:
        """
        Whether a block of these batches is valid: every batch is valid in it.

        @param timestamp: the block's time in milliseconds since the epoch.
        """
        draft = BlockDraft(self.state, timestamp, self.newest)
        return all(self._put(draft, data) is Code.OK for data in block)

    def execute(
        self, block: Sequence[bytes], height: int, timestamp: int, proposer: bytes
    ) -> BlockExecution:
        """
        Execute a decided block, without changing the state.

        @param timestamp: its time in milliseconds since the epoch.
        @param proposer: the public key of the validator that proposed it, if it is known.
        @raise VersionUnknown: it has transactions that a newer svcbroker executes.
        """
        draft = BlockDraft(self.state)
        # Not all OK only if more than a third of the validators are faulty.
        codes = [self._put(draft, data) for data in block]
        if Code.TOO_NEW in codes:
            raise VersionUnknown(
                f"block {height} has transactions that this svcbroker does not execute: upgrade it"
            )
        view = self._viewOf(proposer, height)
        candidate = proposeBlock(self.state, self.head, view, timestamp, draft.transactions)
        return BlockExecution(candidate=candidate, codes=codes)

    def apply(self, candidate: Candidate) -> None:
        """Apply an executed block, once it is on stable storage."""
        self.state.apply(candidate.outcome, candidate.history)
        self.head = candidate.header
        # The mempool is rechecked now.
        oldest = self.head.height - 1
        self._waiting = {key: height for key, height in self._waiting.items() if height >= oldest}

    def _viewOf(self, proposer: bytes, height: int) -> int:
        """
        The lowest view whose leader is this proposer, so that headers name the engine's proposer
        by the same rule as on every ledger.
        """
        keys, view = self.state.validators.keys, self.head.view
        if proposer not in keys:
            # It is leaving the set, or is not in the headers' set yet.
            return view
        return view + (keys.index(proposer) - leaderIndex(view, height, len(keys))) % len(keys)

    def _put(self, draft: BlockDraft, data: bytes) -> Code:
        """Add a batch to a block if it is valid there, and return its result."""
        try:
            draft.add(self._read(data))
        except BlockRefused as refusal:
            return refusal.code
        return Code.OK

    def _read(self, data: bytes) -> EngineBatch:
        digest = sha256(data).digest()
        known = self._known.get(digest)
        if known is not None:
            self._known.move_to_end(digest)
            batch = known[1]
        else:
            try:
                batch = readBatch(data, self.state.chain)
            except VersionUnknown as error:
                raise BlockRefused(Code.TOO_NEW, str(error)) from None
            except Malformed as error:
                raise BlockRefused(Code.MALFORMED, str(error)) from None
            except Unauthorized as error:
                raise BlockRefused(Code.UNAUTHORIZED, str(error)) from None
            self._remember(digest, len(data), batch)
        try:
            checkSponsor(batch, self.state.validators)
        except Unauthorized as error:
            raise BlockRefused(Code.UNAUTHORIZED, str(error)) from None
        return batch

    def _remember(self, digest: bytes, size: int, batch: EngineBatch) -> None:
        self._known[digest] = (size, batch)
        self._knownBytes += size
        while self._knownBytes > KNOWN_BYTES:
            _, (oldest, _) = self._known.popitem(last=False)
            self._knownBytes -= oldest


def checkChange(change: ValidatorChange, chain: bytes, current: ValidatorSet) -> None:
    """
    Check that a change of the validator set will be executed.

    @param chain: the chain's id.
    @param current: the set before the change.
    @raise ParameterInvalid: it will not be. The text says why.
    """
    try:
        change.check(chain, current)
    except ChangeRefused as error:
        raise ParameterInvalid(f"change: {error}") from error
    if change.following.keys != engineOrder(change.following.keys):
        raise ParameterInvalid("change: its validators are not in the engine's order")
