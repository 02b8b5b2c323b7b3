"""
Claims of publishes and erasures: the uses of idempotency keys, and the events that were erased.

B{Frozen bytes}: erasures, pinned by C{erasures} of C{format3} in C{docs/vectors/chain.json}.
"""

from __future__ import annotations

import struct
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Collection, Sequence
from typing import Final, Protocol, TypeAlias

from msgspec import Struct, structs

from ..model import MAX_ERASED, MAX_RANGES, MAX_REASON
from ._encoding import U16, Malformed, Reader

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
