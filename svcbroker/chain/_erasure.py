"""
Erasures: which events lose their content, as their transactions encode it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from msgspec import Struct

from ..model import MAX_ERASED, MAX_RANGES, MAX_REASON
from ._encoding import U16, Malformed, Reader

_RANGE = struct.Struct(">QQ")


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
