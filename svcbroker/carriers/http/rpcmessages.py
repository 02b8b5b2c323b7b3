"""
The messages of JSON-RPC 2.0, and how bodies are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen
from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, defstruct
from msgspec.json import Decoder

from ...errors import BrokerError, NodeBehind, QuotaExceeded, SequenceConflict
from ...operations import ErasureResult, erasureOf

MAX_BATCH: Final = 1000
"""The most entries of a batch."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600

_VERSION = Raw(b'"2.0"')
_NULL = Raw(b"null")
_NO_IDS = frozenset((b"{", b"[", b"t", b"f"))
"""The first bytes of JSON text that is no id: an object, an array, C{true} or C{false}."""


class RpcCall(Struct):
    """A call as it was sent. An absent member is empty; a notification has no id."""

    jsonrpc: Raw = Raw()
    method: Raw = Raw()
    params: Raw = Raw()
    id: Raw = Raw()


class ErrorData(Struct):
    """
    The data of an error. The protocol's own errors have no code of the broker. The sequence number
    is that of the topic, where another one was expected. Over a quota they say after how many
    seconds to try again, where time alone helps. Where the content of an event was erased, they say
    when and why.
    """

    exceptionTypeName: str
    message: str
    code: int | UnsetType = UNSET
    sequenceNumber: int | UnsetType = UNSET
    retryAfter: float | UnsetType = UNSET
    erased: ErasureResult | UnsetType = UNSET


class ErrorObject(Struct):
    """The error member of an answer."""

    code: int
    message: str
    data: ErrorData


class Success(Struct):
    """The answer to a call that succeeded."""

    jsonrpc: Literal["2.0"]
    id: Raw
    result: Any


class Failed(Struct):
    """The answer to a call that failed."""

    jsonrpc: Literal["2.0"]
    id: Raw
    error: ErrorObject


class RpcMalformed(Exception):
    """
    The entry of a batch, or the whole body, that is no call.

    @ivar answer: what is answered to it.
    """

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(message)
        self.answer = Failed("2.0", _NULL, ErrorObject(code, message, ErrorData(name, message)))


def failed(error: BrokerError, id: Raw = _NULL, exceptionName: str | None = None) -> Failed:
    """
    The answer to a call that failed in the broker.

    @param exceptionName: the type name that a dialect gives every error.
    """
    data = ErrorData(exceptionName or error.name, error.message, error.code)
    if isinstance(error, SequenceConflict) and error.sequence is not None:
        data.sequenceNumber = error.sequence
    if isinstance(error, QuotaExceeded | NodeBehind) and error.retryAfter:
        data.retryAfter = round(error.retryAfter, 3)
    data.erased = erasureOf(error)
    return Failed("2.0", id, ErrorObject(error.rpcCode, error.message, data))


@frozen
class PlainBatch:
    """
    A batch of plain calls of one method.

    @ivar method: its name.
    @ivar calls: the calls. Their C{params} are
        L{plainParams<svcbroker.operations.BatchCalls>}.
    @ivar text: the batch as it was sent.
    """

    method: str
    calls: Sequence[Any]
    text: bytes


Body: TypeAlias = RpcCall | RpcMalformed | list[RpcCall | RpcMalformed] | PlainBatch
"""A body that was read."""


class PlainBatches:
    """
    Reads batches of plain calls of one method.
    """

    def __init__(self, method: str, params: type[Struct]) -> None:
        """
        @param method: its name.
        @param params: the type of the C{params} of a plain call.
        """
        members: list[tuple[str, Any] | tuple[str, Any, Any]] = [
            ("jsonrpc", Literal["2.0"]),
            ("method", Literal[method]),
            ("params", params),
            ("id", Raw, Raw()),
        ]
        call: Any = defstruct("PlainCall", members)
        self._method = method
        self._decoder: Decoder[list[Any]] = Decoder(list[call])

    def read(self, body: bytes) -> PlainBatch | None:
        """
        Read a batch. Hot path: the whole of it, parameters included, in one go.

        @param body: JSON text in UTF-8.
        @return: C{None} where it is no such batch, or not valid.
        """
        try:
            calls = self._decoder.decode(body)
        except (DecodeError, RecursionError):
            return None
        if not 0 < len(calls) <= MAX_BATCH:
            return None
        if not _NO_IDS.isdisjoint([bytes(call.id)[:1] for call in calls]):
            return None
        return PlainBatch(self._method, calls, body)


_callDecoder = Decoder(RpcCall)
_callsDecoder = Decoder(list[RpcCall])
_textsDecoder = Decoder(list[Raw])


def _parseError(message: str) -> RpcMalformed:
    return RpcMalformed(PARSE_ERROR, "ParseError", message)


def _invalidRequest(message: str) -> RpcMalformed:
    return RpcMalformed(INVALID_REQUEST, "InvalidRequest", message)


def _decode(decoder: Decoder[Any], text: bytes | Raw) -> Any:
    try:
        return decoder.decode(text)
    except ValidationError:
        raise _invalidRequest("the request is not a JSON-RPC 2.0 call") from None
    except RecursionError:
        raise _parseError("the JSON is nested too deeply") from None
    except DecodeError:
        raise _parseError("the request is not JSON") from None


def parseBody(body: bytes, plain: Iterable[PlainBatches]) -> Body:
    """
    Read one call, or the entries of a batch.

    @param plain: what may read a batch in one go.
    """
    try:
        return _parseBody(body, plain)
    except RpcMalformed as malformed:
        return malformed


def _parseBody(body: bytes, plain: Iterable[PlainBatches]) -> Body:
    if not body.isascii():
        try:
            body.decode("utf-8")
        except UnicodeDecodeError:
            raise _parseError("the request is not UTF-8") from None
    if body.lstrip(b" \t\r\n")[:1] != b"[":
        return _check(_decode(_callDecoder, body))
    for batches in plain:
        batch = batches.read(body)
        if batch is not None:
            return batch
    return parseEntries(body)


def parseEntries(body: bytes) -> list[RpcCall | RpcMalformed]:
    """
    Read the entries of a batch, one by one.

    @param body: JSON text in UTF-8.
    @raise RpcMalformed: it is no batch.
    """
    batch: list[RpcCall] | list[Raw]
    try:
        batch = _callsDecoder.decode(body)
    except (DecodeError, RecursionError):
        # At least one entry is no call: they are decoded one by one.
        batch = _decode(_textsDecoder, body)
    if not batch:
        raise _invalidRequest("a batch is not empty")
    if len(batch) > MAX_BATCH:
        raise _invalidRequest(f"a batch has at most {MAX_BATCH} entries")
    return [_parseEntry(entry) for entry in batch]


def _parseEntry(entry: RpcCall | Raw) -> RpcCall | RpcMalformed:
    try:
        return _check(entry if isinstance(entry, RpcCall) else _decode(_callDecoder, entry))
    except RpcMalformed as malformed:
        return malformed


def _check(call: RpcCall) -> RpcCall:
    """
    @raise RpcMalformed: its members are not what they must be.
    """
    if call.jsonrpc != _VERSION:
        raise _invalidRequest('jsonrpc is not "2.0"')
    params = bytes(call.params)
    if bytes(call.id)[:1] in _NO_IDS:
        raise _invalidRequest("id is not a string, a number or null")
    if params and params[:1] not in (b"{", b"[") and params != b"null":
        raise _invalidRequest("params is not an object or an array")
    if bytes(call.method)[:1] != b'"':
        raise _invalidRequest("method is not a string")
    return call
