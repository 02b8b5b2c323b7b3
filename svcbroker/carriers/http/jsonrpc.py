"""
JSON-RPC 2.0: the endpoint that answers its calls.

Members that an operation does not know are ignored, as REST does; of a member that is there
twice the last counts. C{params} may be absent or C{null}. The header Content-Type is not looked
at, since deployed clients send what they like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from msgspec import Raw
from msgspec.json import Decoder
from msgspec.structs import replace
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure

from ...access import Principal
from ...broker import Calls
from ...errors import (
    BrokerError,
    NoSuchCall,
    Overloaded,
    ParameterInvalid,
    QuotaExceeded,
)
from ...net.budgets import Lane
from ...net.deferreds import asDeferred
from ...operations import (
    IDEMPOTENCY_KEY,
    SEEN,
    BatchCalls,
    Connection,
    Incidents,
    Interface,
    Operation,
    bindBatch,
    bindParams,
)
from .headers import PublishHeaders
from .routes import HttpEndpoint, encode
from .rpcheaders import addHeaders
from .rpcmessages import (
    Body,
    Failed,
    PlainBatch,
    PlainBatches,
    RpcCall,
    RpcMalformed,
    Success,
    failed,
    parseBody,
    parseEntries,
)

MAX_BATCH_ANSWER: Final = 4 * 1024 * 1024
"""A batch whose answers have grown larger than this, in bytes, is not carried on."""

MAX_SIGNED: Final = 40
"""The most signed publishes of a batch that are submitted together, in one turn of the reactor: to
verify each takes 0.1 ms."""


def errorEncoder(interface: Interface) -> Callable[[BrokerError], bytes]:
    """Make the function that encodes a failure that belongs to no call."""
    return lambda error: encode(failed(error, exceptionName=interface.exceptionName))


_Answer: TypeAlias = Success | Failed | None
"""The answer to a call; C{None} to a notification."""
_Request: TypeAlias = Body | Failed | None
"""A body that was read, or what is answered to it."""

_anyDecoder = Decoder()
_AFTER: Final = b'"%b"' % SEEN.name.encode("ascii")


class _Method:
    """
    One operation over JSON-RPC.

    @ivar call: makes a call of its C{params}.
    @ivar batch: makes many calls; C{None} where the operation takes one call at a time.
    @ivar names: the names of the parameters, in their order by position; without any, all calls of
        a batch have the same answer.
    @ivar hasAfter: see L{Operation}.
    @ivar render: makes the result member.
    """

    def __init__(self, operation: Operation, calls: Calls) -> None:
        self.call = bindParams(operation, calls)
        self.batch = bindBatch(operation, calls)
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
        if isinstance(body, RpcCall):
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
            isinstance(body, RpcCall)
            and self._batchMethod(body) is not None
            and (self._hasOneGroup or b"groupId" not in bytes(body.params))
            # It waits, and no other call with it.
            and _AFTER not in bytes(body.params)
        )

    @asDeferred
    async def answerCalls(
        self, principal: Principal, calls: Sequence[RpcCall]
    ) -> Sequence[_Answer]:
        """Make calls of many requests, for which L{isBatched} holds."""
        answers: list[_Answer] = []
        for method, group in groupby(calls, self._batchMethod):
            assert method is not None
            answers += await self._performBatch(principal, method, list(group), None)
        return answers

    def addHeaders(self, body: Body, headers: PublishHeaders) -> _Request:
        """
        Add header fields to the parameters of calls that publish.

        @return: the request; or what is answered where it has another idempotency key.
        @raise ParameterInvalid: there is an idempotency key for several calls.
        """
        if isinstance(body, RpcMalformed):
            return body
        if isinstance(body, RpcCall):
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

    def _addHeaders(self, call: RpcCall, headers: PublishHeaders) -> RpcCall:
        method = self._byText.get(bytes(call.method))
        if method is None:
            return call
        if IDEMPOTENCY_KEY.name not in method.names:
            # Reads have what their client has seen alone.
            if not (headers.after and method.hasAfter):
                return call
            headers = PublishHeaders(b"", {}, headers.after)
        return replace(call, params=addHeaders(call.params, method.names, headers))

    def _method(self, call: RpcCall) -> _Method:
        """
        @raise NoSuchCall: there is none.
        """
        method = self._byText.get(bytes(call.method))
        if method is None:
            method = self._methods.get(_anyDecoder.decode(call.method))
            if method is None:
                raise NoSuchCall()
        return method

    def _batchMethod(self, entry: RpcCall | RpcMalformed) -> _Method | None:
        """The method of an entry that can be called in a batch with others of its kind."""
        if isinstance(entry, RpcMalformed):
            return None
        method = self._byText.get(bytes(entry.method))
        return None if method is None or method.batch is None else method

    @asDeferred
    async def _answerPlain(
        self, principal: Principal, batch: PlainBatch, connection: Connection
    ) -> Sequence[_Answer] | Raw | None:
        """Submit all calls of a batch together, unless one of them cannot be read."""
        method, calls = self._methods[batch.method], batch.calls
        assert method.batch is not None
        try:
            items = method.batch.readPlain(principal, [call.params for call in calls])
        except BrokerError:
            return await self._answerBatch(principal, parseEntries(batch.text), connection)
        outcomes = await self._outcomes(principal, method.batch, items, connection.lane)
        answers = self._answersTo(outcomes, method, calls)
        return [answer for answer in answers if answer is not None] or None

    @asDeferred
    async def _answerBatch(
        self, principal: Principal, batch: Sequence[RpcCall | RpcMalformed], connection: Connection
    ) -> Raw | None:
        """
        Publishes that follow each other are submitted in one batch; any other call waits for
        those before it. Each has a turn of its own.
        """
        answers: list[bytes] = []
        # Of calls without parameters.
        made: dict[bytes, _Answer] = {}
        lane, unsent = connection.lane, connection.unsent
        try:
            for method, group in groupby(batch, self._batchMethod):
                for step in [list(group)] if method is not None else [[entry] for entry in group]:
                    if not lane.begin(isWrite=method is not None):
                        await lane.turn(isWrite=method is not None)
                    done: Sequence[_Answer]
                    if unsent.held > MAX_BATCH_ANSWER or (unsent.held and unsent.room <= 0):
                        done = [self._tooLarge(entry) for entry in step]
                    elif method is None:
                        done = [await self._performEntry(principal, step[0], connection, made)]
                    else:
                        done = await self._performBatch(principal, method, step, lane)
                    known = [answer for answer in done if answer is not None]
                    if known:
                        answers.append(encode(known)[1:-1])
                        unsent.hold(len(answers[-1]))
        finally:
            unsent.release()
        return Raw(b"[%b]" % b",".join(answers)) if answers else None

    async def _performEntry(
        self,
        principal: Principal,
        entry: RpcCall | RpcMalformed,
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
        self, principal: Principal, call: RpcCall, connection: Connection
    ) -> _Answer:
        await connection.lane.turn(isWrite=False)
        return await self._perform(principal, call, connection)

    def _perform(
        self, principal: Principal, call: RpcCall, connection: Connection
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
    ) -> Sequence[_Answer]:
        assert method.batch is not None
        try:
            items = method.batch.readMany(principal, [call.params for call in calls])
        except BrokerError:
            return await self._performEach(principal, method, calls, lane)
        outcomes = await self._outcomes(principal, method.batch, items, lane)
        return self._answersTo(outcomes, method, calls)

    async def _performEach(
        self, principal: Principal, method: _Method, calls: Sequence[Any], lane: Lane | None
    ) -> Sequence[_Answer]:
        """Make calls of which one at least is wrong, or not plain."""
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
        outcomes = await self._outcomes(principal, method.batch, items, lane)
        for place, outcome in zip(places, outcomes, strict=True):
            answers[place] = self._answerTo(outcome, method, calls[place])
        return answers

    async def _outcomes(
        self,
        principal: Principal,
        batch: BatchCalls,
        items: Sequence[Any],
        lane: Lane | None,
    ) -> Sequence[Any]:
        """
        Make calls that were read: the result of each, or the error.

        @param lane: that of the connection; C{None} for calls of several.
        """
        outcomes: list[Any] = []
        try:
            for part in _parts(items):
                count = len(part)
                if lane is not None and not lane.begin(isWrite=True, events=count):
                    await lane.turn(isWrite=True, events=count)
                outcomes += await batch.perform(principal, part)
                if isinstance(outcomes[-1], QuotaExceeded):
                    # Nothing overtakes what was refused.
                    outcomes += outcomes[-1:] * (len(items) - len(outcomes))
                    break
        except CancelledError:
            raise
        except Exception:
            outcomes = [self._incidents.explain(Failure())] * len(items)
        return outcomes

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

    def _succeed(self, result: Any, method: _Method, call: RpcCall) -> _Answer | Failure:
        try:
            return self._answerTo(result, method, call)
        except Exception:
            return self._fail(Failure(), call)

    def _fail(self, failure: Failure, call: RpcCall) -> Failed | Failure | None:
        # Raised here, the error would be a cycle with the frame of this function.
        if isinstance(failure.value, CancelledError):
            return failure
        return self._failed(self._incidents.explain(failure), call)

    def _failed(self, error: BrokerError, call: RpcCall) -> Failed | None:
        return failed(error, call.id, self._exceptionName) if bytes(call.id) else None

    def _tooLarge(self, entry: RpcCall | RpcMalformed) -> Failed | None:
        if isinstance(entry, RpcMalformed):
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


def _encoded(answer: Any) -> bytes | None:
    # Hot path: most answers are neither.
    if type(answer) is Raw:
        return bytes(answer)
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
