"""
JSON-RPC 2.0: its messages, and the endpoint that answers them.

Members that an operation does not know are ignored, as REST does; of a member that is there
twice the last counts. C{params} may be absent or C{null}. The header Content-Type is not looked
at, since deployed clients send what they like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias

from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError
from msgspec.json import Decoder
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure

from ...access import Principal
from ...broker import Broker
from ...errors import BrokerError, NoSuchCall, Overloaded, ParameterInvalid, SequenceConflict
from ...net.deferreds import asDeferred
from ...operations import (
    IDEMPOTENCY_KEY,
    Connection,
    Erasure,
    Incidents,
    Interface,
    Operation,
    bindBatch,
    bindParams,
    erasureOf,
)
from .headers import PublishHeaders
from .routes import Endpoint, encode
from .rpcheaders import addHeaders

MAX_BATCH_ANSWER: Final = 16 * 1024 * 1024
"""A batch whose answers have grown larger than this, in bytes, is not carried on."""

MAX_BATCH: Final = 1000
"""The most entries of a batch."""

MAX_SIGNED: Final = 200
"""How many signed publishes of a batch are submitted together. To verify each takes 0.1 ms, in one
turn of the reactor."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600

_VERSION = Raw(b'"2.0"')
_NULL = Raw(b"null")
_EMPTY = Raw(b'""')
_NUMBER_START = b"-0123456789"


class Call(Struct):
    """A call as it was sent. An absent member is empty; a notification has no id."""

    jsonrpc: Raw = Raw()
    method: Raw = Raw()
    params: Raw = Raw()
    id: Raw = Raw()


class ErrorData(Struct):
    """
    The data of an error. The protocol's own errors have no code of the broker. The sequence number
    is that of the topic, where another one was expected. Where the content of an event was erased,
    they say when and why.
    """

    exceptionTypeName: str
    message: str
    code: int | UnsetType = UNSET
    sequenceNumber: int | UnsetType = UNSET
    erased: Erasure | UnsetType = UNSET


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


class Malformed(Exception):
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
    data.erased = erasureOf(error)
    return Failed("2.0", id, ErrorObject(error.rpcCode, error.message, data))


def errorEncoder(interface: Interface) -> Callable[[BrokerError], bytes]:
    """Make the function that encodes a failure that belongs to no call."""
    return lambda error: encode(failed(error, exceptionName=interface.exceptionName))


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


def parseBody(body: bytes) -> Call | Malformed | list[Call | Malformed]:
    """
    Read one call, or the entries of a batch.
    """
    try:
        return _parseBody(body)
    except Malformed as malformed:
        return malformed


def _parseBody(body: bytes) -> Call | list[Call | Malformed]:
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
        # At least one entry is no call: they are decoded one by one.
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


_Answer: TypeAlias = Success | Failed | None
"""What is answered to a call; C{None} to a notification."""
_Request: TypeAlias = Call | Malformed | list[Call | Malformed] | Failed | None
"""A body that was read, or what is answered to it."""

_anyDecoder = Decoder()


class _Method:
    """
    One operation over JSON-RPC.

    @ivar call: makes a call of its C{params}.
    @ivar batch: reads the C{params} of one call, and makes many calls that were read; C{None}
        where the operation takes one call at a time.
    @ivar names: the names of the parameters, in their order by position.
    """

    def __init__(self, operation: Operation, broker: Broker) -> None:
        self.call = bindParams(operation, broker)
        self.batch = bindBatch(operation, broker)
        self.names = tuple(each.name for each in operation.parameters)
        self._render = operation.result.render
        self._isBoolean = operation.result.type is bool

    def render(self, result: Any) -> Any:
        """Make the result member. Booleans are strings in JSON-RPC."""
        if self._isBoolean:
            return "true" if result else "false"
        return self._render(result)


