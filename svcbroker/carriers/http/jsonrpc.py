"""
JSON-RPC 2.0: its messages, and the endpoint that answers its calls.

Members that an operation does not know are ignored, as REST does; of a member that is there
twice the last counts. C{params} may be absent or C{null}. The header Content-Type is not looked
at, since deployed clients send what they like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen
from msgspec import UNSET, DecodeError, Raw, Struct, UnsetType, ValidationError, defstruct
from msgspec.json import Decoder
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure

from ...access import Principal
from ...broker import Calls
from ...errors import (
    BrokerError,
    NodeBehind,
    NoSuchCall,
    Overloaded,
    ParameterInvalid,
    QuotaExceeded,
    SequenceConflict,
)
from ...net.budgets import FEW, Lane, Unsent
from ...net.deferreds import asDeferred
from ...operations import (
    EXTENSIONS,
    IDEMPOTENCY_KEY,
    SEEN,
    SIGNED_PARAMETERS,
    BatchCalls,
    Connection,
    ErasureResult,
    Incidents,
    Interface,
    Operation,
    bindBatch,
    bindParams,
    erasureOf,
    withTrace,
)
from .rest import differentKeys, unquoted
from .routes import HttpEndpoint, PublishHeaders, encode

MAX_BATCH: Final = 1000
"""The most entries of a batch."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600

_VERSION = Raw(b'"2.0"')
_NULL = Raw(b"null")
_NO_IDS = frozenset((b"{", b"[", b"t", b"f"))
"""The first bytes of JSON text that is no id: an object, an array, C{true} or C{false}."""


class RpcRequest(Struct, gc=False):
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


Body: TypeAlias = RpcRequest | RpcMalformed | list[RpcRequest | RpcMalformed] | PlainBatch
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
        call: Any = defstruct("PlainCall", members, gc=False)
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


_callDecoder = Decoder(RpcRequest)
_callsDecoder = Decoder(list[RpcRequest])
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


def parseEntries(body: bytes) -> list[RpcRequest | RpcMalformed]:
    """
    Read the entries of a batch, one by one.

    @param body: JSON text in UTF-8.
    @raise RpcMalformed: it is no batch.
    """
    batch: list[RpcRequest] | list[Raw]
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


def _parseEntry(entry: RpcRequest | Raw) -> RpcRequest | RpcMalformed:
    try:
        return _check(entry if isinstance(entry, RpcRequest) else _decode(_callDecoder, entry))
    except RpcMalformed as malformed:
        return malformed


def _check(call: RpcRequest) -> RpcRequest:
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


_EMPTY = Raw(b'""')

_paramsDecoder = Decoder(dict[str, Raw] | list[Raw] | None)
_extensionsDecoder = Decoder(dict[str, str] | None)


def addHeaders(params: Raw, names: Sequence[str], headers: PublishHeaders) -> Raw:
    """
    Add header fields to the parameters of a call. They stay an object or an array. Parameters
    that cannot be read stay as they are: they are refused later.

    @param params: the JSON text.
    @param names: the names of the parameters, in their order by position.
    @raise ParameterInvalid: they have another idempotency key, or name another event.
    """
    try:
        given = _Params(names, _paramsDecoder.decode(bytes(params) or b"{}") or {})
        if headers.trace and all(given.get(name) == _NULL for name in SIGNED_PARAMETERS):
            name = EXTENSIONS.name
            extensions = _extensionsDecoder.decode(given.get(name)) or {}
            given = given.having(name, Raw(encode(withTrace(extensions, headers.trace))))
    except (DecodeError, RecursionError):
        return params
    if headers.after:
        added = Raw(encode(headers.after.decode("latin-1")))
        if given.get(SEEN.name) not in (_NULL, _EMPTY, added):
            raise ParameterInvalid("after: differs from the header svc-after")
        given = given.having(SEEN.name, added)
    if headers.idempotencyKey:
        added = Raw(encode(unquoted(headers.idempotencyKey).decode("latin-1")))
        if given.get(IDEMPOTENCY_KEY.name) not in (_NULL, _EMPTY, added):
            raise differentKeys()
        given = given.having(IDEMPOTENCY_KEY.name, added)
    return Raw(encode(given.members))


