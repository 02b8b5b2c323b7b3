"""
Messages as they are declared.
"""

from __future__ import annotations

from enum import IntEnum

from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.cometbft.abci import protobuf
from svcbroker.ledgers.cometbft.abci.protobuf import decode, encode
from svcbroker.proofs.cometbft.wire import WireMalformed, delimited, encodeTag, encodeVarint


class Colour(IntEnum):
    """Something with values."""

    NONE = 0
    RED = 1


@frozen(kw_only=True)
class Inner:
    """A message in a message."""

    number: int = protobuf.int64(1)
    names: tuple[str, ...] = protobuf.texts(2)


@frozen(kw_only=True)
class Outer:
    """One of everything; not in the order of numbers."""

    last: int = protobuf.uint64(20)
    i64: int = protobuf.int64(1)
    i32: int = protobuf.int32(2)
    u32: int = protobuf.uint32(3)
    u64: int = protobuf.uint64(4)
    colour: Colour = protobuf.enumeration(7, Colour)
    data: bytes = protobuf.binary(8)
    text: str = protobuf.text(9)
    maybe: Inner | None = protobuf.message(10, Inner)
    many: tuple[Inner, ...] = protobuf.messages(11, Inner)
    packed: tuple[int, ...] = protobuf.uint32s(12)
    pieces: tuple[bytes, ...] = protobuf.binaries(13)
    left: bytes | None = protobuf.choice(14, "side")
    right: bytes | None = protobuf.choice(15, "side")


@frozen(kw_only=True)
class Strict:
    """Fields that are always written."""

    inner: Inner = protobuf.part(1, Inner)
    time: int = protobuf.time(2)


_inner = st.builds(Inner, number=st.integers(-(2**63), 2**63 - 1), names=st.tuples(st.text()))
_outer = st.builds(
    Outer,
    last=st.integers(0, 2**64 - 1),
    i64=st.integers(-(2**63), 2**63 - 1),
    i32=st.integers(-(2**31), 2**31 - 1),
    u32=st.integers(0, 2**32 - 1),
    u64=st.integers(0, 2**64 - 1),
    colour=st.sampled_from(Colour),
    data=st.binary(),
    text=st.text(),
    maybe=st.none() | _inner,
    many=st.lists(_inner, max_size=3).map(tuple),
    packed=st.lists(st.integers(0, 2**32 - 1)).map(tuple),
    pieces=st.lists(st.binary()).map(tuple),
    left=st.none() | st.binary(),
)


class EncodingTests(SynchronousTestCase):
    """
    Canonical bytes.
    """

    @given(_outer)
    def test_messagesRoundTrip(self, value: Outer) -> None:
        """A written message is read."""
        self.assertEqual(decode(Outer, encode(value)), value)

    def test_defaultsAreNotWritten(self) -> None:
        """Defaults are not written, and read all the same."""
        self.assertEqual(encode(Outer()), b"")
        self.assertEqual(decode(Outer, b""), Outer())

    def test_fieldsAreWrittenByNumber(self) -> None:
        """Fields are written by number, whatever the order in which they are declared."""
        self.assertEqual(encode(Outer(last=1, i64=2)).hex(), "0802a00101")

    def test_requiredPartsAreWritten(self) -> None:
        """Some fields are written although they are empty, as the engine does."""
        self.assertEqual(encode(Strict()).hex(), "0a001200")
        self.assertEqual(decode(Strict, b""), Strict())

    def test_emptyMessageIsWritten(self) -> None:
        """A message that is there but empty is written; one that is not there is not."""
        self.assertEqual(encode(Outer(maybe=Inner())).hex(), "5200")
        self.assertEqual(decode(Outer, bytes.fromhex("5200")).maybe, Inner())

    def test_negativeInt32HasTenBytes(self) -> None:
        """A negative number of 32 bits is as long as one of 64."""
        self.assertEqual(encode(Outer(i32=-1)).hex(), "10ffffffffffffffffff01")

    def test_outOfRangeIsRefused(self) -> None:
        """Values that do not fit are not written."""
        for value in (
            Outer(u32=2**32),
            Outer(u32=-1),
            Outer(i32=2**31),
            Outer(u64=-1),
            Outer(i64=2**63),
            Outer(packed=(1, -1)),
            Strict(time=253_402_300_800 * protobuf.SECOND),
        ):
            with self.assertRaises(ValueError):
                encode(value)

    def test_duplicateNumbersAreRefused(self) -> None:
        """Two fields cannot have one number."""

        @frozen(kw_only=True)
        class Twice:
            one: int = protobuf.int64(1)
            two: int = protobuf.int64(1)

        with self.assertRaises(TypeError):
            encode(Twice())


