"""
What the transactions of a block do to the state before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import define

from ..model import Execution, Topic, topicPrefix
from ._accounts import Account, AccountDraft
from ._address import topicAddress
from ._encoding import Malformed
from ._receipts import TransactionReceipt
from ._transaction import Kind, Transaction
from ._validators import ChangeRefused, ValidatorChange

if TYPE_CHECKING:
    from ._state import ChainState

_DONE = TransactionReceipt(Execution.DONE, 0)
_NOT_FOUND = TransactionReceipt(Execution.TOPIC_NOT_FOUND, 0)
_REPEATED = TransactionReceipt(Execution.REPEATED, 0)
_REFUSED = TransactionReceipt(Execution.REFUSED, 0)


class PrefixConflict(Exception):
    """
    A block publishes to two topics whose event ids begin alike, so that two of its events might
    have the same id. Blocks are built so that it does not happen.
    """


@define
class _TopicDraft:
    """A topic while a block is being executed."""

    index: int
    address: bytes
    sender: bytes
    created: int
    isOpen: bool
    sequence: int
    height: int
    published: list[int]
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
        )


class BlockExecution:
    """
    One block's execution. The state is read and not changed.

    @ivar receipts: how each transaction ended.
    @ivar validators: the validator set that decides the next block.
    """

    def __init__(self, state: ChainState, height: int, timestamp: int) -> None:
        """
        @param state: the state before the block.
        @param height: the height of the block.
        @param timestamp: its time in milliseconds since the epoch.
        """
        self.receipts: list[TransactionReceipt] = []
        self.validators = state.validators
        self._state = state
        self._height = height
        self._timestamp = timestamp
        self._accounts: dict[bytes, AccountDraft] = {}
        self._topics: dict[str, _TopicDraft] = {}
        self._prefixes: set[str] = set()
        self._created = state.topicCount

    def execute(self, transactions: Sequence[Transaction]) -> None:
        """
        Execute the transactions, in their order.

        @raise PrefixConflict: they publish to two topics whose event ids begin alike.
        """
        accounts, topics, append = self._accounts, self._topics, self.receipts.append
        publish, done = Kind.PUBLISH, Execution.DONE
        for position, transaction in enumerate(transactions):
            account = accounts.get(transaction.sender)
            if account is None:
                account = AccountDraft(self._state.account(transaction.sender))
            if not account.spend(transaction.nonce):
                append(_REPEATED)
                continue
            accounts[transaction.sender] = account
            if transaction.kind is not publish:
                append(self._executeOther(transaction))
                continue
            topic = topics.get(transaction.topic) or self._draft(transaction.topic)
            if topic is None or not topic.isOpen:
                append(_NOT_FOUND)
                continue
            if not topic.published:
                self._publishFirst(transaction.topic, topic)
            topic.published.append(position)
            topic.sequence = sequence = topic.sequence + 1
            append(TransactionReceipt(done, sequence))

    def _publishFirst(self, name: str, topic: _TopicDraft) -> None:
        """The first event of a topic in this block."""
        prefix = topicPrefix(name)
        if prefix in self._prefixes:
            raise PrefixConflict(prefix)
        self._prefixes.add(prefix)
        topic.changed = True

    def _executeOther(self, transaction: Transaction) -> TransactionReceipt:
        """Execute a transaction of another kind than a publish."""
        if transaction.kind is Kind.VALIDATORS:
            return self._changeValidators(transaction)
        name = transaction.topic
        topic = self._topics.get(name) or self._draft(name)
        if transaction.kind is Kind.OPEN:
            if topic is None:
                topic = self._topics[name] = self._create(transaction)
            topic.changed = topic.changed or not topic.isOpen
            topic.isOpen = True
            return _DONE
        if topic is None or not topic.isOpen:
            return _NOT_FOUND
        topic.changed = True
        topic.isOpen = False
        return _DONE

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
        self._created += 1
        return _TopicDraft(
            index=self._created - 1,
            address=topicAddress(self._state.chain, transaction.topic),
            sender=transaction.sender,
            created=self._timestamp,
            isOpen=False,
            sequence=0,
            height=0,
            published=[],
        )

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
        )
        return draft

    def topics(self) -> Mapping[int, Topic]:
        """New and changed topics, by index."""
        return {
            draft.index: draft.finish(name, self._height)
            for name, draft in self._topics.items()
            if draft.changed
        }

    def published(self) -> Mapping[int, Sequence[int]]:
        """See L{Outcome<svcbroker.chain.Outcome>}."""
        return {draft.index: draft.published for draft in self._topics.values() if draft.published}

    def accounts(self) -> Mapping[int, tuple[bytes, Account]]:
        """New and changed accounts with their addresses, by index."""
        known = len(self._state.accounts)
        numbered: dict[int, tuple[bytes, Account]] = {}
        for address, draft in self._accounts.items():
            index = self._state.accountIndex(address)
            if index is None:
                index, known = known, known + 1
            numbered[index] = (address, draft.finish())
        return numbered
