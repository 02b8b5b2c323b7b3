"""
Execution of a block: the receipts of its transactions, and the state after them; and blocks that
may come next: making one from waiting transactions, and checking one from elsewhere.

B{Frozen}: each receipt follows from the state before it, pinned by C{blocks} in
C{docs/vectors/chain.json}. A change of these rules is a new format of headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Final

from attrs import evolve
from msgspec import Struct

from ..model import MAX_HOLDS, AuthorSet, Execution, Topic, topicPrefix
from ._authorship import decodeAuthorChange, holds, openedFor
from ._body import TransactionReceipt, encodeBody, encodeReceipts, receiptRoot
from ._claims import (
    KEY_WINDOW,
    ErasedRange,
    Erasure,
    Hold,
    HoldChange,
    Holds,
    KeyUse,
    OwnedKey,
    Release,
)
from ._encoding import Malformed, topicAddress
from ._header import FORMAT, Header, leaderIndex
from ._merkle import History, merkleRoot
from ._state import ChainState, Nonces, NoncesDraft, Outcome, stateRoot
from ._transaction import Claims, Kind, Transaction
from ._validators import ChangeRefused, ValidatorChange

_DONE = TransactionReceipt(Execution.DONE, 0)
_NOT_FOUND = TransactionReceipt(Execution.TOPIC_NOT_FOUND, 0)
_REPEATED = TransactionReceipt(Execution.REPEATED, 0)
_REFUSED = TransactionReceipt(Execution.REFUSED, 0)
_KEY_IN_USE = TransactionReceipt(Execution.KEY_IN_USE, 0)
_NO_AUTHOR = TransactionReceipt(Execution.NO_AUTHOR, 0)
_HELD = TransactionReceipt(Execution.HELD, 0)

_KEYS_OF_ERASED: Final = 4
"""The first format in which the key of an erased event refuses every content."""


class PrefixConflict(Exception):
    """
    A block publishes to two topics whose event ids begin alike, so that two of its events might
    have the same id. Blocks are built so that it does not happen.
    """


def execute(
    state: ChainState,
    transactions: Sequence[Transaction],
    height: int,
    timestamp: int,
    recorded: Sequence[TransactionReceipt] | None = None,
    format: int = FORMAT,
) -> Outcome:
    """
    Execute the transactions of a block on a state, which is not changed.

    @param height: the height of their block.
    @param timestamp: the time of their block in milliseconds since the epoch.
    @param recorded: the receipts that its validators have signed, which decide what follows
        from contents that are missing; C{None} where none may be missing.
    @param format: the format of their block.
    @raise PrefixConflict: it publishes to two topics whose event ids begin alike.
    """
    run = _BlockExecution(state, height, timestamp, recorded, format)
    run.execute(transactions)
    topics, published = run.topics()
    senders = run.senders()
    topicOverlay, senderOverlay = state.preview(topics, senders)
    return Outcome(
        receipts=run.receipts,
        topics=topics,
        senders=senders,
        published=published,
        validators=run.validators,
        stateRoot=stateRoot(
            topicOverlay.root, topicOverlay.size, senderOverlay.root, senderOverlay.size
        ),
        topicOverlay=topicOverlay,
        senderOverlay=senderOverlay,
        uses=run.uses,
        erased=run.erased,
        earlier=run.earlier,
        holds=() if run.holds is None else run.holds.changes,
    )


class _TopicDraft(Struct, kw_only=True):
    """A topic while a block is being executed."""

    index: int
    address: bytes
    sender: bytes
    created: int
    isOpen: bool
    sequence: int
    height: int
    published: list[int]
    authors: AuthorSet | None = None
    changed: bool = False

    def finish(self, name: str, height: int) -> Topic:
        return Topic(
            name=name,
            address=self.address,
            sender=self.sender,
            created=self.created,
            isOpen=self.isOpen,
            sequence=self.sequence,
            height=height if self.published else self.height,
            authors=self.authors,
        )


class _HoldsDraft:
    """
    The holds while a block is being executed.

    @ivar changes: the holds and releases of the block, in order.
    """

    def __init__(self, holds: Holds) -> None:
        self.changes: list[HoldChange] = []
        self._before = holds
        self._count = len(holds)
        self._released: set[str] = set()
        self._added = Holds()

    def isInForce(self, case: str) -> bool:
        """Whether there is a hold of a case."""
        return case in self._added or (case in self._before and case not in self._released)

    @property
    def isFull(self) -> bool:
        """Whether there are as many holds as may be."""
        return self._count >= MAX_HOLDS

    def add(self, change: HoldChange) -> None:
        """Add a hold."""
        self.changes.append(change)
        self._added.apply(change)
        self._count += 1

    def release(self, change: HoldChange) -> None:
        """End a hold that is in force."""
        self.changes.append(change)
        case = change.content.case
        if case in self._added:
            self._added.apply(change)
        else:
            self._released.add(case)
        self._count -= 1

    def isHeld(self, topic: str, address: bytes, ranges: Sequence[tuple[int, int]]) -> bool:
        """Whether one of some events is held. See L{Holds.casesOf}."""
        before = self._before.casesOf(topic, address, ranges)
        return any(case not in self._released for case in before) or any(
            self._added.casesOf(topic, address, ranges)
        )


class _BlockExecution:
    """
    One block's execution. The state is read and not changed.

    @ivar receipts: how each transaction ended.
    @ivar validators: the validator set that decides the next block.
    @ivar uses: the idempotency keys that were used.
    @ivar erased: the events that were erased.
    @ivar holds: the holds, once the first transaction asks for them.
    @ivar earlier: for publishes that were published before, by their position in the block: the
        height of the first event's block.
    """

    def __init__(
        self,
        state: ChainState,
        height: int,
        timestamp: int,
        recorded: Sequence[TransactionReceipt] | None,
        format: int,
    ) -> None:
        """
        @param state: the state before the block.
        @param height: the height of the block.
        @param timestamp: its time in milliseconds since the epoch.
        @param recorded: the receipts of its first execution, where contents may be missing.
        @param format: the format of the block.
        """
        self.receipts: list[TransactionReceipt] = []
        self.validators = state.validators
        self.uses: list[KeyUse] = []
        self.erased: list[ErasedRange] = []
        self.holds: _HoldsDraft | None = None
        self.earlier: dict[int, int] = {}
        # The uses of the block's keys, once the first publish with a key is checked.
        self._usesByKey: dict[OwnedKey, KeyUse] | None = None
        self._counts: dict[bytes, int] = {}
        self._recorded = recorded
        self._refusesErased = format >= _KEYS_OF_ERASED
        self._state = state
        self._height = height
        self._timestamp = timestamp
        self._senders: dict[bytes, NoncesDraft] = {}
        self._topics: dict[str, _TopicDraft] = {}
        self._prefixes: set[str] = set()
        # Topics that the block creates, by address.
        self._opened: dict[bytes, _TopicDraft] = {}

    def execute(self, transactions: Sequence[Transaction]) -> None:
        """
        Execute the transactions, in their order.

        @raise PrefixConflict: they publish to two topics whose event ids begin alike.
        """
        senders, topics, append = self._senders, self._topics, self.receipts.append
        publish, done = Kind.PUBLISH, Execution.DONE
        for position, transaction in enumerate(transactions):
            nonces = senders.get(transaction.sender)
            if nonces is None:
                nonces = NoncesDraft(self._state.nonces(transaction.sender))
            if not nonces.spend(transaction.nonce):
                append(_REPEATED)
                continue
            senders[transaction.sender] = nonces
            if transaction.kind is not publish:
                append(self._executeOther(transaction, position))
                continue
            claims = transaction.claims
            if claims is not None:
                refusal = self._checkClaims(transactions, claims, position)
                if refusal is not None:
                    append(refusal)
                    continue
            topic = topics.get(transaction.topic) or self._draft(transaction.topic)
            if topic is None or not topic.isOpen:
                append(_NOT_FOUND)
                continue
            if claims is not None or topic.authors is not None:
                refusal = _checkTopic(topic, claims)
                if refusal is not None:
                    append(refusal)
                    continue
            if not topic.published:
                self._publishFirst(transaction.topic, topic)
            topic.published.append(position)
            topic.sequence = sequence = topic.sequence + 1
            append(TransactionReceipt(done, sequence))
            if claims is not None and claims.key is not None:
                self._use(transaction, claims, topic)

    def _checkClaims(
        self, transactions: Sequence[Transaction], claims: Claims, position: int
    ) -> TransactionReceipt | None:
        """
        Check the signature and the idempotency key of a publish.

        @return: the receipt of one that is refused.
        """
        transaction = transactions[position]
        chain = self._state.chain
        recorded = None if self._recorded is None else self._recorded[position]
        if claims.author is not None:
            isSigned = (
                (recorded is None or recorded.execution is not Execution.REFUSED)
                if transaction.isErased
                else transaction.isSigned(chain)
            )
            if not isSigned:
                return _REFUSED
        if claims.key is None:
            return None
        owner = claims.ownerOn(chain)
        if self._usesByKey is None:
            self._usesByKey = self._findUses(transactions[position:])
        use = self._usesByKey.get((owner, claims.key))
        if use is None or use.number <= self._count(owner) - KEY_WINDOW:
            return None
        draft = self._topics.get(transaction.topic)
        index = self._state.topicIndex(transaction.topic) if draft is None else draft.index
        if use.topic != index:
            return _KEY_IN_USE
        receipt = self._compare(transaction, use, recorded)
        if receipt.sequence:
            self.earlier[position] = use.height
        return receipt

    def _compare(
        self, transaction: Transaction, use: KeyUse, recorded: TransactionReceipt | None
    ) -> TransactionReceipt:
        """
        Compare a publish with the event that its idempotency key has published.

        @param recorded: the receipt of the publish, where its block was decided.
        """
        before = TransactionReceipt(Execution.PUBLISHED_BEFORE, use.sequence)
        # Nothing is kept by which an erased content could be guessed, so nothing tells whether
        # this one is the same.
        erased = before
        if self._refusesErased:
            erased = TransactionReceipt(Execution.KEY_IN_USE, use.sequence)
        if self._isErasedHere(use.topic, use.sequence):
            return erased
        if use.digest is None or transaction.isErased:
            if recorded is None:
                return erased
            # One of the two is erased, by now.
            isKnown = recorded in (before, erased, _KEY_IN_USE)
            return recorded if isKnown else before
        isSame = use.digest == sha256(transaction.content).digest()
        return before if isSame else _KEY_IN_USE

    def _findUses(self, transactions: Sequence[Transaction]) -> dict[OwnedKey, KeyUse]:
        """The latest uses of all keys of some transactions, which one look-up finds."""
        chain = self._state.chain
        return self._state.keys.find(
            [
                (claims.ownerOn(chain), claims.key)
                for each in transactions
                if (claims := each.claims) is not None and claims.key is not None
            ]
        )

    def _isErasedHere(self, topic: int, sequence: int) -> bool:
        """Whether an event was erased in this block, by the index of its topic."""
        return any(
            each.topic == topic and each.first <= sequence <= each.last for each in self.erased
        )

    def _count(self, owner: bytes) -> int:
        count = self._counts.get(owner)
        return self._state.keys.count(owner) if count is None else count

    def _use(self, transaction: Transaction, claims: Claims, topic: _TopicDraft) -> None:
        """Add the use of a publish's idempotency key."""
        assert claims.key is not None
        assert self._usesByKey is not None
        owner = claims.ownerOn(self._state.chain)
        number = self._counts[owner] = self._count(owner) + 1
        use = KeyUse(
            owner=owner,
            key=claims.key,
            number=number,
            topic=topic.index,
            sequence=topic.sequence,
            height=self._height,
            digest=None if transaction.isErased else sha256(transaction.content).digest(),
        )
        self._usesByKey[owner, claims.key] = use
        self.uses.append(use)

    def _publishFirst(self, name: str, topic: _TopicDraft) -> None:
        """The first event of a topic in this block."""
        prefix = topicPrefix(name)
        if prefix in self._prefixes:
            raise PrefixConflict(prefix)
        self._prefixes.add(prefix)
        topic.changed = True

    def _executeOther(self, transaction: Transaction, position: int) -> TransactionReceipt:
        """Execute a transaction of another kind than a publish."""
        kind = transaction.kind
        if kind is Kind.VALIDATORS:
            return self._changeValidators(transaction)
        if kind is Kind.HOLD:
            return self._hold(transaction, position)
        if kind is Kind.RELEASE:
            return self._release(transaction, position)
        name = transaction.topic
        topic = self._topics.get(name) or self._draft(name)
        if kind is Kind.OPEN:
            return self._open(transaction, topic)
        if kind is Kind.ERASE:
            return self._erase(transaction, topic, position)
        if topic is None or not topic.isOpen:
            return _NOT_FOUND
        if kind is Kind.AUTHORS:
            return self._changeAuthors(transaction, topic)
        topic.changed = True
        topic.isOpen = False
        return _DONE

    def _open(self, transaction: Transaction, topic: _TopicDraft | None) -> TransactionReceipt:
        authors = openedFor(transaction.version, transaction.content)
        if topic is None:
            topic = self._topics[transaction.topic] = self._create(transaction)
            topic.authors = authors
        elif authors is not None:
            current = topic.authors
            if current is None or evolve(current, generation=0) != authors:
                return _REFUSED
        topic.changed = topic.changed or not topic.isOpen
        topic.isOpen = True
        return _DONE

    def _changeAuthors(self, transaction: Transaction, topic: _TopicDraft) -> TransactionReceipt:
        change, current = decodeAuthorChange(transaction.content), topic.authors
        if current is None or not holds(change, self._state.chain, transaction.topic, current):
            return _REFUSED
        topic.authors = change.following
        topic.changed = True
        return _DONE

    def _erase(
        self, transaction: Transaction, topic: _TopicDraft | None, position: int
    ) -> TransactionReceipt:
        ranges = Erasure.decode(transaction.content).ranges
        if topic is None:
            return _NOT_FOUND
        if ranges[-1][1] > topic.sequence:
            return _REFUSED
        if self._draftHolds().isHeld(transaction.topic, topic.address, ranges):
            return _HELD
        self.erased += [
            ErasedRange(
                topic=topic.index, first=first, last=last, height=self._height, position=position
            )
            for first, last in ranges
        ]
        return _DONE

    def _draftHolds(self) -> _HoldsDraft:
        """The holds at this place of the block."""
        if self.holds is None:
            self.holds = _HoldsDraft(self._state.holds)
        return self.holds

    def _hold(self, transaction: Transaction, position: int) -> TransactionReceipt:
        hold, holds = Hold.decode(transaction.content), self._draftHolds()
        if holds.isInForce(hold.case) or holds.isFull:
            return _REFUSED
        if not all(self._mayBeHeld(address, sequence) for address, sequence in hold.events):
            return _REFUSED
        holds.add(self._holdChange(hold, transaction, position))
        return _DONE

    def _release(self, transaction: Transaction, position: int) -> TransactionReceipt:
        release, holds = Release.decode(transaction.content), self._draftHolds()
        if not holds.isInForce(release.case):
            return _REFUSED
        holds.release(self._holdChange(release, transaction, position))
        return _DONE

    def _holdChange(
        self, content: Hold | Release, transaction: Transaction, position: int
    ) -> HoldChange:
        return HoldChange(
            content=content,
            entry=transaction.head + transaction.content,
            hash=transaction.hash,
            height=self._height,
            position=position,
            time=self._timestamp,
        )

    def _mayBeHeld(self, address: bytes, sequence: int) -> bool:
        """Whether an event was published and not erased."""
        topic = self._state.topicOf(address)
        if topic is None:
            draft = self._opened.get(address)
        else:
            draft = self._topics.get(topic.name) or self._draft(topic.name)
        if draft is None or sequence > draft.sequence:
            return False
        return not (
            self._isErasedHere(draft.index, sequence)
            or self._state.keys.isErased(draft.index, sequence)
        )

    def _changeValidators(self, transaction: Transaction) -> TransactionReceipt:
        # One change a block: each set decides at least one.
        if self.validators is not self._state.validators:
            return _REFUSED
        try:
            change = ValidatorChange.decode(transaction.content)
            change.check(self._state.chain, self._state.validators)
        except (Malformed, ChangeRefused):
            return _REFUSED
        self.validators = change.following
        return _DONE

    def _create(self, transaction: Transaction) -> _TopicDraft:
        index = self._state.topicCount + len(self._opened)
        address = topicAddress(self._state.chain, transaction.topic)
        draft = self._opened[address] = _TopicDraft(
            index=index,
            address=address,
            sender=transaction.sender,
            created=self._timestamp,
            isOpen=False,
            sequence=0,
            height=0,
            published=[],
        )
        return draft

    def _draft(self, name: str) -> _TopicDraft | None:
        """A draft of a topic that is there."""
        index = self._state.topicIndex(name)
        if index is None:
            return None
        topic = self._state.topicAt(index)
        draft = self._topics[name] = _TopicDraft(
            index=index,
            address=topic.address,
            sender=topic.sender,
            created=topic.created,
            isOpen=topic.isOpen,
            sequence=topic.sequence,
            height=topic.height,
            published=[],
            authors=topic.authors,
        )
        return draft

    def topics(self) -> tuple[Mapping[int, Topic], Mapping[int, Sequence[int]]]:
        """C{topics} and C{published} of the L{Outcome<svcbroker.chain.Outcome>}."""
        topics: dict[int, Topic] = {}
        published: dict[int, Sequence[int]] = {}
        for name, draft in self._topics.items():
            if draft.changed:
                topics[draft.index] = draft.finish(name, self._height)
            if draft.published:
                published[draft.index] = draft.published
        return topics, published

    def senders(self) -> Mapping[int, tuple[bytes, Nonces]]:
        """New and changed nonces with the addresses of their senders, by index."""
        known = len(self._state.senders)
        numbered: dict[int, tuple[bytes, Nonces]] = {}
        for address, draft in self._senders.items():
            index = self._state.senderIndex(address)
            if index is None:
                index, known = known, known + 1
            numbered[index] = (address, draft.finish())
        return numbered


