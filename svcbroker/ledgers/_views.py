"""
From what the chain holds to what the house speaks in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..chain import (
    Header,
    Kind,
    Transaction,
    TransactionReceipt,
    ValidatorChange,
    accountAddress,
    topicAddress,
)
from ..model import (
    Block,
    BlockRecord,
    CloseTopic,
    Event,
    EventId,
    Execution,
    OpenTopic,
    PublishEvent,
    Receipt,
    Request,
    TransactionRecord,
    topicPrefix,
)

_BROKER_ACCOUNT = "broker"


def brokerAddress(chain: bytes) -> bytes:
    """
    The address of the account that sends the transactions of a chain's only broker.

    @param chain: the chain's id.
    """
    return accountAddress(chain, _BROKER_ACCOUNT)


class TransactionMaker:
    """
    Makes transactions of requests: the sender, the time and the next nonce.

    @ivar sender: the address of the broker's account.
    """

    def __init__(self, sender: bytes, now: Callable[[], float]) -> None:
        """
        @param sender: the address of the broker's account.
        @param now: the wall clock: seconds since the epoch.
        """
        self.sender = sender
        self._now = now
        self._nonce = 0

    def resume(self, highest: int) -> None:
        """
        Go on after the nonces that the chain has seen.
        """
        self._nonce = highest

    def make(self, request: Request) -> Transaction:
        """The transaction that carries out a request."""
        nonce, timestamp = self._next()
        return _transactionOf(request, self.sender, nonce, timestamp)

    def makeMany(self, requests: Sequence[Request]) -> Sequence[Transaction]:
        """The transactions that carry out some requests, in their order and of one time."""
        sender, nonce, timestamp = self.sender, self._nonce, int(self._now() * 1000)
        transactions = []
        for request in requests:
            nonce += 1
            transactions.append(_transactionOf(request, sender, nonce, timestamp))
        self._nonce = nonce
        return transactions

    def makeChange(self, change: ValidatorChange) -> Transaction:
        """The transaction that carries out a change of the set of nodes."""
        nonce, timestamp = self._next()
        return Transaction.create(
            Kind.VALIDATORS, self.sender, nonce, timestamp, "", change.encode()
        )

    def _next(self) -> tuple[int, int]:
        self._nonce += 1
        return self._nonce, int(self._now() * 1000)


def _transactionOf(request: Request, sender: bytes, nonce: int, timestamp: int) -> Transaction:
    if isinstance(request, PublishEvent):
        return Transaction.create(
            Kind.PUBLISH,
            sender,
            nonce,
            timestamp,
            request.topic,
            request.content,
            request.extensions,
        )
    kind = Kind.OPEN if isinstance(request, OpenTopic) else Kind.CLOSE
    assert kind is Kind.OPEN or isinstance(request, CloseTopic)
    return Transaction.create(kind, sender, nonce, timestamp, request.topic)


def eventIdOf(transaction: Transaction, receipt: TransactionReceipt, height: int) -> EventId | None:
    """The id of the event that a transaction published, if it did."""
    if not receipt.sequence:
        return None
    return EventId(topicPrefix(transaction.topic), receipt.sequence, height)


def receiptsOf(
    height: int, transactions: Sequence[Transaction], receipts: Sequence[TransactionReceipt]
) -> Sequence[Receipt]:
    """The receipts of a block that has become final, in the order of its transactions."""
    return [
        Receipt(
            execution=receipt.execution,
            transactionHash=transaction.hash,
            height=height,
            eventId=eventIdOf(transaction, receipt, height),
        )
        for transaction, receipt in zip(transactions, receipts, strict=True)
    ]


def eventOf(transaction: Transaction, sequence: int, height: int, index: int) -> Event:
    """The event that a transaction published."""
    return Event(
        topic=transaction.topic,
        content=transaction.content,
        extensions=transaction.extensions,
        eventId=EventId(topicPrefix(transaction.topic), sequence, height),
        index=index,
    )


def blockOf(
    header: Header, transactions: Sequence[Transaction], receipts: Sequence[TransactionReceipt]
) -> Block:
    """A final block as a follower reads it."""
    return Block(
        height=header.height,
        timestamp=header.timestamp,
        hash=header.hash,
        events=[
            eventOf(transaction, receipt.sequence, header.height, index)
            for index, (transaction, receipt) in enumerate(zip(transactions, receipts, strict=True))
            if receipt.execution is Execution.DONE and receipt.sequence
        ],
    )


def blockRecordOf(header: Header) -> BlockRecord:
    """A final block as an operator sees it."""
    return BlockRecord(
        height=header.height,
        timestamp=header.timestamp,
        hash=header.hash,
        sealer=header.proposer,
        transactionCount=header.transactionCount,
    )


def transactionRecordOf(header: Header, transaction: Transaction) -> TransactionRecord:
    """A final transaction as an operator sees it."""
    return TransactionRecord(
        height=header.height,
        timestamp=header.timestamp,
        hash=transaction.hash,
        sender=transaction.sender,
        recipient=topicAddress(header.chain, transaction.topic),
    )
