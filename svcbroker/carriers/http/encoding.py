"""
Bytes in, bytes out: what every part of the HTTP carrier reads and writes alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from msgspec.json import Encoder

from ...errors import BrokerError, ParameterInvalid
from ...operations import ErrorRecord

CONTENT_TYPE: Final = b"application/json;charset=UTF-8"
FORM_TYPE: Final = b"application/x-www-form-urlencoded"
MAX_FIELDS: Final = 1000
"""The most fields that a URL and a form may have together."""

_encoder = Encoder()


def encode(value: Any) -> bytes:
    """JSON text of a record."""
    return _encoder.encode(value)


def encodeError(error: BrokerError) -> bytes:
    """A failure as REST and the admin queries tell it."""
    return _encoder.encode(ErrorRecord(error.code, error.message))


def parseFields(text: bytes) -> Mapping[bytes, bytes]:
    """
    Read C{name=value&...}: percent signs and C{+} decoded, to exactly the bytes that were sent.
    Of several fields of one name the first counts.

    @raise ParameterInvalid: there are more than L{MAX_FIELDS}.
    """
    if text.count(b"&") >= MAX_FIELDS:
        raise ParameterInvalid(f"there are more than {MAX_FIELDS} parameters")
    if b"+" in text:
        text = text.replace(b"+", b" ")
    fields: dict[bytes, bytes] = {}
    for piece in text.split(b"&"):
        name, _, value = piece.partition(b"=")
        if b"%" in piece:
            name, value = unquote_to_bytes(name), unquote_to_bytes(value)
        if name not in fields:
            fields[name] = value
    return fields


def formBody(contentType: bytes | None, body: bytes) -> bytes:
    """
    The fields that a request's body holds.

    @param contentType: the header's value.
    @raise ParameterInvalid: there is a body and it is no form. Its parameters would be lost in
        silence, which no client can want.
    """
    if body and (contentType or b"").partition(b";")[0].strip().lower() != FORM_TYPE:
        raise ParameterInvalid(f"a body must be {FORM_TYPE.decode('ascii')}")
    return body