def _checkTopic(topic: _TopicDraft, claims: Claims | None) -> TransactionReceipt | None:
    """
    Check a publish against its topic.

    @return: the receipt of one that is refused.
    """
    if topic.authors is not None:
        author = None if claims is None else claims.author
        if author is None or author.key not in topic.authors.authors:
            return _NO_AUTHOR
    if claims is not None and claims.expected not in (None, topic.sequence):
        return TransactionReceipt(Execution.OTHER_SEQUENCE, topic.sequence)
    return None


class InvalidBlock(Exception):
    """A block that may not follow its parent. The text says why."""


class Candidate(Struct, frozen=True, kw_only=True):
    """
    A block that may come next, executed but not decided.

    @ivar transactions: what is in it.
    @ivar body: their canonical encoding.
    @ivar offsets: where each of them starts in C{body}, and after the last of these the end.
    @ivar outcome: what they do to the state.
    @ivar receipts: the canonical encoding of how each of them ended.
    @ivar history: the chain's history with this block's header.
    """

    header: Header
    transactions: Sequence[Transaction]
    body: bytes
    offsets: Sequence[int]
    outcome: Outcome
    receipts: bytes
    history: History


def selectTransactions(
    waiting: Iterable[Transaction], maxBytes: int, maxCount: int
) -> Sequence[Transaction]:
    """
    Choose transactions for the next block: as many of the waiting ones as fit, in order, and at
    least one. It ends before a publish that might get the event id of another one in it.

    @param maxBytes: the most bytes that they may take together, unless it is one alone.
    """
    chosen: list[Transaction] = []
    size = 0
    names: set[str] = set()
    prefixes: set[str] = set()
    publish = Kind.PUBLISH
    for transaction in islice(waiting, maxCount):
        size += transaction.size
        if size > maxBytes and chosen:
            break
        name = transaction.topic
        if name not in names and transaction.kind is publish:
            prefix = topicPrefix(name)
            if prefix in prefixes:
                break
            names.add(name)
            prefixes.add(prefix)
        chosen.append(transaction)
    return chosen


