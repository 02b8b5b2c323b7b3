"""
Conversions of the chain's transactions and receipts to values of the model, and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve
from msgspec import structs

from ..chain import (
    SALT_SIZE,
    ChainState,
    Claims,
    ErasedRange,
    Erasure,
    Header,
    Hold,
    HoldChange,
    Kind,
    Release,
    Transaction,
    TransactionReceipt,
    ValidatorChange,
    accountAddress,
    encodeAuthorChange,
    openingContent,
    topicAddress,
)
from ..errors import BrokerError, EventErased, LedgerUnavailable
from ..model import (
    AddHold,
    Block,
    BlockRecord,
    ChangeAuthors,
    CloseTopic,
    EraseEvents,
    Event,
    EventId,
    Execution,
    HeldRange,
    HoldRecord,
    OpenTopic,
    Page,
    PublishEvent,
    Receipt,
    ReleaseHold,
    ReleaseRecord,
    Request,
    TransactionRecord,
    checkTopicName,
    isPlain,
    topicPrefix,
)

SALTS_AT_ONCE = 64
"""
The number of salts that are made at once, since a system call for each takes longer than a salt.
"""

_NAMING: Final = frozenset({Execution.PUBLISHED_BEFORE, Execution.KEY_IN_USE})
"""The outcomes of publishes whose receipts may name an earlier event."""

_HOLDING: Final = frozenset({Kind.HOLD, Kind.RELEASE})

_BROKER_ACCOUNT = "broker"
_PUBLISHER_PREFIX = "publisher:"


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
    @ivar version: the highest version of transactions that the chain takes: 1, 2 or 3. Those of
        version 3 are made where a request needs them.
    @ivar isNew: whether all transactions are of version 3 that may be: the chain has none yet.
    """

    def __init__(
        self,
        chain: bytes,
        sender: bytes,
        now: Callable[[], float],
        entropy: Callable[[int], bytes],
    ) -> None:
        """
        @param chain: the chain's id.
        @param sender: the address of the broker's account.
        @param now: the wall clock: seconds since the epoch.
        @param entropy: C{entropy(n)} returns C{n} random bytes for salts.
        """
        self.sender = sender
        self.version = 3
        self.isNew = False
        self._chain = chain
        self._now = now
        self._entropy = entropy
        self._nonce = 0
        # Random bytes, and from where on they are unused.
        self._salts, self._unused = b"", 0

    @property
    def nonce(self) -> int:
        """The nonce of the last transaction."""
        return self._nonce

    def resume(self, highest: int) -> bool:
        """
        Go on after the nonces that the chain has seen.

        @return: whether it has seen any that were not made here.
        """
        isAhead = highest > self._nonce
        self._nonce = max(self._nonce, highest)
        return isAhead

    def renumber(self, transactions: Sequence[Transaction]) -> Sequence[Transaction]:
        """
        The same transactions with the next nonces, in their order. None of those that are given is
        ever executed.
        """
        start = self._nonce + 1
        self._nonce += len(transactions)
        return [each.withNonce(nonce) for nonce, each in enumerate(transactions, start)]

    def makeMany(self, requests: Sequence[Request]) -> Sequence[Transaction]:
        """
        The transactions that carry out some requests, in their order and of one time.

        @raise LedgerUnavailable: a request needs a version that the chain does not take yet.
        """
        if self.version == 1:
            return [self._makeOld(request) for request in requests]
        count, timestamp = len(requests), int(self._now() * 1000)
        at, least = self._unused, 3 if self.isNew else 2
        if at + SALT_SIZE * count > len(self._salts):
            self._salts, at = self._entropy(SALT_SIZE * max(count, SALTS_AT_ONCE)), 0
        transactions: list[Transaction] = []
        while (done := len(transactions)) < count:
            request, nonce = requests[done], self._nonce + 1 + done
            if isinstance(request, PublishEvent):
                # Hot path.
                alike: Sequence[PublishEvent] = (request,)
                if done + 1 < count and requests[done + 1].topic == request.topic:
                    alike = _alike(requests, done)
                contents = [each.content for each in alike]
                version = least if request.topic.isascii() else self._versionFor(request, least)
                claims: Sequence[Claims] = ()
                if _hasClaims(request):
                    claims = [self._claims(each) for each in alike]
                end = at + SALT_SIZE * len(contents)
                transactions += Transaction.publishes(
                    self.sender,
                    nonce,
                    timestamp,
                    request.topic,
                    contents,
                    request.extensions,
                    self._salts[at:end],
                    claims,
                    version,
                )
                at = end
            else:
                kind, content = _encoded(request)
                self._checkHolds(kind)
                # From an erasure on, keys of erased events refuse every content: format 4.
                isNewest = kind is Kind.ERASE or (self.isNew and not content)
                version = 3
                if kind not in _HOLDING:
                    version = self._versionFor(request, self.version if isNewest else 2)
                if isinstance(request, OpenTopic):
                    content = openingContent(version, request.authors)
                transactions.append(
                    Transaction.make(
                        kind,
                        self.sender,
                        nonce,
                        timestamp,
                        request.topic,
                        content,
                        version,
                    )
                )
        self._unused = at
        self._nonce += count
        return transactions

    def _versionFor(self, request: Request, least: int) -> int:
        """
        The version of a request's transaction: 3 where only that has such names of topics.

        @raise LedgerUnavailable: see L{makeMany}.
        """
        try:
            checkTopicName(request.topic)
        except BrokerError:
            if self.version < 3:
                raise LedgerUnavailable(
                    "topics beyond the published interface wait until this network has format 4"
                ) from None
            return 3
        return least

    def _checkHolds(self, kind: Kind) -> None:
        """
        @raise LedgerUnavailable: see L{makeMany}.
        """
        if kind in _HOLDING and self.version < 3:
            raise LedgerUnavailable("holds wait until this network has format 4")

    def makeChange(self, change: ValidatorChange) -> Transaction:
        """The transaction that carries out a change of the set of nodes."""
        make = Transaction.create if self.version == 1 else Transaction.make
        return make(Kind.VALIDATORS, self.sender, *self._next(), "", change.encode())

    def _claims(self, request: PublishEvent) -> Claims:
        """
        @raise LedgerUnavailable: see L{makeMany}.
        """
        if self.version < 3 and request.author is not None and request.author.statement != 1:
            raise LedgerUnavailable(
                "signatures of statements of version 2 wait until this network has format 4"
            )
        key, owner = request.idempotencyKey, None
        if key is not None and request.author is None:
            owner = accountAddress(self._chain, _PUBLISHER_PREFIX + request.publisher)
        return Claims(
            author=request.author, key=key, owner=owner, expected=request.expectedSequence
        )

    def _makeOld(self, request: Request) -> Transaction:
        """
        A transaction of version 1.

        @raise LedgerUnavailable: the request needs one of version 2.
        """
        self._checkHolds(Kind.HOLD if isinstance(request, AddHold | ReleaseHold) else Kind.CLOSE)
        if not isPlain(request):
            raise LedgerUnavailable(
                "signatures, idempotency keys, expected numbers and erasures wait until this "
                "network has format 3"
            )
        nonce, timestamp = self._next()
        if isinstance(request, PublishEvent):
            content, extensions = request.content, request.extensions
            return Transaction.create(
                Kind.PUBLISH, self.sender, nonce, timestamp, request.topic, content, extensions
            )
        kind, content = _encoded(request)
        return Transaction.create(kind, self.sender, nonce, timestamp, request.topic, content)

    def _next(self) -> tuple[int, int]:
        self._nonce += 1
        return self._nonce, int(self._now() * 1000)


