"""
Claims of publishes and erasures: the uses of idempotency keys, and the events that were erased; and
holds, which keep events from being erased until they are released: their encoding, and those that
are in force.

B{Frozen bytes}: erasures, holds and releases, pinned by C{erasures} of C{format3}, C{holds} and
C{releases} of C{format4} in C{docs/vectors/chain.json}.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, Protocol, TypeAlias

from msgspec import Struct, structs

from ..errors import BrokerError
from ..model import (
    MAX_ERASED,
    MAX_HELD_EVENTS,
    MAX_HOLD_PATTERNS,
    MAX_RANGES,
    MAX_REASON,
    HeldRange,
    checkHoldPattern,
    isCase,
)
from ._encoding import ADDRESS_SIZE, U16, Malformed, Reader

KEY_WINDOW: Final = 2**20
"""The number of an owner's latest uses that are in force."""


OwnedKey: TypeAlias = tuple[bytes, str]
"""The address of a key's owner, and the key."""


_RANGE = struct.Struct(">QQ")


class KeyUse(Struct, frozen=True, kw_only=True):
    """
    An idempotency key that has published an event.

    @ivar owner: the address whose key it is: 20 bytes.
    @ivar key: the key.
    @ivar number: the number of the use among those of its owner, from 1.
    @ivar topic: the index of the event's topic.
    @ivar sequence: the event's number in its topic.
    @ivar height: the height of its block.
    @ivar digest: the SHA-256 of its content; C{None} where that was erased.
    """

    owner: bytes
    key: str
    number: int
    topic: int
    sequence: int
    height: int
    digest: bytes | None


class ErasedRange(Struct, frozen=True, kw_only=True):
    """
    Consecutive events of a topic that were erased by one transaction.

    @ivar topic: the index of the topic.
    @ivar first: the sequence number of the first of them.
    @ivar last: that of the last.
    @ivar height: the height of the block with the erasure.
    @ivar position: the index of the erasure in its block.
    """

    topic: int
    first: int
    last: int
    height: int
    position: int


class KeySource(Protocol):
    """
    The idempotency keys of a chain's state. It may be on disk: only publishes with a key
    ask.
    """

    def find(self, wanted: Collection[OwnedKey]) -> dict[OwnedKey, KeyUse]:
        """
        The latest uses of some keys, in a dictionary that is the caller's; keys without a use are
        left out. The digest of a use is C{None} where the event is erased.
        """

    def count(self, owner: bytes) -> int:
        """
        The number of the latest use of any key of an owner; 0 where there is none.
        """

    def isErased(self, topic: int, sequence: int) -> bool:
        """
        Whether an event was erased.

        @param topic: the index of its topic.
        """

    def add(self, uses: Sequence[KeyUse], erased: Sequence[ErasedRange]) -> None:
        """
        Add what a block has brought. The state calls it when the block is applied.
        """


class MemoryKeys:
    """
    A L{KeySource} in memory, with the uses that are in force.
    """

    def __init__(self) -> None:
        self._uses: dict[OwnedKey, KeyUse] = {}
        self._owned: dict[bytes, deque[KeyUse]] = {}
        self._erased: dict[int, list[tuple[int, ErasedRange]]] = {}

    def find(self, wanted: Collection[OwnedKey]) -> dict[OwnedKey, KeyUse]:
        """See L{KeySource.find}."""
        uses = self._uses
        found = {each: uses[each] for each in wanted if each in uses}
        for each, use in found.items():
            if self.isErased(use.topic, use.sequence):
                found[each] = structs.replace(use, digest=None)
        return found

    def isErased(self, topic: int, sequence: int) -> bool:
        """See L{KeySource.isErased}."""
        return self.erasure(topic, sequence) is not None

    def count(self, owner: bytes) -> int:
        """See L{KeySource.count}."""
        owned = self._owned.get(owner)
        return owned[-1].number if owned else 0

    def add(self, uses: Sequence[KeyUse], erased: Sequence[ErasedRange]) -> None:
        """See L{KeySource.add}."""
        for use in uses:
            owned = self._owned.setdefault(use.owner, deque())
            owned.append(use)
            self._uses[use.owner, use.key] = use
            if len(owned) > KEY_WINDOW:
                oldest = owned.popleft()
                if self._uses.get((oldest.owner, oldest.key)) is oldest:
                    del self._uses[oldest.owner, oldest.key]
        for each in erased:
            ranges = self._erased.setdefault(each.topic, [])
            # The parts that were not erased before.
            first = each.first
            for start, known in ranges[max(0, bisect_right(ranges, first, key=_first) - 1) :]:
                if start > each.last:
                    break
                if first < start:
                    insort(ranges, (first, structs.replace(each, first=first, last=start - 1)))
                first = max(first, known.last + 1)
            if first <= each.last:
                insort(ranges, (first, structs.replace(each, first=first)))

    def erasure(self, topic: int, sequence: int) -> ErasedRange | None:
        """
        The erasure that has erased an event; C{None} where none has.

        @param topic: the index of the topic.
        """
        ranges = self._erased.get(topic, [])
        at = bisect_right(ranges, sequence, key=_first)
        if not at or ranges[at - 1][1].last < sequence:
            return None
        return ranges[at - 1][1]


