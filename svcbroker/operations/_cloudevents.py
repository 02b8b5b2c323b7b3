"""
The mapping between CloudEvents 1.0 and the log's events.

The data is the event's content. All attributes are kept in one extension, C{svc-ce}, as a compact
JSON object, so an event that was published as a CloudEvent is delivered with its own C{id},
C{source}, C{type} and all others. Any other event is delivered with attributes that are made of its
place in the log.
"""

from __future__ import annotations

import json
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import msgspec
from attrs import frozen
from msgspec import Raw

from ..errors import ParameterInvalid
from ..interfaces import Batch
from ..model import Event, PublishEvent, parseOffset
from ._declarations import TRACE_NAMES, TRACEPARENT, readTrace, shownTrace

CLOUD_EVENT_EXTENSION: Final = "svc-ce"
"""The extension that holds the attributes."""
CLOUD_EVENT_TYPE: Final = "application/cloudevents+json"
"""The media type of an event in structured mode."""
CLOUD_EVENTS_TYPE: Final = "application/cloudevents-batch+json"
"""The media type of an array of events in structured mode."""

CLOUD_EVENT_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "A CloudEvent 1.0 in structured mode.",
    "properties": {
        "specversion": {"const": "1.0"},
        **{
            name: {"type": "string", "minLength": 1}
            for name in ("id", "source", "type", "datacontenttype", "subject")
        },
        "dataschema": {"type": "string", "format": "uri"},
        "time": {"type": "string", "format": "date-time"},
        "data": {},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
    },
    "required": ["specversion", "id", "source", "type"],
}
"""The JSON Schema of an event."""


@frozen(kw_only=True)
class CloudEvent:
    """
    An event as its publisher sent it.

    @ivar content: its data; no bytes where it has none.
    @ivar attributes: the value of the extension C{svc-ce}.
    @ivar idempotencyKey: the key of its publish: a source uses each C{id} for one event only.
    """

    content: bytes
    attributes: str
    idempotencyKey: str


_VERSION: Final = "1.0"
_EVENT_ID: Final = "svceventid"
_SOURCE: Final = "svcsource"
_EXTENSIONS: Final = "svcextensions"
_AUTHOR: Final = "svcauthor"
_SIGNATURE: Final = "svcsignature"
_SIGNED_AT: Final = "svcsignedat"
_ERASED: Final = "svcerased"
OURS: Final = frozenset({_EVENT_ID, _SOURCE, _EXTENSIONS, _AUTHOR, _SIGNATURE, _SIGNED_AT, _ERASED})
"""The attributes that the broker adds."""

_SHOWN = 100
_MAX_INTEGER = 2**31