class JSONRPC:
    """
    The operations over JSON-RPC.
    """

    def __init__(self, broker: Broker, incidents: Incidents, interface: Interface) -> None:
        self._exceptionName = interface.exceptionName
        self._methods = {each.name: _Method(each, broker) for each in interface.operations}
        self._byText = {b'"%b"' % name.encode("ascii"): m for name, m in self._methods.items()}
        self._incidents = incidents

    def answer(
        self,
        principal: Principal,
        body: _Request,
        connection: Connection,
    ) -> Deferred[Any]:
        """
        Make a call, or all calls of a batch, for a principal.

        @param body: the request, or what is answered to it.
        @return: fires with the answer, or C{None} where nothing is to be answered.
        """
        if isinstance(body, Call):
            return self._perform(principal, body, connection)
        if isinstance(body, Malformed):
            return succeed(body.answer)
        if not isinstance(body, list):
            return succeed(body)
        return self._answerBatch(principal, body, connection)

    def addHeaders(
        self, body: Call | Malformed | list[Call | Malformed], headers: PublishHeaders
    ) -> _Request:
        """
        Add header fields to the parameters of calls that publish.

        @return: the request; or what is answered where it has another idempotency key.
        @raise ParameterInvalid: there is an idempotency key for several calls.
        """
        if isinstance(body, Malformed):
            return body
        if isinstance(body, Call):
            try:
                return self._addHeaders(body, headers)
            except ParameterInvalid as error:
                return self._failed(error, body)
        if headers.idempotencyKey:
            raise ParameterInvalid("the header Idempotency-Key is for one call, not for a batch")
        return [
            each if isinstance(each, Malformed) else self._addHeaders(each, headers)
            for each in body
        ]

    def _addHeaders(self, call: Call, headers: PublishHeaders) -> Call:
        method = self._byText.get(bytes(call.method))
        if method is None or IDEMPOTENCY_KEY.name not in method.names:
            return call
        return replace(call, params=addHeaders(call.params, method.names, headers))

    def _method(self, call: Call) -> _Method:
        """
        @raise NoSuchCall: there is none.
        """
        method = self._byText.get(bytes(call.method))
        if method is None:
            method = self._methods.get(_anyDecoder.decode(call.method))
            if method is None:
                raise NoSuchCall()
        return method

    def _batchMethod(self, entry: Call | Malformed) -> _Method | None:
        """The method of an entry that can be called in a batch with others of its kind."""
        if isinstance(entry, Malformed):
            return None
        method = self._byText.get(bytes(entry.method))
        return None if method is None or method.batch is None else method

    @asDeferred
    async def _answerBatch(
        self, principal: Principal, batch: Sequence[Call | Malformed], connection: Connection
    ) -> Raw | None:
        """
        Publishes that follow each other are submitted in one batch; any other call waits for
        those before it.
        """
        answers: list[bytes] = []
        size = 0
        for method, group in groupby(batch, self._batchMethod):
            for step in [list(group)] if method is not None else [[entry] for entry in group]:
                done: Sequence[_Answer]
                if size > MAX_BATCH_ANSWER:
                    done = [self._tooLarge(entry) for entry in step]
                elif method is None:
                    done = [await self._performEntry(principal, step[0], connection)]
                else:
                    done = await self._performBatch(principal, method, step)
                known = [answer for answer in done if answer is not None]
                if known:
                    answers.append(encode(known)[1:-1])
                    size += len(answers[-1])
        return Raw(b"[" + b",".join(answers) + b"]") if answers else None

    async def _performEntry(
        self, principal: Principal, entry: Call | Malformed, connection: Connection
    ) -> _Answer:
        if isinstance(entry, Malformed):
            return entry.answer
        return await self._perform(principal, entry, connection)

    def _perform(
        self, principal: Principal, call: Call, connection: Connection
    ) -> Deferred[_Answer]:
        try:
            method = self._method(call)
            result = method.call(principal, call.params, connection)
        except Exception:
            return succeed(self._fail(Failure(), call))
        result.addCallback(_succeed, method, call)
        result.addErrback(self._fail, call)
        return result

    async def _performBatch(
        self, principal: Principal, method: _Method, calls: Sequence[Any]
    ) -> Sequence[_Answer]:
        assert method.batch is not None
        read, perform = method.batch
        answers: list[_Answer] = [None] * len(calls)
        places: list[int] = []
        items: list[Any] = []
        for place, call in enumerate(calls):
            try:
                items.append(read(principal, call.params))
                places.append(place)
            except BrokerError as error:
                answers[place] = self._failed(error, call)
        outcomes: list[Any] = []
        try:
            for part in _parts(items):
                outcomes += await perform(principal, part)
        except CancelledError:
            raise
        except Exception:
            outcomes = [self._incidents.explain(Failure())] * len(items)
        for place, outcome in zip(places, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                answers[place] = self._failed(outcome, calls[place])
            else:
                answers[place] = _succeed(outcome, method, calls[place])
        return answers

    def _fail(self, failure: Failure, call: Call) -> Failed | None:
        if isinstance(failure.value, CancelledError):
            raise failure.value
        return self._failed(self._incidents.explain(failure), call)

    def _failed(self, error: BrokerError, call: Call) -> Failed | None:
        return failed(error, call.id, self._exceptionName) if bytes(call.id) else None

    def _tooLarge(self, entry: Call | Malformed) -> Failed | None:
        if isinstance(entry, Malformed):
            return entry.answer
        error = Overloaded("the answer to this batch is too large: ask for less")
        return self._failed(error, entry)


def _parts(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The publishes of a batch, with at most L{MAX_SIGNED} signed ones in each part."""
    start = signed = 0
    if len(items) > MAX_SIGNED:
        for number, item in enumerate(items):
            signed += item.author is not None
            if signed > MAX_SIGNED:
                yield items[start:number]
                start, signed = number, 1
    if items:
        yield items[start:]


def _succeed(result: Any, method: _Method, call: Call) -> Success | None:
    return Success("2.0", call.id, method.render(result)) if bytes(call.id) else None


def rpcEndpoint(path: str, broker: Broker, incidents: Incidents, interface: Interface) -> Endpoint:
    """The endpoint of JSON-RPC."""
    calls = JSONRPC(broker, incidents, interface)
    return Endpoint(
        method="POST",
        path=path,
        parse=lambda query, contentType, body: parseBody(body),
        addHeaders=calls.addHeaders,
        call=calls.answer,
        encode=lambda answer: None if answer is None else encode(answer),
        encodeError=errorEncoder(interface),
        incidents=incidents,
    )
