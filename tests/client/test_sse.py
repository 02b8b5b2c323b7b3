"""
Tests for the parser of Server-Sent Events.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.client import AnswerInvalid, _core
from svcbroker.client._core import MessageParser, StreamMessage
from tests import examples

some = settings(max_examples=examples(300), deadline=None, derandomize=True, database=None)

_lines = st.sampled_from(
    (
        *("id: 1", "id:2", "id", "id: a\0b", "event: event", "event:end", "event"),
        *("data: x", "data:  y", "data", "data: \N{SNOWMAN}", ": comment", ":", "retry: 5"),
        *("", "", "", "unknown: z"),
    )
)
_streams = st.builds(
    lambda bom, lines, ends: (
        bom + "".join(line + end for line, end in zip(lines, ends, strict=False)).encode()
    ),
    st.sampled_from((b"", b"\xef\xbb\xbf")),
    st.lists(_lines, max_size=20),
    st.lists(st.sampled_from(("\n", "\r\n", "\r")), min_size=20, max_size=20),
)


def reference(stream: bytes) -> list[StreamMessage]:
    """The messages of a whole stream, read as the specification says it."""
    text = stream.decode().removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    messages = []
    lastId: str | None = None
    data: list[str] = []
    kind, hasId = "", False
    # What is behind the last end of line is not a line.
    for line in lines[:-1]:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data or hasId:
                messages.append(StreamMessage(kind or "message", "\n".join(data).encode(), lastId))
            kind, data, hasId = "", [], False
        elif name == "data":
            data.append(value)
        elif name == "event":
            kind = value
        elif name == "id" and "\0" not in value:
            lastId, hasId = value, True
    return messages


def cut(stream: bytes, places: Sequence[int]) -> list[bytes]:
    """A stream in pieces."""
    ends = sorted({0, len(stream), *(each for each in places if each <= len(stream))})
    return [stream[start:end] for start, end in pairwise(ends)]


class MessageParserTests(SynchronousTestCase):
    """
    L{MessageParser}.
    """

    @some
    @given(_streams, st.lists(st.integers(0, 300), max_size=30))
    def test_piecesMakeNoDifference(self, stream: bytes, places: Sequence[int]) -> None:
        """The messages are the same, wherever the stream is cut."""
        # A CR at the very end may be the first half of a CR LF.
        stream += b":\n"
        parser = MessageParser()
        got = [message for piece in cut(stream, places) for message in parser.receive(piece)]
        self.assertEqual(got, reference(stream))

    @some
    @given(_streams, st.integers(0, 300))
    def test_incompleteMessagesAreNotDelivered(self, stream: bytes, length: int) -> None:
        """A stream that is cut off has the messages before the cut, and no other ones."""
        whole, beginning = reference(stream + b":\n"), stream[:length]
        got = MessageParser().receive(beginning)
        self.assertEqual(got, whole[: len(got)])

    def test_messagesOfTheBrokerAreRead(self) -> None:
        """The beginning of a stream, a comment, and an event."""
        stream = b"retry: 1000\nid: 7\n\n:\n\nid: a-1-8\nevent: event\ndata: {}\n\n"
        self.assertEqual(
            MessageParser().receive(stream),
            [StreamMessage("message", b"", "7"), StreamMessage("event", b"{}", "a-1-8")],
        )

    def test_endlessMessageIsRefused(self) -> None:
        """A message that does not end within the bound is refused, in one line or in many."""
        for piece in (b"x" * 100, b"data: x\n" * 10):
            parser = MessageParser()
            self.patch(_core, "MAX_MESSAGE", 1000)
            with self.assertRaises(AnswerInvalid):
                for _ in range(20):
                    parser.receive(piece)
