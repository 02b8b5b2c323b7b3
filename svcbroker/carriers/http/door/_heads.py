"""
Which requests are plain enough for the door.

The door answers a request only where it and twisted.web cannot understand it differently. Whatever
is unusual in the least is not refused here: it is left to twisted.web, which knows what to say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from attrs import frozen
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

from ._calls import HotCall

MAX_HEAD: Final = 8 * 1024
"""The longest request line and headers that the door looks at, in bytes."""
MAX_FIELDS: Final = 100
"""The most header fields that it looks at."""
MAX_REMEMBERED: Final = 1024
"""The longest headers, in bytes, and the most of them, that are remembered."""

PARTIAL: Final = "partial"
"""A request may become a plain one, but its head is not all there."""

# No whitespace in the target, and no byte above 176: twisted.web refuses those.
_LINE = re.compile(rb"((?:GET|POST) /[^ ?\r\n]*)(?:\?([\x21-\xb0]*))? HTTP/1\.1\r\n")

_MEANT = frozenset({b"content-length", b"content-type", b"connection", b"origin"})
_LEFT_TO_OTHERS = frozenset({b"transfer-encoding", b"expect", b"upgrade"})


@frozen
class Fields:
    """
    What the headers of a plain request say.

    @ivar length: the length of the body, in bytes.
    @ivar contentType: the type of the body, C{None} where the client did not say.
    @ivar origin: the origin of the page that asks.
    """

    length: int
    contentType: bytes | None
    origin: bytes | None


class Head(NamedTuple):
    """
    The head of a plain request.

    @ivar call: what it asks for.
    @ivar query: the query string, as it was sent.
    @ivar fields: what its headers say.
    @ivar end: where it ends and the body begins.
    """

    call: HotCall
    query: bytes
    fields: Fields
    end: int


class _Listener:
    """Takes what the parser finds."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


def readFields(block: bytes) -> Fields | None:
    """
    Read header lines, or the first few of them.

    @param block: whole lines with their ends, without the empty one after the last.
    @return: C{None} where they are not plain.
    """
    if block.count(b"\r\n") > MAX_FIELDS:
        return None
    listener = _Listener()
    try:
        # The body is not shown to it: with one, the length would have to be right already.
        HttpRequestParser(listener).feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % block)
    except (HttpParserError, HttpParserUpgrade):
        return None
    meant: dict[bytes, bytes] = {}
    for name, value in listener.headers:
        if name in _MEANT:
            if name in meant:
                return None
            meant[name] = value.strip(b" \t")
        elif name in _LEFT_TO_OTHERS:
            return None
    if meant.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    return Fields(
        int(meant.get(b"content-length", b"0")), meant.get(b"content-type"), meant.get(b"origin")
    )


# A client sends the same headers again and again, so reading them is mostly remembering them.
_recall = lru_cache(MAX_REMEMBERED)(readFields)


def readHead(
    calls: Mapping[bytes, HotCall], data: bytes, start: int
) -> Head | Literal["partial"] | None:
    """
    Read the head of a request.

    @param calls: what can be asked for.
    @param start: where in C{data} it begins.
    @return: L{PARTIAL} where more has to come first; C{None} where it is not plain, or goes
        elsewhere.
    """
    line = _LINE.match(data, start)
    if line is None:
        # Before its line is there nobody can say anything of a request.
        isWaiting = len(data) - start <= MAX_HEAD and data.find(b"\r\n", start) < 0
        return PARTIAL if isWaiting else None
    call = calls.get(line[1])
    if call is None:
        return None
    first = line.end()
    end = data.find(b"\r\n\r\n", first - 2)
    isWhole = end >= 0
    if not isWhole:
        # A bad line among those that are there is answered now, not when the rest has come.
        end = data.rfind(b"\r\n", first - 2)
    block = data[first : end + 2]
    fields = _recall(block) if len(block) <= MAX_REMEMBERED else readFields(block)
    if fields is None or (fields.length and not call.isPost):
        return None
    if (end if isWhole else len(data)) - start > MAX_HEAD:
        return None
    return Head(call, line[2] or b"", fields, end + 4) if isWhole else PARTIAL