def _first(entry: tuple[int, ErasedRange]) -> int:
    return entry[0]


class Erasure(Struct, frozen=True, kw_only=True):
    """
    The content of an erasure.

    @ivar account: the account of the operator who asked for it; may be empty.
    @ivar reason: why.
    @ivar ranges: pairs of the first and the last sequence number, rising.
    """

    account: str
    reason: str
    ranges: Sequence[tuple[int, int]]

    def encode(self) -> bytes:
        """Its canonical encoding."""
        account, reason = self.account.encode("utf-8"), self.reason.encode("utf-8")
        return b"".join(
            (
                bytes([len(account)]),
                account,
                U16.pack(len(reason)),
                reason,
                U16.pack(len(self.ranges)),
                *(_RANGE.pack(first, last) for first, last in self.ranges),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> Erasure:
        """
        Read an erasure.

        @raise Malformed: the bytes are not one.
        """
        reader = Reader(data)
        account = reader.text(reader.take(1)[0])
        reason = reader.text(size := reader.number(U16))
        count = reader.number(U16)
        packed = reader.take(count * _RANGE.size)
        reader.finish()
        if size > MAX_REASON or not 1 <= count <= MAX_RANGES:
            raise Malformed("the reason of an erasure is too long, or its ranges are too many")
        end, total = 0, 0
        ranges = []
        for first, last in _RANGE.iter_unpack(packed):
            if not end < first <= last:
                raise Malformed("the ranges of an erasure do not rise")
            end, total = last, total + last - first + 1
            ranges.append((first, last))
        if total > MAX_ERASED:
            raise Malformed(f"an erasure names at most {MAX_ERASED} events")
        return cls(account=account, reason=reason, ranges=tuple(ranges))


_EVENT = struct.Struct(f">{ADDRESS_SIZE}sQ")
_FEW_RANGES = 32
"""The most ranges that are looked for one by one in each hold."""
_SEPARATOR, _ONE_LEVEL, _ALL_BELOW = "/", "+", "#"


class Release(Struct, frozen=True, kw_only=True):
    """
    The content of a release.

    @ivar case: the name of the hold that it ends.
    @ivar account: the account of the operator who asked for it; may be empty.
    @ivar reason: why.
    """

    case: str
    account: str
    reason: str

    def encode(self) -> bytes:
        """Its canonical encoding."""
        case, account, reason = (
            each.encode("utf-8") for each in (self.case, self.account, self.reason)
        )
        return b"".join(
            (
                bytes([len(case)]),
                case,
                bytes([len(account)]),
                account,
                U16.pack(len(reason)),
                reason,
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> Release:
        """
        Read a release.

        @raise Malformed: the bytes are not one.
        """
        reader = Reader(data)
        case, account, reason = _readCase(reader)
        reader.finish()
        return cls(case=case, account=account, reason=reason)


class Hold(Release, frozen=True, kw_only=True):
    """
    The content of a hold: either patterns or events.

    @ivar patterns: of topics, all of whose events it holds; by the rising bytes of their UTF-8.
    @ivar events: addresses of topics and sequence numbers, rising.
    """

    patterns: Sequence[str] = ()
    events: Sequence[tuple[bytes, int]] = ()

    def encode(self) -> bytes:
        """Its canonical encoding."""
        patterns = [each.encode("utf-8") for each in self.patterns]
        return b"".join(
            (
                super().encode(),
                bytes([len(patterns)]),
                *(U16.pack(len(each)) + each for each in patterns),
                U16.pack(len(self.events)),
                *(_EVENT.pack(*each) for each in self.events),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> Hold:
        """
        Read a hold.

        @raise Malformed: the bytes are not one.
        """
        reader = Reader(data)
        case, account, reason = _readCase(reader)
        patterns = [reader.text(reader.number(U16)) for _ in range(reader.take(1)[0])]
        events = list(_EVENT.iter_unpack(reader.take(_EVENT.size * reader.number(U16))))
        reader.finish()
        if len(patterns) > MAX_HOLD_PATTERNS or len(events) > MAX_HELD_EVENTS:
            raise Malformed("a hold has too many patterns or events")
        if bool(patterns) == bool(events):
            raise Malformed("a hold has either patterns or events")
        encoded = [each.encode("utf-8") for each in patterns]
        if encoded != sorted(set(encoded)) or events != sorted(set(events)):
            raise Malformed("patterns or events of a hold do not rise")
        try:
            for pattern in patterns:
                checkHoldPattern(pattern)
        except BrokerError as error:
            raise Malformed(error.message) from None
        if not all(sequence for _, sequence in events):
            raise Malformed("no event has the number 0")
        return cls(case=case, account=account, reason=reason, patterns=patterns, events=events)


def _readCase(reader: Reader) -> tuple[str, str, str]:
    """Case, account and reason."""
    case = reader.text(reader.take(1)[0])
    account = reader.text(reader.take(1)[0])
    size = reader.number(U16)
    reason = reader.text(size)
    if not isCase(case):
        raise Malformed("the name of a case is not valid")
    if size > MAX_REASON:
        raise Malformed("the reason of a hold is too long")
    return case, account, reason


class HoldChange(Struct, frozen=True, kw_only=True):
    """
    A hold or a release that was executed.

    @ivar content: what it says.
    @ivar entry: its transaction as it stands in a body.
    @ivar hash: the hash of that.
    @ivar height: the height of its block.
    @ivar position: the index of the transaction in its block.
    @ivar time: the time of the block in milliseconds since the epoch.
    """

    content: Hold | Release
    entry: bytes
    hash: bytes
    height: int
    position: int
    time: int


_NO_CASES: Final[frozenset[str]] = frozenset()
"""Of most levels: sets of their own would be most of their memory."""


class _Level:
    """
    The patterns that begin alike.

    @ivar below: those that go on, by their next level.
    @ivar cases: the cases of those that end here.
    @ivar rest: the cases of those that end with C{#} here.
    """

    __slots__ = ("below", "cases", "rest")

    def __init__(self) -> None:
        self.below: dict[str, _Level] = {}
        self.cases = self.rest = _NO_CASES


class Holds:
    """
    The holds that are in force.

    @ivar released: the height of the block with the latest release; 0 where there is none.
    """

    def __init__(self, holds: Iterable[HoldChange] = (), released: int = 0) -> None:
        self.released = released
        self._byCase: dict[str, HoldChange] = {}
        self._root = _Level()
        self._events: dict[bytes, dict[str, array[int]]] = {}
        for each in holds:
            self.apply(each)

    def __len__(self) -> int:
        return len(self._byCase)

    def __contains__(self, case: str) -> bool:
        return case in self._byCase

    def __iter__(self) -> Iterator[HoldChange]:
        """They, in the order in which they came into force."""
        return iter(self._byCase.values())

    def apply(self, change: HoldChange) -> None:
        """Add a hold, or remove the one that a release ends."""
        case = change.content.case
        if isinstance(change.content, Hold):
            self._byCase[case] = change
            for pattern in change.content.patterns:
                self._addPattern(pattern, case)
            for address, sequence in change.content.events:
                cases = self._events.setdefault(address, {})
                cases.setdefault(case, array("Q")).append(sequence)
            return
        self.released = change.height
        hold = self._byCase.pop(case).content
        assert isinstance(hold, Hold)
        for pattern in hold.patterns:
            self._removePattern(self._root, pattern.split(_SEPARATOR), case)
        for address in {address for address, _ in hold.events}:
            del self._events[address][case]
            if not self._events[address]:
                del self._events[address]

    def _addPattern(self, pattern: str, case: str) -> None:
        level = self._root
        for part in pattern.split(_SEPARATOR):
            if part == _ALL_BELOW:
                level.rest |= {case}
                return
            level = level.below.setdefault(part, _Level())
        level.cases |= {case}

    def _removePattern(self, level: _Level, parts: Sequence[str], case: str) -> None:
        if not parts:
            level.cases -= {case}
            return
        part, *others = parts
        if part == _ALL_BELOW:
            level.rest -= {case}
            return
        below = level.below[part]
        self._removePattern(below, others, case)
        if not (below.below or below.cases or below.rest):
            del level.below[part]

    def casesOf(
        self, topic: str, address: bytes, ranges: Sequence[tuple[int, int]]
    ) -> Iterator[str]:
        """
        The cases that hold one of some events; a case may come twice.

        @param topic: the name of their topic.
        @param address: its address.
        @param ranges: pairs of the first and the last sequence number, rising.
        """
        yield from self._casesOfTopic(topic)
        held = self._events.get(address)
        if not held:
            return
        if len(ranges) > _FEW_RANGES:
            # An erasure has at most MAX_ERASED numbers: a set of them asks each hold once.
            numbers = {each for first, last in ranges for each in range(first, last + 1)}
            yield from (case for case, some in held.items() if not numbers.isdisjoint(some))
            return
        for case, sequences in held.items():
            for first, last in ranges:
                at = bisect_left(sequences, first)
                if at < len(sequences) and sequences[at] <= last:
                    yield case
                    break

    def rangesOf(
        self, topic: str, address: bytes, ranges: Sequence[tuple[int, int]]
    ) -> Sequence[Iterator[HeldRange]]:
        """
        The events of a topic that are held, of those in some ranges: for each hold those that it
        names, rising. A step takes no longer than to look at the events of one hold. What is told
        is of the holds that are in force now, not of those that are when an iterator is asked.

        @param topic: its name.
        @param address: its address.
        @param ranges: pairs of the first and the last sequence number, rising.
        """
        found = [_wholly(case, ranges) for case in set(self._casesOfTopic(topic))]
        named = self._events.get(address, {}).items()
        return found + [_named(case, sequences, ranges) for case, sequences in named]

    def _casesOfTopic(self, topic: str) -> Iterator[str]:
        """The cases that hold all events of a topic, by its name."""
        levels = [self._root]
        for part in topic.split(_SEPARATOR):
            for level in levels:
                yield from level.rest
            levels = [
                level.below[each]
                for level in levels
                for each in (part, _ONE_LEVEL)
                if each in level.below
            ]
        for level in levels:
            yield from level.rest
            yield from level.cases


def _wholly(case: str, ranges: Sequence[tuple[int, int]]) -> Iterator[HeldRange]:
    """The ranges, held by a case that holds all of their topic."""
    return (HeldRange(case=case, first=first, last=last) for first, last in ranges)


def _named(
    case: str, sequences: Sequence[int], ranges: Sequence[tuple[int, int]]
) -> Iterator[HeldRange]:
    """The events in some ranges that a case names, as ranges."""
    at = number = 0
    while number < len(ranges):
        first, last = ranges[number]
        at = bisect_left(sequences, first, at)
        if at == len(sequences):
            return
        start = end = sequences[at]
        if start > last:
            number = bisect_left(ranges, start, number + 1, key=itemgetter(1))
            continue
        while at < len(sequences) and sequences[at] == end <= last:
            at += 1
            end += 1
        yield HeldRange(case=case, first=start, last=end - 1)
