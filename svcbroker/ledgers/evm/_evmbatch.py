"""
Batches of transactions as a broker puts them onto a chain, and the blocks that they become.

A batch is a form, the id of the group's chain, and its transactions, packed where that is shorter.
Its sender is the account that has submitted it, so it needs no signature of its own. All brokers
find the same blocks in the same logs.

Their source reads a contract's log from a node, in order, up to the chain's finality, and leaves
nothing out. The node is not trusted to be whole: each part of the log is compared with the
contract's count of batches and with its hash over them. What is final is never read again, so
nothing is rolled back.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred

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
from .._jsonrpc import RpcCall
from ..replicated import BlockDraft, BlockRefused, Code
from ._contract import LoggedBatch, LogState, stateCall
from ._ethereum import word
from ._evmrpc import (
    MAX_ANSWER,
    BlockInfo,
    EvmError,
    EvmReason,
    EvmRpc,
    LogInfo,
    blockCall,
    contractCall,
    logsCall,
    unquantity,
)

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


FINALIZED: Final = "finalized"
"""The finality of chains with proof of stake: the block that they call so."""

TURN: Final = 16
"""The most logs that are decoded in one turn of the reactor."""

HEADS: Final = 50
"""The most blocks of the chain that are asked for together."""

WINDOW_BYTES: Final = 2 * 1024 * 1024
"""The bytes of batches after which the next window is a smaller one: they are in memory together,
and decoding what a node answers is one turn of the reactor."""

WINDOW_ANSWER: Final = 4 * WINDOW_BYTES
"""The most bytes of an answer with the logs of several blocks; those of batches are hexadecimal
digits in it."""

LOG_BYTES: Final = 2048
"""The bytes that a batch counts for beside its own: small ones take time as well."""

WIDEN_AFTER: Final = 16
"""The windows that are read whole, and are small, before a larger one is asked for."""

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


@frozen(kw_only=True)
class _Window:
    """
    The logs of some blocks, which are sure to be whole.

    @ivar last: the number of the last of the blocks.
    @ivar hash: its hash.
    @ivar after: the state of the log after it.
    """

    last: int
    hash: bytes
    entries: Sequence[_Entry]
    after: LogState


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
        self._window = self._widest = window
        self._wholeWindows = 0
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
        calls: list[RpcCall[Any]] = [blockCall(self.place.number), self._stateCall(head.height)]
        before, answer = await self._rpc.tryAll(calls)
        before, state = _known(before), self._stateOf(answer)
        if before.id != self.place.hash:
            raise Reorganized(
                f"block {self.place.number} of the chain was final with hash "
                f"{self.place.hash.hex()}, and has {before.id.hex()} now: either the chain was "
                "reorganized below the finality that this ledger is set to, or this is a node of "
                "another chain"
            )
        if state is None:
            raise EvmError(EvmReason.NO_STATE, "the node has no state of the last final block")
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
        window = await self._complete(first, final, state)
        groups = [list(found) for _, found in groupby(window.entries, key=lambda each: each.height)]
        for begin in range(0, len(groups), HEADS):
            chosen = groups[begin : begin + HEADS]
            heads = await self._rpc.askAll([blockCall(entries[0].height) for entries in chosen])
            for entries, head in zip(chosen, heads, strict=True):
                number = entries[0].height
                if any(each.blockHash != head.hash for each in entries):
                    raise LogIncomplete(f"block {number} of the chain is not the one of its logs")
                left = [each.batch for each in entries if each.batch.number > self.place.log.count]
                while left:
                    yield BatchBlock(
                        number=number, hash=head.id, time=head.milliseconds, batches=left
                    )
                    done = self.place.log.count
                    left = [each for each in left if each.number > done]
        if self.place.log != window.after:
            raise LogIncomplete("the batches that were read were not executed")
        last = window.last
        self.place = SourcePlace(number=last, hash=window.hash, log=window.after, isWhole=True)
        if self._marks:
            self._marks.popleft()
        sizes = (LOG_BYTES + len(each.batch.data) for each in window.entries)
        self._fit(last - first + 1, sum(sizes))

    def _fit(self, blocks: int, size: int) -> None:
        """Choose the next window by the blocks of the last one, and the bytes of its batches."""
        if size > WINDOW_BYTES:
            if blocks > 1:
                self._narrow(blocks * WINDOW_BYTES // size)
            return
        # Where the chain had more in its blocks, or the node refused more, fewer were asked for.
        self._wholeWindows += 1
        if self._wholeWindows > WIDEN_AFTER and size < WINDOW_BYTES // 4:
            self._window, self._wholeWindows = min(self._widest, 2 * self._window), 0

    def _narrow(self, blocks: int) -> None:
        self._window, self._wholeWindows = max(1, blocks), 0

    async def _complete(self, first: int, final: int, state: LogState) -> _Window:
        """The next window whose logs are sure to be whole."""
        while True:
            last = self._marks[0].number if self._marks else min(final, first + self._window - 1)
            needsState = not self._marks and last < final
            calls: list[RpcCall[Any]] = [logsCall(self._contract, first, last), blockCall(last)]
            calls += [self._stateCall(last)] if needsState else []
            try:
                maxAnswer = MAX_ANSWER if last == first else WINDOW_ANSWER
                logs, ended, *states = await self._rpc.tryAll(calls, maxAnswer)
                found, log = _known(logs), self.place.log
                entries, after = await self._follow(first, last, found, log)
                known = self._stateOf(states[0]) if needsState else None
                if await self._isWhole(last, after, final, state, known):
                    head = _known(ended)
                    return _Window(last=last, hash=head.id, entries=entries, after=after)
                words = f"the logs of blocks {first} to {last} are not those of the contract"
            except EvmError as error:
                if error.reason not in (EvmReason.TOO_LARGE, EvmReason.REFUSED) or last == first:
                    raise
                words = str(error)
            except Malformed as error:
                words = f"the logs of blocks {first} to {last}: {error}"
            if last == first:
                raise LogIncomplete(f"{words}: the node {self._rpc.url} leaves out or invents some")
            # Some nodes cut a window without a word.
            self._marks.clear()
            self._narrow((last - first + 1) // 2)

    async def _follow(
        self, first: int, last: int, logs: Sequence[LogInfo], log: LogState
    ) -> tuple[Sequence[_Entry], LogState]:
        """
        Read the logs of some blocks.

        @param log: the state of the log before them, or after those of the first block that were
            executed.
        @return: their batches, and the state after them.
        @raise Malformed: they are not the next ones.
        """
        entries: list[_Entry] = []
        place = first, -1
        for each in logs:
            here = each.height, unquantity(each.logIndex)
            if each.removed or here <= place or here[0] > last:
                raise Malformed("they are not in order, or are of other blocks")
            place, entry = here, _Entry(here[0], each.blockHash, each.decode())
            entries.append(entry)
            if entry.batch.number > log.count or entry.height > self.place.number:
                log = log.after(entry.batch)
            # Large ones take a millisecond each.
            if not len(entries) % TURN:
                await self._turn()
        return entries, log

    async def _isWhole(
        self, last: int, after: LogState, final: int, state: LogState, known: LogState | None
    ) -> bool:
        """
        Whether the contract had that state after the window. Nodes keep the states of the last
        blocks only: where this one is gone, the rest of the log is looked through up to the last
        final block, whose state is there.
        """
        if self._marks:
            return self._marks[0].log == after
        if last == final:
            return after == state
        if known is not None:
            return known == after
        marks = [_Mark(last, after)]
        while marks[-1].number < final:
            if len(marks) == MAX_SURVEY:
                raise LogIncomplete(
                    "the node keeps no states of the contract, and the log is too long to be "
                    f"looked through in windows of {self._window} blocks: give a node that does"
                )
            begin = marks[-1].number + 1
            end = min(final, begin + self._window - 1)
            call = logsCall(self._contract, begin, end)
            [found] = await self._rpc.tryAll([call], MAX_ANSWER if end == begin else WINDOW_ANSWER)
            _, log = await self._follow(begin, end, _known(found), marks[-1].log)
            marks.append(_Mark(end, log))
        if marks[-1].log != state:
            return False
        self._marks = deque(marks)
        return True

    def _stateCall(self, block: int) -> RpcCall[bytes]:
        return contractCall(self._contract, stateCall(), block)

    def _stateOf(self, answer: bytes | EvmError) -> LogState | None:
        """The contract's state of an answer; C{None} where the node does not have that."""
        if isinstance(answer, EvmError) and answer.reason is EvmReason.NO_STATE:
            return None
        return LogState.decode(_known(answer))


def _known(answer: Any) -> Any:
    """The result of a call that was not refused."""
    if isinstance(answer, EvmError):
        raise answer
    return answer