def proposeBlock(
    state: ChainState,
    parent: Header,
    view: int,
    timestamp: int,
    transactions: Sequence[Transaction],
    recorded: Sequence[TransactionReceipt] | None = None,
) -> Candidate:
    """
    Make the block that comes after C{parent}.

    @param state: the state after C{parent}.
    @param view: the view it is proposed in; it fixes the proposer.
    @param timestamp: the proposer's time in milliseconds since the epoch; a time before the
        parent's counts as the parent's.
    @param transactions: what L{selectTransactions} gave.
    @param recorded: see L{execute<svcbroker.chain.execute>}.
    """
    height = parent.height + 1
    timestamp = max(timestamp, parent.timestamp)
    # Blocks of format n + 1 may have transactions of version n; a chain's format never falls.
    newest = max([each.head[0] for each in transactions], default=0)
    version = max(parent.version, newest + 1)
    outcome = execute(state, transactions, height, timestamp, recorded, version)
    body, offsets = encodeBody(transactions)
    hashes = [transaction.hash for transaction in transactions]
    receipts = encodeReceipts(outcome.receipts)
    header = Header(
        version=version,
        chain=parent.chain,
        height=height,
        parent=parent.hash,
        history=state.history.root,
        view=view,
        proposer=leaderIndex(view, height, len(state.validators.keys)),
        timestamp=timestamp,
        transactionRoot=merkleRoot(hashes),
        receiptRoot=receiptRoot(hashes, receipts),
        stateRoot=outcome.stateRoot,
        validators=state.validators.hash,
        nextValidators=outcome.validators.hash,
        transactionCount=len(transactions),
        transactionTotal=parent.transactionTotal + len(transactions),
    )
    return Candidate(
        header=header,
        transactions=transactions,
        body=body,
        offsets=offsets,
        outcome=outcome,
        receipts=receipts,
        history=state.history.after(header.hash),
    )


