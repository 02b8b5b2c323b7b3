"""
The sender of a broker's transactions: batches and attestations, in order of the account's nonces.

A node's word on what it holds is never believed: what is in no final block is sent again, and what
is there is found by L{BatchSource<svcbroker.ledgers.evm._evmbatch.BatchSource>}.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from ...archive import JOURNAL_NAME
from ...chain import Transaction
from ...errors import LedgerUnavailable, TransactionTimeout
from ...files import readFile
from ...net.deferreds import asDeferred
from ...storage import StorageDamaged, syncFile, writeFile
from .._jsonrpc import RpcCall
from ..replicated import OVERTAKEN, PendingTransactions
from ._contract import allowedCall, submitCall
from ._ethereum import WORD, EvmAccount, SignedTransaction, keccak256, showAddress
from ._evmbatch import MAX_BATCH, MAX_UNPACKED, packBatch
from ._evmrpc import (
    EvmError,
    EvmReason,
    EvmRpc,
    balanceCall,
    contractCall,
    estimateCall,
    gasPriceCall,
    nonceCall,
    receiptCall,
    sendCall,
)

_SUFFIX = ".tx"


class Journal:
    """
    The journal of a broker's transactions on their way to the chain: a file for each nonce, with
    the bytes of the transaction. Every later version has to read these files.

    Each is on stable storage before it is sent for the first time: after a crash the same bytes are
    sent again, and no nonce is left out.
    """

    def __init__(self, directory: Path, runInThread: Callable[..., Deferred[Any]]) -> None:
        """
        @param directory: the ledger's; it exists.
        """
        self._directory = directory / JOURNAL_NAME
        self._runInThread = runInThread

    def open(self) -> Sequence[SignedTransaction]:
        """
        Read what is there, by rising nonces. Blocks.

        @raise OSError: it cannot be read.
        @raise StorageDamaged: a file of it is none of a transaction.
        """
        if not self._directory.exists():
            self._directory.mkdir(mode=0o700)
            syncFile(self._directory.parent)
        found = []
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            try:
                nonce = int(path.name.removesuffix(_SUFFIX))
            except ValueError:
                raise StorageDamaged(f"{path} has no nonce for its name") from None
            raw = readFile(path)
            found.append(SignedTransaction(nonce=nonce, raw=raw, hash=keccak256(raw)))
        return sorted(found, key=lambda each: each.nonce)

    def write(self, transactions: Sequence[SignedTransaction]) -> Deferred[None]:
        """
        Write transactions, in place of any others with their nonces. Fires when they are on stable
        storage.
        """
        return self._runInThread(self._write, transactions)

    def _write(self, transactions: Sequence[SignedTransaction]) -> None:
        for each in transactions:
            writeFile(self._path(each.nonce), each.raw, 0o600)

    def forget(self, nonces: Sequence[int]) -> Deferred[None]:
        """Remove transactions that are in final blocks. A crash may leave some: harmless."""
        return self._runInThread(self._forget, nonces)

    def _forget(self, nonces: Sequence[int]) -> None:
        for nonce in nonces:
            self._path(nonce).unlink(missing_ok=True)

    def _path(self, nonce: int) -> Path:
        return self._directory / f"{nonce:020d}{_SUFFIX}"


BATCH_COUNT: Final = 1000
"""The most transactions in a batch: to read and to execute one is a turn of the reactor."""

MAX_GAS: Final = 15_000_000
"""The most gas of a transaction. Newer chains have a bound of 2**24."""

RETRY: Final = 1.0
"""Seconds between two attempts, while the node or the disk fails."""

RESEND: Final = 5.0
"""Seconds after which what is in no final block is sent again."""

_SEND_BYTES: Final = 1024 * 1024
"""The most bytes of one request; twice as many as digits."""

DEAR_BYTE: Final = 40
"""The gas of a byte of a call with EIP-7623, where the node does not tell."""

FIXED_GAS: Final = 600_000
"""
The gas of a call beside its data. An attestation puts three words into the contract's state, for
which the forks that geth prepares take 370,000. What is not used is not paid.
"""

_MAX_OTHERS: Final = 16


def gasOf(data: bytes, perByte: int = DEAR_BYTE) -> int:
    """The gas that a call of the contract may take at most."""
    return min(MAX_GAS, FIXED_GAS + perByte * len(data))


@define(eq=False)
class _Sent:
    """
    A transaction under way.

    @ivar data: what the contract is called with; empty where it is of before the start.
    @ivar hashes: its transactions of ours that are not final.
    @ivar due: when it is sent again; 0 where it was not sent.
    """

    transaction: SignedTransaction
    data: bytes = b""
    hashes: set[bytes] = field(factory=set)
    due: float = 0.0

    @property
    def nonce(self) -> int:
        """The account's nonce."""
        return self.transaction.nonce


