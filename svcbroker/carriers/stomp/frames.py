"""
STOMP frames: bytes to frames and frames to bytes, for the versions 1.0, 1.1 and 1.2.

Nothing here knows a connection. Clauses are those of the STOMP 1.2 specification unless another
version is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Final

from attrs import field, frozen
from attrs.validators import ge, gt
from msgspec import Struct

from ...errors import ContentTooLarge, ParameterInvalid
from ...model import EXTENSION_PREFIX, PRIVATE_PREFIX

NULL: Final = 0
HEARTBEAT: Final = b"\n"


class StompVersion(Enum):
    """A version of the protocol, by the name that C{accept-version} gives it."""

    V10 = "1.0"
    V11 = "1.1"
    V12 = "1.2"

    # Members are what they are; Enum's own hash is a call of Python for each look into a table.
    __hash__ = object.__hash__


@frozen(kw_only=True)
class FrameLimits:
    """
    The limits of a frame's size ("Size Limits").

    @ivar maxHeaders: the most headers.
    @ivar maxHead: the most bytes of command and headers together.
    @ivar maxBody: the most bytes of a body.
    """

    maxHeaders: int = field(default=1000, validator=gt(0))
    maxHead: int = field(default=32 * 1024, validator=gt(0))
    maxBody: int = field(default=1024 * 1024, validator=gt(0))


@frozen(kw_only=True)
class StompSettings:
    """
    The bounds of one STOMP connection.

    @ivar frames: how large a frame may be.
    @ivar maxPublishes: how many frames may wait for the chain. While as many wait, nothing more is
        read.
    @ivar maxPublishBytes: how much of contents and receipts may wait for the chain, beside one
        frame's. As above.
    @ivar maxSubscriptions: the most subscriptions.
    @ivar maxFilters: the most topics and patterns of a subscription.
    @ivar maxFilterBytes: the most bytes of those of all subscriptions together.
    @ivar defaultPrefetch: how many events an acknowledging subscription is sent ahead of its
        acknowledgements when it does not say.
    @ivar maxPrefetch: the most that it can ask for.
    @ivar maxUnacknowledgedBytes: how much may be sent ahead of acknowledgements on all
        subscriptions together; an event counts as its content and 512 bytes.
    @ivar maxTransactions: the most open transactions.
    @ivar maxTransactionFrames: the most frames in all of them.
    @ivar maxTransactionBytes: the most content in all of them.
    @ivar connectTimeout: how long a client may take to CONNECT, in seconds.
    @ivar canBeatEvery: the shortest time between heart-beats that a client can ask for, in
        milliseconds.
    @ivar wantsBeatEvery: the shortest time in which a client is asked to be heard of that is
        willing to be, in milliseconds.
    @ivar maxUnread: how much is written to a client that does not read, beside events, before
        nothing more is read from it, in bytes.
    """

    frames: FrameLimits = FrameLimits()
    maxPublishes: int = field(default=1024, validator=gt(0))
    maxPublishBytes: int = field(default=4 * 1024 * 1024, validator=gt(0))
    maxSubscriptions: int = field(default=1000, validator=gt(0))
    maxFilters: int = field(default=100, validator=gt(0))
    maxFilterBytes: int = field(default=64 * 1024, validator=gt(0))
    defaultPrefetch: int = field(default=1000, validator=gt(0))
    maxPrefetch: int = field(default=10_000, validator=gt(0))
    maxUnacknowledgedBytes: int = field(default=8 * 1024 * 1024, validator=gt(0))
    maxTransactions: int = field(default=100, validator=gt(0))
    maxTransactionFrames: int = field(default=1000, validator=gt(0))
    maxTransactionBytes: int = field(default=4 * 1024 * 1024, validator=gt(0))
    connectTimeout: float = field(default=30.0, validator=gt(0))
    canBeatEvery: int = field(default=1000, validator=ge(0))
    wantsBeatEvery: int = field(default=10_000, validator=ge(0))
    maxUnread: int = field(default=64 * 1024, validator=gt(0))


_HANDSHAKE = frozenset({"CONNECT", "STOMP", "CONNECTED"})
_WITH_BODY = frozenset({"SEND", "MESSAGE", "ERROR"})
_MAX_DIGITS = 18

_ESCAPES: Final[Mapping[StompVersion, Mapping[str, str]]] = {
    StompVersion.V10: {},
    StompVersion.V11: {"\\": "\\\\", "\n": "\\n", ":": "\\c"},
    # "Value Encoding"
    StompVersion.V12: {"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"},
}
_TO_ESCAPE: Final = {
    StompVersion.V11: re.compile(r"[\\\n:]"),
    StompVersion.V12: re.compile(r"[\\\n:\r]"),
}
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)
# Where none of these is, no version has to look more closely.
_SPECIAL = re.compile(r"[\\\n:\r\0]")
# What no name or value can hold where the version has no escapes; and, in any version, the octet
# that ends a frame, at which many clients cut.
_UNSPEAKABLE: Final = {
    StompVersion.V10: re.compile(r"[\n\0]"),
    StompVersion.V11: re.compile(r"\0"),
    StompVersion.V12: re.compile(r"\0"),
}
# "Augmented BNF": a line ends with LF, in 1.2 with an optional CR before it. Who has not yet said
# a version may use either.
_LF_END: Final = b"\n\n"
_CRLF_END: Final = b"\n\r\n"
# Possessive: to remember where it could go back to would take 200 bytes for each line end.
_EOLS: Final = re.compile(rb"\n*+(?:\r\n\n*+)*+")
_EOL_STARTS: Final = frozenset(b"\r\n")

_REMOVED: Final = frozenset({"receipt", "content-length"})
_MAX_REMEMBERED: Final = 1024
_PRIVATE: Final = PRIVATE_PREFIX.removeprefix(EXTENSION_PREFIX)
"""The part that the names of private extensions share in every dialect."""


class SharedHeaders(dict[str, str]):
    """
    Headers that later SEND frames, of any connection, may have too. They take 1 KiB at most, and
    have no private extensions, which would outlast their erasure here.
    """


class Frame(Struct, frozen=True):
    """
    One frame.

    @ivar command: what it asks for or says.
    @ivar headers: its headers except C{receipt} and C{content-length}, unescaped; of repeated ones
        the first ("Repeated Header Entries").
    @ivar body: its body, any bytes.
    @ivar receipt: the value of the header C{receipt}; C{None} where there is none.
    """

    command: str
    headers: Mapping[str, str]
    body: bytes = b""
    receipt: str | None = None


class StompParser:
    """
    Takes bytes as they arrive, and gives the frames in them.

    Frames are asked for one by one, since what one says (the version in CONNECT) may change how
    the next is read. It never keeps more than one frame's bounds and one read together, and looks
    at each byte a bounded number of times.

    @ivar version: the version that was agreed on; C{None} before.
    @ivar hasMore: whether bytes came that were not looked at for a frame.
    """

    version: StompVersion | None = None

    def __init__(self, limits: FrameLimits) -> None:
        self.hasMore = False
        self._limits = limits
        # What was read last as it came, or with what was left over before it.
        self._buffer: bytes | bytearray = b""
        # The start of the next frame, and how far its end was searched for so far.
        self._start = 0
        self._seen = 0
        self._head: _Head | None = None

    def feed(self, data: bytes) -> None:
        """Take bytes."""
        self.hasMore = True
        if self._start == len(self._buffer):
            self._buffer = data
            self._start = self._seen = 0
            return
        if not isinstance(self._buffer, bytearray):
            self._buffer = bytearray(self._buffer)
        if self._start:
            del self._buffer[: self._start]
            self._seen -= self._start
            self._start = 0
        self._buffer += data

    def onlyFrame(self, data: bytes) -> Frame | None:
        """
        The frame that some bytes are, from the first to the last.

        @return: C{None} where they are none, or more; or where others came before them that were
            not asked for. They were not taken then, and what is wrong with them L{nextFrame} says.
        """
        if self._head is not None or self._start != len(self._buffer):
            return None
        self.feed(data)
        try:
            frame = self.nextFrame()
        except (ParameterInvalid, ContentTooLarge):
            frame = None
        if frame is not None and not self.hasMore:
            return frame
        self._buffer, self._start, self._seen, self._head = b"", 0, 0, None
        self.hasMore = False
        return None

    @property
    def buffered(self) -> int:
        """The number of bytes that wait for the rest of their frame, or to be asked for."""
        return len(self._buffer) - self._start

    def nextFrame(self) -> Frame | None:
        """
        The next frame; C{None} until more bytes come.

        @raise ParameterInvalid: this is no frame. Nothing after it can be read.
        @raise ContentTooLarge: the body is larger than the bounds allow.
        """
        if self._head is None:
            self._head = self._readHead()
        body = None if self._head is None else self._readBody(self._head)
        if self._start == len(self._buffer):
            # A connection that is idle keeps nothing.
            self._buffer, self._start, self._seen = b"", 0, 0
        self.hasMore = body is not None and bool(self._buffer)
        if self._head is None or body is None:
            return None
        head, self._head = self._head, None
        if body and head.command not in _WITH_BODY:
            # "Body". Some clients end their CONNECT with a line end before NUL.
            if head.command not in _HANDSHAKE or body not in (b"\n", b"\r\n"):
                raise ParameterInvalid(f"a {head.command[:20]} frame has no body")
            body = b""
        return Frame(head.command, head.headers, body, head.receipt)

    def _readHead(self) -> _Head | None:
        buffer, start = self._buffer, self._start
        if start < len(buffer) and buffer[start] in _EOL_STARTS:
            # "Heart-beating": between frames there may be any number of line ends.
            self._start = start = _endOfLines(buffer, start)
        if start == len(buffer):
            return None
        seen = max(start, self._seen)
        end = buffer.find(_LF_END, seen, start + self._limits.maxHead)
        if end >= 0:
            end += len(_LF_END)
        if self.version not in (StompVersion.V10, StompVersion.V11):
            other = buffer.find(_CRLF_END, seen, len(buffer) if end < 0 else end)
            if other >= 0:
                end = other + len(_CRLF_END)
        if (len(buffer) if end < 0 else end) - start > self._limits.maxHead:
            raise ParameterInvalid(
                f"command and headers have more than {self._limits.maxHead} bytes"
            )
        if buffer.find(NULL, seen, len(buffer) if end < 0 else end) >= 0:
            # Allowed by the letter, but who sends it has left out the empty line.
            raise ParameterInvalid("there is NUL before the empty line that ends the headers")
        if end < 0:
            # The end may have arrived in part: LF, or LF and CR.
            self._seen = max(start, len(buffer) - 2)
            return None
        text = _decode(buffer[start:end])
        self._start = self._seen = end
        return self._parseHead(text)

    def _parseHead(self, text: str) -> _Head:
        if text.count("\n") - 2 > self._limits.maxHeaders:
            raise ParameterInvalid(f"there are more than {self._limits.maxHeaders} headers")
        version = self.version
        if not text.startswith("SEND\n") or version not in _TO_ESCAPE:
            command, headers = _readHeaders(text, version)
            receipt, length = headers.pop("receipt", None), headers.pop("content-length", None)
        else:
            # Hot path: heads that differ in these two headers alone are read once.
            text, receipt = _removeHeader(text, "\nreceipt:", version)
            text, length = _removeHeader(text, "\ncontent-length:", version)
            isShared = len(text) <= _MAX_REMEMBERED and _PRIVATE not in text
            command, headers = (_shareHeaders if isShared else _readHeaders)(text, version)
            if not _REMOVED.isdisjoint(headers):
                # Repeated ones.
                headers = {name: text for name, text in headers.items() if name not in _REMOVED}
        return _Head(command, headers, self._contentLength(length), receipt)

    def _contentLength(self, text: str | None) -> int | None:
        if text is None:
            return None
        text = text.strip(" ")
        if len(text) > _MAX_DIGITS or not (text.isascii() and text.isdigit()):
            raise ParameterInvalid("content-length is not a number of bytes")
        length = int(text)
        if length > self._limits.maxBody:
            raise self._tooLarge()
        return length

    def _readBody(self, head: _Head) -> bytes | None:
        buffer, start = self._buffer, self._start
        if head.length is None:
            end = buffer.find(NULL, max(start, self._seen))
            if (len(buffer) if end < 0 else end) - start > self._limits.maxBody:
                raise self._tooLarge()
            if end < 0:
                self._seen = len(buffer)
                return None
        else:
            # "Header content-length": the body may hold NUL, and ends with one more.
            end = start + head.length
            if end >= len(buffer):
                return None
            if buffer[end] != NULL:
                raise ParameterInvalid("the body does not end where content-length says")
        body = bytes(buffer[start:end])
        self._start = self._seen = end + 1
        return body

    def _tooLarge(self) -> ContentTooLarge:
        return ContentTooLarge(f"a body has at most {self._limits.maxBody} bytes")


class _Head(Struct, frozen=True):
    command: str
    headers: Mapping[str, str]
    length: int | None
    receipt: str | None


def _readHeaders(text: str, version: StompVersion | None) -> tuple[str, dict[str, str]]:
    """Command and headers of a head."""
    lines = text.split("\n")
    # What follows the last two line ends is nothing.
    del lines[-2:]
    if "\r" in text and version not in (StompVersion.V10, StompVersion.V11):
        lines = [line.removesuffix("\r") for line in lines]
    command = lines[0]
    isPadded = version is StompVersion.V10
    isEscaped = "\\" in text and version in _TO_ESCAPE and command not in _HANDSHAKE
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name:
            raise ParameterInvalid("a header line has no name or no colon")
        if isEscaped and "\\" in line:
            name, value = _unescape(name, version), _unescape(value, version)
        elif isPadded:
            # STOMP 1.0 pads values in its own examples; later versions never trim.
            name, value = name.strip(" "), value.strip(" ")
        headers.setdefault(name, value)
    return command, headers


@lru_cache(maxsize=256)
def _shareHeaders(text: str, version: StompVersion | None) -> tuple[str, dict[str, str]]:
    """Command and headers of a SEND. It has no credentials."""
    command, headers = _readHeaders(text, version)
    return command, SharedHeaders(headers)


def _removeHeader(text: str, start: str, version: StompVersion | None) -> tuple[str, str | None]:
    """
    Remove the first header of a name from a head.

    @param start: a line end, the name and the colon.
    @return: the rest, and the value; C{None} where there is no such header.
    """
    before, found, behind = text.partition(start)
    if not found:
        return text, None
    value, _, rest = behind.partition("\n")
    if version is StompVersion.V12:
        value = value.removesuffix("\r")
    if "\\" in value:
        value = _unescape(value, version)
    return f"{before}\n{rest}", value


def _endOfLines(buffer: bytes | bytearray, start: int) -> int:
    """The index where line ends end. A match that is kept would keep the buffer from growing."""
    found = _EOLS.match(buffer, start)
    return start if found is None else found.end()


def _decode(data: bytes | bytearray) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ParameterInvalid("command and headers are not UTF-8") from None


def _unescape(text: str, version: StompVersion | None) -> str:
    meanings = _MEANINGS[version]

    def meaning(found: re.Match[str]) -> str:
        try:
            return meanings[found[1]]
        except KeyError:
            # "Undefined escape sequences such as \t MUST be treated as a fatal protocol error."
            raise ParameterInvalid("a header has an undefined escape sequence") from None

    return _ESCAPED.sub(meaning, text)


_MEANINGS: Final[Mapping[StompVersion | None, Mapping[str, str]]] = {
    version: {escaped[1]: plain for plain, escaped in escapes.items()}
    for version, escapes in _ESCAPES.items()
}


def encodeHeader(name: str, value: str, version: StompVersion | None) -> str:
    """
    One header line, escaped as the version has it.

    @param version: C{None} for what is never escaped: a CONNECTED frame, and an ERROR before a
        version was agreed on.
    @return: the line with its end; nothing where the version cannot carry such a header.
    """
    if not _SPECIAL.search(name + value):
        return f"{name}:{value}\n"
    version = StompVersion.V10 if version is None else version
    if _UNSPEAKABLE[version].search(name) or _UNSPEAKABLE[version].search(value):
        return ""
    if version is StompVersion.V10:
        return "" if ":" in name else f"{name}:{value}\n"
    escapes, wanted = _ESCAPES[version], _TO_ESCAPE[version]
    if wanted.search(name):
        name = wanted.sub(lambda found: escapes[found[0]], name)
    if wanted.search(value):
        value = wanted.sub(lambda found: escapes[found[0]], value)
    return f"{name}:{value}\n"


def encodeFrame(
    command: str,
    headers: Iterable[tuple[str, str]],
    body: bytes = b"",
    *,
    version: StompVersion | None,
) -> bytes:
    """
    A frame as bytes.

    @param headers: names and values in order, without C{content-length}, which a frame with a
        body is given here.
    @param version: as for L{encodeHeader}.
    """
    text = "".join(encodeHeader(name, value, version) for name, value in headers)
    if body:
        text += f"content-length:{len(body)}\n"
    return b"%b\n%b\n%b\0" % (command.encode("ascii"), text.encode("utf-8"), body)


_SEND_EARLY = 0.75
"""After which part of the agreed time a heart-beat is sent: timers are late, networks slow."""

_MISSED_AFTER = 2.0
"""After how many agreed times without a byte the client counts as gone ("error margin")."""

_HEADER = re.compile(r" *([0-9]{1,9}) *, *([0-9]{1,9}) *", re.ASCII)


class HeartBeats:
    """
    Knows when to be heard, and when the client should have been.

    @ivar sendEvery: the agreed time between what is sent, in seconds; 0 for none.
    @ivar expectEvery: the agreed time between what is received, in seconds; 0 for none.
    """

    def __init__(self, now: float) -> None:
        self.sendEvery = 0.0
        self.expectEvery = 0.0
        self._sent = now
        self._received = now

    def agree(self, header: str, canEvery: int, wantsEvery: int) -> None:
        """
        Find what both sides can and want.

        @param header: the client's C{heart-beat} header.
        @param canEvery: what can be guaranteed here, in milliseconds; 0 for nothing.
        @param wantsEvery: what is wanted here, in milliseconds; 0 for nothing.
        @raise ParameterInvalid: the header is not two numbers.
        """
        found = _HEADER.fullmatch(header)
        if found is None:
            raise ParameterInvalid("heart-beat is not two numbers of milliseconds")
        theyCan, theyWant = int(found[1]), int(found[2])
        if canEvery and theyWant:
            self.sendEvery = max(canEvery, theyWant) / 1000
        if theyCan and wantsEvery:
            self.expectEvery = max(theyCan, wantsEvery) / 1000

    def sent(self, now: float) -> None:
        """Something was sent."""
        self._sent = now

    def received(self, now: float) -> None:
        """Something was received, or could not have been since nothing was read."""
        self._received = now

    @property
    def deadline(self) -> float | None:
        """The time to look again; C{None} for never."""
        if not (self.sendEvery or self.expectEvery):
            return None
        times = []
        if self.sendEvery:
            times.append(self._sent + self.sendEvery * _SEND_EARLY)
        if self.expectEvery:
            times.append(self._received + self.expectEvery * _MISSED_AFTER)
        return min(times)

    def isDue(self, now: float) -> bool:
        """Whether it is time to be heard."""
        return self.sendEvery > 0 and now >= self._sent + self.sendEvery * _SEND_EARLY

    def isGone(self, now: float) -> bool:
        """Whether the client was not heard of for too long."""
        return self.expectEvery > 0 and now >= self._received + self.expectEvery * _MISSED_AFTER
