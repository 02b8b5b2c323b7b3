"""
JSON-RPC 2.0.

Members that an operation does not know are ignored, as REST does; of a member that is there
twice the last counts. C{params} may be absent or C{null}. The header Content-Type is not looked
at, since deployed clients send what they like.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from attrs import frozen
from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure
from twisted.web import http

from ...broker import Broker
from ...errors import BrokerError, NoSuchCall, Overloaded, ParameterInvalid
from ...operations import OPERATIONS, Incidents, Operation, bindJSON
from .encoding import encode
from .request import BrokerRequest
from .resource import Route, respond

MAX_BATCH: Final = 1000
"""The most entries of a batch."""
MAX_BATCH_ANSWER: Final = 16 * 1024 * 1024
"""A batch whose answers have grown larger than this, in bytes, is not carried on."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600

_NULL = Raw(b"null")
_NUMBER_START = b"-0123456789"


class _Entry(Struct):
    """A call as it came. An absent member is empty."""

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


@frozen
class _Call:
    """A well-formed call. A notification's id is empty."""

    method: str
    params: Raw
    id: Raw


class _Malformed(Exception):
    """What came is no call. Its arguments are the code, the name and the message."""


_entryDecoder = Decoder(_Entry)
_batchDecoder = Decoder(list[Raw])
_anyDecoder = Decoder()


def encodeError(error: BrokerError, id: Raw = _NULL) -> bytes:
    """A broker's failure as JSON-RPC tells it."""
    data = ErrorData(error.name, error.message, error.code)
    return encode(Failed("2.0", id, ErrorObject(error.rpcCode, error.message, data)))


def _encodeMalformed(code: int, name: str, message: str) -> bytes:
    return encode(Failed("2.0", _NULL, ErrorObject(code, message, ErrorData(name, message))))


def _parseError(message: str) -> _Malformed:
    return _Malformed(PARSE_ERROR, "ParseError", message)


def _invalidRequest(message: str) -> _Malformed:
    return _Malformed(INVALID_REQUEST, "InvalidRequest", message)


def _decode(decoder: Decoder[Any], text: bytes | Raw) -> Any:
    try:
        return decoder.decode(text)
    except ValidationError:
        raise _invalidRequest("the request is not a JSON-RPC 2.0 call") from None
    except RecursionError:
        raise _parseError("the JSON is nested too deeply") from None
    except DecodeError:
        raise _parseError("the request is not JSON") from None


def _parseBody(body: bytes) -> bytes | list[Raw]:
    """One call's text, or the texts of a batch."""
    if not body.isascii():
        try:
            body.decode("utf-8")
        except UnicodeDecodeError:
            raise _parseError("the request is not UTF-8") from None
    if body.lstrip(b" \t\r\n")[:1] != b"[":
        return body
    batch: list[Raw] = _decode(_batchDecoder, body)
    if not batch:
        raise _invalidRequest("a batch is not empty")
    if len(batch) > MAX_BATCH:
        raise _invalidRequest(f"a batch has at most {MAX_BATCH} entries")
    return batch


def _parseCall(text: bytes | Raw) -> _Call:
    entry = _decode(_entryDecoder, text)
    if bytes(entry.jsonrpc) != b'"2.0"':
        raise _invalidRequest('jsonrpc is not "2.0"')
    id, params = bytes(entry.id), bytes(entry.params)
    if id and id[:1] != b'"' and id[0] not in _NUMBER_START and id != b"null":
        raise _invalidRequest("id is not a string, a number or null")
    if params and params[:1] not in (b"{", b"[") and params != b"null":
        raise _invalidRequest("params is not an object or an array")
    if bytes(entry.method)[:1] != b'"':
        raise _invalidRequest("method is not a string")
    return _Call(_anyDecoder.decode(entry.method), entry.params, entry.id)