class Sender:
    """
    The transactions of one account to one contract.

    @ivar reason: why nothing can be sent now, in words for an operator; empty where nothing is
        known to prevent it.
    @ivar balance: the account's balance, as last seen; C{None} before.
    @ivar gasPrice: the price of gas that is offered.
    """

    _log = Logger()

    def __init__(
        self,
        *,
        clock: IReactorTime,
        rpc: EvmRpc,
        account: EvmAccount,
        chainId: int,
        contract: bytes,
        journal: Journal,
        pending: PendingTransactions,
        window: int,
        gasPrice: int | None,
        interval: float,
    ) -> None:
        """
        @param window: the most transactions under way.
        @param gasPrice: what is offered for gas; C{None} for what the node proposes.
        @param interval: seconds to gather transactions into a batch.
        """
        self._clock = clock
        self._rpc = rpc
        self._account = account
        self._chainId = chainId
        self._contract = contract
        self._journal = journal
        self._pending = pending
        self._window = window
        self._fixedPrice = gasPrice
        self._interval = interval
        self.gasPrice = gasPrice or 0
        self.reason = ""
        self.balance: int | None = None
        self._chain = b""
        self._sent: list[_Sent] = []
        self._others: deque[bytes] = deque(maxlen=_MAX_OTHERS)
        self._next = 0
        self._used = 0
        self._generation = -1
        self._batchBytes = MAX_BATCH
        self._perByte = DEAR_BYTE
        self._call: IDelayedCall | None = None
        self._working: Deferred[None] | None = None
        self._isClosed = False

    @property
    def underWay(self) -> int:
        """The number of transactions that are in no final block."""
        return len(self._sent)

    def open(self, chain: bytes) -> None:
        """
        Go on with what the journal has. Blocks.

        @param chain: the id of the group's chain.
        @raise OSError, StorageError: the journal cannot be read.
        """
        self._chain = chain
        self._sent = [_Sent(each) for each in self._journal.open()]
        self._wake(0)

    def close(self, reason: str) -> None:
        """Stop sending, and fail what is pending."""
        self._isClosed = True
        if self._call is not None:
            self._call.cancel()
            self._call = None
        if self._working is not None:
            self._working.cancel()
        self._pending.failQueued(LedgerUnavailable(reason))
        self._pending.failAll(TransactionTimeout(f"{reason}: it may still be executed"))

    def submitted(self) -> None:
        """There are transactions in the queue."""
        self._wake(self._interval)

    def call(self, data: bytes) -> None:
        """
        Call the contract with something else than a batch. It is not waited for; of what cannot be
        sent for long, the newest calls are kept.
        """
        self._others.append(data)
        self._wake(0)

    # One after the other: nonces have an order.

    def _wake(self, delay: float) -> None:
        if self._isClosed or self._working is not None:
            return
        if self._call is None:
            self._call = self._clock.callLater(delay, self._work)
        elif self._call.getTime() > self._clock.seconds() + delay:
            self._call.reset(delay)

    def _work(self) -> None:
        self._call = None
        self._working = self._step()
        self._working.addErrback(self._failed).addCallback(self._worked)

    def _failed(self, failure: Failure) -> float:
        error = failure.value
        if isinstance(error, CancelledError) and self._isClosed:
            return RETRY
        if isinstance(error, EvmError | OSError):
            self._tell(str(error))
        else:
            self._log.failure("a transaction cannot be sent", failure)
        return RETRY

    def _worked(self, delay: object) -> None:
        self._working = None
        if isinstance(delay, float):
            self._wake(delay)
        elif self._pending.queued and len(self._sent) < self._window:
            self._wake(self._interval)
        elif self._sent:
            now = self._clock.seconds()
            self._wake(max(0.0, min(each.due for each in self._sent) - now))

    def _tell(self, reason: str) -> None:
        if reason != self.reason:
            self.reason = reason
            if reason:
                self._log.warn("nothing can be sent to the chain: {reason}", reason=reason)

    @asDeferred
    async def _step(self) -> None:
        if self._generation != self._rpc.generation or self.reason:
            await self._look()
        while len(self._sent) < self._window and (self._others or self._pending.queued):
            await self._fill()
        now = self._clock.seconds()
        due = [each for each in self._sent if each.due <= now]
        while due:
            size = 0
            chosen: list[_Sent] = []
            for each in due:
                size += len(each.transaction.raw)
                if chosen and size > _SEND_BYTES:
                    break
                chosen.append(each)
            due = due[len(chosen) :]
            await self._send(chosen)

    async def _look(self) -> None:
        """Look at the account, as another node has it, or after something went wrong."""
        calls: list[RpcCall[Any]] = [
            nonceCall(self._account.address),
            balanceCall(self._account.address),
            contractCall(self._contract, allowedCall(self._account.address)),
            gasPriceCall(),
        ]
        # A node is left where it does not answer: then the next attempt begins anew.
        generation = self._rpc.generation
        nonce, self.balance, allowed, price = await self._rpc.askAll(calls)
        self.gasPrice = price if self._fixedPrice is None else self._fixedPrice
        if allowed != bytes(WORD - 1) + b"\x01":
            raise EvmError(
                EvmReason.REFUSED,
                f"the contract does not allow account {showAddress(self._account.address)}: its "
                "owner can (svcbroker net evm allow)",
            )
        if self.gasPrice and self.balance < self.gasPrice * FIXED_GAS:
            raise EvmError(EvmReason.NO_FUNDS, self._noFunds())
        await self._lookAtGas()
        # A node that is behind tells a nonce that was used.
        self._next = max(nonce, self._used, *(each.nonce + 1 for each in self._sent))
        for each in self._sent:
            each.due = 0.0
        self._generation = generation
        self._tell("")

    async def lookAtBalance(self) -> None:
        """Look at the account's money, which others may have sent while nothing was published."""
        self.balance = await self._rpc.ask(balanceCall(self._account.address))

    async def _lookAtGas(self) -> None:
        """
        Find out what a byte costs. A transaction that may take more gas than it needs leaves less
        room in its block.
        """
        # Per byte, small batches take no more than the largest one: some forks count either what is
        # stored or what is sent, whichever is more.
        probe = submitCall(b"\xff" * MAX_BATCH)
        call = estimateCall(self._account.address, self._contract, probe)
        [gas] = await self._rpc.tryAll([call])
        self._perByte = 1 + gas // MAX_BATCH if isinstance(gas, int) else DEAR_BYTE

    def _noFunds(self) -> str:
        return (
            f"account {showAddress(self._account.address)} is out of gas money: it has "
            f"{self.balance} wei"
        )

    async def _fill(self) -> None:
        """Put the next call into the journal."""
        hashes: set[bytes] = set()
        other = self._others.popleft() if self._others else b""
        if other:
            data = other
        else:
            chosen = self._pending.take(self._batchBytes, BATCH_COUNT)
            hashes = {each.hash for each in chosen}
            batch = self._packed(chosen)
            if batch is None:
                return
            data = submitCall(batch)
        sent = _Sent(self._sign(self._next, data), data, hashes)
        try:
            await self._journal.write([sent.transaction])
        except BaseException:
            self._pending.putBack(hashes)
            if other:
                self._others.appendleft(other)
            raise
        self._next += 1
        self._sent.append(sent)

    def _packed(self, chosen: Sequence[Transaction]) -> bytes | None:
        """
        The batch of some transactions; C{None} where it is too large. Then they are queued again,
        for a smaller one, or fail where it is one alone.
        """
        batch = packBatch(self._chain, chosen)
        size = sum(each.size for each in chosen)
        if len(batch) <= MAX_BATCH:
            # The next one can probably be packed as well.
            likely = MAX_BATCH * size // len(batch) * 7 // 8
            self._batchBytes = max(MAX_BATCH * 7 // 8, min(likely, MAX_UNPACKED // 2))
            return batch
        hashes = {each.hash for each in chosen}
        if len(chosen) > 1:
            self._batchBytes = max(1, size // 2)
            self._pending.putBack(hashes)
        else:
            self._pending.fail(
                hashes,
                LedgerUnavailable(
                    f"the event has {size} bytes and cannot be packed into {MAX_BATCH}, which is "
                    "the most that this ledger puts into a transaction of its chain"
                ),
            )
        return None

    def _sign(self, nonce: int, data: bytes) -> SignedTransaction:
        return self._account.sign(
            chainId=self._chainId,
            nonce=nonce,
            gasPrice=self.gasPrice,
            gas=gasOf(data, self._perByte),
            to=self._contract,
            data=data,
        )

    async def _send(self, chosen: Sequence[_Sent]) -> None:
        now = self._clock.seconds()
        answers = await self._rpc.tryAll([sendCall(each.transaction.raw) for each in chosen])
        for each, answer in zip(chosen, answers, strict=True):
            each.due = now + RESEND
            if not isinstance(answer, EvmError) or answer.reason is EvmReason.KNOWN:
                continue
            if answer.reason is EvmReason.NO_FUNDS:
                raise EvmError(EvmReason.NO_FUNDS, self._noFunds())
            if answer.reason is EvmReason.UNDERPRICED and each.data:
                await self._raise(each)
            elif answer.reason not in (EvmReason.NONCE_USED, EvmReason.REPLACED):
                # What uses its nonce is found when it is final.
                raise answer

    async def _raise(self, sent: _Sent) -> None:
        """Offer more for gas, with the same nonce: one of the two will be in a block."""
        if self._fixedPrice is not None:
            raise EvmError(
                EvmReason.UNDERPRICED,
                f"the node wants more than {self._fixedPrice} wei for gas: set gas-price",
            )
        self.gasPrice = max(await self._rpc.ask(gasPriceCall()), self.gasPrice * 9 // 8 + 1)
        sent.transaction = self._sign(sent.nonce, sent.data)
        await self._journal.write([sent.transaction])
        sent.due = self._clock.seconds()

    # What the log says.

    @asDeferred
    async def settled(self, block: int) -> None:
        """
        All batches up to a final block were executed. What has a lower nonce than the account's
        after that block is done: it was executed, reverted, or another transaction has its nonce.

        @param block: the number of the block.
        """
        if not self._sent:
            return
        nonce, self.balance = await self._rpc.askAll(
            [nonceCall(self._account.address, block), balanceCall(self._account.address)]
        )
        self._used = max(self._used, nonce)
        done = []
        for each in [each for each in self._sent if each.nonce < nonce]:
            each.hashes = self._pending.among(each.hashes)
            if each.hashes and not await self._explain(each, block):
                break
            done.append(each)
        if not done:
            return
        self._sent = [each for each in self._sent if each not in done]
        await self._journal.forget([each.nonce for each in done])
        self._wake(0)

    async def _explain(self, sent: _Sent, block: int) -> bool:
        """
        A nonce is used, and the transactions of ours have no receipts.

        @return: whether nothing more becomes of it. It is in a later block where a node tells the
            nonce after one that it has decided meanwhile.
        """
        receipt = await self._rpc.ask(receiptCall(sent.transaction.hash))
        if receipt is not None and receipt.height > block:
            return False
        if receipt is None:
            self._log.warn(
                "another transaction of account {account} has nonce {nonce}: does another "
                "broker use a copy of its key?",
                account=showAddress(self._account.address),
                nonce=sent.nonce,
            )
            self._pending.putBack(sent.hashes)
            self._generation = -1
        elif receipt.isDone:
            self._pending.fail(sent.hashes, LedgerUnavailable(OVERTAKEN))
        else:
            # Looks again whether the account is allowed, and can pay.
            self._generation = -1
            why = "the contract refused this broker's transaction: may its account still submit?"
            self._pending.fail(sent.hashes, LedgerUnavailable(why))
        return True