_NAME = re.compile(r"[a-z0-9]+", re.ASCII)
# Control characters and noncharacters of Unicode. JSON and UTF-8 have no lone surrogates.
_FORBIDDEN = re.compile(
    "[\0-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)
_URI_CHARACTERS = r"(?:[A-Za-z0-9\-._~:/?\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*"
_URI_REFERENCE = re.compile(f"{_URI_CHARACTERS}(?:#{_URI_CHARACTERS})?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~\-]+"
# No part can match the same text in two ways, or a publisher could make a match take hours.
_MEDIA_TYPE = re.compile(
    rf'{_TOKEN}/{_TOKEN}(?:[ \t]*;(?:[ \t]*{_TOKEN}=(?:{_TOKEN}|"(?:[^"\\]|\\.)*"))?)*[ \t]*'
)
_CHARSET = re.compile(rf';[ \t]*charset="?({_TOKEN})', re.IGNORECASE)
_UNICODE_CHARSETS = frozenset({"utf-8", "utf8", "us-ascii"})


class _DataForm(Enum):
    """The form of data of a type in JSON."""

    JSON = 0
    TEXT = 1
    BINARY = 2


def isAttributeName(name: str) -> bool:
    """Whether an attribute may have this name."""
    return _NAME.fullmatch(name) is not None and name != "data"


def _checkAttributes(attributes: Mapping[str, object]) -> None:
    """
    Check the attributes of an event.

    @raise ParameterInvalid: these are not the attributes of a CloudEvent.
    """
    for name in ("specversion", "id", "source", "type"):
        if name not in attributes:
            raise ParameterInvalid(f"{name}: is required")
    for name, value in attributes.items():
        fault = _fault(name, value)
        if fault is not None:
            raise ParameterInvalid(f"{name[:_SHOWN]}: {fault}")


def _fault(name: str, value: object) -> str | None:
    """The fault of an attribute; C{None} if there is none."""
    if not isAttributeName(name):
        return "an attribute's name has lower-case letters and digits only"
    check = _CHECKS.get(name)
    if isinstance(value, str):
        if _FORBIDDEN.search(value) is not None:
            return "has characters that CloudEvents does not allow"
        if check is None or check[1](value):
            return None
        return f"is not {check[0]}: {value[:_SHOWN]}" if value else f"is not {check[0]}"
    if check is not None:
        return "is not a string"
    if not isinstance(value, int):
        return "is not a string, a whole number or a Boolean"
    return None if -_MAX_INTEGER <= value < _MAX_INTEGER else "has more than 32 bits"


def _isReference(text: str) -> bool:
    return bool(text) and _URI_REFERENCE.fullmatch(text) is not None


def _isURI(text: str) -> bool:
    return _isReference(text) and _SCHEME.match(text) is not None


def _isTime(text: str) -> bool:
    # An offset may also be milliseconds, or have a space between date and time.
    if text[10:11] not in ("T", "t"):
        return False
    try:
        parseOffset(f"OFFSET_TIME:{text}")
    except ParameterInvalid:
        return False
    return True


_TEXT_CHECK: Final = ("a text of one character or more", bool)
_CHECKS: Final[Mapping[str, tuple[str, Callable[[str], bool]]]] = {
    "specversion": (_VERSION, lambda text: text == _VERSION),
    "id": _TEXT_CHECK,
    "source": ("a URI-reference", _isReference),
    "type": _TEXT_CHECK,
    "datacontenttype": ("a media type", lambda text: _MEDIA_TYPE.fullmatch(text) is not None),
    "dataschema": ("an absolute URI", _isURI),
    "subject": _TEXT_CHECK,
    "time": ("a time of RFC 3339", _isTime),
}
"""The checks of the attributes of the specification."""


def _hasOtherCharset(contentType: object) -> bool:
    """Whether C{datacontenttype} says that data is text which is not in UTF-8."""
    found = _CHARSET.search(contentType) if isinstance(contentType, str) else None
    return found is not None and found[1].lower() not in _UNICODE_CHARSETS


def _formOf(contentType: object) -> _DataForm:
    """
    The form of data in JSON.

    @param contentType: C{datacontenttype}; C{None} means JSON.
    """
    if _hasOtherCharset(contentType):
        return _DataForm.BINARY
    if contentType is None:
        return _DataForm.JSON
    kind, _, subtype = str(contentType).partition(";")[0].strip().lower().partition("/")
    if subtype == "json" or subtype.endswith("+json"):
        return _DataForm.JSON
    isText = kind == "text" or subtype == "xml" or subtype.endswith("+xml")
    return _DataForm.TEXT if isText else _DataForm.BINARY


_EVENT_TYPE: Final = "svc.event"
"""The C{type} of events that were not published as CloudEvents."""

_FAMILY = "application/cloudevents"
_HEADER_PREFIX = "ce-"
_JSON_TYPE = "application/json"
_UNKNOWN_TYPE = "application/octet-stream"
# Of a header's value all else is percent-encoded: spaces, quotes, percent signs, non-ASCII.
_PLAIN = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')

_membersDecoder: Final = msgspec.json.Decoder(dict[str, Raw])
_attributesDecoder: Final = msgspec.json.Decoder(dict[str, Any])
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def readCloudEvent(
    headers: Iterable[tuple[str, bytes]], contentType: bytes | None, body: bytes
) -> CloudEvent:
    """
    Read an event as the HTTP protocol binding sends it, in structured or in binary mode.

    @param headers: the names, in lower case, and the values of all headers of the request.
    @param contentType: the type of the body, if it has one.
    @raise ParameterInvalid: it is no CloudEvent of version 1.0, which the message says with the
        name of the attribute.
    """
    text = _decoded("datacontenttype", contentType or b"")
    if isStructured(text):
        return readStructured(text, body)
    attributes: dict[str, str] = {}
    for header, value in headers:
        if not header.startswith(_HEADER_PREFIX):
            continue
        name = header[len(_HEADER_PREFIX) :]
        if name in attributes:
            raise ParameterInvalid(f"{name}: there are several")
        attributes[name] = _decoded(name, unquote_to_bytes(_unescaped(value)))
    return readBinary(attributes, text, body)


def readBinary(attributes: Mapping[str, str], contentType: str, content: bytes) -> CloudEvent:
    """
    Read an event in binary mode.

    @param attributes: all but C{datacontenttype}.
    @param contentType: that one; empty where there is none.
    @raise ParameterInvalid: it is no CloudEvent of version 1.0.
    """
    if "datacontenttype" in attributes:
        raise ParameterInvalid("datacontenttype: in binary mode it is the header Content-Type")
    more = {"datacontenttype": contentType} if contentType else {}
    return _made({**attributes, **more}, content)


def _unescaped(value: bytes) -> bytes:
    """A header's value without the double quotes that earlier versions of the binding allow."""
    value = value.strip(b" \t")
    if len(value) >= 2 and value[:1] == value[-1:] == b'"':
        return re.sub(rb"\\(.)", rb"\1", value[1:-1])
    return value


def _decoded(name: str, value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise ParameterInvalid(f"{name}: is not UTF-8") from None


def _mediaType(contentType: str) -> str:
    return contentType.partition(";")[0].strip().lower()


def isStructured(contentType: str) -> bool:
    """Whether a content type says that there are whole CloudEvents, in whatever format."""
    return _mediaType(contentType).startswith(_FAMILY)


def readStructured(contentType: str, body: bytes) -> CloudEvent:
    """
    Read an event in structured mode.

    @raise ParameterInvalid: it is no CloudEvent of version 1.0, or not in JSON.
    """
    if _mediaType(contentType) != CLOUD_EVENT_TYPE:
        raise ParameterInvalid(f"Content-Type: of CloudEvents only {CLOUD_EVENT_TYPE} is read")
    charset = _CHARSET.search(contentType)
    if charset is not None and charset[1].lower() not in _UNICODE_CHARSETS:
        raise ParameterInvalid("Content-Type: JSON is in UTF-8")
    try:
        members = _membersDecoder.decode(body)
    except _DECODE_ERRORS:
        raise ParameterInvalid("the body is not a JSON object") from None
    data, encoded = members.pop("data", None), members.pop("data_base64", None)
    try:
        attributes = {name: msgspec.json.decode(value) for name, value in members.items()}
        # JSON's null is as good as an absent attribute.
        attributes = {name: value for name, value in attributes.items() if value is not None}
        return _made(attributes, _readData(attributes.get("datacontenttype"), data, encoded))
    except _DECODE_ERRORS:
        raise ParameterInvalid("the body is not valid JSON") from None


def _readData(contentType: object, data: Raw | None, encoded: Raw | None) -> bytes:
    if encoded is not None:
        if data is not None:
            raise ParameterInvalid("data_base64: there is data too")
        try:
            return a2b_base64(msgspec.json.decode(encoded, type=str), strict_mode=True)
        except (ValueError, *_DECODE_ERRORS):
            raise ParameterInvalid("data_base64: is not standard Base64 with padding") from None
    if data is None:
        return b""
    form = _formOf(contentType)
    value = msgspec.json.decode(data)
    if form is _DataForm.JSON:
        return bytes(data)
    if value is None:
        return b""
    if not isinstance(value, str):
        raise ParameterInvalid("data: is not a string, and datacontenttype is not JSON")
    if _hasOtherCharset(contentType):
        raise ParameterInvalid("data: is not in UTF-8 by its datacontenttype; use data_base64")
    return value.encode("utf-8")


def _made(attributes: Mapping[str, object], content: bytes) -> CloudEvent:
    kept = {name: value for name, value in attributes.items() if name not in OURS}
    _checkAttributes(kept)
    named = f"{kept['source']}\0{kept['id']}"
    return CloudEvent(
        content=content,
        attributes=msgspec.json.encode(kept).decode("utf-8"),
        idempotencyKey=sha256(named.encode("utf-8")).hexdigest(),
    )


def sourceOf(base: str, group: str) -> str:
    """
    The beginning of the C{source} of a group's events.

    @param base: the base path.
    """
    return f"{base}/{quote(group, safe='')}"


def cloudEvents(batch: Batch, source: str) -> list[dict[str, Any]]:
    """
    The events of a batch in the JSON format of CloudEvents.

    @param source: see L{sourceOf}.
    @return: what C{msgspec} encodes as JSON objects.
    """
    return [cloudEvent(event, source, batch.timestamp) for event in batch.events]


def cloudEvent(event: Event, source: str, timestamp: int | None) -> dict[str, Any]:
    """
    An event in the JSON format of CloudEvents.

    @param timestamp: the time of its block, in milliseconds since the epoch; C{None} where it is
        not known.
    """
    made = _attributesOf(event, source, timestamp)
    if event.content:
        made.update(_writeData(made.get("datacontenttype"), event.content))
    return made


def binaryAttributes(
    event: Event, source: str, timestamp: int | None
) -> tuple[str | None, Mapping[str, str]]:
    """
    The attributes and the content type of an event in binary mode.

    @param timestamp: see L{cloudEvent}.
    @return: the content type, if there is one, and all other attributes as texts.
    """
    attributes = _attributesOf(event, source, timestamp)
    contentType = attributes.pop("datacontenttype", None)
    if contentType is None and "data" in _writeData(None, event.content):
        # Only in the JSON format its absence means that.
        contentType = _JSON_TYPE
    return contentType, {name: _text(value) for name, value in attributes.items()}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def cloudEventHeaders(event: Event, source: str, timestamp: int) -> Mapping[bytes, bytes]:
    """
    The headers of an event in binary mode, as the HTTP protocol binding writes them. The body is
    its content.
    """
    contentType, attributes = binaryAttributes(event, source, timestamp)
    headers = {
        f"{_HEADER_PREFIX}{name}".encode("ascii"): quote(value, safe=_PLAIN).encode("ascii")
        for name, value in attributes.items()
    }
    if contentType is not None:
        headers[b"Content-Type"] = contentType.encode("utf-8")
    return headers


def publishedCloudEvent(event: Event) -> dict[str, Any] | None:
    """
    An event in the JSON format with the attributes of its publisher alone; C{None} where it was not
    published as a CloudEvent.
    """
    attributes = storedAttributes(event)
    if attributes is not None and event.content:
        attributes.update(_writeData(attributes.get("datacontenttype"), event.content))
    return attributes


def _attributesOf(event: Event, source: str, timestamp: int | None) -> dict[str, Any]:
    # One segment of the path, whatever is in the topic.
    place = f"{source}/{quote(event.topic, safe='')}"
    eventId, others = str(event.eventId), dict(event.extensions)
    attributes = storedAttributes(event)
    if attributes is None:
        made: dict[str, Any] = {
            "specversion": _VERSION,
            "id": eventId,
            "source": place,
            "type": _EVENT_TYPE,
            **({} if timestamp is None else {"time": _timeOf(timestamp)}),
            "datacontenttype": _UNKNOWN_TYPE,
        }
    else:
        made = {**attributes, _EVENT_ID: eventId, _SOURCE: place}
        del others[CLOUD_EVENT_EXTENSION]
    if TRACEPARENT in others and made.keys().isdisjoint(TRACE_NAMES.values()):
        # As the extension of CloudEvents for distributed tracing has it.
        trace = shownTrace(others)
        made.update(trace)
        others = {k: text for k, text in others.items() if TRACE_NAMES.get(k) not in trace}
    if others:
        # In ASCII: an attribute has no control characters.
        made[_EXTENSIONS] = json.dumps(others, separators=(",", ":"))
    author = event.author
    if author is not None:
        made[_AUTHOR] = author.key.hex()
        if author.signature:
            made[_SIGNATURE] = author.signature.hex()
        # An integer has 32 bits there.
        made[_SIGNED_AT] = str(author.signedAt)
    if event.isErased:
        made[_ERASED] = True
    return made


@lru_cache(maxsize=16)
def _timeOf(timestamp: int) -> str:
    seconds, milliseconds = divmod(timestamp, 1000)
    time = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{time}.{milliseconds:03}Z"


def storedAttributes(event: Event | PublishEvent) -> dict[str, Any] | None:
    """
    The attributes of an event that was published as a CloudEvent. Clients of other carriers can
    publish any text here: what is not valid does not count.
    """
    text = event.extensions.get(CLOUD_EVENT_EXTENSION)
    if text is None:
        return None
    try:
        attributes = _attributesDecoder.decode(text)
        _checkAttributes(attributes)
    except (ParameterInvalid, *_DECODE_ERRORS):
        return None
    return None if OURS & attributes.keys() else attributes


def traceOf(event: Event | PublishEvent) -> dict[str, str]:
    """
    The valid trace context of an event, C{traceparent} and C{tracestate}: what its publisher's
    request had, or else the attributes of a CloudEvent. Empty where there is none.
    """
    extensions = event.extensions
    if TRACEPARENT in extensions:
        return shownTrace(extensions)
    attributes = storedAttributes(event) or {}
    parent, state = attributes.get("traceparent"), attributes.get("tracestate")
    if not isinstance(parent, str):
        return {}
    return shownTrace(readTrace(parent, state if isinstance(state, str) else None))


def _writeData(contentType: str | None, content: bytes) -> dict[str, Any]:
    form = _formOf(contentType)
    try:
        if form is _DataForm.JSON:
            # Decoded to check it, but sent with the publisher's digits.
            msgspec.json.decode(content)
            return {"data": Raw(msgspec.json.format(content, indent=-1))}
        if form is _DataForm.TEXT:
            return {"data": content.decode("utf-8")}
    except _DECODE_ERRORS:
        pass
    return {"data_base64": b2a_base64(content, newline=False).decode("ascii")}