class _Method:
    """One operation over JSON-RPC."""

    def __init__(self, operation: Operation, broker: Broker) -> None:
        self.call = bindJSON(operation, broker)
        self._render = operation.result.render
        self._isBoolean = operation.result.type is bool
        self._names = tuple(parameter.name for parameter in operation.parameters)

    def members(self, params: Raw) -> Mapping[str, object]:
        """
        The parameters by their names.

        @raise ParameterInvalid: there are too many by position, a number is out of range, or
            they are nested too deeply.
        """
        if not bytes(params):
            return {}
        try:
            given = _anyDecoder.decode(params)
        except ValidationError:
            raise ParameterInvalid("a number is out of range") from None
        except RecursionError:
            raise ParameterInvalid("the parameters are nested too deeply") from None
        if isinstance(given, list):
            if len(given) > len(self._names):
                raise ParameterInvalid("there are too many parameters")
            return dict(zip(self._names, given, strict=False))
        return given or {}

    def render(self, result: Any) -> Any:
        """The result; true and false are strings here."""
        if self._isBoolean:
            return "true" if result else "false"
        return self._render(result)


class JSONRPC:
    """
    The operations over JSON-RPC.
    """

    def __init__(self, broker: Broker, incidents: Incidents) -> None:
        self._methods = {each.name: _Method(each, broker) for each in OPERATIONS}
        self._incidents = incidents

    async def answer(self, body: bytes) -> bytes | None:
        """
        The JSON text that answers a call or a batch, C{None} where nothing is to be answered.
        """
        try:
            parsed = _parseBody(body)
            if isinstance(parsed, list):
                return await self._answerBatch(parsed)
            return await self._perform(_parseCall(parsed))
        except _Malformed as malformed:
            return _encodeMalformed(*malformed.args)

    async def _answerBatch(self, batch: list[Raw]) -> bytes | None:
        """
        Publishes that follow each other are submitted together; any other call waits for those
        before it.
        """
        answers: list[bytes] = []
        size = 0
        running: deque[Deferred[bytes | None]] = deque()

        def keep(answer: bytes | None) -> None:
            nonlocal size
            if answer is not None:
                answers.append(answer)
                size += len(answer)

        for text in batch:
            try:
                call = _parseCall(text)
            except _Malformed as malformed:
                running.append(_succeed(_encodeMalformed(*malformed.args)))
                continue
            if call.method == "publish" and size <= MAX_BATCH_ANSWER:
                running.append(Deferred.fromCoroutine(self._perform(call)))
                continue
            while running:
                keep(await running.popleft())
            if size > MAX_BATCH_ANSWER:
                keep(_tooMuch(call))
            else:
                keep(await self._perform(call))
        for done in running:
            keep(await done)
        return b"[" + b",".join(answers) + b"]" if answers else None

    async def _perform(self, call: _Call) -> bytes | None:
        try:
            method = self._methods.get(call.method)
            if method is None:
                raise NoSuchCall()
            result = method.render(await method.call(method.members(call.params)))
            if not bytes(call.id):
                return None
            return encode(Success("2.0", call.id, result))
        except BrokerError as broken:
            error = broken
        except CancelledError:
            raise
        except Exception:
            error = self._incidents.explain(Failure())
        return encodeError(error, call.id) if bytes(call.id) else None

    def handle(self, request: BrokerRequest) -> Deferred[bytes]:
        """Answer a request."""
        return Deferred.fromCoroutine(self._handle(request))

    async def _handle(self, request: BrokerRequest) -> bytes:
        answer = await self.answer(request.body())
        if answer is None:
            request.setResponseCode(http.NO_CONTENT)
            return b""
        return respond(request, answer)


def _succeed(answer: bytes) -> Deferred[bytes | None]:
    done: Deferred[bytes | None] = Deferred()
    done.callback(answer)
    return done


def _tooMuch(call: _Call) -> bytes | None:
    if not bytes(call.id):
        return None
    return encodeError(Overloaded("the answer to this batch is too large: ask for less"), call.id)


def routes(path: str, broker: Broker, incidents: Incidents) -> Iterator[Route]:
    """The route of JSON-RPC."""
    yield Route(
        path=path, methods=("POST",), handler=JSONRPC(broker, incidents).handle, isDirect=True
    )
