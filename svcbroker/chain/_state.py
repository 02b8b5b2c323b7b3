"""
The state of a chain: topics and accounts after its latest block, and what transactions do to
them.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct

from ..model import Topic
from ._accounts import Account
from ._authors import encodeAuthors
from ._encoding import U16
from ._execution import BlockExecution
from ._header import FORMAT
from ._history import History
from ._keys import ErasedRange, KeySource, KeyUse, MemoryKeys
from ._merkle import EMPTY_ROOT, MerkleTree, Overlay, leafHash, rootOfPath
from ._receipts import TransactionReceipt
from ._transaction import Transaction
from ._validators import ValidatorSet

_TAG = b"svcbroker/state\x01"
_TOPIC = struct.Struct(">QBQQ")
_ROOT = struct.Struct(">16sQ32sQ32s")


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
                _TOPIC.pack(topic.created, topic.isOpen, topic.sequence, topic.height),
                b"" if topic.authors is None else encodeAuthors(topic.authors),
            )
        )
    )


def accountLeaf(address: bytes, account: Account) -> bytes:
    """The leaf hash of an account in the state."""
    return leafHash(address + account.encode())


def stateRoot(topicRoot: bytes, topics: int, accountRoot: bytes, accounts: int) -> bytes:
    """The root over everything that is in a state."""
    return sha256(_ROOT.pack(_TAG, topics, topicRoot, accounts, accountRoot)).digest()


EMPTY_STATE_ROOT = stateRoot(EMPTY_ROOT, 0, EMPTY_ROOT, 0)


class TopicPath(Struct, frozen=True, kw_only=True):
    """
    What leads from a topic to the root of a state.

    @ivar index: the topic's number in the order of creation, from 0.
    @ivar path: the path from the topic's leaf to the root of the topics.
    @ivar topics: how many topics there are.
    @ivar accountRoot: the root of the accounts.
    @ivar accounts: how many accounts there are.
    """

    index: int
    path: Sequence[bytes]
    topics: int
    accountRoot: bytes
    accounts: int

    def rootWith(self, topic: Topic) -> bytes:
        """
        The root of the state that has this topic there.

        @raise Malformed: the path is not of this length, or there is no such place.
        """
        root = rootOfPath(topicLeaf(topic), self.index, self.topics, self.path)
        return stateRoot(root, self.topics, self.accountRoot, self.accounts)


class Outcome(Struct, frozen=True, kw_only=True):
    """
    What executing some transactions gives. Nothing has changed yet; L{ChainState.apply} makes
    it so.

    @ivar receipts: how each transaction ended.
    @ivar topics: new and changed topics, by index.
    @ivar accounts: new and changed accounts with their addresses, by index.
    @ivar published: for each topic that events were published to, by index, the positions of
        their transactions in the block. Their sequence numbers run up to the topic's.
    @ivar validators: the validator set that decides the next block.
    @ivar stateRoot: the root of the state after it.
    @ivar uses: the idempotency keys that were used, in order.
    @ivar erased: the events that were erased, in the order of the transactions.
    @ivar earlier: for publishes that were published before, by their position in the block: the
        height of the first event's block.
    """

    receipts: Sequence[TransactionReceipt]
    topics: Mapping[int, Topic]
    accounts: Mapping[int, tuple[bytes, Account]]
    published: Mapping[int, Sequence[int]]
    validators: ValidatorSet
    stateRoot: bytes
    topicOverlay: Overlay
    accountOverlay: Overlay
    uses: Sequence[KeyUse] = ()
    erased: Sequence[ErasedRange] = ()
    earlier: Mapping[int, int] = {}


class ChainState:
    """
    Topics and accounts after the latest block.

    One instance serves all replicas of a process: it is what was decided, and executing never
    changes it.

    @ivar chain: the chain's id: the hash of its genesis.
    @ivar validators: the validator set that decides the next block.
    @ivar history: the headers up to the latest block's.
    """

    def __init__(
        self,
        chain: bytes,
        validators: ValidatorSet,
        history: History,
        topics: Iterable[Topic] = (),
        accounts: Iterable[tuple[bytes, Account]] = (),
        keys: KeySource | None = None,
    ) -> None:
        """
        @param topics: all topics in the order of their creation.
        @param accounts: all accounts with their addresses in the order of their appearance.
        @param keys: the uses of idempotency keys; by default they are kept in memory.
        """
        self.chain = chain
        self.keys: KeySource = MemoryKeys() if keys is None else keys
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

    def topicPath(self, index: int) -> TopicPath:
        """What leads from a topic to the state's root."""
        return TopicPath(
            index=index,
            path=self._topicTree.path(index),
            topics=len(self._topics),
            accountRoot=self._accountTree.root,
            accounts=len(self._accounts),
        )

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

    def accountIndex(self, address: bytes) -> int | None:
        """An account's number in the order of appearance, from 0; C{None} where there is none."""
        return self._accountIndexes.get(address)

    @property
    def accounts(self) -> Sequence[tuple[bytes, Account]]:
        """All accounts with their addresses, in the order of their appearance."""
        return self._accounts

    def execute(
        self,
        transactions: Sequence[Transaction],
        height: int,
        timestamp: int,
        recorded: Sequence[TransactionReceipt] | None = None,
        format: int = FORMAT,
    ) -> Outcome:
        """
        What the transactions of a block do to this state.

        @param height: the height of their block.
        @param timestamp: the time of their block in milliseconds since the epoch.
        @param recorded: the receipts that its validators have signed, which decide what follows
            from contents that are missing; C{None} where none may be missing.
        @param format: the format of their block.
        @raise PrefixConflict: it publishes to two topics whose event ids begin alike.
        """
        run = BlockExecution(self, height, timestamp, recorded, format)
        run.execute(transactions)
        topics, published = run.topics()
        accounts = run.accounts()
        topicOverlay = self._topicTree.preview(
            {index: topicLeaf(topic) for index, topic in topics.items()}
        )
        accountOverlay = self._accountTree.preview(
            {index: accountLeaf(*entry) for index, entry in accounts.items()}
        )
        return Outcome(
            receipts=run.receipts,
            topics=topics,
            accounts=accounts,
            published=published,
            validators=run.validators,
            stateRoot=stateRoot(
                topicOverlay.root, topicOverlay.size, accountOverlay.root, accountOverlay.size
            ),
            topicOverlay=topicOverlay,
            accountOverlay=accountOverlay,
            uses=run.uses,
            erased=run.erased,
            earlier=run.earlier,
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
        if outcome.uses or outcome.erased:
            self.keys.add(outcome.uses, outcome.erased)
        self._topicTree.apply(outcome.topicOverlay)
        self._accountTree.apply(outcome.accountOverlay)
