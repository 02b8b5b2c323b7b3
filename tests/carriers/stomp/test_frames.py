"""
The codec: every rule of the three versions that it knows.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.carriers.stomp.frames import (
    Frame,
    FrameLimits,
    SharedHeaders,
    StompParser,
    StompVersion,
    encodeFrame,
    encodeHeader,
)
from svcbroker.errors import BrokerError, ContentTooLarge, ParameterInvalid

V10, V11, V12 = StompVersion.V10, StompVersion.V11, StompVersion.V12
SMALL = FrameLimits(maxHeaders=3, maxHead=60, maxBody=10)


def parse(
    *chunks: bytes, version: StompVersion | None = V12, limits: FrameLimits | None = None
) -> list[Frame]:
    """All frames in some bytes, as they come out when each chunk arrives."""
    parser = StompParser(FrameLimits() if limits is None else limits)
    parser.version = version
    frames = []
    for chunk in chunks:
        parser.feed(chunk)
        while (frame := parser.nextFrame()) is not None:
            frames.append(frame)
    return frames


def inPieces(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """Some bytes in pieces of these sizes, and the rest."""
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


class ParserTests(SynchronousTestCase):
    """
    L{StompParser}.
    """

    def test_frameHasCommandHeadersBody(self) -> None:
        """Command, headers, body."""
        [frame] = parse(b"SEND\ndestination:a/b\nx:1\n\nhello\0")
        self.assertEqual(frame, Frame("SEND", {"destination": "a/b", "x": "1"}, b"hello"))

    def test_framesOfOneReadAreParsed(self) -> None:
        frames = parse(b"BEGIN\ntransaction:1\n\n\0SEND\n\n1\0\n\nSEND\n\n2\0")
        self.assertEqual([each.command for each in frames], ["BEGIN", "SEND", "SEND"])
        self.assertEqual([each.body for each in frames], [b"", b"1", b"2"])

    def test_byteByByte(self) -> None:
        """One frame over many reads, with every kind of line end and of body."""
        data = b"\r\n\nSEND\r\ncontent-length:3\r\n\r\n\0\n\0\0\n\nSEND\n\nx\0"
        frames = parse(*(data[i : i + 1] for i in range(len(data))))
        self.assertEqual([each.body for each in frames], [b"\0\n\0", b"x"])

    def test_lineEndsBetweenFramesTakeNoMemory(self) -> None:
        """A client may send any number of them, and a CR among them is the start of a line."""
        for end in (b"\n", b"\r\n", b"\n\r\n"):
            tracemalloc.start()
            self.addCleanup(tracemalloc.stop)
            [frame] = parse(end * 50_000 + b"SEND\n\nx\0")
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            self.assertEqual(frame.body, b"x")
            self.assertLess(peak, 1 << 20)
        with self.assertRaises(ParameterInvalid):
            parse(b"\n\n\r\rSEND\n\nx\0")

    def test_lineEndsByVersion(self) -> None:
        """CR LF ends a line in 1.2 and before there is a version; before 1.2, CR is data."""
        for version in (None, V12):
            [frame] = parse(b"SEND\r\na:b\r\n\r\nx\0", version=version)
            self.assertEqual((frame.command, dict(frame.headers)), ("SEND", {"a": "b"}))
        for version in (V10, V11):
            [frame] = parse(b"SEND\na:b\r\n\n\0", version=version)
            self.assertEqual(frame.headers, {"a": "b\r"})

    def test_lineEndsOfHeadOnly(self) -> None:
        """A body keeps its line ends."""
        [frame] = parse(b"SEND\n\n\r\n\r\nx\r\n\0")
        self.assertEqual(frame.body, b"\r\n\r\nx\r\n")

    def test_firstHeaderWins(self) -> None:
        [frame] = parse(b"SEND\nfoo:World\nfoo:Hello\ncontent-length:1\ncontent-length:9\n\nx\0")
        self.assertEqual(frame.headers["foo"], "World")
        self.assertEqual(frame.body, b"x")

    def test_escapesAreDecodedByVersion(self) -> None:
        [frame] = parse(b"SEND\na\\cb:1\\n2\\\\n\\r\n\n\0")
        self.assertEqual(frame.headers, {"a:b": "1\n2\\n\r"})
        [frame] = parse(b"SEND\na\\cb:1\\n2\\\\n\n\n\0", version=V11)
        self.assertEqual(frame.headers, {"a:b": "1\n2\\n"})

    def test_escapesByVersion(self) -> None:
        """1.1 has no \\r; 1.0 has none at all, and neither have CONNECT and CONNECTED."""
        self.assertRaises(ParameterInvalid, parse, b"SEND\na:\\r\n\n\0", version=V11)
        [frame] = parse(b"SEND\na:\\n\\t\n\n\0", version=V10)
        self.assertEqual(frame.headers, {"a": "\\n\\t"})
        for command in ("CONNECT", "STOMP", "CONNECTED"):
            for version in (None, V12):
                [frame] = parse(f"{command}\npasscode:a\\tb\n\n\0".encode(), version=version)
                self.assertEqual(frame.headers, {"passcode": "a\\tb"})

    def test_undefinedEscapes(self) -> None:
        for text in (b"\\t", b"\\", b"\\N", b"\\:", b"a\\"):
            for version in (V11, V12):
                with self.assertRaises(ParameterInvalid, msg=text):
                    parse(b"SEND\na:%b\n\n\0" % text, version=version)

    def test_unescapedColonsAreKept(self) -> None:
        """What is not escaped though it should be is taken as it stands."""
        [frame] = parse(b"SEND\na:b:c\nd:\n\n\0")
        self.assertEqual(frame.headers, {"a": "b:c", "d": ""})

    def test_onlyVersion10TrimsHeaders(self) -> None:
        """1.0 trims, as its own examples need; later versions never do."""
        [frame] = parse(b"SEND\ndestination: /a \n\n\0", version=V10)
        self.assertEqual(frame.headers, {"destination": "/a"})
        [frame] = parse(b"SEND\ndestination: /a \n\n\0", version=V11)
        self.assertEqual(frame.headers, {"destination": " /a "})

    def test_headersAreUtf8(self) -> None:
        [frame] = parse("SEND\nå:ß€\n\n\0".encode())
        self.assertEqual(frame.headers, {"å": "ß€"})

    def test_violationsSayWhatIsWrong(self) -> None:
        """Each has an error, whose text says what is wrong."""
        for data, words in (
            (b"SEND\nnocolon\n\n\0", "no colon"),
            (b"SEND\n:value\n\n\0", "no name"),
            (b"SEND\na:\xff\n\n\0", "UTF-8"),
            (b"SEND\ncontent-length:x\n\n\0", "content-length"),
            (b"SEND\ncontent-length:-1\n\n\0", "content-length"),
            (b"SEND\ncontent-length:\n\n\0", "content-length"),
            (b"SEND\ncontent-length:\xd9\xa1\n\n\0", "content-length"),
            (b"SEND\ncontent-length:" + b"9" * 5000 + b"\n\n\0", "content-length"),
            (b"SEND\ncontent-length:1\n\nab\0", "does not end"),
            (b"BEGIN\ntransaction:1\n\nbody\0", "no body"),
            (b"CONNECT\naccept-version:1.2\n\0", "empty line"),
        ):
            error = self.assertRaises(ParameterInvalid, parse, data)
            self.assertIn(words, error.message, data)

    def test_boundsHoldToTheByte(self) -> None:
        """Every bound is kept, to the byte, as soon as it is crossed."""
        self.assertEqual(len(parse(b"S\na:1\nb:1\nc:1\n\n\0", limits=SMALL)), 1)
        for data in (
            b"S\na:1\nb:1\nc:1\nd:1\n\n\0",
            b"S" * 61,
            b"S\n" + b"a" * 59,
        ):
            self.assertRaises(ParameterInvalid, parse, data, limits=SMALL)
        self.assertEqual(len(parse(b"S" * 58 + b"\n\n\0", limits=SMALL)), 1)
        self.assertRaises(ParameterInvalid, parse, b"S" * 59 + b"\n\n\0", limits=SMALL)
        for good in (b"SEND\n\n0123456789\0", b"SEND\ncontent-length:10\n\n0123456789\0"):
            self.assertEqual(len(parse(good, limits=SMALL)), 1)
        for bad in (b"SEND\n\n0123456789A", b"SEND\ncontent-length:11\n\n"):
            self.assertRaises(ContentTooLarge, parse, bad, limits=SMALL)

    def test_endlessLineEnds(self) -> None:
        """Heart-beats cost no memory."""
        parser = StompParser(SMALL)
        for _ in range(100):
            parser.feed(b"\n\r\n" * 1000)
            self.assertIsNone(parser.nextFrame())
            self.assertEqual(parser.buffered, 0)

    def test_manyPieces(self) -> None:
        """Large frames in small pieces, and many frames in one read."""
        body = b"x" * 200_000
        data = b"SEND\n\n" + body + b"\0"
        [frame] = parse(*(data[i : i + 10] for i in range(0, len(data), 10)))
        self.assertEqual(frame.body, body)
        many = b"SEND\ndestination:a\n\nx\0" * 20_000
        self.assertEqual(len(parse(many)), 20_000)
        head = b"SEND\na:" + b"x" * 30_000 + b"\n\n\0"
        self.assertEqual(len(parse(*(head[i : i + 1] for i in range(len(head))))), 1)


class EncoderTests(SynchronousTestCase):
    """
    L{encodeFrame} and L{encodeHeader}.
    """

    def test_framesAreEncodedByVersion(self) -> None:
        self.assertEqual(
            encodeFrame("RECEIPT", [("receipt-id", "a:b")], version=V12),
            b"RECEIPT\nreceipt-id:a\\cb\n\n\0",
        )
        self.assertEqual(
            encodeFrame("ERROR", [("code", "1")], b"x\0y", version=V10),
            b"ERROR\ncode:1\ncontent-length:3\n\nx\0y\0",
        )

    def test_headersCannotBeBrokenOutOf(self) -> None:
        """Nothing that a header holds can end it, in any version."""
        value = "a:b\nc\rd\\e"
        self.assertEqual(encodeHeader("x", value, V12), "x:a\\cb\\nc\\rd\\\\e\n")
        self.assertEqual(encodeHeader("x", value, V11), "x:a\\cb\\nc\rd\\\\e\n")
        self.assertEqual(encodeHeader("x", value, V10), "")
        self.assertEqual(encodeHeader("x", value, None), "")
        self.assertEqual(encodeHeader("x:y", "a", V10), "")
        self.assertEqual(encodeHeader("x", "a:b\\c", V10), "x:a:b\\c\n")
        for version in StompVersion:
            self.assertEqual(encodeHeader("x", "a\0b", version), "")


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
_NAMES = _TEXT.filter(lambda name: name not in ("", "content-length"))


class PropertyTests(SynchronousTestCase):
    """
    What holds for all bytes.
    """

    @settings(deadline=None)
    @given(
        version=st.sampled_from([V11, V12]),
        frames=st.lists(
            st.tuples(st.dictionaries(_NAMES, _TEXT, max_size=4), st.binary(max_size=50)),
            max_size=4,
        ),
        sizes=st.lists(st.integers(0, 40), max_size=10),
    )
    def test_roundTrip(
        self, version: StompVersion, frames: list[tuple[dict[str, str], bytes]], sizes: list[int]
    ) -> None:
        """What is encoded is read again, however it is cut into pieces."""
        data = b"\n".join(
            encodeFrame("SEND", headers.items(), body, version=version) for headers, body in frames
        )
        got = parse(*inPieces(data, sizes), version=version)
        for frame, (headers, body) in zip(got, frames, strict=True):
            kept = {name: value for name, value in frame.headers.items() if name in headers}
            self.assertEqual(kept, headers)
            self.assertEqual(frame.body, body)

    def test_sendsWithEqualHeadersShareThem(self) -> None:
        """Receipt and length are no part of them."""
        first, second, other = parse(
            b"SEND\nreceipt:1\na:b\ncontent-length:1\n\nx\0",
            b"SEND\nreceipt:22\na:b\ncontent-length:2\n\nxy\0",
            b"SEND\nreceipt:3\na:c\n\nx\0",
        )
        self.assertEqual(first, Frame("SEND", {"a": "b"}, b"x", "1"))
        self.assertEqual(second, Frame("SEND", {"a": "b"}, b"xy", "22"))
        self.assertEqual(other, Frame("SEND", {"a": "c"}, b"x", "3"))
        self.assertIs(second.headers, first.headers)

    def test_privateAndLongHeadersAreNotShared(self) -> None:
        """Nothing but the event itself keeps them, so that they can be erased."""
        for line in (b"svc-private-a:b", b"weevent-private-a:b", b"a:" + b"b" * 2000):
            first, second = parse(*(b"SEND\nreceipt:1\n%b\n\nx\0" % line for _ in range(2)))
            self.assertEqual(first.headers, second.headers)
            self.assertIsNot(first.headers, second.headers)
            self.assertNotIsInstance(first.headers, SharedHeaders)

    @given(
        version=st.sampled_from(StompVersion),
        lines=st.lists(
            st.sampled_from(
                [
                    *("receipt:1", "receipt:2\\c3", "receipt: 4\r", "receipt:\\x", "receipt :5"),
                    *("content-length:1", "content-length:2\r", "content-length: 3 ", "receipt"),
                    *("content-length:x", "content-length:", "a:b", "a:c\r", "a\\c:d", "\r"),
                    f"long:{'x' * 2000}",
                ]
            ),
            max_size=5,
        ),
        end=st.sampled_from(["\n", "\r\n"]),
    )
    def test_sendIsReadAsOtherFramesWithBody(
        self, version: StompVersion, lines: list[str], end: str
    ) -> None:
        """The heads of SEND frames are remembered, those of others are not."""
        head = "".join(f"\n{line}" for line in lines)

        def read(command: str) -> object:
            data = f"{command}{head}\n{end}ab\0".encode()
            try:
                frames = parse(data, version=version)
            except BrokerError as error:
                return type(error)
            return [(each.headers, each.receipt, each.body) for each in frames]

        self.assertEqual(read("SEND"), read("MESSAGE"))

    def test_keepsNothing(self) -> None:
        """When everything was taken, nothing is held."""
        parser = StompParser(SMALL)
        parser.feed(b"SEND\n\nx\0")
        self.assertIsNotNone(parser.nextFrame())
        self.assertIsNone(parser.nextFrame())
        self.assertEqual(parser._buffer, b"")

    @settings(deadline=None)
    @given(
        data=st.lists(
            st.one_of(
                st.binary(max_size=30),
                st.sampled_from(
                    [b"SEND\n", b"\n", b"\r\n", b"\0", b":", b"content-length:", b"3\n", b"\\"]
                ),
            ),
            max_size=20,
        ).map(b"".join),
        sizes=st.lists(st.integers(0, 20), max_size=10),
        version=st.sampled_from([None, *StompVersion]),
    )
    def test_anyBytes(self, data: bytes, sizes: list[int], version: StompVersion | None) -> None:
        """
        Any bytes are frames or an error, within the bounds, and the same however they are cut.
        """

        def outcome(pieces: Iterable[bytes]) -> tuple[list[Frame], type[BrokerError] | None]:
            parser = StompParser(SMALL)
            parser.version = version
            frames: list[Frame] = []
            for piece in pieces:
                parser.feed(piece)
                try:
                    while (frame := parser.nextFrame()) is not None:
                        frames.append(frame)
                except BrokerError as error:
                    return frames, type(error)
                self.assertLessEqual(parser.buffered, SMALL.maxHead + SMALL.maxBody + 3)
            return frames, None

        pieces = inPieces(data, sizes)
        whole, cut = outcome([data]), outcome(pieces)
        self.assertEqual(whole[0], cut[0])
        self.assertEqual(whole[1] is None, cut[1] is None)