@frozen
class _Params:
    """
    Parameters, by their names or in an array.
    """

    _names: Sequence[str]
    members: dict[str, Raw] | list[Raw]

    def get(self, name: str) -> Raw:
        """A parameter; null where there is none."""
        if isinstance(self.members, dict):
            return self.members.get(name, _NULL)
        place = self._names.index(name)
        return self.members[place] if place < len(self.members) else _NULL

    def having(self, name: str, value: Raw) -> _Params:
        """The same with another value of one."""
        if isinstance(self.members, dict):
            return _Params(self._names, {**self.members, name: value})
        place = self._names.index(name)
        members = self.members + [_NULL] * (place + 1 - len(self.members))
        members[place] = value
        return _Params(self._names, members)


MAX_BATCH_ANSWER: Final = 4 * 1024 * 1024
"""A batch whose answers have grown larger than this, in bytes, is not carried on."""

MAX_BATCH_TIME: Final = 20.0
"""A batch is not carried on once its calls that wait for each other have taken so many seconds: a
thousand searches that find nothing kept a processor busy for half an hour. What waits for a block
is not counted: some ledgers take seconds for one."""

MAX_TOGETHER: Final = 100
"""The most calls of a batch that open or close topics in one turn of the reactor."""

PART_BESIDE_FEW: Final = 250
"""The most publishes of a batch that are submitted together while others publish a few events: a
block with these has no more of the batch."""

MAX_SIGNED: Final = 40
"""The most signed publishes of a batch that are submitted together, in one turn of the reactor: to
verify each takes 0.1 ms."""

SIGNED_BESIDE_FEW: Final = 10
"""The same while others publish a few events."""


def errorEncoder(interface: Interface) -> Callable[[BrokerError], bytes]:
    """Make the function that encodes a failure that belongs to no call."""
    return lambda error: encode(failed(error, exceptionName=interface.exceptionName))


_Answer: TypeAlias = Success | Failed | None
"""The answer to a call; C{None} to a notification."""
_Request: TypeAlias = Body | Failed | None
"""A body that was read, or what is answered to it."""


_TOO_LARGE: Final = "the answer to this batch is too large: ask for less"
_TOO_LATE: Final = (
    f"calls of this batch before this one took {MAX_BATCH_TIME:g} seconds: this one was not made, "
    "make it and those behind it in another batch"
)


class _BatchAnswers:
    """
    The answers of a batch, in the order of its entries. Those that are not known yet are waited for
    together.
    """

    def __init__(self, unsent: Unsent) -> None:
        """
        @param unsent: counts their bytes.
        """
        self._unsent = unsent
        self._waiting: list[Deferred[Sequence[_Answer]]] = []
        self._texts: list[bytes] = []

    @property
    def areTooLarge(self) -> bool:
        """Whether nothing more is to be answered."""
        held = self._unsent.held
        return held > MAX_BATCH_ANSWER or bool(held and self._unsent.room <= 0)

    def add(self, answers: Deferred[Sequence[_Answer]]) -> None:
        """Add the answers to the next entries. They do not fail unless they are cancelled."""
        self._waiting.append(answers)

    def addOne(self, answer: Deferred[_Answer]) -> None:
        """Add the answer to the next entry."""
        self.add(answer.addCallback(lambda known: [known]))

    async def known(self) -> None:
        """Wait for all answers, and encode them."""
        waiting, self._waiting = self._waiting, []
        answers = [each for answers in waiting for each in await answers if each is not None]
        if answers:
            self._texts.append(encode(answers)[1:-1])
            self._unsent.hold(len(self._texts[-1]))

    def encoded(self) -> bytes | None:
        """The answer to the batch; C{None} where nothing is to be answered."""
        if not self._texts:
            return None
        # Megabytes are copied once.
        self._texts[0] = b"[" + self._texts[0]
        self._texts[-1] += b"]"
        return b",".join(self._texts)


