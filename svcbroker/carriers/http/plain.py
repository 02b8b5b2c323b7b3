"""
Plain requests and the answers to them: the half of the fast path that knows no transport; and the
fields of queries and forms.

A request is plain if this module and twisted.web cannot understand it differently. A request with
anything unusual is never refused here: it is passed on to twisted.web.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Literal
from urllib.parse import unquote_to_bytes

from attrs import define, field, frozen
from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from twisted.web.http import OK, RESPONSES, datetimeToString
from twisted.web.server import version

from ...errors import ParameterInvalid, QueryTooLong
from ...net.budgets import ENTRY_BYTES, ByteCount, eventsIn
from .logins import COOKIE, HttpSettings, isHost
from .routes import (
    CONTENT_TYPE,
    NO_SNIFFING,
    Answer,
    HttpEndpoint,
    HttpRefusal,
    PublishHeaders,
    publishHeaders,
)

MAX_HEAD: Final = 8 * 1024
"""The longest request line and headers of a plain request, in bytes."""
MAX_FIELDS: Final = 100
"""The most header fields of a plain request."""
MAX_REMEMBERED: Final = 1024
"""The longest header blocks that are cached, in bytes, and the most of them."""
MAX_OWN: Final = 16
"""The most header blocks with credentials that are cached for a connection."""

FORM_TYPE: Final = b"application/x-www-form-urlencoded"
MAX_FORM_FIELDS: Final = 1000
"""The most fields that a URL and a form may have together."""
MAX_PUBLISH_QUERY: Final = 1024
"""The longest query string of a publish by GET, in bytes."""

PARTIAL: Final = "partial"
"""The head is not complete; what has arrived may become a plain request."""

# No whitespace in the target, and no byte above 176: twisted.web refuses those.
_LINE = re.compile(rb"((?:GET|POST) /[^ ?\r\n]*)(?:\?([\x21-\xb0]*))? HTTP/1\.1\r\n")

_USED = frozenset(
    {
        *(b"content-length", b"content-type", b"connection", b"host", b"origin"),
        *(b"sec-fetch-site", b"authorization", b"idempotency-key"),
        *(b"traceparent", b"tracestate", b"svc-after"),
    }
)
_UNUSUAL = frozenset({b"transfer-encoding", b"expect", b"upgrade"})
_OK: Final = b"HTTP/1.1 200 OK"
_NO_CONTENT: Final = b"HTTP/1.1 204 No Content"
_CLOSE: Final = b"\r\nConnection: close"


@frozen
class Fields:
    """
    The header fields of a plain request that count.

    @ivar length: the length of the body, in bytes.
    @ivar contentType: the type of the body, if the client gave one.
    @ivar origin: the origin of the browser's page, if there is one.
    @ivar host: the host that the request was sent to.
    @ivar fetchSite: how the browser's page relates to the server.
    @ivar authorization: the credentials, if there are some.
    @ivar headers: those that become parameters, if there are some.
    @ivar events: the number of events that the body is taken to publish.
    """

    length: int
    contentType: bytes | None
    origin: bytes | None
    host: bytes | None = None
    fetchSite: bytes | None = None
    authorization: bytes | None = field(default=None, repr=False)
    headers: PublishHeaders | None = None
    events: int = field(init=False)

    @events.default
    def _events(self) -> int:
        return eventsIn(self.length)


@define(eq=False)
class RequestHead:
    """
    The head of a plain request.

    @ivar endpoint: the endpoint that its request line names.
    @ivar query: the query string, as it was sent.
    @ivar fields: its header fields.
    @ivar text: all of it, as it was sent.
    """

    endpoint: HttpEndpoint
    query: bytes
    fields: Fields
    text: bytes = field(repr=False)


class _Listener:
    """Collects the header fields that the parser finds."""

    def __init__(self) -> None:
        self.headers: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))


def readFields(block: bytes) -> Fields | None:
    """
    Read the header lines of a request, or the first few of them.

    @param block: whole lines with their ends, without the empty one after the last.
    @return: C{None} where the request is not plain.
    """
    if block.count(b"\r\n") > MAX_FIELDS:
        return None
    listener = _Listener()
    try:
        # Without the body: with one, the parser would check the length.
        HttpRequestParser(listener).feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % block)
    except (HttpParserError, HttpParserUpgrade):
        return None
    used: dict[bytes, bytes] = {}
    for name, value in listener.headers:
        if name in _USED:
            if name in used:
                return None
            used[name] = value.strip(b" \t")
        elif name in _UNUSUAL or (name == b"cookie" and COOKIE in value):
            # Sessions are looked for on the way through twisted.web only.
            return None
    if used.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    if not isHost(used.get(b"host", b"")):
        return None
    return Fields(
        length=int(used.get(b"content-length", b"0")),
        contentType=used.get(b"content-type"),
        origin=used.get(b"origin"),
        host=used.get(b"host"),
        fetchSite=used.get(b"sec-fetch-site"),
        authorization=used.get(b"authorization"),
        headers=publishHeaders(
            used.get(b"idempotency-key"),
            used.get(b"traceparent"),
            used.get(b"tracestate"),
            used.get(b"svc-after"),
        ),
    )


_common: dict[bytes, Fields] = {}
"""Header blocks without credentials that were read, and what is in them."""


class OwnFields(dict[bytes, Fields]):
    """
    The header blocks with credentials that were read on one connection, and what is in them. They
    are kept no longer than it.

    @ivar counted: counts their bytes with those of all connections.
    """

    def __init__(self, counted: ByteCount) -> None:
        super().__init__()
        self.counted = counted

    def remember(self, block: bytes, fields: Fields) -> None:
        """Keep a block, where there is room."""
        if len(self) >= MAX_OWN:
            self.clear()
            self.counted.set(0)
        size = ENTRY_BYTES + len(block)
        if self.counted.hasRoom(size):
            self.counted.add(size)
            self[block] = fields


def _readCached(block: bytes, own: OwnFields) -> Fields | None:
    """
    Read header lines as L{readFields} does. A client sends the same ones again and again.

    @param own: the blocks with credentials of one connection.
    """
    fields = _common.get(block) or own.get(block)
    if fields is None:
        fields = readFields(block)
        # A block with an idempotency key or a trace does not come again.
        if fields is not None and fields.headers is None and len(block) <= MAX_REMEMBERED:
            if fields.authorization is not None:
                own.remember(block, fields)
                return fields
            if len(_common) >= MAX_REMEMBERED:
                # The oldest.
                del _common[next(iter(_common))]
            _common[block] = fields
    return fields


def readHead(
    endpoints: Mapping[bytes, HttpEndpoint], data: bytes, start: int, own: OwnFields
) -> RequestHead | Literal["partial"] | None:
    """
    Read the head of a request. Hot path.

    @param endpoints: the endpoints of the site, by method and path with a space between.
    @param own: the cache of the connection.
    @param start: where in C{data} the request begins.
    @return: L{PARTIAL} where more has to arrive first; C{None} where the request is not plain, or
        names no endpoint.
    """
    line = _LINE.match(data, start)
    if line is None:
        isWaiting = len(data) - start <= MAX_HEAD and data.find(b"\r\n", start) < 0
        return PARTIAL if isWaiting else None
    endpoint = endpoints.get(line[1])
    if endpoint is None:
        return None
    first = line.end()
    end = data.find(b"\r\n\r\n", first - 2)
    isWhole = end >= 0
    if not isWhole:
        # A bad line is passed on at once, not when the rest has arrived.
        end = data.rfind(b"\r\n", first - 2)
    block = data[first : end + 2]
    fields = _readCached(block, own)
    if fields is None or (fields.length and endpoint.method == "GET"):
        return None
    if (end if isWhole else len(data)) - start > MAX_HEAD:
        return None
    if not isWhole:
        return PARTIAL
    if fields.host is None:
        return None
    return RequestHead(endpoint, line[2] or b"", fields, data[start : end + 4])


def decodePercent(text: bytes) -> bytes:
    """
    Decode percent signs as C{unquote_to_bytes} does, which takes six times as long for JSON: Python
    has no other function in C for it than the codec of its own escapes, which is strict.
    """
    if b"%" not in text:
        return text
    escaped = text.replace(b"\\", b"\\\\").replace(b"%", b"\\x")
    try:
        return escaped.decode("unicode_escape").encode("latin-1")
    except UnicodeDecodeError:
        # A percent sign without two hex digits behind it stays.
        return unquote_to_bytes(text)


def parseFields(text: bytes) -> Mapping[bytes, bytes]:
    """
    Read C{name=value&...}: percent signs and C{+} decoded, to exactly the bytes that were sent.
    Of several fields of one name the first counts.

    @raise ParameterInvalid: there are more than L{MAX_FORM_FIELDS}.
    """
    pieces = text.replace(b"+", b" ").split(b"&", MAX_FORM_FIELDS)
    if len(pieces) > MAX_FORM_FIELDS:
        raise ParameterInvalid(f"there are more than {MAX_FORM_FIELDS} parameters")
    fields: dict[bytes, bytes] = {}
    add, hasEscapes = fields.setdefault, b"%" in text
    for piece in pieces:
        name, _, value = piece.partition(b"=")
        if hasEscapes:
            name, value = decodePercent(name), decodePercent(value)
        add(name, value)
    return fields


def parseQuery(query: bytes, contentType: bytes | None, body: bytes) -> Mapping[bytes, bytes]:
    """
    The fields of a request by GET. A body is not read.

    @raise ParameterInvalid: there are too many.
    """
    return parseFields(query)


def parsePublishQuery(
    query: bytes, contentType: bytes | None, body: bytes
) -> Mapping[bytes, bytes]:
    """
    The fields of a publish by GET.

    @raise QueryTooLong: the query string is longer than L{MAX_PUBLISH_QUERY}.
    @raise ParameterInvalid: there are too many.
    """
    if len(query) > MAX_PUBLISH_QUERY:
        raise QueryTooLong()
    return parseFields(query)


def parseForm(query: bytes, contentType: bytes | None, body: bytes) -> Mapping[bytes, bytes]:
    """
    The fields of a request by POST.

    @raise ParameterInvalid: there are too many, or the body is no form: its parameters would be
        ignored without a word.
    """
    if not body:
        return parseFields(query)
    if contentType != FORM_TYPE and not _isForm(contentType or b""):
        raise ParameterInvalid(f"a body must be {FORM_TYPE.decode('ascii')}")
    return parseFields(query + b"&" + body if query else body)


def _isForm(contentType: bytes) -> bool:
    return contentType.partition(b";")[0].strip().lower() == FORM_TYPE


class PlainAnswers:
    """
    Writes answers as twisted.web does, with the headers in its order. One serves a whole site.
    """

    def __init__(self, settings: HttpSettings, seconds: Callable[[], float]) -> None:
        """
        @param seconds: the time; the date is formatted once in each second of it.
        """
        self._settings = settings
        self._seconds = seconds
        self._second: int | None = None
        self._common = b""
        self._usual = b""

    def make(self, body: Answer, origin: bytes | None = None, isLast: bool = False) -> bytes:
        """
        The bytes of an answer. Hot path.

        @param origin: the origin of the browser's page, if there is one.
        @param isLast: whether the connection is closed then.
        """
        second = int(self._seconds())
        if second != self._second:
            self._keepDate(second)
        if isinstance(body, bytes) and not isLast and not self._settings.corsOrigins:
            # Nearly all answers cost this one formatting.
            return b"%b%d\r\n\r\n%b" % (self._usual, len(body), body)
        headers = self._headers(origin, isLast)
        if body is None:
            return b"%b%b\r\n\r\n" % (_NO_CONTENT, headers)
        refusal = HttpRefusal(OK, body) if isinstance(body, bytes) else body
        more = b"".join(b"\r\n%b: %b" % each for each in refusal.headers)
        return b"HTTP/1.1 %d %b%b%b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b" % (
            *(refusal.code, RESPONSES[refusal.code], headers, more),
            *(CONTENT_TYPE, len(refusal.body), refusal.body),
        )

    def _headers(self, origin: bytes | None, isLast: bool) -> bytes:
        cors = b"".join(b"\r\n%b: %b" % each for each in self._settings.corsHeaders(origin))
        return cors + self._common + (_CLOSE if isLast else b"")

    def _keepDate(self, second: int) -> None:
        self._second = second
        self._common = b"\r\n%b: %b\r\nServer: %b\r\nDate: %b" % (
            *NO_SNIFFING,
            *(version, datetimeToString()),
        )
        self._usual = b"%b%b\r\nContent-Type: %b\r\nContent-Length: " % (
            *(_OK, self._common, CONTENT_TYPE),
        )
