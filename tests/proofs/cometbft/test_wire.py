"""
The protobuf encoding itself.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.proofs.cometbft.wire import (
    WireMalformed,
    delimited,
    encodeTag,
    encodeVarint,
    fields,
    readLength,
    readVarint,
    signed32,
    signed64,
    skipField,
)


class VarintTests(SynchronousTestCase):
    """
    Whole numbers.
    """

    def test_knownVarintsAreRead(self) -> None:
        """The encodings that the specification shows, and the edges."""
        for value, data in (
            (0, "00"),
            (1, "01"),
            (127, "7f"),
            (128, "8001"),
            (150, "9601"),
            (2**64 - 1, "ffffffffffffffffff01"),
            (-1, "ffffffffffffffffff01"),
            (-2, "feffffffffffffffff01"),
            (-(2**63), "80808080808080808001"),
        ):
            self.assertEqual(encodeVarint(value).hex(), data)

    @given(st.integers(0, 2**64 - 1), st.binary(max_size=3), st.binary(max_size=3))
    def test_varintsRoundTrip(self, value: int, before: bytes, after: bytes) -> None:
        """A varint that is written is read, wherever it stands."""
        data = before + encodeVarint(value) + after
        end = len(data) - len(after)
        self.assertEqual(readVarint(data, len(before), len(data)), (value, end))

    @given(st.integers(-(2**63), -1))
    def test_negativeNumbersRoundTrip(self, value: int) -> None:
        """A negative number comes back with its sign."""
        data = encodeVarint(value)
        self.assertEqual(len(data), 10)
        self.assertEqual(signed64(readVarint(data, 0, 10)[0]), value)

    def test_numbersAreBoundedTo64Bits(self) -> None:
        """No number has more than 64 bits."""
        for value in (2**64, -(2**63) - 1):
            with self.assertRaises(ValueError):
                encodeVarint(value)

    def test_malformedVarintsAreRefused(self) -> None:
        """A varint ends within ten bytes and within what may be read, and has 64 bits."""
        for data, text in (
            (b"", "too soon"),
            (b"\x80", "too soon"),
            (b"\xff" * 9, "too soon"),
            (b"\xff" * 10, "more than ten bytes"),
            (b"\x80" * 10 + b"\x01", "more than ten bytes"),
            (b"\xff" * 9 + b"\x02", "more than 64 bits"),
        ):
            with self.assertRaises(WireMalformed) as raised:
                readVarint(data, 0, len(data))
            self.assertIn(text, str(raised.exception))
        with self.assertRaises(WireMalformed):
            readVarint(b"\x80\x01", 0, 1)

    def test_overlongVarintsAreRead(self) -> None:
        """A varint may be longer than it must."""
        self.assertEqual(readVarint(b"\x81\x80\x00", 0, 3), (1, 3))

    def test_narrowNumbersAreTruncated(self) -> None:
        """Of a number that should have 32 bits the lowest count."""
        self.assertEqual(signed32(2**64 - 1), -1)
        self.assertEqual(signed32(2**32 + 5), 5)
        self.assertEqual(signed32(2**31), -(2**31))


class SkipTests(SynchronousTestCase):
    """
    Fields that nobody knows.
    """

    def check(self, data: bytes, size: int) -> None:
        """The field at the beginning of C{data} has C{size} bytes."""
        tag, position = readVarint(data, 0, len(data))
        self.assertEqual(skipField(data, tag, position, len(data)), size)

    def test_fieldsAreSkippedByWireType(self) -> None:
        """Each wire type is as long as it says."""
        rest = b"\x08\x01"
        for data in (
            encodeTag(7, 0) + b"\x96\x01",
            encodeTag(7, 1) + bytes(8),
            encodeTag(7, 2) + delimited(b"abc"),
            encodeTag(7, 5) + bytes(4),
            encodeTag(7, 3) + encodeTag(1, 0) + b"\x05" + encodeTag(7, 4),
            encodeTag(7, 3) + encodeTag(8, 3) + encodeTag(8, 4) + encodeTag(7, 4),
        ):
            self.check(data + rest, len(data))

    def test_malformedFieldsAreRefused(self) -> None:
        """A field that is cut short, or has an unknown wire type, is refused."""
        for data in (
            encodeTag(7, 0),
            encodeTag(7, 1) + bytes(7),
            encodeTag(7, 2) + b"\x04abc",
            encodeTag(7, 5) + bytes(3),
            encodeTag(7, 3),
            encodeTag(7, 3) + encodeTag(8, 4),
            encodeTag(7, 4),
            encodeTag(7, 6),
            encodeTag(7, 7),
            b"\x00\x00",
            b"\x80\x80\x80\x80\x10\x00",
            encodeTag(7, 3) * 101 + encodeTag(7, 4) * 101,
        ):
            with self.assertRaises(WireMalformed):
                self.check(data, 0)

    def test_groupDepthIsBounded(self) -> None:
        """Groups stand in one another up to a bound."""
        data = encodeTag(7, 3) * 100 + encodeTag(7, 4) * 100
        self.check(data, len(data))

    def test_lengthIsBounded(self) -> None:
        """A length ends where the bytes end, at the latest."""
        self.assertEqual(readLength(b"\x03abc", 0, 4), (1, 4))
        with self.assertRaises(WireMalformed):
            readLength(b"\x03abc", 0, 3)

    def test_fieldsAreWalked(self) -> None:
        """A message can be walked over by who does not know it."""
        data = encodeTag(1, 0) + b"\x05" + encodeTag(2, 2) + delimited(b"ab") + encodeTag(3, 5)
        data += bytes(4)
        self.assertEqual(
            [(number, kind, data[start:end]) for number, kind, start, end in fields(data)],
            [(1, 0, b"\x05"), (2, 2, b"ab"), (3, 5, bytes(4))],
        )
        with self.assertRaises(WireMalformed):
            list(fields(data[:-1]))

    def test_fieldNumbersAreBounded(self) -> None:
        """A field has a number that fields can have."""
        for number in (0, 2**29):
            with self.assertRaises(ValueError):
                encodeTag(number, 0)