_anyDecoder = Decoder()
_AFTER: Final = b'"%b"' % SEEN.name.encode("ascii")


class _Method:
    """
    One operation over JSON-RPC.

    @ivar call: makes a call of its C{params}.
    @ivar batch: makes many calls; C{None} where the operation takes one call at a time.
    @ivar isTogether: see L{Operation}.
    @ivar names: the names of the parameters, in their order by position; without any, all calls of
        a batch have the same answer.
    @ivar hasAfter: see L{Operation}.
    @ivar render: makes the result member.
    """

    def __init__(self, operation: Operation, calls: Calls) -> None:
        self.call = bindParams(operation, calls)
        self.batch = bindBatch(operation, calls)
        self.isTogether = operation.isTogether
        self.names = tuple(each.name for each in operation.parameters)
        self.hasAfter = operation.hasAfter
        self.render = _booleanText if operation.result.type is bool else operation.result.render


def _booleanText(result: Any) -> str:
    """A boolean as the result member: a string in JSON-RPC."""
    return "true" if result else "false"


class JSONRPC:
    """
    The operations over JSON-RPC.
    """

    def __init__(self, calls: Calls, incidents: Incidents, interface: Interface) -> None:
        self._exceptionName = interface.exceptionName
        self._methods = {each.name: _Method(each, calls) for each in interface.operations}
        self._byText = {b'"%b"' % name.encode("ascii"): m for name, m in self._methods.items()}
        self._plain = [
            PlainBatches(name, method.batch.plainParams)
            for name, method in self._methods.items()
            if method.batch is not None
        ]
        self._incidents = incidents
        self._clock = calls.broker.clock
        self._hasOneGroup = len(calls.broker.groups) == 1

    def parse(self, query: bytes, contentType: bytes | None, body: bytes) -> Body:
        """Read a request. See L{HttpEndpoint.parse}."""
        return parseBody(body, self._plain)

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
        if isinstance(body, RpcRequest):
            if self._batchMethod(body) is None and not connection.lane.begin(isWrite=False):
                return self._performLater(principal, body, connection)
            return self._perform(principal, body, connection)
        if isinstance(body, RpcMalformed):
            return succeed(body.answer)
        if isinstance(body, PlainBatch):
            return self._answerPlain(principal, body, connection)
        if not isinstance(body, list):
            return succeed(body)
        return self._answerBatch(principal, body, connection)

    def isBatched(self, body: _Request) -> bool:
        """See L{svcbroker.carriers.http.routes.HttpEndpoint}."""
        return (
            isinstance(body, RpcRequest)
            and self._batchMethod(body) is not None
            and (self._hasOneGroup or b"groupId" not in bytes(body.params))
            # It waits, and no other call with it.
            and _AFTER not in bytes(body.params)
        )

    @asDeferred
    async def answerCalls(
        self, principal: Principal, calls: Sequence[RpcRequest]
    ) -> Sequence[_Answer]:
        """Make calls of many requests, for which L{isBatched} holds."""
        answers: list[_Answer] = []
        for name, group in groupby(calls, attrgetter("method")):
            method = self._byText[bytes(name)]
            answers += await (await self._performBatch(principal, method, list(group), None))
        return answers

    def addHeaders(self, body: Body, headers: PublishHeaders) -> _Request:
        """
        Add header fields to the parameters of calls that publish.

        @return: the request; or what is answered where it has another idempotency key.
        @raise ParameterInvalid: there is an idempotency key for several calls.
        """
        if isinstance(body, RpcMalformed):
            return body
        if isinstance(body, RpcRequest):
            try:
                return self._addHeaders(body, headers)
            except ParameterInvalid as error:
                return self._failed(error, body)
        if headers.idempotencyKey or headers.after:
            name = "Idempotency-Key" if headers.idempotencyKey else "svc-after"
            raise ParameterInvalid(f"the header {name} is for one call, not for a batch")
        return [
            each if isinstance(each, RpcMalformed) else self._addHeaders(each, headers)
            for each in (parseEntries(body.text) if isinstance(body, PlainBatch) else body)
        ]

    def _addHeaders(self, call: RpcRequest, headers: PublishHeaders) -> RpcRequest:
        method = self._byText.get(bytes(call.method))
        if method is None:
            return call
        if IDEMPOTENCY_KEY.name not in method.names:
            # Reads have what their client has seen alone.
            if not (headers.after and method.hasAfter):
                return call
            headers = PublishHeaders(b"", {}, headers.after)
        return replace(call, params=addHeaders(call.params, method.names, headers))

    def _method(self, call: RpcRequest) -> _Method:
        """
        @raise NoSuchCall: there is none.
        """
        method = self._byText.get(bytes(call.method))
        if method is None:
            method = self._methods.get(_anyDecoder.decode(call.method))
            if method is None:
                raise NoSuchCall()
        return method

    def _batchMethod(self, entry: RpcRequest | RpcMalformed) -> _Method | None:
        """The method of an entry that can be called in a batch with others of its kind."""
        if isinstance(entry, RpcMalformed):
            return None
        method = self._byText.get(bytes(entry.method))
        return None if method is None or method.batch is None else method

    @asDeferred
    async def _answerPlain(
        self, principal: Principal, batch: PlainBatch, connection: Connection
    ) -> Sequence[_Answer] | bytes | None:
        """Submit all calls of a batch together, unless one of them cannot be read."""
        method, calls = self._methods[batch.method], batch.calls
        assert method.batch is not None
        try:
            items = method.batch.readPlain(principal, [call.params for call in calls])
        except BrokerError:
            return await self._answerBatch(principal, parseEntries(batch.text), connection)
        connection.unsent.eventsSent += len(calls)
        outcomes = await (await self._submit(principal, method.batch, items, connection.lane))
        answers = self._answersTo(outcomes, method, calls)
        return [answer for answer in answers if answer is not None] or None

    @asDeferred
    async def _answerBatch(
        self,
        principal: Principal,
        batch: Sequence[RpcRequest | RpcMalformed],
        connection: Connection,
    ) -> bytes | None:
        """
        Calls that publish, open or close topics are submitted in their order, and none waits for
        the answer to another; any other call waits for those before it, and has a turn of its own.
        """
        answers = _BatchAnswers(connection.unsent)
        # Of calls without parameters.
        made: dict[bytes, _Answer] = {}
        lane, taken = connection.lane, 0.0
        try:
            for method, step in self._steps(batch):
                if method is None:
                    await answers.known()
                isWrite, events = method is not None, min(len(step), FEW + 1)
                if not lane.begin(isWrite, events):
                    await lane.turn(isWrite, events)
                isLate = taken >= MAX_BATCH_TIME
                if isLate or answers.areTooLarge:
                    error = Overloaded(_TOO_LATE if isLate else _TOO_LARGE)
                    answers.add(succeed([self._refused(entry, error) for entry in step]))
                elif method is None:
                    begun = self._clock.seconds()
                    answers.addOne(self._performEntry(principal, step[0], connection, made))
                    await answers.known()
                    taken += self._clock.seconds() - begun
                elif method.batch is None:
                    for call in step:
                        answers.addOne(self._perform(principal, call, connection))
                else:
                    connection.unsent.eventsSent += len(step)
                    answers.add(await self._performBatch(principal, method, step, lane))
            await answers.known()
        finally:
            connection.unsent.release()
        return answers.encoded()

    def _steps(
        self, batch: Sequence[RpcRequest | RpcMalformed]
    ) -> Iterator[tuple[_Method | None, Sequence[Any]]]:
        """The calls of a batch that are made together, with their method; C{None} for one alone."""
        for method, group in groupby(batch, self._togetherMethod):
            entries = list(group)
            most = 1 if method is None else MAX_TOGETHER if method.batch is None else len(entries)
            for start in range(0, len(entries), most):
                yield method, entries[start : start + most]

    def _togetherMethod(self, entry: RpcRequest | RpcMalformed) -> _Method | None:
        """The method of an entry that is made together with others of its kind."""
        if isinstance(entry, RpcMalformed):
            return None
        method = self._byText.get(bytes(entry.method))
        if method is not None and method.isTogether and _AFTER not in bytes(entry.params):
            return method
        return self._batchMethod(entry)

    @asDeferred
    async def _performEntry(
        self,
        principal: Principal,
        entry: RpcRequest | RpcMalformed,
        connection: Connection,
        made: dict[bytes, _Answer],
    ) -> _Answer:
        if isinstance(entry, RpcMalformed):
            return entry.answer
        name = bytes(entry.method)
        method = self._byText.get(name)
        isSame = method is not None and not method.names and bytes(entry.id)
        answer = made.get(name) if isSame else None
        if answer is not None:
            return replace(answer, id=entry.id)
        answer = await self._perform(principal, entry, connection)
        if isSame:
            made[name] = answer
        return answer

    @asDeferred
    async def _performLater(
        self, principal: Principal, call: RpcRequest, connection: Connection
    ) -> _Answer:
        await connection.lane.turn(isWrite=False)
        return await self._perform(principal, call, connection)

    def _perform(
        self, principal: Principal, call: RpcRequest, connection: Connection
    ) -> Deferred[_Answer]:
        try:
            method = self._method(call)
            result = method.call(principal, call.params, connection)
        except Exception:
            return succeed(self._failed(self._incidents.explain(Failure()), call))
        return result.addCallbacks(
            self._succeed, self._fail, callbackArgs=(method, call), errbackArgs=(call,)
        )

    async def _performBatch(
        self, principal: Principal, method: _Method, calls: Sequence[Any], lane: Lane | None
    ) -> Deferred[Sequence[_Answer]]:
        """
        Submit publishes.

        @return: fires with the answers.
        """
        assert method.batch is not None
        try:
            items = method.batch.readMany(principal, [call.params for call in calls])
        except BrokerError:
            return await self._performEach(principal, method, calls, lane)
        outcomes = await self._submit(principal, method.batch, items, lane)
        return outcomes.addCallback(self._answersTo, method, calls)

    async def _performEach(
        self, principal: Principal, method: _Method, calls: Sequence[Any], lane: Lane | None
    ) -> Deferred[Sequence[_Answer]]:
        """Submit publishes of which one at least is wrong, or not plain."""
        assert method.batch is not None
        answers: list[_Answer] = [None] * len(calls)
        places: list[int] = []
        items: list[Any] = []
        for place, call in enumerate(calls):
            try:
                items.append(method.batch.read(principal, call.params))
                places.append(place)
            except BrokerError as error:
                answers[place] = self._failed(error, call)

        def answer(outcomes: Sequence[Any]) -> Sequence[_Answer]:
            for place, outcome in zip(places, outcomes, strict=True):
                answers[place] = self._answerTo(outcome, method, calls[place])
            return answers

        return (await self._submit(principal, method.batch, items, lane)).addCallback(answer)

    async def _submit(
        self,
        principal: Principal,
        batch: BatchCalls,
        items: Sequence[Any],
        lane: Lane | None,
    ) -> Deferred[Sequence[Any]]:
        """
        Make calls that were read.

        @param lane: that of the connection; C{None} for calls of several.
        @return: fires with the result of each, or the error. All are submitted by then.
        """
        outcomes: list[Any] = []
        waiting: list[Deferred[Sequence[Any]]] = []
        start, isLimited = 0, principal.usage.limitsPublishes
        try:
            while start < len(items):
                if isLimited:
                    # Nothing overtakes what was refused.
                    outcomes += await _joined(waiting)
                    waiting.clear()
                    if outcomes and isinstance(outcomes[-1], QuotaExceeded):
                        return succeed(outcomes + outcomes[-1:] * (len(items) - start))
                isShared = lane is not None and lane.isShared
                part = items[start : _end(items, start, isShared=isShared)]
                start, count = start + len(part), len(part)
                if lane is not None:
                    # Where a quota limits it, each part waits for a block: others would wait, too.
                    if not isLimited:
                        lane.reserve(len(items) - start)
                    if not lane.begin(isWrite=True, events=count):
                        await lane.turn(isWrite=True, events=count)
                performed = batch.perform(principal, part)
                performed.addErrback(self._explainAll, count)
                waiting.append(performed)
        finally:
            if lane is not None:
                lane.reserve(0)
        if not outcomes and len(waiting) == 1:
            return waiting[0]
        return _joined(waiting, outcomes)

    def _explainAll(self, failure: Failure, count: int) -> Sequence[BrokerError] | Failure:
        """The outcomes of calls that were not made."""
        if failure.check(CancelledError):
            return failure
        return [self._incidents.explain(failure)] * count

    def _answersTo(
        self, outcomes: Sequence[Any], method: _Method, calls: Sequence[Any]
    ) -> Sequence[_Answer]:
        """The answers to calls of a method."""
        render = method.render
        # Hot path: nothing else is called for a success.
        return [
            Success("2.0", call.id, render(outcome))
            if bytes(call.id) and not isinstance(outcome, BrokerError)
            else self._answerTo(outcome, method, call)
            for outcome, call in zip(outcomes, calls, strict=True)
        ]

    def _answerTo(self, outcome: Any, method: _Method, call: Any) -> _Answer:
        if isinstance(outcome, BrokerError):
            return self._failed(outcome, call)
        # A notification has no id.
        return Success("2.0", call.id, method.render(outcome)) if bytes(call.id) else None

    def _succeed(self, result: Any, method: _Method, call: RpcRequest) -> _Answer | Failure:
        try:
            return self._answerTo(result, method, call)
        except Exception:
            return self._fail(Failure(), call)

    def _fail(self, failure: Failure, call: RpcRequest) -> Failed | Failure | None:
        # Raised here, the error would be a cycle with the frame of this function.
        if isinstance(failure.value, CancelledError):
            return failure
        return self._failed(self._incidents.explain(failure), call)

    def _failed(self, error: BrokerError, call: RpcRequest) -> Failed | None:
        return failed(error, call.id, self._exceptionName) if bytes(call.id) else None

    def _refused(self, entry: RpcRequest | RpcMalformed, error: BrokerError) -> Failed | None:
        """The answer to an entry that is not carried out."""
        return entry.answer if isinstance(entry, RpcMalformed) else self._failed(error, entry)