def _hasClaims(request: PublishEvent) -> bool:
    """Whether a publish asks the chain to check something."""
    return (
        request.idempotencyKey is not None
        or request.author is not None
        or request.expectedSequence is not None
    )


def _alike(requests: Sequence[Request], start: int) -> Sequence[PublishEvent]:
    """
    Consecutive publishes that differ in their contents and claims alone, and all have claims or
    none.

    @param start: the index of the first of them.
    """
    first = requests[start]
    assert isinstance(first, PublishEvent)
    topic, extensions, hasClaims = first.topic, first.extensions, _hasClaims(first)
    alike = [first]
    # Hot path: clients that publish in bulk send the same topic, which is one object then.
    for number in range(start + 1, len(requests)):
        request = requests[number]
        if not (
            isinstance(request, PublishEvent)
            and request.topic == topic
            and request.extensions == extensions
            and hasClaims
            is (
                request.idempotencyKey is not None
                or request.author is not None
                or request.expectedSequence is not None
            )
        ):
            break
        alike.append(request)
    return alike


def _encoded(request: Request) -> tuple[Kind, bytes]:
    """Kind and content of the transaction of a request that is no publish."""
    if isinstance(request, CloseTopic):
        return Kind.CLOSE, b""
    if isinstance(request, ChangeAuthors):
        return Kind.AUTHORS, encodeAuthorChange(request.change)
    if isinstance(request, EraseEvents):
        erasure = Erasure(account=request.account, reason=request.reason, ranges=request.ranges)
        return Kind.ERASE, erasure.encode()
    if isinstance(request, AddHold):
        hold = Hold(
            case=request.case,
            account=request.account,
            reason=request.reason,
            patterns=sorted(set(request.patterns), key=lambda each: each.encode("utf-8")),
            events=sorted(set(request.events)),
        )
        return Kind.HOLD, hold.encode()
    if isinstance(request, ReleaseHold):
        release = Release(case=request.case, account=request.account, reason=request.reason)
        return Kind.RELEASE, release.encode()
    assert isinstance(request, OpenTopic)
    return Kind.OPEN, openingContent(2, request.authors)


