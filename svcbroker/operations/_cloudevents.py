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
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import msgspec
from attrs import frozen
from msgspec import Raw

from ..errors import ParameterInvalid
from ..interfaces import Batch
from ..model import Event, parseOffset

CLOUD_EVENT_EXTENSION: Final = "svc-ce"
"""The extension that holds the attributes."""
CLOUD_EVENT_TYPE: Final = "application/cloudevents+json"
"""The media type of an event in structured mode."""
EVENT_TYPE: Final = "svc.event"
"""The C{type} of events that were not published as CloudEvents."""

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
"""What an event looks like, as JSON Schema."""

_VERSION = "1.0"
_FAMILY = "application/cloudevents"
_HEADER_PREFIX = "ce-"
_UNKNOWN_TYPE = "application/octet-stream"
_SHOWN = 100
_MAX_INTEGER = 2**31
_EVENT_ID = "svceventid"
_SOURCE = "svcsource"
_EXTENSIONS = "svcextensions"
_OURS = frozenset({_EVENT_ID, _SOURCE, _EXTENSIONS})

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

_membersDecoder: Final = msgspec.json.Decoder(dict[str, Raw])
_attributesDecoder: Final = msgspec.json.Decoder(dict[str, Any])
_DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Form(Enum):
    """How data of a type is written in JSON."""

    JSON = 0
    TEXT = 1
    BINARY = 2


@frozen(kw_only=True)
class CloudEvent:
    """
    An event as its publisher sent it.

    @ivar content: its data; no bytes where it has none.
    @ivar attributes: the value of the extension C{svc-ce}.
    """

    content: bytes
    attributes: str


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
    mediaType = text.partition(";")[0].strip().lower()
    if not mediaType.startswith(_FAMILY):
        return _readBinary(headers, text, body)
    if mediaType != CLOUD_EVENT_TYPE:
        raise ParameterInvalid(f"Content-Type: of CloudEvents only {CLOUD_EVENT_TYPE} is read")
    charset = _CHARSET.search(text)
    if charset is not None and charset[1].lower() not in _UNICODE_CHARSETS:
        raise ParameterInvalid("Content-Type: JSON is in UTF-8")
    return _readStructured(body)


def _readBinary(headers: Iterable[tuple[str, bytes]], contentType: str, body: bytes) -> CloudEvent:
    attributes: dict[str, object] = {}
    for header, value in headers:
        if not header.startswith(_HEADER_PREFIX):
            continue
        name = header[len(_HEADER_PREFIX) :]
        if name in attributes:
            raise ParameterInvalid(f"{name}: there are several")
        if name == "datacontenttype":
            raise ParameterInvalid(f"{name}: in binary mode it is the header Content-Type")
        attributes[name] = _decoded(name, unquote_to_bytes(_unescaped(value)))
    if contentType:
        attributes["datacontenttype"] = contentType
    return _made(attributes, body)


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


def _readStructured(body: bytes) -> CloudEvent:
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
    if form is _Form.JSON:
        return bytes(data)
    if value is None:
        return b""
    if not isinstance(value, str):
        raise ParameterInvalid("data: is not a string, and datacontenttype is not JSON")
    if _hasOtherCharset(contentType):
        raise ParameterInvalid("data: is not in UTF-8 by its datacontenttype; use data_base64")
    return value.encode("utf-8")


def _made(attributes: Mapping[str, object], content: bytes) -> CloudEvent:
    kept = {name: value for name, value in attributes.items() if name not in _OURS}
    _check(kept)
    return CloudEvent(content=content, attributes=msgspec.json.encode(kept).decode("utf-8"))


def _check(attributes: Mapping[str, object]) -> None:
    """
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
    """What is wrong with an attribute; C{None} if nothing is."""
    if _NAME.fullmatch(name) is None or name == "data":
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
"""What the attributes of the specification have to be."""


def _hasOtherCharset(contentType: object) -> bool:
    found = _CHARSET.search(contentType) if isinstance(contentType, str) else None
    return found is not None and found[1].lower() not in _UNICODE_CHARSETS


def _formOf(contentType: object) -> _Form:
    """
    How data is written in JSON.

    @param contentType: C{datacontenttype}; C{None} means JSON.
    """
    if _hasOtherCharset(contentType):
        return _Form.BINARY
    if contentType is None:
        return _Form.JSON
    kind, _, subtype = str(contentType).partition(";")[0].strip().lower().partition("/")
    if subtype == "json" or subtype.endswith("+json"):
        return _Form.JSON
    isText = kind == "text" or subtype == "xml" or subtype.endswith("+xml")
    return _Form.TEXT if isText else _Form.BINARY


def cloudEvents(batch: Batch, source: str) -> list[dict[str, Any]]:
    """
    The events of a batch in the JSON format of CloudEvents.

    @param source: what C{source} begins with: the base path and the group.
    @return: what C{msgspec} encodes as JSON objects.
    """
    seconds, milliseconds = divmod(batch.timestamp, 1000)
    time = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    stamp = f"{time}.{milliseconds:03}Z"
    return [_cloudEvent(event, source, stamp) for event in batch.events]


def _cloudEvent(event: Event, source: str, time: str) -> dict[str, Any]:
    # One segment of the path, whatever is in the topic.
    place = f"{source}/{quote(event.topic, safe='')}"
    eventId, others = str(event.eventId), dict(event.extensions)
    attributes = _storedAttributes(event)
    if attributes is None:
        made: dict[str, Any] = {
            "specversion": _VERSION,
            "id": eventId,
            "source": place,
            "type": EVENT_TYPE,
            "time": time,
            "datacontenttype": _UNKNOWN_TYPE,
        }
    else:
        made = {**attributes, _EVENT_ID: eventId, _SOURCE: place}
        del others[CLOUD_EVENT_EXTENSION]
    if others:
        # In ASCII: an attribute has no control characters.
        made[_EXTENSIONS] = json.dumps(others, separators=(",", ":"))
    if event.content:
        made.update(_writeData(made.get("datacontenttype"), event.content))
    return made


def _storedAttributes(event: Event) -> dict[str, Any] | None:
    """
    The attributes of an event that was published as a CloudEvent. Clients of other carriers can
    publish any text here: what is not valid does not count.
    """
    text = event.extensions.get(CLOUD_EVENT_EXTENSION)
    if text is None:
        return None
    try:
        attributes = _attributesDecoder.decode(text)
        _check(attributes)
    except (ParameterInvalid, *_DECODE_ERRORS):
        return None
    return None if _OURS & attributes.keys() else attributes


def _writeData(contentType: str | None, content: bytes) -> dict[str, Any]:
    form = _formOf(contentType)
    try:
        if form is _Form.JSON:
            # Decoded to check it, but sent with the publisher's digits.
            msgspec.json.decode(content)
            return {"data": Raw(msgspec.json.format(content, indent=-1))}
        if form is _Form.TEXT:
            return {"data": content.decode("utf-8")}
    except _DECODE_ERRORS:
        pass
    return {"data_base64": b2a_base64(content, newline=False).decode("ascii")}