class DecodingTests(SynchronousTestCase):
    """
    Tests for the rules of proto3 for readers.
    """

    def test_unknownFieldsAreSkipped(self) -> None:
        """Fields that are not known are skipped."""
        data = encodeTag(99, 2) + delimited(b"?") + encode(Outer(i64=3)) + encodeTag(98, 5)
        self.assertEqual(decode(Outer, data + bytes(4)), Outer(i64=3))

    def test_lastValueCounts(self) -> None:
        """Of a field that comes twice the last counts."""
        data = encode(Outer(i64=3, data=b"a")) + encode(Outer(i64=4, data=b"b"))
        self.assertEqual(decode(Outer, data), Outer(i64=4, data=b"b"))

    def test_writtenDefaultIsRead(self) -> None:
        """A default that is written all the same is read."""
        self.assertEqual(decode(Outer, bytes.fromhex("08030800")), Outer())

    def test_repeatedMessagesMerge(self) -> None:
        """Messages that come twice become one."""
        one, two = Inner(number=1, names=("a",)), Inner(names=("b",))
        data = encode(Outer(maybe=one)) + encode(Outer(maybe=two))
        self.assertEqual(decode(Outer, data).maybe, Inner(number=1, names=("a", "b")))

    def test_listsMayBePacked(self) -> None:
        """Numbers in a list are read packed and one by one."""
        data = encodeTag(12, 0) + b"\x05" + encodeTag(12, 2) + delimited(b"\x06\x96\x01")
        self.assertEqual(decode(Outer, data).packed, (5, 6, 150))
        self.assertEqual(encode(Outer(packed=(5, 6, 150))).hex(), "620405069601")

    def test_lastOfOneofCounts(self) -> None:
        """Of those that exclude each other the last counts."""
        data = encodeTag(14, 2) + delimited(b"l") + encodeTag(15, 2) + delimited(b"")
        self.assertEqual(decode(Outer, data), Outer(right=b""))
        self.assertEqual(encode(Outer(right=b"")).hex(), "7a00")

    def test_largeNumbersAreTruncated(self) -> None:
        """Numbers that are too large lose their highest bits."""
        data = encodeTag(3, 0) + encodeVarint(2**32 + 7)
        self.assertEqual(decode(Outer, data), Outer(u32=7))

    def test_messageIsReadInPlace(self) -> None:
        """A message may stand inside other bytes."""
        data = b"??" + encode(Outer(i64=3)) + b"???"
        self.assertEqual(decode(Outer, data, 2, len(data) - 3), Outer(i64=3))

    def test_malformedMessagesAreRefused(self) -> None:
        """Data that breaks the rules is refused, with a reason."""
        for data, text in (
            (encodeTag(1, 2) + b"\x00", "field 1 of Outer has wire type 2"),
            (encodeTag(8, 0) + b"\x00", "field 8 of Outer has wire type 0"),
            (encodeTag(7, 0) + b"\x02", "Colour has no value 2"),
            (encodeTag(9, 2) + delimited(b"\xff"), "not UTF-8"),
            (encodeTag(9, 2) + delimited(b"\xed\xa0\x80"), "not UTF-8"),
            (encodeTag(8, 2) + b"\x05abc", "longer than what it stands in"),
            (encodeTag(10, 2) + delimited(b"\x08"), "ends too soon"),
            (encodeTag(12, 2) + delimited(b"\x80"), "ends too soon"),
            (b"\x08", "ends too soon"),
            (b"\x00", "out of range"),
        ):
            with self.assertRaises(WireMalformed) as raised:
                decode(Outer, data)
            self.assertIn(text, str(raised.exception))

    @given(st.binary())
    def test_garbageIsMalformedOrMessage(self, data: bytes) -> None:
        """Whatever comes is a message, or malformed."""
        try:
            value = decode(Outer, data)
        except WireMalformed:
            return
        self.assertEqual(decode(Outer, encode(value)), value)

    @given(_outer, st.data())
    def test_truncationNeverBreaksReader(self, value: Outer, data: st.DataObject) -> None:
        """A part of a message never breaks the reader."""
        whole = encode(value)
        cut = whole[: data.draw(st.integers(0, len(whole)))]
        try:
            decode(Outer, cut)
        except WireMalformed:
            self.assertNotEqual(cut, whole)


class TimeTests(SynchronousTestCase):
    """
    Times.
    """

    @given(st.integers(-62_135_596_800 * protobuf.SECOND, 253_402_300_800 * protobuf.SECOND - 1))
    def test_timesRoundTrip(self, value: int) -> None:
        """Every nanosecond from the year 1 to the year 9999."""
        self.assertEqual(decode(Strict, encode(Strict(time=value))).time, value)

    def test_nanosecondsCountUp(self) -> None:
        """The nanoseconds of a time count up, also before 1970."""
        self.assertEqual(
            protobuf.encodeTime(-1), bytes.fromhex("08ffffffffffffffffff0110ff93ebdc03")
        )

    def test_invalidTimesAreRefused(self) -> None:
        """Values that are no time are refused."""
        for number, seconds, nanos in (
            (2, 253_402_300_800, 0),
            (2, -62_135_596_801, 0),
            (2, 0, protobuf.SECOND),
            (2, 0, -1),
        ):
            span = encode(Inner(number=seconds)) + encodeTag(2, 0) + encodeVarint(nanos)
            with self.assertRaises(WireMalformed):
                decode(Strict, encodeTag(number, 2) + delimited(span))