def eventIdsOf(
    height: int, transactions: Sequence[Transaction], receipts: Sequence[TransactionReceipt]
) -> Sequence[EventId | None]:
    """
    The ids of the events of a block, in the order of its transactions; C{None} for transactions
    that have published none.
    """
    done = Execution.DONE
    return [
        EventId(topicPrefix(transaction.topic), receipt.sequence, height)
        if receipt.sequence and receipt.execution is done
        else None
        for transaction, receipt in zip(transactions, receipts, strict=True)
    ]


def receiptsOf(
    height: int,
    transactions: Sequence[Transaction],
    receipts: Sequence[TransactionReceipt],
    ids: Sequence[EventId | None],
    earlier: Mapping[int, int],
) -> Sequence[Receipt]:
    """
    The receipts of a block that has become final, in the order of its transactions.

    @param ids: those of its events, as L{eventIdsOf} gives them.
    @param earlier: for publishes whose keys have published before, by their position in the block:
        the height of the first event's block.
    """
    made = [
        Receipt(
            execution=receipt.execution,
            transactionHash=transaction.hash,
            height=height,
            eventId=id,
            sequence=receipt.sequence,
        )
        for transaction, receipt, id in zip(transactions, receipts, ids, strict=True)
    ]
    for position, first in earlier.items():
        id = EventId(topicPrefix(transactions[position].topic), made[position].sequence, first)
        made[position] = structs.replace(made[position], eventId=id)
    return made


def earlierOf(
    state: ChainState, transactions: Sequence[Transaction], receipts: Sequence[TransactionReceipt]
) -> Mapping[int, int]:
    """
    The heights of the first events of publishes whose idempotency keys name one, by the positions
    of these publishes in their block.

    @param state: the state after the block.
    """
    wanted = {}
    for position, receipt in enumerate(receipts):
        claims = transactions[position].claims
        if receipt.execution in _NAMING and receipt.sequence and claims and claims.key:
            wanted[position] = claims.ownerOn(state.chain), claims.key
    if not wanted:
        return {}
    uses = state.keys.find(wanted.values())
    return {position: uses[key].height for position, key in wanted.items() if key in uses}


