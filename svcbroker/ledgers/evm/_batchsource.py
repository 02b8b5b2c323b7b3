"""
The source of batches: reads a contract's log from a node, in order, up to the chain's finality, and
leaves nothing out.

The node is not trusted to be whole: each part of the log is compared with the contract's count of
batches and with its hash over them. What is final is never read again, so nothing is rolled back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import groupby
from typing import Final

from attrs import frozen
from twisted.internet.defer import Deferred

from ...chain import Malformed
from ._contract import LoggedBatch, LogState, stateCall
from ._evmbatch import BatchBlock
from ._evmrpc import (
    BlockInfo,
    EvmError,
    EvmRpc,
    Reason,
    blockCall,
    contractCall,
    logsCall,
)

FINALIZED: Final = "finalized"
"""The finality of chains with proof of stake: the block that they call so."""

TURN: Final = 16
"""The most logs that are decoded in one turn of the reactor."""

MAX_SURVEY: Final = 10_000
"""The most windows that are looked through before the state of the contract confirms them."""


class LogIncomplete(Exception):
    """A node's log is not what the contract's state says. The text is a line for the operator."""


class Reorganized(Exception):
    """
    The chain has another block where one was final. The text is a line for the operator.
    """


@frozen(kw_only=True)
class SourcePlace:
    """
    The place up to which a log was read.

    @ivar number: the number of the last block of the chain that was read, or is being read.
    @ivar hash: its hash.
    @ivar log: the state of the log after what was read.
    @ivar isWhole: whether all batches of that block were read, for all that is known.
    """

    number: int
    hash: bytes
    log: LogState
    isWhole: bool = False


@frozen
class _Entry:
    """A batch, with the number and the hash of its block of the chain."""

    height: int
    blockHash: str
    batch: LoggedBatch


@frozen
class _Mark:
    """The state of the log after a block, as its batches have it."""

    number: int
    log: LogState


class BatchSource:
    """
    The log of one contract.

    @ivar place: where it was read up to.
    @ivar final: the number of the chain's last final block, as last seen.
    """

    def __init__(
        self,
        rpc: EvmRpc,
        contract: bytes,
        finality: str | int,
        place: SourcePlace,
        window: int,
        turn: Callable[[], Deferred[None]],
    ) -> None:
        """
        @param finality: the number of blocks that make one final, or L{FINALIZED}.
        @param place: where to go on.
        @param window: the most blocks whose logs are asked for together.
        @param turn: fires when reading may go on, where it takes long.
        """
        self._rpc = rpc
        self._contract = contract
        self._finality = finality
        self._window = window
        self._turn = turn
        self._marks: deque[_Mark] = deque()
        self.place = place
        self.final = place.number

    @property
    def behind(self) -> int:
        """The number of final blocks that were not read."""
        return max(0, self.final - self.place.number)

    async def read(self) -> AsyncIterator[BatchBlock]:
        """
        The next blocks with batches, up to the last final one. The reader sets L{place} to what it
        has executed of a block; what it leaves comes again.

        @raise EvmError: the node does not answer, or not what a node does.
        @raise LogIncomplete: what it answers is not the whole log.
        @raise Reorganized: it has another block where one was final.
        """
        head = await self._head()
        self.final = head.height
        if head.height < self.place.number or (head.id == self.place.hash and self.place.isWhole):
            # Nothing new, or another node, which is behind.
            return
        before = await self._rpc.ask(blockCall(self.place.number))
        state = await self._state(head.height)
        if before.id != self.place.hash:
            raise Reorganized(
                f"block {self.place.number} of the chain was final with hash "
                f"{self.place.hash.hex()}, and has {before.id.hex()} now: either the chain was "
                "reorganized below the finality that this ledger is set to, or this is a node of "
                "another chain"
            )
        if state is None:
            raise EvmError(Reason.NO_STATE, "the node has no state of the last final block")
        if state.count < self.place.log.count:
            raise LogIncomplete(
                f"the contract has {state.count} batches after block {head.height}, and had "
                f"{self.place.log.count} before"
            )
        while self.place.log != state:
            async for block in self._readWindow(head.height, state):
                yield block
        self.place = SourcePlace(number=head.height, hash=head.id, log=state, isWhole=True)

    async def _head(self) -> BlockInfo:
        finality = self._finality
        if isinstance(finality, str):
            return await self._rpc.ask(blockCall(finality))
        head = await self._rpc.ask(blockCall("latest"))
        if finality:
            head = await self._rpc.ask(blockCall(max(0, head.height - finality)))
        return head

    async def _readWindow(self, final: int, state: LogState) -> AsyncIterator[BatchBlock]:
        """Read one window of blocks."""
        first = self.place.number + self.place.isWhole
        last, logs, after = await self._complete(first, final, state)
        for number, found in groupby(logs, key=lambda each: each.height):
            entries = list(found)
            head = await self._rpc.ask(blockCall(number))
            if any(each.blockHash != entries[0].blockHash for each in entries) or (
                head.hash != entries[0].blockHash
            ):
                raise LogIncomplete(f"block {number} of the chain is not the one of its logs")
            left = [each.batch for each in entries if each.batch.number > self.place.log.count]
            while left:
                yield BatchBlock(number=number, hash=head.id, time=head.milliseconds, batches=left)
                done = self.place.log.count
                left = [each for each in left if each.number > done]
        if self.place.log != after:
            raise LogIncomplete("the batches that were read were not executed")
        ended = await self._rpc.ask(blockCall(last))
        self.place = SourcePlace(number=last, hash=ended.id, log=after, isWhole=True)
        if self._marks:
            self._marks.popleft()

    async def _complete(
        self, first: int, final: int, state: LogState
    ) -> tuple[int, Sequence[_Entry], LogState]:
        """
        The logs of a window that are sure to be whole.

        @return: the window's last block, the logs, and the state of the log after them.
        """
        while True:
            last = self._marks[0].number if self._marks else min(final, first + self._window - 1)
            try:
                logs = await self._logs(first, last)
                after = self._after(self.place.log, logs)
                if await self._isWhole(last, after, final, state):
                    return last, logs, after
                words = f"the logs of blocks {first} to {last} are not those of the contract"
            except EvmError as error:
                if error.reason not in (Reason.TOO_LARGE, Reason.REFUSED) or last == first:
                    raise
                words = str(error)
            except Malformed as error:
                words = f"the logs of blocks {first} to {last}: {error}"
            if last == first:
                raise LogIncomplete(f"{words}: the node {self._rpc.url} leaves out or invents some")
            # Some nodes cut a window without a word.
            self._marks.clear()
            self._window = max(1, (last - first + 1) // 2)

    async def _logs(self, first: int, last: int) -> Sequence[_Entry]:
        logs = await self._rpc.ask(logsCall(self._contract, first, last))
        places = [(each.height, int(each.logIndex, 16)) for each in logs]
        if places != sorted(set(places)) or any(each.removed for each in logs):
            raise Malformed("they are not in order")
        if places and not (first <= places[0][0] and places[-1][0] <= last):
            raise Malformed("they are of other blocks")
        entries = []
        for each in logs:
            entries.append(_Entry(each.height, each.blockHash, each.decode()))
            # Large ones take a millisecond each.
            if not len(entries) % TURN:
                await self._turn()
        return entries

    def _after(self, log: LogState, logs: Sequence[_Entry]) -> LogState:
        """The state of the log after those of some logs that were not read before."""
        for each in logs:
            if each.batch.number > log.count or each.height > self.place.number:
                log = log.after(each.batch)
        return log

    async def _isWhole(self, last: int, after: LogState, final: int, state: LogState) -> bool:
        """
        Whether the contract had that state after the window. Nodes keep the states of the last
        blocks only: where this one is gone, the rest of the log is looked through up to the last
        final block, whose state is there.
        """
        if self._marks:
            return self._marks[0].log == after
        if last == final:
            return after == state
        found = await self._state(last)
        if found is not None:
            return found == after
        marks = [_Mark(last, after)]
        while marks[-1].number < final:
            if len(marks) == MAX_SURVEY:
                raise LogIncomplete(
                    "the node keeps no states of the contract, and the log is too long to be "
                    f"looked through in windows of {self._window} blocks: give a node that does"
                )
            begin = marks[-1].number + 1
            end = min(final, begin + self._window - 1)
            logs = await self._logs(begin, end)
            log = marks[-1].log
            for each in logs:
                log = log.after(each.batch)
            marks.append(_Mark(end, log))
        if marks[-1].log != state:
            return False
        self._marks = deque(marks)
        return True

    async def _state(self, block: int) -> LogState | None:
        """The contract's state after a block; C{None} where the node does not have that."""
        try:
            answer = await self._rpc.ask(contractCall(self._contract, stateCall(), block))
        except EvmError as error:
            if error.reason is Reason.NO_STATE:
                return None
            raise
        return LogState.decode(answer)