def checkBlock(
    state: ChainState,
    parent: Header,
    header: Header,
    transactions: Sequence[Transaction],
    recorded: Sequence[TransactionReceipt] | None = None,
) -> Candidate:
    """
    Execute a proposed block, and check that it may follow C{parent}.

    @param state: the state after C{parent}.
    @param recorded: the receipts of a block that was decided, of which contents may be missing;
        C{None} for one that is to be decided.
    @raise InvalidBlock: anything in its header is not what it must be.
    """
    if header.view < parent.view:
        raise InvalidBlock("its view is below its parent's")
    if header.timestamp < parent.timestamp:
        raise InvalidBlock("its time is before its parent's")
    try:
        state.check(transactions)
        if recorded is None and any(each.isErased for each in transactions):
            raise InvalidBlock("contents of its transactions are missing")
        candidate = proposeBlock(
            state, parent, header.view, header.timestamp, transactions, recorded
        )
    except PrefixConflict:
        raise InvalidBlock("two of its events might have the same id") from None
    except Malformed as error:
        raise InvalidBlock(str(error)) from None
    if candidate.header != header:
        wrong = [
            name
            for name in Header.__struct_fields__
            if name not in ("encoded", "hash")
            and getattr(candidate.header, name) != getattr(header, name)
        ]
        raise InvalidBlock(
            f"{', '.join(wrong)} in its header do not follow from its parent and its transactions"
        )
    return candidate
