"""
The state of a chain after its latest block: topics, and the nonces of senders; and the genesis of a
chain: its group, its validators, the time of its making and its rule of topics.

B{Frozen bytes}: the leaves of topics and senders, and the root, pinned by C{accounts} and
C{blocks}; the encoding and hash of a genesis, which is the chain's id, pinned by C{genesis}, also
of C{format4}; all in C{docs/vectors/chain.json}.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from attrs import field, frozen
from msgspec import Struct

from ..errors import BrokerError
from ..model import Topic, TopicRule, checkTopicName
from ._authorship import encodeAuthors
from ._body import TransactionReceipt
from ._claims import ErasedRange, HoldChange, Holds, KeySource, KeyUse, MemoryKeys
from ._encoding import U16, U64, Malformed, Reader, VersionUnknown
from ._header import Header
from ._merkle import EMPTY_ROOT, History, MerkleTree, Overlay, leafHash, rootOfPath
from ._transaction import Kind, Transaction
from ._validators import KEY_SIZE, MAX_VALIDATORS, ValidatorSet

NONCE_WINDOW = 1024
"""
The distance behind the highest nonce of its sender at which a transaction may still be executed.
"""

_WINDOW_MASK = (1 << NONCE_WINDOW) - 1
_NONCES_SIZE = U64.size + NONCE_WINDOW // 8


_TAG = b"svcbroker/state\x01"

_TOPIC = struct.Struct(">QBQQ")

_ROOT = struct.Struct(">16sQ32sQ32s")


class Nonces(Struct, frozen=True):
    """
    The nonces of a sender that were executed.

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

    def after(self, nonce: int) -> Nonces:
        """The nonces once a transaction of a new one was executed."""
        ahead = nonce - self.highest
        if ahead <= 0:
            return Nonces(self.highest, self.window | 1 << -ahead)
        if ahead >= NONCE_WINDOW:
            return Nonces(nonce, 1)
        return Nonces(nonce, self.window << ahead & _WINDOW_MASK | 1)

    def encode(self) -> bytes:
        """Its canonical encoding."""
        return U64.pack(self.highest) + self.window.to_bytes(NONCE_WINDOW // 8, "big")

    @classmethod
    def decode(cls, data: bytes) -> Nonces:
        """
        Read what L{encode} wrote.

        @raise Malformed: it has another length.
        """
        if len(data) != _NONCES_SIZE:
            raise Malformed(f"the nonces of a sender have {_NONCES_SIZE} bytes, not {len(data)}")
        return cls(int.from_bytes(data[:8], "big"), int.from_bytes(data[8:], "big"))


class NoncesDraft:
    """
    The nonces of a sender while a block is being executed.
    """

    __slots__ = ("_highest", "_run", "_window")

    def __init__(self, nonces: Nonces) -> None:
        self._highest = nonces.highest
        self._window = nonces.window
        # How many nonces follow the window without a gap: a sender's mostly do, and are cheap so.
        self._run = 0

    def spend(self, nonce: int) -> bool:
        """
        Take note that a transaction of this nonce is executed.

        @return: whether it is new; otherwise nothing has changed.
        """
        if nonce == self._highest + 1:
            self._highest = nonce
            self._run += 1
            return True
        nonces = self.finish()
        if not nonces.accepts(nonce):
            return False
        after = nonces.after(nonce)
        self._highest, self._window = after.highest, after.window
        return True

    def finish(self) -> Nonces:
        """The nonces as they are now."""
        if self._run:
            run = min(self._run, NONCE_WINDOW)
            self._window = (self._window << run | (1 << run) - 1) & _WINDOW_MASK
            self._run = 0
        return Nonces(self._highest, self._window)


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


def senderLeaf(address: bytes, nonces: Nonces) -> bytes:
    """The leaf hash of a sender in the state."""
    return leafHash(address + nonces.encode())


def stateRoot(topicRoot: bytes, topics: int, senderRoot: bytes, senders: int) -> bytes:
    """The root over everything that is in a state."""
    return sha256(_ROOT.pack(_TAG, topics, topicRoot, senders, senderRoot)).digest()


EMPTY_STATE_ROOT = stateRoot(EMPTY_ROOT, 0, EMPTY_ROOT, 0)


class TopicPath(Struct, frozen=True, kw_only=True):
    """
    The path from a topic to the root of a state.

    @ivar index: the topic's number in the order of creation, from 0.
    @ivar path: the path from the topic's leaf to the root of the topics.
    @ivar topics: how many topics there are.
    @ivar senderRoot: the root of the senders.
    @ivar senders: how many senders there are.
    """

    index: int
    path: Sequence[bytes]
    topics: int
    senderRoot: bytes
    senders: int

    def rootWith(self, topic: Topic) -> bytes:
        """
        The root of the state that has this topic there.

        @raise Malformed: the path is not of this length, or there is no such place.
        """
        root = rootOfPath(topicLeaf(topic), self.index, self.topics, self.path)
        return stateRoot(root, self.topics, self.senderRoot, self.senders)


class Outcome(Struct, frozen=True, kw_only=True):
    """
    The outcome of executing some transactions. Nothing has changed yet; L{ChainState.apply} makes
    it so.

    @ivar receipts: how each transaction ended.
    @ivar topics: new and changed topics, by index.
    @ivar senders: new and changed nonces with the addresses of their senders, by index.
    @ivar published: for each topic that events were published to, by index, the positions of
        their transactions in the block. Their sequence numbers run up to the topic's.
    @ivar validators: the validator set that decides the next block.
    @ivar stateRoot: the root of the state after it.
    @ivar uses: the idempotency keys that were used, in order.
    @ivar erased: the events that were erased, in the order of the transactions.
    @ivar earlier: for publishes that were published before, by their position in the block: the
        height of the first event's block.
    @ivar holds: the holds and releases that were executed, in order.
    """

    receipts: Sequence[TransactionReceipt]
    topics: Mapping[int, Topic]
    senders: Mapping[int, tuple[bytes, Nonces]]
    published: Mapping[int, Sequence[int]]
    validators: ValidatorSet
    stateRoot: bytes
    topicOverlay: Overlay
    senderOverlay: Overlay
    uses: Sequence[KeyUse] = ()
    erased: Sequence[ErasedRange] = ()
    earlier: Mapping[int, int] = {}
    holds: Sequence[HoldChange] = ()


class ChainState:
    """
    Topics and senders after the latest block.

    One instance serves all replicas of a process: it is what was decided, and executing never
    changes it.

    @ivar chain: the chain's id: the hash of its genesis.
    @ivar validators: the validator set that decides the next block.
    @ivar history: the headers up to the latest block's.
    @ivar topicRule: the rule of topics' names, as genesis says it.
    @ivar holds: the holds that are in force.
    """

    def __init__(
        self,
        chain: bytes,
        validators: ValidatorSet,
        history: History,
        topics: Iterable[Topic] = (),
        senders: Iterable[tuple[bytes, Nonces]] = (),
        keys: KeySource | None = None,
        topicRule: TopicRule = TopicRule.PUBLISHED,
        holds: Holds | None = None,
    ) -> None:
        """
        @param topics: all topics in the order of their creation.
        @param senders: all senders in the order of their appearance, with their nonces.
        @param keys: the uses of idempotency keys; by default they are kept in memory.
        @param holds: the holds that are in force; by default there are none.
        """
        self.chain = chain
        self.topicRule = topicRule
        self.keys: KeySource = MemoryKeys() if keys is None else keys
        self.holds = Holds() if holds is None else holds
        self.validators = validators
        self.history = history
        self._topics = list(topics)
        self._topicIndexes = {topic.name: i for i, topic in enumerate(self._topics)}
        # Made when a hold first names an event.
        self._addresses: dict[bytes, int] | None = None
        self._open = [i for i, topic in enumerate(self._topics) if topic.isOpen]
        self._senders = list(senders)
        self._senderIndexes = {address: i for i, (address, _) in enumerate(self._senders)}
        self._topicTree = MerkleTree([topicLeaf(topic) for topic in self._topics])
        self._senderTree = MerkleTree(
            [senderLeaf(address, nonces) for address, nonces in self._senders]
        )

    @property
    def root(self) -> bytes:
        """The root over the whole state."""
        return stateRoot(
            self._topicTree.root, len(self._topics), self._senderTree.root, len(self._senders)
        )

    def topic(self, name: str) -> Topic | None:
        """A topic, open or closed; C{None} where it was never opened."""
        index = self._topicIndexes.get(name)
        return None if index is None else self._topics[index]

    def topicPath(self, index: int) -> TopicPath:
        """The path from a topic to the state's root."""
        return TopicPath(
            index=index,
            path=self._topicTree.path(index),
            topics=len(self._topics),
            senderRoot=self._senderTree.root,
            senders=len(self._senders),
        )

    @property
    def topicCount(self) -> int:
        """The number of topics, closed ones included."""
        return len(self._topics)

    def check(self, transactions: Iterable[Transaction]) -> None:
        """
        Check that some transactions have nothing that only a chain with names in UTF-8 takes, as
        far as that does not show in their own bytes.

        @raise Malformed: one has.
        """
        if self.topicRule is TopicRule.UTF8:
            return
        for each in transactions:
            if not each.topic.isascii():
                try:
                    checkTopicName(each.topic)
                except BrokerError as error:
                    raise Malformed(error.message) from None
            if each.kind is Kind.OPEN and each.version == 3 and each.content:
                raise Malformed("this chain has no terms of topics")

    def topicIndex(self, name: str) -> int | None:
        """A topic's number in the order of creation, from 0; C{None} where it never was."""
        return self._topicIndexes.get(name)

    def topicOf(self, address: bytes) -> Topic | None:
        """A topic by its address. The first call looks at all topics."""
        if self._addresses is None:
            self._addresses = {topic.address: i for i, topic in enumerate(self._topics)}
        index = self._addresses.get(address)
        return None if index is None else self._topics[index]

    def topicAt(self, index: int) -> Topic:
        """The topic that was created as the C{index}-th, from 0."""
        return self._topics[index]

    @property
    def openCount(self) -> int:
        """The number of open topics."""
        return len(self._open)

    def openTopics(self, offset: int, limit: int) -> Sequence[Topic]:
        """Open topics in the order of their creation."""
        return [self._topics[index] for index in self._open[offset : offset + limit]]

    def nonces(self, address: bytes) -> Nonces:
        """The nonces of a sender that were executed."""
        index = self._senderIndexes.get(address)
        return Nonces() if index is None else self._senders[index][1]

    def senderIndex(self, address: bytes) -> int | None:
        """A sender's number in the order of appearance, from 0; C{None} where there is none."""
        return self._senderIndexes.get(address)

    @property
    def senders(self) -> Sequence[tuple[bytes, Nonces]]:
        """All senders in the order of their appearance, with their nonces."""
        return self._senders

    def preview(
        self, topics: Mapping[int, Topic], senders: Mapping[int, tuple[bytes, Nonces]]
    ) -> tuple[Overlay, Overlay]:
        """
        The trees of topics and of senders with these changes, by index. They are not made.
        """
        return (
            self._topicTree.preview({index: topicLeaf(topic) for index, topic in topics.items()}),
            self._senderTree.preview(
                {index: senderLeaf(*entry) for index, entry in senders.items()}
            ),
        )

    def apply(self, outcome: Outcome, history: History) -> None:
        """
        Make an outcome of L{execute<svcbroker.chain.execute>} the state. Nothing else may have
        been applied since.

        @param history: the history with the header of its block.
        """
        self.validators = outcome.validators
        self.history = history
        for index in sorted(outcome.topics):
            topic = outcome.topics[index]
            if index == len(self._topics):
                self._topics.append(topic)
                self._topicIndexes[topic.name] = index
                if self._addresses is not None:
                    self._addresses[topic.address] = index
                wasOpen = False
            else:
                wasOpen = self._topics[index].isOpen
                self._topics[index] = topic
            if topic.isOpen and not wasOpen:
                insort(self._open, index)
            elif wasOpen and not topic.isOpen:
                del self._open[bisect_left(self._open, index)]
        for index in sorted(outcome.senders):
            entry = outcome.senders[index]
            if index == len(self._senders):
                self._senders.append(entry)
                self._senderIndexes[entry[0]] = index
            else:
                self._senders[index] = entry
        if outcome.uses or outcome.erased:
            self.keys.add(outcome.uses, outcome.erased)
        for change in outcome.holds:
            self.holds.apply(change)
        self._topicTree.apply(outcome.topicOverlay)
        self._senderTree.apply(outcome.senderOverlay)


_GENESIS_TAG = b"svcbroker/genesis"
_PLAIN, _RULED = b"\x01", b"\x02"
"""Version 2 ends with a byte that says its rules; 1 is names of topics in UTF-8."""
_UTF8 = b"\x01"
_NO_PARENT = bytes(32)


@frozen(kw_only=True)
class Genesis:
    """
    The beginning of a chain, on which all its validators agree before the first block.

    @ivar group: the id of the group whose log the chain is.
    @ivar created: when it was made, in milliseconds since the epoch.
    @ivar validators: the Ed25519 public keys (32 bytes each) of its first validators, in the order
        of their indexes.
    @ivar topics: the rule of its topics' names.
    @ivar encoded: its canonical encoding.
    @ivar chain: the chain's id: the hash of the encoding.
    """

    group: str
    created: int
    validators: tuple[bytes, ...]
    topics: TopicRule = TopicRule.PUBLISHED
    encoded: bytes = field(init=False, repr=False, eq=False)
    chain: bytes = field(init=False, eq=False)

    @encoded.default
    def _encode(self) -> bytes:
        group = self.group.encode("utf-8")
        version, rules = _PLAIN, b""
        if self.topics is TopicRule.UTF8:
            version, rules = _RULED, _UTF8
        return b"".join(
            (
                _GENESIS_TAG,
                version,
                U16.pack(len(group)),
                group,
                U64.pack(self.created),
                U16.pack(len(self.validators)),
                *self.validators,
                rules,
            )
        )

    @chain.default
    def _chain(self) -> bytes:
        return sha256(self.encoded).digest()

    @classmethod
    def decode(cls, data: bytes) -> Genesis:
        """
        Read a genesis.

        @raise Malformed: the bytes are not one.
        """
        reader = Reader(data)
        if reader.take(len(_GENESIS_TAG)) != _GENESIS_TAG:
            raise Malformed("this is not a genesis")
        version = reader.take(1)
        if version not in (_PLAIN, _RULED):
            raise VersionUnknown("this is not a genesis of a known version")
        group = reader.text(reader.number(U16))
        created = reader.number(U64)
        count = reader.number(U16)
        validators = tuple(reader.take(KEY_SIZE) for _ in range(count))
        topics = TopicRule.PUBLISHED
        if version == _RULED:
            if reader.take(1) != _UTF8:
                raise VersionUnknown("the genesis has a rule that only a newer svcbroker knows")
            topics = TopicRule.UTF8
        reader.finish()
        if not 1 <= count <= MAX_VALIDATORS:
            raise Malformed(f"a genesis names 1 to {MAX_VALIDATORS} validators, not {count}")
        if len(set(validators)) != count:
            # One key under two indexes would count twice in every certificate.
            raise Malformed("a genesis names one validator twice")
        return cls(group=group, created=created, validators=validators, topics=topics)

    @property
    def validatorSet(self) -> ValidatorSet:
        """The set that decides the first block."""
        return ValidatorSet(0, self.validators)

    def state(self, keys: KeySource | None = None) -> ChainState:
        """
        The state that the first block finds.

        @param keys: see L{ChainState}.
        """
        history = History.of([self.header().hash])
        return ChainState(self.chain, self.validatorSet, history, keys=keys, topicRule=self.topics)

    def header(self) -> Header:
        """The header of height 0, which the first block has as its parent."""
        return Header(
            chain=self.chain,
            height=0,
            parent=_NO_PARENT,
            history=EMPTY_ROOT,
            view=0,
            proposer=0,
            timestamp=self.created,
            transactionRoot=EMPTY_ROOT,
            receiptRoot=EMPTY_ROOT,
            stateRoot=EMPTY_STATE_ROOT,
            validators=self.validatorSet.hash,
            nextValidators=self.validatorSet.hash,
            transactionCount=0,
            transactionTotal=0,
        )