def eventOf(transaction: Transaction, eventId: EventId, index: int) -> Event:
    """
    The event that a transaction published.

    @param index: the index of the transaction in its block.
    """
    claims = transaction.claims
    return Event(
        topic=transaction.topic,
        content=transaction.content,
        extensions=transaction.extensions,
        eventId=eventId,
        index=index,
        author=None if claims is None else claims.author,
        isErased=transaction.isErased,
    )


def erasedError(header: Header, transaction: Transaction, erased: ErasedRange) -> EventErased:
    """
    The error for an event whose content was erased.

    @param header: that of the block with the erasure.
    @param transaction: the erasure.
    @param erased: the events that the event is among.
    """
    erasure = Erasure.decode(transaction.content)
    return EventErased(
        topic=transaction.topic,
        first=erased.first,
        last=erased.last,
        time=header.timestamp,
        account=erasure.account,
        reason=erasure.reason,
        transaction=transaction.hash,
    )


def blockOf(
    header: Header, transactions: Sequence[Transaction], ids: Sequence[EventId | None]
) -> Block:
    """
    A final block as a follower reads it.

    @param ids: those of its events, as L{eventIdsOf} gives them.
    """
    events = [
        eventOf(transaction, id, index)
        for index, (transaction, id) in enumerate(zip(transactions, ids, strict=True))
        if id is not None
    ]
    return Block(
        height=header.height,
        timestamp=header.timestamp,
        hash=header.hash,
        events=events,
        # Most blocks have events alone.
        erasures=_erasuresIn(transactions) if len(events) < len(transactions) else (),
    )


def _erasuresIn(
    transactions: Sequence[Transaction],
) -> Sequence[tuple[str, Sequence[tuple[int, int]]]]:
    return [
        (each.topic, Erasure.decode(each.content).ranges)
        for each in transactions
        if each.kind is Kind.ERASE
    ]


def holdsOf(state: ChainState, offset: int, limit: int, case: str | None) -> Page[HoldRecord]:
    """See L{IHoldLedger.listHolds<svcbroker.interfaces.IHoldLedger.listHolds>}."""
    found = [each for each in state.holds if case in (None, each.content.case)]
    records = [_holdRecord(state, each, case) for each in found[offset : offset + limit]]
    return Page(total=len(found), items=records)


def _holdRecord(state: ChainState, change: HoldChange, case: str | None) -> HoldRecord:
    hold = change.content
    assert isinstance(hold, Hold)
    events = []
    for address, sequence in hold.events if case is not None else ():
        topic = state.topicOf(address)
        assert topic is not None
        events.append((topic.name, sequence))
    return HoldRecord(
        case=hold.case,
        account=hold.account,
        reason=hold.reason,
        patterns=tuple(hold.patterns),
        eventCount=len(hold.events),
        events=events,
        height=change.height,
        timestamp=change.time,
        hash=change.hash,
    )


def releasedRecord(
    state: ChainState, hold: HoldChange, release: HoldChange, case: str | None
) -> HoldRecord:
    """
    A hold that was released.

    @param case: that of the only hold that was asked for, if one was.
    """
    content = release.content
    ending = ReleaseRecord(
        account=content.account,
        reason=content.reason,
        height=release.height,
        timestamp=release.time,
        hash=release.hash,
    )
    return evolve(_holdRecord(state, hold, case), release=ending)


def heldRangesOf(
    state: ChainState, topic: str, ranges: Sequence[tuple[int, int]]
) -> Sequence[Iterator[HeldRange]]:
    """See L{IHoldLedger.heldRanges<svcbroker.interfaces.IHoldLedger.heldRanges>}."""
    if not len(state.holds):
        return ()
    return state.holds.rangesOf(topic, topicAddress(state.chain, topic), ranges)


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
