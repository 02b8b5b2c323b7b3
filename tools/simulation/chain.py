"""
A host's chain: its stored blocks, and the application that its replica runs.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from attrs import frozen

from svcbroker.chain import (
    Candidate,
    Certificate,
    Genesis,
    Header,
    InvalidBlock,
    Transaction,
    checkBlock,
    proposeBlock,
    selectTransactions,
)
from svcbroker.ledgers.pbft._producer import MAX_DRIFT, BlockApplication
from svcbroker.ledgers.pbft._protocol import ProposedBlock

from .clock import VirtualClock
from .judge import Executed

MAX_BYTES = 4096
MAX_TRANSACTIONS = 8


@frozen(kw_only=True)
class StoredBlock:
    """A block as stored on a host's disk."""

    header: Header
    certificate: Certificate
    transactions: Sequence[Transaction]


def variant(
    application: HostChain | BlockApplication,
    view: int,
    delay: int,
    more: Sequence[Transaction] = (),
) -> ProposedBlock | None:
    """
    A valid block of the waiting transactions; each C{delay} (milliseconds) gives another one.

    @param more: further transactions; with any, the block is not valid.
    @return: the block, or C{None} if nothing can be proposed.
    """
    made = application.propose(view)
    if made is None:
        return None
    if delay or more:
        state = application.state if isinstance(application, HostChain) else application._state
        transactions = [*made.transactions, *more]
        timestamp = made.header.timestamp + delay
        made = proposeBlock(state, application.head, view, timestamp, transactions)
    return ProposedBlock.of(made)


class HostChain:
    """
    The L{ReplicaApplication<svcbroker.ledgers.pbft._replica.ReplicaApplication>} of a replica on a
    host of its own, with its own state, transaction pool and disk.

    @ivar blocks: the stored blocks; the first has height 1.
    @ivar state: the state after the last of them.
    @ivar pool: the waiting transactions by hash, in order of arrival.
    @ivar executed: the results of transactions, by hash.
    """

    def __init__(
        self, genesis: Genesis, clock: VirtualClock, skew: float, signed: Container[bytes]
    ) -> None:
        """
        @param skew: how many seconds the host's wall clock is ahead.
        @param signed: the hashes of all transactions that clients have sent. Replicas cannot add to
            it; it stands for client signatures.
        """
        self.blocks: list[StoredBlock] = []
        self.state = genesis.state()
        self.pool: dict[bytes, Transaction] = {}
        self.executed: dict[bytes, Executed] = {}
        self.skew = skew
        self._genesis = genesis.header()
        self._clock = clock
        self._signed = signed
        self._pending: StoredBlock | None = None
        # The blocks executed on top of the head, by hash.
        self._candidates: dict[bytes, Candidate] = {}

    @property
    def head(self) -> Header:
        """The header of the last stored block."""
        return self.blocks[-1].header if self.blocks else self._genesis

    @property
    def headers(self) -> Sequence[Header]:
        """The headers of all blocks, with the genesis."""
        return [self._genesis, *(block.header for block in self.blocks)]

    @property
    def isStoring(self) -> bool:
        """Whether a decided block is being written to disk."""
        return self._pending is not None

    def add(self, transaction: Transaction) -> None:
        """Add a client's transaction to the pool, unless it was executed before."""
        if transaction.hash not in self.executed:
            self.pool.setdefault(transaction.hash, transaction)

    def waiting(self) -> Sequence[Transaction]:
        """The transactions of the next block."""
        return selectTransactions(self.pool.values(), MAX_BYTES, MAX_TRANSACTIONS)

    def milliseconds(self) -> int:
        """The host's wall clock, in milliseconds."""
        return int((self._clock.seconds() + self.skew) * 1000)

    def propose(self, view: int) -> Candidate | None:
        """
        See L{Application.propose<svcbroker.ledgers.pbft._replica.ReplicaApplication.propose>}.
        """
        if self.isStoring or not self.pool:
            return None
        timestamp = self.milliseconds()
        candidate = proposeBlock(self.state, self.head, view, timestamp, self.waiting())
        self._candidates[candidate.header.hash] = candidate
        return candidate

    def check(self, block: ProposedBlock) -> Candidate | None:
        """See L{Application.check<svcbroker.ledgers.pbft._replica.ReplicaApplication.check>}."""
        header, transactions = block.header, block.transactions
        if self.isStoring or header.parent != self.head.hash:
            return None
        if not transactions:
            raise InvalidBlock("it is empty")
        if header.timestamp > max(self.milliseconds(), self.head.timestamp) + MAX_DRIFT:
            raise InvalidBlock("its time is too far ahead")
        for transaction in transactions:
            if transaction.hash not in self._signed or transaction.hash in self.executed:
                raise InvalidBlock("no client has sent a transaction, or it was executed before")
        return self.execute(block)

    def execute(self, block: ProposedBlock) -> Candidate:
        """
        Execute a block on top of the head.

        @raise InvalidBlock: it is not valid.
        """
        hash = block.header.hash
        candidate = self._candidates.get(hash)
        if candidate is None:
            candidate = checkBlock(self.state, self.head, block.header, block.transactions)
            self._candidates[hash] = candidate
        return candidate

    def decided(self, height: int) -> tuple[Header, Certificate] | None:
        """
        See L{Application.decided<svcbroker.ledgers.pbft._replica.ReplicaApplication.decided>}.
        """
        pending = self._pending
        if pending is not None and pending.header.height == height:
            return pending.header, pending.certificate
        if not 0 < height <= len(self.blocks):
            return None
        block = self.blocks[height - 1]
        return block.header, block.certificate

    def reserve(self, height: int, round: int) -> bool:
        """
        See L{Application.reserve<svcbroker.ledgers.pbft._replica.ReplicaApplication.reserve>}.
        """
        return True  # the host writes promises to disk before it sends messages

    def beginStoring(self, block: StoredBlock) -> None:
        """Note that a decided block is being written to disk."""
        self._pending = block

    def load(self, block: StoredBlock) -> None:
        """
        Apply a block that is on stable storage.

        @raise InvalidBlock: it does not follow the last one.
        """
        self._pending = None
        candidate = self.execute(
            ProposedBlock(header=block.header, transactions=block.transactions)
        )
        self.state.apply(candidate.outcome, candidate.history)
        self._candidates.clear()
        self.blocks.append(block)
        for transaction, receipt in zip(
            block.transactions, candidate.outcome.receipts, strict=True
        ):
            self.pool.pop(transaction.hash, None)
            self.executed.setdefault(
                transaction.hash, Executed(block.header.height, receipt.sequence)
            )