@asDeferred
async def _joined(
    parts: Sequence[Deferred[Sequence[Any]]], before: Sequence[Any] = ()
) -> Sequence[Any]:
    """The outcomes of the parts of a batch, behind those of the parts before."""
    return [*before, *[each for part in parts for each in await part]]


def _end(items: Sequence[Any], start: int, *, isShared: bool) -> int:
    """
    The end of the part of a batch's publishes that are submitted together: with at most
    L{MAX_SIGNED} signed ones. Where others publish a few, L{PART_BESIDE_FEW} at most, with
    L{SIGNED_BESIDE_FEW} signed ones.
    """
    end = min(start + PART_BESIDE_FEW, len(items)) if isShared else len(items)
    most = SIGNED_BESIDE_FEW if isShared else MAX_SIGNED
    if end - start > most:
        signed = 0
        for number in range(start, end):
            signed += items[number].author is not None
            if signed > most:
                return number
    return end


def _encoded(answer: Any) -> bytes | None:
    # Hot path: most answers are neither.
    if type(answer) is bytes:
        return answer
    return None if answer is None else encode(answer)


def rpcEndpoint(
    path: str, calls: Calls, incidents: Incidents, interface: Interface
) -> HttpEndpoint:
    """The endpoint of JSON-RPC."""
    rpc = JSONRPC(calls, incidents, interface)
    return HttpEndpoint(
        method="POST",
        path=path,
        parse=rpc.parse,
        addHeaders=rpc.addHeaders,
        call=rpc.answer,
        callMany=rpc.answerCalls,
        isOneOfMany=rpc.isBatched,
        encode=_encoded,
        encodeError=errorEncoder(interface),
        incidents=incidents,
    )
