"""
The beginning of a block's body, by which some of its transactions are read and not all.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from ._body import tableSize
from ._encoding import U32, Malformed

_STRIDE: Final = 128
_U32_CODE: Final = next(code for code in "IL" if array(code).itemsize == U32.size)


class BodyTable:
    """
    Where the transactions of a body stand.

    L{decodeTable<svcbroker.chain.decodeTable>} makes all offsets; this adds sizes up, in C, and
    makes those that are asked for. Of a block of ten thousand transactions it costs a tenth.
    """

    def __init__(self, table: bytes) -> None:
        """
        @param table: the first L{tableSize<svcbroker.chain.tableSize>} bytes of the body, or more.
        @raise Malformed: that is no such beginning.
        """
        count = bodyCount(table)
        if len(table) < tableSize(count):
            raise Malformed("the body ends early")
        self._start = tableSize(count)
        self._sizes = array(_U32_CODE, table[U32.size : self._start])
        if sys.byteorder == "little":
            self._sizes.byteswap()

    def __len__(self) -> int:
        return len(self._sizes)

    def bounds(self, first: int, end: int) -> Sequence[tuple[int, int]]:
        """
        Where the transactions from the C{first}-th, counted from 0, up to the one before the
        C{end}-th start and end.
        """
        start = self._start + sum(self._sizes[:first])
        return list(pairwise(accumulate(self._sizes[first:end], initial=start)))

    def index(self, offset: int) -> int:
        """
        Which transaction is the first one that starts at an offset or after it; how many there
        are where none does.
        """
        at = self._start
        for first in range(0, len(self._sizes), _STRIDE):
            stride = self._sizes[first : first + _STRIDE]
            following = at + sum(stride)
            if following > offset:
                for number, size in enumerate(stride, first):
                    if at >= offset:
                        return number
                    at += size
                return first + len(stride)
            at = following
        return len(self._sizes)


def bodyCount(body: bytes) -> int:
    """
    How many transactions a body has.

    @param body: its first 4 bytes, or more.
    @raise Malformed: there are fewer.
    """
    if len(body) < U32.size:
        raise Malformed("the body ends early")
    count: int = U32.unpack_from(body)[0]
    return count
