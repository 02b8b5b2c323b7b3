"""
The state of a chain: topics and accounts after its latest block, and what transactions do to
them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from attrs import define, frozen
from msgspec import Struct

from ..model import Execution, Topic, topicPrefix
from ._address import topicAddress
from ._encoding import U16, U64, Malformed
from ._history import History
from ._merkle import EMPTY_ROOT, MerkleTree, Overlay, leafHash
from ._receipts import TransactionReceipt
from ._transaction import Kind, Transaction
from ._validators import ChangeRefused, ValidatorChange, ValidatorSet

NONCE_WINDOW = 1024
"""How far behind the highest nonce of its sender a transaction may still be executed."""

_WINDOW_MASK = (1 << NONCE_WINDOW) - 1
_ACCOUNT_SIZE = U64.size + NONCE_WINDOW // 8
_TAG = b"svcbroker/state\x01"


class PrefixConflict(Exception):
    """
    A block publishes to two topics whose event ids begin alike, so that two of its events might
    have the same id. Blocks are built so that it does not happen.
    """


class Account(Struct, frozen=True):
    """
    Which of a sender's nonces were executed.

    @ivar highest: the highest one.
    @ivar window: a bit for each of the L{NONCE_WINDOW} nonces from C{highest} (the lowest bit)
        down: whether it was executed.
    """

    highest: int = 0
    window: int = 0

    def accepts(self, nonce: int) -> bool:
        """Whether a transaction of this nonce is new."""
        behind = self.highest - nonce
        if behind < 0:
            return True
        return nonce > 0 and behind < NONCE_WINDOW and not self.window >> behind & 1

    def after(self, nonce: int) -> Account:
        """The account once a transaction of a new nonce was executed."""
        ahead = nonce - self.highest
        if ahead <= 0:
            return Account(self.highest, self.window | 1 << -ahead)
        if ahead >= NONCE_WINDOW:
            return Account(nonce, 1)
        return Account(nonce, self.window << ahead & _WINDOW_MASK | 1)

    def encode(self) -> bytes:
        """Its canonical encoding."""
        return U64.pack(self.highest) + self.window.to_bytes(NONCE_WINDOW // 8, "big")

    @classmethod
    def decode(cls, data: bytes) -> Account:
        """
        Read what L{encode} wrote.

        @raise Malformed: it has another length.
        """
        if len(data) != _ACCOUNT_SIZE:
            raise Malformed(f"an account has {_ACCOUNT_SIZE} bytes, not {len(data)}")
        return cls(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big"))


def topicLeaf(topic: Topic) -> bytes:
    """The leaf hash of a topic in the state."""
    name = topic.name.encode("utf-8")
    return leafHash(
        b"".join(
            (
                U16.pack(len(name)),
                name,
                topic.address,
                topic.sender,
                U64.pack(topic.created),
                b"\x01" if topic.isOpen else b"\x00",
                U64.pack(topic.sequence),
                U64.pack(topic.height),
            )
        )
    )


def accountLeaf(address: bytes, account: Account) -> bytes:
    """The leaf hash of an account in the state."""
    return leafHash(address + account.encode())


def stateRoot(topicRoot: bytes, topics: int, accountRoot: bytes, accounts: int) -> bytes:
    """The root over everything that is in a state."""
    return sha256(
        b"".join((_TAG, U64.pack(topics), topicRoot, U64.pack(accounts), accountRoot))
    ).digest()


EMPTY_STATE_ROOT = stateRoot(EMPTY_ROOT, 0, EMPTY_ROOT, 0)


@frozen(kw_only=True)
class Outcome:
    """
    What executing some transactions gives. Nothing has changed yet; L{ChainState.apply} makes
    it so.

    @ivar receipts: how each transaction ended.
    @ivar topics: new and changed topics, by index.
    @ivar accounts: new and changed accounts with their addresses, by index.
    @ivar published: for each topic that events were published to, by index, the positions of
        their transactions in the block. Their sequence numbers run up to the topic's.
    @ivar validators: the set of nodes that decides the next block.
    @ivar stateRoot: the root of the state after it.
    """

    receipts: Sequence[TransactionReceipt]
    topics: Mapping[int, Topic]
    accounts: Mapping[int, tuple[bytes, Account]]
    published: Mapping[int, Sequence[int]]
    validators: ValidatorSet
    stateRoot: bytes
    topicOverlay: Overlay
    accountOverlay: Overlay


@define
class _Draft:
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

    def finish(self, name: str) -> Topic:
        return Topic(
            name=name,
            address=self.address,
            sender=self.sender,
            created=self.created,
            isOpen=self.isOpen,
            sequence=self.sequence,
            height=self.height,
        )


class ChainState:
    """
    Topics and accounts after the latest block.

    One instance serves all replicas of a process: it is what was decided, and executing never
    changes it.

    @ivar chain: the chain's id: the hash of its genesis.
    @ivar validators: the set of nodes that decides the next block.
    @ivar history: the headers up to the latest block's.
    """

    def __init__(
        self,
        chain: bytes,
        validators: ValidatorSet,
        history: History,
        topics: Iterable[Topic] = (),
        accounts: Iterable[tuple[bytes, Account]] = (),
    ) -> None:
        """
        @param topics: all topics in the order of their creation.
        @param accounts: all accounts with their addresses in the order of their appearance.
        """
        self.chain = chain
        self.validators = validators
        self.history = history
        self._topics = list(topics)
        self._topicIndexes = {topic.name: i for i, topic in enumerate(self._topics)}
        self._open = [i for i, topic in enumerate(self._topics) if topic.isOpen]
        self._accounts = list(accounts)
        self._accountIndexes = {address: i for i, (address, _) in enumerate(self._accounts)}
        self._topicTree = MerkleTree([topicLeaf(topic) for topic in self._topics])
        self._accountTree = MerkleTree(
            [accountLeaf(address, account) for address, account in self._accounts]
        )

    @property
    def root(self) -> bytes:
        """The root over the whole state."""
        return stateRoot(
            self._topicTree.root, len(self._topics), self._accountTree.root, len(self._accounts)
        )

    def topic(self, name: str) -> Topic | None:
        """A topic, open or closed; C{None} where it was never opened."""
        index = self._topicIndexes.get(name)
        return None if index is None else self._topics[index]

    @property
    def topicCount(self) -> int:
        """How many topics there are, closed ones included."""
        return len(self._topics)

    def topicIndex(self, name: str) -> int | None:
        """A topic's number in the order of creation, from 0; C{None} where it never was."""
        return self._topicIndexes.get(name)

    def topicAt(self, index: int) -> Topic:
        """The topic that was created as the C{index}-th, from 0."""
        return self._topics[index]

    @property
    def openCount(self) -> int:
        """How many topics are open."""
        return len(self._open)

    def openTopics(self, offset: int, limit: int) -> Sequence[Topic]:
        """Open topics in the order of their creation."""
        return [self._topics[index] for index in self._open[offset : offset + limit]]

    def account(self, address: bytes) -> Account:
        """Which nonces of a sender were executed."""
        index = self._accountIndexes.get(address)
        return Account() if index is None else self._accounts[index][1]

    @property
    def accounts(self) -> Sequence[tuple[bytes, Account]]:
        """All accounts with their addresses, in the order of their appearance."""
        return self._accounts

    def execute(self, transactions: Sequence[Transaction], height: int, timestamp: int) -> Outcome:
        """
        What the transactions of a block do to this state.

        @param height: the height of their block.
        @param timestamp: the time of their block in milliseconds since the epoch.
        @raise PrefixConflict: it publishes to two topics whose event ids begin alike.
        """
        receipts: list[TransactionReceipt] = []
        drafts: dict[str, _Draft] = {}
        accounts: dict[bytes, Account] = {}
        prefixes: set[str] = set()
        created = len(self._topics)
        repeated = TransactionReceipt(Execution.REPEATED, 0)
        notFound = TransactionReceipt(Execution.TOPIC_NOT_FOUND, 0)
        refused = TransactionReceipt(Execution.REFUSED, 0)
        done = TransactionReceipt(Execution.DONE, 0)
        validators = self.validators

        for position, transaction in enumerate(transactions):
            sender = transaction.sender
            account = accounts.get(sender) or self.account(sender)
            if not account.accepts(transaction.nonce):
                receipts.append(repeated)
                continue
            accounts[sender] = account.after(transaction.nonce)

            name = transaction.topic
            if transaction.kind is Kind.VALIDATORS:
                following = self._following(transaction)
                # One change a block: each set decides at least one.
                if following is None or validators is not self.validators:
                    receipts.append(refused)
                else:
                    validators = following
                    receipts.append(done)
                continue
            draft = drafts.get(name) or self._draft(name)
            if transaction.kind is Kind.OPEN:
                if draft is None:
                    draft = _Draft(
                        index=created,
                        address=topicAddress(self.chain, name),
                        sender=sender,
                        created=timestamp,
                        isOpen=False,
                        sequence=0,
                        height=0,
                        published=[],
                    )
                    created += 1
                drafts[name] = draft
                draft.changed = draft.changed or not draft.isOpen
                draft.isOpen = True
                receipts.append(done)
                continue
            if draft is None or not draft.isOpen:
                receipts.append(notFound)
                continue
            drafts[name] = draft
            draft.changed = True
            if transaction.kind is Kind.CLOSE:
                draft.isOpen = False
                receipts.append(done)
                continue
            if not draft.published:
                prefix = topicPrefix(name)
                if prefix in prefixes:
                    raise PrefixConflict(prefix)
                prefixes.add(prefix)
            draft.sequence += 1
            draft.height = height
            draft.published.append(position)
            receipts.append(TransactionReceipt(Execution.DONE, draft.sequence))

        return self._outcome(receipts, drafts, accounts, validators)

    def _following(self, transaction: Transaction) -> ValidatorSet | None:
        """The set of nodes that a transaction changes to; C{None} where it must not."""
        try:
            change = ValidatorChange.decode(transaction.content)
            change.check(self.chain, self.validators)
        except (Malformed, ChangeRefused):
            return None
        return change.following

    def _draft(self, name: str) -> _Draft | None:
        index = self._topicIndexes.get(name)
        if index is None:
            return None
        topic = self._topics[index]
        return _Draft(
            index=index,
            address=topic.address,
            sender=topic.sender,
            created=topic.created,
            isOpen=topic.isOpen,
            sequence=topic.sequence,
            height=topic.height,
            published=[],
        )

    def _outcome(
        self,
        receipts: Sequence[TransactionReceipt],
        drafts: Mapping[str, _Draft],
        accounts: Mapping[bytes, Account],
        validators: ValidatorSet,
    ) -> Outcome:
        topics = {
            draft.index: draft.finish(name) for name, draft in drafts.items() if draft.changed
        }
        known = len(self._accounts)
        numbered: dict[int, tuple[bytes, Account]] = {}
        for address, account in accounts.items():
            index = self._accountIndexes.get(address)
            if index is None:
                index, known = known, known + 1
            numbered[index] = (address, account)
        topicOverlay = self._topicTree.preview(
            {index: topicLeaf(topic) for index, topic in topics.items()}
        )
        accountOverlay = self._accountTree.preview(
            {index: accountLeaf(*entry) for index, entry in numbered.items()}
        )
        return Outcome(
            receipts=receipts,
            topics=topics,
            accounts=numbered,
            published={
                draft.index: draft.published for draft in drafts.values() if draft.published
            },
            validators=validators,
            stateRoot=stateRoot(
                topicOverlay.root, topicOverlay.size, accountOverlay.root, accountOverlay.size
            ),
            topicOverlay=topicOverlay,
            accountOverlay=accountOverlay,
        )

    def apply(self, outcome: Outcome, history: History) -> None:
        """
        Make an outcome of L{execute} the state. Nothing else may have been applied since.

        @param history: the history with the header of its block.
        """
        self.validators = outcome.validators
        self.history = history
        for index in sorted(outcome.topics):
            topic = outcome.topics[index]
            if index == len(self._topics):
                self._topics.append(topic)
                self._topicIndexes[topic.name] = index
                wasOpen = False
            else:
                wasOpen = self._topics[index].isOpen
                self._topics[index] = topic
            if topic.isOpen and not wasOpen:
                insort(self._open, index)
            elif wasOpen and not topic.isOpen:
                del self._open[bisect_left(self._open, index)]
        for index in sorted(outcome.accounts):
            entry = outcome.accounts[index]
            if index == len(self._accounts):
                self._accounts.append(entry)
                self._accountIndexes[entry[0]] = index
            else:
                self._accounts[index] = entry
        self._topicTree.apply(outcome.topicOverlay)
        self._accountTree.apply(outcome.accountOverlay)
