"""
The beginning of a body, read in part.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from random import Random
from struct import pack

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import BodyTable, Malformed, decodeTable


class BodyTableTests(SynchronousTestCase):
    """
    L{BodyTable} says what L{decodeTable} says.
    """

    def test_boundsEqualOffsets(self) -> None:
        """
        Bounds and indexes are those of all offsets, at strides' edges too.
        """
        random = Random(4)
        for count in (0, 1, 2, 127, 128, 129, 256, 1000):
            sizes = [random.choice((72, 300, 2**31)) for _ in range(count)]
            encoded = pack(f">I{count}I", count, *sizes)
            table, offsets = BodyTable(encoded + b"what follows"), decodeTable(encoded)
            self.assertEqual(len(table), count)
            self.assertEqual(table.bounds(0, count), list(pairwise(offsets)))
            first = random.randint(0, count)
            end = random.randint(first, count)
            self.assertEqual(table.bounds(first, end), list(pairwise(offsets))[first:end])
            for offset in (0, *offsets, *(each - 1 for each in offsets)):
                self.assertEqual(table.index(offset), bisect_left(offsets, offset))

    def test_shortTableIsRefused(self) -> None:
        """
        Bytes that are no beginning of a body are refused.
        """
        for data in (b"", b"\0\0\0", pack(">2I", 2, 72)):
            self.assertRaises(Malformed, BodyTable, data)
