"""
What JSON-RPC 2.0 says: calls as they come, and answers.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder

from ...errors import BrokerError
from .encoding import encode

MAX_BATCH: Final = 1000
"""The most entries of a batch."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600

_VERSION = Raw(b'"2.0"')
_NULL = Raw(b"null")
_NUMBER_START = b"-0123456789"


class Call(Struct):
    """A call as it came. An absent member is empty; a notification has no id."""

    jsonrpc: Raw = Raw()
    method: Raw = Raw()
    params: Raw = Raw()
    id: Raw = Raw()


class ErrorData(Struct):
    """What the broker says of a failure. The protocol's own have no code."""

    exceptionTypeName: str
    message: str
    code: int | UnsetType = UNSET


class ErrorObject(Struct):
    """The error member of an answer."""

    code: int
    message: str
    data: ErrorData


class Success(Struct):
    """An answer to a call that went well."""

    jsonrpc: Literal["2.0"]
    id: Raw
    result: Any


class Failed(Struct):
    """An answer to a call that failed."""

    jsonrpc: Literal["2.0"]
    id: Raw
    error: ErrorObject


class Malformed(Exception):
    """
    What came is no call.
    """

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(message)
        self.answer = Failed("2.0", _NULL, ErrorObject(code, message, ErrorData(name, message)))


def failed(error: BrokerError, id: Raw = _NULL) -> Failed:
    """A broker's failure as JSON-RPC tells it."""
    data = ErrorData(error.name, error.message, error.code)
    return Failed("2.0", id, ErrorObject(error.rpcCode, error.message, data))


def encodeError(error: BrokerError) -> bytes:
    """The JSON text for a failure that belongs to no call."""
    return encode(failed(error))


_callDecoder = Decoder(Call)
_callsDecoder = Decoder(list[Call])
_textsDecoder = Decoder(list[Raw])


def _parseError(message: str) -> Malformed:
    return Malformed(PARSE_ERROR, "ParseError", message)


def _invalidRequest(message: str) -> Malformed:
    return Malformed(INVALID_REQUEST, "InvalidRequest", message)


def _decode(decoder: Decoder[Any], text: bytes | Raw) -> Any:
    try:
        return decoder.decode(text)
    except ValidationError:
        raise _invalidRequest("the request is not a JSON-RPC 2.0 call") from None
    except RecursionError:
        raise _parseError("the JSON is nested too deeply") from None
    except DecodeError:
        raise _parseError("the request is not JSON") from None


def parseBody(body: bytes) -> Call | list[Call | Malformed]:
    """
    One call, or the entries of a batch, of which some may be none.

    @raise Malformed: it is neither.
    """
    if not body.isascii():
        try:
            body.decode("utf-8")
        except UnicodeDecodeError:
            raise _parseError("the request is not UTF-8") from None
    if body.lstrip(b" \t\r\n")[:1] != b"[":
        return _check(_decode(_callDecoder, body))
    batch: list[Call] | list[Raw]
    try:
        batch = _callsDecoder.decode(body)
    except (DecodeError, RecursionError):
        # At least one is none. Whether the others are, is seen one by one.
        batch = _decode(_textsDecoder, body)
    if not batch:
        raise _invalidRequest("a batch is not empty")
    if len(batch) > MAX_BATCH:
        raise _invalidRequest(f"a batch has at most {MAX_BATCH} entries")
    return [_parseEntry(entry) for entry in batch]


def _parseEntry(entry: Call | Raw) -> Call | Malformed:
    try:
        return _check(entry if isinstance(entry, Call) else _decode(_callDecoder, entry))
    except Malformed as malformed:
        return malformed


def _check(call: Call) -> Call:
    """
    @raise Malformed: its members are not what they must be.
    """
    if call.jsonrpc != _VERSION:
        raise _invalidRequest('jsonrpc is not "2.0"')
    id, params = bytes(call.id), bytes(call.params)
    if id and id[:1] != b'"' and id[0] not in _NUMBER_START and id != b"null":
        raise _invalidRequest("id is not a string, a number or null")
    if params and params[:1] not in (b"{", b"[") and params != b"null":
        raise _invalidRequest("params is not an object or an array")
    if bytes(call.method)[:1] != b'"':
        raise _invalidRequest("method is not a string")
    return call
