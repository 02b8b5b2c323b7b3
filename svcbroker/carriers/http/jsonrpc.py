"""
JSON-RPC 2.0.

Members that an operation does not know are ignored, as REST does; of a member that is there
twice the last counts. C{params} may be absent or C{null}. The header Content-Type is not looked
at, since deployed clients send what they like.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

from msgspec.json import Decoder
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.python.failure import Failure
from twisted.web import http

from ...broker import Broker
from ...errors import BrokerError, NoSuchCall, Overloaded
from ...operations import OPERATIONS, Incidents, Operation, bindParams, bindTogether
from .encoding import encode
from .request import BrokerRequest
from .resource import Route, respond
from .rpcmessages import Call, Failed, Malformed, Success, failed, parseBody

MAX_BATCH_ANSWER: Final = 16 * 1024 * 1024
"""A batch whose answers have grown larger than this, in bytes, is not carried on."""

_Answer: TypeAlias = Success | Failed | None
"""What is answered to a call; nothing to a notification."""

_anyDecoder = Decoder()


class _Method:
    """
    One operation over JSON-RPC.

    @ivar call: calls it.
    @ivar together: reads one call, and makes many that were read; where it can be called so.
    """

    def __init__(self, operation: Operation, broker: Broker) -> None:
        self.call = bindParams(operation, broker)
        self.together = bindTogether(operation, broker)
        self._render = operation.result.render
        self._isBoolean = operation.result.type is bool

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
        self._byText = {b'"%b"' % name.encode("ascii"): m for name, m in self._methods.items()}
        self._incidents = incidents

    def answer(self, body: bytes) -> Deferred[bytes | None]:
        """
        The JSON text that answers a call or a batch, C{None} where nothing is to be answered.
        """
        try:
            parsed = parseBody(body)
        except Malformed as malformed:
            return succeed(encode(malformed.answer))
        if isinstance(parsed, Call):
            answer: Deferred[Any] = self._perform(parsed)
            return answer.addCallback(_encodeAnswer)
        return Deferred.fromCoroutine(self._answerBatch(parsed))

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

    def _together(self, call: Call | Malformed) -> _Method | None:
        """What a call calls, if that can be called together with others."""
        if isinstance(call, Malformed):
            return None
        method = self._byText.get(bytes(call.method))
        return None if method is None or method.together is None else method

    async def _answerBatch(self, batch: Sequence[Call | Malformed]) -> bytes | None:
        """
        Publishes that follow each other are submitted together; any other call waits for those
        before it.
        """
        answers: list[bytes] = []
        size = 0
        for method, group in groupby(batch, self._together):
            for step in [list(group)] if method is not None else [[entry] for entry in group]:
                done: Sequence[_Answer]
                if size > MAX_BATCH_ANSWER:
                    done = [_tooMuch(entry) for entry in step]
                elif method is None:
                    done = [await self._performEntry(*step)]
                else:
                    done = await self._performTogether(method, step)
                known = [answer for answer in done if answer is not None]
                if known:
                    answers.append(encode(known)[1:-1])
                    size += len(answers[-1])
        return b"[" + b",".join(answers) + b"]" if answers else None

    async def _performEntry(self, entry: Call | Malformed) -> _Answer:
        return entry.answer if isinstance(entry, Malformed) else await self._perform(entry)

    def _perform(self, call: Call) -> Deferred[_Answer]:
        try:
            method = self._method(call)
            result = method.call(call.params)
        except Exception:
            return succeed(self._fail(Failure(), call))
        result.addCallback(_succeed, method, call)
        result.addErrback(self._fail, call)
        return result

    async def _performTogether(self, method: _Method, calls: Sequence[Any]) -> Sequence[_Answer]:
        assert method.together is not None
        read, perform = method.together
        answers: list[_Answer] = [None] * len(calls)
        places: list[int] = []
        wishes: list[Any] = []
        for place, call in enumerate(calls):
            try:
                wishes.append(read(call.params))
                places.append(place)
            except BrokerError as error:
                answers[place] = _failed(error, call)
        try:
            outcomes = await perform(wishes) if wishes else ()
        except CancelledError:
            raise
        except Exception:
            outcomes = [self._incidents.explain(Failure())] * len(wishes)
        for place, outcome in zip(places, outcomes, strict=True):
            if isinstance(outcome, BrokerError):
                answers[place] = _failed(outcome, calls[place])
            else:
                answers[place] = _succeed(outcome, method, calls[place])
        return answers

    def _fail(self, failure: Failure, call: Call) -> Failed | None:
        if isinstance(failure.value, CancelledError):
            raise failure.value
        return _failed(self._incidents.explain(failure), call)

    def handle(self, request: BrokerRequest) -> Deferred[bytes]:
        """Answer a request."""
        answer = self.answer(request.body())
        answer.addCallback(_respond, request)
        written: Deferred[Any] = answer
        return written


def _succeed(result: Any, method: _Method, call: Call) -> Success | None:
    return Success("2.0", call.id, method.render(result)) if bytes(call.id) else None


def _failed(error: BrokerError, call: Call) -> Failed | None:
    return failed(error, call.id) if bytes(call.id) else None


def _tooMuch(entry: Call | Malformed) -> Failed | None:
    if isinstance(entry, Malformed):
        return entry.answer
    return _failed(Overloaded("the answer to this batch is too large: ask for less"), entry)


def _encodeAnswer(answer: _Answer) -> bytes | None:
    return None if answer is None else encode(answer)


def _respond(answer: bytes | None, request: BrokerRequest) -> bytes:
    if answer is None:
        request.setResponseCode(http.NO_CONTENT)
        return b""
    return respond(request, answer)


def routes(path: str, broker: Broker, incidents: Incidents) -> Iterator[Route]:
    """The route of JSON-RPC."""
    yield Route(
        path=path, methods=("POST",), handler=JSONRPC(broker, incidents).handle, isDirect=True
    )
