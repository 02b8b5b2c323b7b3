"""
The fast path: plain requests for endpoints, answered without twisted.web and Klein. Calls of one
turn of the reactor are made together, over all connections.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from attrs import define, frozen
from msgspec import Struct
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import NO_CONTENT, OK

from ...access import Principal
from ...broker import Calls
from ...errors import Overloaded, QuotaExceeded
from ...net.deferreds import withoutTraceback
from ...net.transports import isDirect
from ...net.turns import NEVER, EndOfTurn, LazyTimer
from ...operations import Connection
from .connection import BrokerChannel, BrokerRequest, IncompleteBody
from .plain import MAX_REMEMBERED, PARTIAL, Fields, OwnFields, PlainAnswers, RequestHead, readHead
from .routes import Answer, HttpEndpoint, HttpRefusal, checkOutput, refused

MAX_BATCH_BYTES: Final = 256 * 1024
"""
The most bytes of the bodies whose calls are made together: larger events may need several blocks,
and all are answered when the last of them is stored.
"""


class BatchCaller(Connection, Protocol):
    """A connection that calls come by."""

    def waitFor(self, made: Deferred[Any], head: RequestHead, principal: Principal) -> None:
        """Answer a request when its call has an outcome."""

    def succeeded(self, outcome: Any, head: RequestHead, principal: Principal) -> None:
        """
        A call has an outcome, for
        L{Endpoint.answerTo<svcbroker.carriers.http.routes.HttpEndpoint.answerTo>}.
        """

    def failed(self, failure: Failure, head: RequestHead, principal: Principal) -> None:
        """A call has failed."""


class BatchedCall(Struct, eq=False):
    """
    A call that is made by the end of the turn.

    @ivar caller: the connection that it came by.
    @ivar head: the head of its request.
    @ivar principal: who makes it.
    @ivar argument: the argument of the endpoint's call.
    @ivar size: the length of its request's body, in bytes.
    @ivar isCancelled: whether it is not made.
    """

    caller: BatchCaller
    head: RequestHead
    principal: Principal
    argument: Any
    size: int
    isCancelled: bool = False

    def cancel(self) -> None:
        """The client has left. A call that was made by then goes on."""
        self.isCancelled = True


class CallBatches:
    """
    Makes the calls of one turn of the reactor together, over all connections: most of what a lone
    publish costs is done once for all of them.
    """

    _log = Logger()

    def __init__(self, turn: EndOfTurn) -> None:
        self._turn = turn
        self._calls: list[BatchedCall] = []

    @classmethod
    def of(cls, calls: Calls) -> CallBatches | None:
        """
        Those of a site.

        @return: C{None} where calls would wait for another turn of the reactor, or where each has a
            span of its own.
        """
        broker = calls.broker
        return cls(broker.turn) if broker.turn.isWithinTurn and not broker.isTraced else None

    def add(self, call: BatchedCall) -> None:
        """Make a call by the end of this turn. Hot path."""
        if not self._calls:
            self._turn.add(self._makeAll)
        self._calls.append(call)

    def _makeAll(self) -> None:
        calls, self._calls = [each for each in self._calls if not each.isCancelled], []
        if len(calls) == 1:
            self._makeAlone(calls[0])
            return
        groups: dict[Any, list[BatchedCall]] = {}
        for call in calls:
            groups.setdefault((call.head.endpoint.callMany, call.principal), []).append(call)
        for (callMany, principal), group in groups.items():
            for part in _parts(group):
                if len(part) == 1:
                    # To make a batch of it would take longer.
                    self._makeAlone(part[0])
                    continue
                for each in part:
                    each.caller.unsent.eventsSent += 1
                made = maybeDeferred(callMany, principal, [each.argument for each in part])
                made.addCallbacks(
                    self._answer, self._fail, callbackArgs=(part,), errbackArgs=(part,)
                )

    def _makeAlone(self, call: BatchedCall) -> None:
        head, principal, caller = call.head, call.principal, call.caller
        caller.waitFor(head.endpoint.make(principal, call.argument, caller), head, principal)

    def _answer(self, outcomes: Sequence[Any], calls: Sequence[BatchedCall]) -> None:
        for call, outcome in zip(calls, outcomes, strict=True):
            try:
                call.caller.succeeded(outcome, call.head, call.principal)
            except Exception:
                self._log.failure("A connection failed")

    def _fail(self, failure: Failure, calls: Sequence[BatchedCall]) -> None:
        for call in calls:
            call.caller.failed(failure, call.head, call.principal)


def _parts(calls: Sequence[BatchedCall]) -> Iterator[Sequence[BatchedCall]]:
    """Calls in their order, with at most L{MAX_BATCH_BYTES} in each part, or one alone."""
    start = size = 0
    for number, call in enumerate(calls):
        size += call.size
        if size > MAX_BATCH_BYTES and number > start:
            yield calls[start:number]
            start, size = number, call.size
    yield calls[start:]


# Not the module: it is a proxy that warns of what is deprecated, which takes time.


MAX_UNREAD: Final = 16 * 1024
"""The most bytes that may wait behind the request that is being answered before reading stops."""
MAX_UNSENT: Final = 64 * 1024
"""The number of bytes of answers that are collected before they are sent."""
RECALL: Final = 5.0
"""The time for which the last request's principal is used for the same credentials without asking
again, in seconds."""


@frozen(kw_only=True)
class FastPath:
    """
    The objects that the connections of a site share.

    @ivar endpoints: the endpoints that are served, by method and path with a space between.
    @ivar answers: writes the answers.
    @ivar turnEnd: sends the answers of one turn of the reactor together, over plain TCP and UNIX
        sockets.
    @ivar batches: makes the calls of one turn together; C{None} where each is made alone.
    """

    endpoints: Mapping[bytes, HttpEndpoint]
    answers: PlainAnswers
    turnEnd: EndOfTurn
    batches: CallBatches | None = None


@define
class _Arriving:
    """
    A request whose body is not all there.

    @ivar missing: how many bytes of the body are missing.
    """

    head: RequestHead
    body: IncompleteBody
    missing: int


class FastChannel(BrokerChannel):
    """
    A connection that answers plain requests for endpoints itself, and passes everything else on to
    twisted.web.

    Between requests it reads the head of what has arrived. A plain request is answered here. Any
    other request is passed on to the channel that this one inherits from, with all that has
    arrived behind it; when that channel has answered and has nothing left over, heads are read
    here again. Unusual requests always go to twisted.web, so the two parsers cannot disagree.
    """

    timeOut: float | None  # type: ignore[assignment]

    def __init__(self, fastPath: FastPath) -> None:
        super().__init__()
        self._fastPath = fastPath
        # What has arrived and was not read yet.
        self._unread = b""
        # The head that was read last, and the header fields that were accepted last.
        self._last: RequestHead | None = None
        self._accepted: Fields | None = None
        # The header blocks with credentials that were read.
        self._blocks: OwnFields
        # The credentials of the last request, its principal, and until when that is known.
        self._authorization: bytes | None = None
        self._principal: Principal | None = None
        self._knownUntil = NEVER
        self._arriving: _Arriving | None = None
        # The body of the request that is being answered, where it came in several pieces.
        self._body: IncompleteBody | None = None
        # The call of the request that is being answered.
        self._answering: Deferred[Any] | BatchedCall | None = None
        self._unsent: list[bytes] = []
        self._unsentSize = 0
        # Whether twisted.web has the connection.
        self._isHandedOver = False
        # Whether twisted.web has read nothing since it answered.
        self._isFresh = True
        self._isServing = False
        self._isReadingStopped = False
        self._isDirect = False

    def connectionMade(self) -> None:
        reactor = self.site.reactor
        self._now = reactor.seconds
        self._timer = LazyTimer(reactor, self._timedOut)
        self._isDirect = isDirect(self.transport)
        super().connectionMade()
        self._output = self.site.budgets.output
        self._blocks = OwnFields(self.site.budgets.names.count(self.owner))

    def dataReceived(self, data: bytes) -> None:
        if self._isHandedOver:
            self._handToTwistedWeb(data)
            return
        if self._unread:
            data = self._unread + data
        if self._answering is None:
            self._serve(data, mayWait=self._isDirect)
        else:
            self._unread = data
            self._limitUnread()

    def drain(self) -> None:
        self._flush()
        if self._answering is None:
            self._isHandedOver = True
            super().drain()
        else:
            self.persistent = 0

    def loseConnection(self) -> None:
        self._flush()
        self._isHandedOver = True
        self.persistent = 0
        super().loseConnection()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self._isHandedOver = True
        self._unread = b""
        # A client that leaves cancels its call.
        answering, self._answering = self._answering, None
        if answering is not None:
            answering.cancel()
        super().connectionLost(reason)

    def release(self) -> None:
        self._timer.close()
        self._blocks.counted.close()
        self.endBody()
        super().release()

    def endBody(self) -> None:
        if self._arriving is not None:
            self._arriving.body.end()
        self._bodyAnswered()
        super().endBody()

    @property
    def unreadDuring(self) -> object:
        """See L{BrokerChannel.unreadDuring}."""
        isUnread = self._isReadingStopped or self.paused or self._isInputEnded
        if self._answering is not None and isUnread:
            return self._answering
        return super().unreadDuring

    # Time-outs as C{TimeoutMixin} has them, without moving a timer of the reactor

    def setTimeout(self, period: float | None) -> float | None:
        """Close the connection once the client is silent for some seconds; C{None} for never."""
        previous, self.timeOut = self.timeOut, period
        if period is None:
            self._timer.stop()
        else:
            self._timer.start(period)
        return previous

    def resetTimeout(self) -> None:
        """The client was heard, or answered."""
        timer = self._timer
        if timer.deadline != NEVER and self.timeOut is not None:
            timer.deadline = self._now() + self.timeOut

    def _timedOut(self) -> None:
        if self._answering is None:
            self.timeoutConnection()
        else:
            # Not the client is waited for, but the answer. To stop the timer for each request
            # would cost more.
            self.setTimeout(self.timeOut)

    # Plain requests

    def _serve(self, data: bytes, mayWait: bool = False) -> None:
        """
        Answer request after request, until one has to be waited for or is not plain.

        @param mayWait: whether answers may be sent at the end of this turn of the reactor.
        """
        endpoints = self._fastPath.endpoints
        self._isServing = True
        start = 0
        arriving = self._arriving
        if arriving is not None and not self.paused and self._mayReceive(arriving, data):
            received = self._receiveBody(arriving, data)
            if received is None:
                self._giveUp(self._abandonBody(arriving) + data)
                return
            start = received
        # Neither the client nor a call is waited for.
        while start < len(data) and self._answering is None and not (self.paused or self._arriving):
            head = self._last
            # A client often sends the same head with each request.
            if head is None or not data.startswith(head.text, start):
                found = readHead(endpoints, data, start, self._blocks)
                if found == PARTIAL:
                    break
                head = found
                if head is not None and len(head.text) <= MAX_REMEMBERED:
                    self._last = head
            if head is None or not self._isAcceptable(head.fields):
                if self._principal is None and not self.mayReadStranger():
                    break
                self._giveUp(data[start:])
                return
            fields, isWrite = head.fields, head.endpoint.isWrite
            if not self.lane.begin(isWrite, fields.events):
                self.readInLaterTurn(isWrite, fields.length, fields.events)
                break
            begin = start + len(head.text)
            end = begin + fields.length
            body = data[begin:end]
            if end > len(data):
                if not self._beginBody(head, body):
                    return
                end = len(data)
            else:
                self._ask(head, body)
            start = end
            if self._unsentSize > MAX_UNSENT:
                self._flush()
        self._isServing = False
        self.lane.end()
        self._unread = left = data[start:]
        if self._answering is None:
            self.resetTimeout()
            isCounted = left or self._unreadCount is not None
            if isCounted and not self.countUnread(len(left)) and not self.paused:
                self._unread = b""
                self.refuseHead()
        elif self._unread:
            self._limitUnread()
        if self._unsent:
            if mayWait:
                self._fastPath.turnEnd.addOrCall(self._flush)
            else:
                self._flush()

    def _isAcceptable(self, fields: Fields) -> bool:
        """Whether twisted.web would not refuse a request by its header fields, nor log it in."""
        principal, authorization = self._principal, fields.authorization
        if (
            principal is None
            or principal.isRevoked
            or authorization != self._authorization
            or (authorization is not None and self._now() >= self._knownUntil)
        ):
            self._principal = principal = self._rememberedPrincipal(authorization)
            if principal is None:
                return False
            self.countFor(principal.name)
            self.known()
            self._authorization = authorization
            self._knownUntil = self._now() + RECALL
        # A client sends the same header block with each request, and the same object is read.
        if fields is self._accepted:
            return True
        reason = self.site.origins.reason(
            *(fields.host, fields.origin, fields.fetchSite), isOnLoopback=self.isOnLoopback()
        )
        if fields.length > self.site.bodies.maxBody or reason is not None:
            return False
        self._accepted = fields
        return True

    def _rememberedPrincipal(self, authorization: bytes | None) -> Principal | None:
        principal = self.authenticator.recall(authorization)
        if principal is not None:
            try:
                self.authenticator.count(principal)
            except QuotaExceeded:
                return None
        return principal

    def _mayReceive(self, arriving: _Arriving, data: bytes) -> bool:
        """Whether this turn has time for what is complete with these bytes."""
        fields, isWrite = arriving.head.fields, arriving.head.endpoint.isWrite
        if len(data) < arriving.missing or self.lane.begin(isWrite, fields.events):
            return True
        self.readInLaterTurn(isWrite, fields.length, fields.events)
        return False

    def _beginBody(self, head: RequestHead, piece: bytes) -> bool:
        """
        Receive the body of a request, of which only a piece is there.

        @return: C{False} where there is no room for it. It is passed on to twisted.web.
        """
        incomplete = IncompleteBody(self.site.bodies, self.owner, self.bodyTimedOut)
        self._arriving = arriving = _Arriving(head, incomplete, head.fields.length)
        if self._receiveBody(arriving, piece) is not None:
            return True
        self._giveUp(self._abandonBody(arriving) + piece)
        return False

    def _receiveBody(self, arriving: _Arriving, data: bytes) -> int | None:
        """
        Keep what belongs to the body of the request that is arriving.

        @return: how many bytes that is; C{None} where there is no room for them.
        """
        piece = data[: arriving.missing]
        if arriving.body.write(piece) is not None:
            return None
        arriving.missing -= len(piece)
        if not arriving.missing:
            self._arriving = None
            arriving.body.received()
            self._body = arriving.body
            self._ask(arriving.head, arriving.body.content.getvalue())
        return len(piece)

    def _abandonBody(self, arriving: _Arriving) -> bytes:
        """
        Do not receive a body here any more.

        @return: what has arrived of the request, for twisted.web, which refuses it.
        """
        self._arriving = None
        arriving.body.end()
        return arriving.head.text + arriving.body.content.getvalue()

    def _giveUp(self, data: bytes) -> None:
        """Pass on what is unread to twisted.web."""
        self._isServing = False
        self._unread = b""
        self._flush()
        self._handToTwistedWeb(data)

    def _ask(self, head: RequestHead, body: bytes) -> None:
        principal, fields, endpoint = self._principal, head.fields, head.endpoint
        assert principal is not None
        try:
            if self._output.used >= self._output.own:
                self.unsent.check(isSmall=endpoint.isWrite)
            # As C{HttpEndpoint.ask} does, for which there is no call: a hot path.
            argument = endpoint.parse(head.query, fields.contentType, body)
            if fields.headers is not None:
                argument = endpoint.addHeaders(argument, fields.headers)
            if (
                endpoint.callMany is not None
                and self._fastPath.batches is not None
                and endpoint.isOneOfMany(argument)
                # Quotas are for each call.
                and not principal.usage.limitsPublishes
            ):
                self._answering = call = BatchedCall(self, head, principal, argument, len(body))
                self._fastPath.batches.add(call)
                return
            made = endpoint.call(principal, argument, self)
        except Exception as error:
            made = refused(error)
        self.waitFor(made, head, principal)

    def waitFor(self, made: Deferred[Any], head: RequestHead, principal: Principal) -> None:
        """Answer a request when its call has an outcome."""
        # Before the callbacks, which may be called at once.
        self._answering = made
        if made.called and not made.paused and not isinstance(made.result, Failure):
            # Hot path: callbacks would take as long as half of the call.
            self.succeeded(made.result, head, principal)
            return
        request = (head, principal)
        made.addCallbacks(self.succeeded, self.failed, callbackArgs=request, errbackArgs=request)

    def succeeded(self, outcome: Any, head: RequestHead, principal: Principal) -> None:
        """
        A call has an outcome, for
        L{HttpEndpoint.answerTo<svcbroker.carriers.http.routes.HttpEndpoint.answerTo>}.
        """
        # Otherwise the client has left, and it was too late to cancel.
        if self._answering is not None:
            if self._output.used >= self._output.own and not self._isServing:
                outcome = self._checked(outcome, head)
            self._answer(head, head.endpoint.answerTo(outcome, principal))

    def _checked(self, outcome: Any, head: RequestHead) -> Any:
        """The outcome of a call that was waited for, or the error where it may not be answered."""
        try:
            return checkOutput(outcome, self.unsent, head.endpoint.isWrite)
        except Overloaded as error:
            # Its frames know the outcome, and whoever is called back with it.
            return error.with_traceback(None)

    def failed(self, failure: Failure, head: RequestHead, principal: Principal) -> None:
        """A call has failed, or was cancelled: by the client that left, or by the broker."""
        if self._answering is not None:
            self._answer(head, head.endpoint.explain(failure, principal))
        else:
            withoutTraceback(failure)

    def _answer(self, head: RequestHead, body: Answer) -> None:
        self._answering = None
        if self._body is not None:
            self._bodyAnswered()
        answer = self._fastPath.answers.make(body, head.fields.origin, isLast=not self.persistent)
        self._unsent.append(answer)
        self._unsentSize += len(answer)
        if self.site.hasAccessLog:
            endpoint = head.endpoint
            refusal = body if isinstance(body, HttpRefusal) else HttpRefusal(OK, body or b"")
            code = NO_CONTENT if body is None else refusal.code
            peer = self.getPeer()
            self.site.logAnswer(peer, endpoint.method, endpoint.path, code, len(refusal.body))
        if not self._isServing:
            self._resumePipelined()

    def _bodyAnswered(self) -> None:
        if self._body is not None:
            self._body.end()
            self._body = None

    def _resumePipelined(self) -> None:
        """
        Read on after an answer that had to be waited for.
        """
        if not self.persistent:
            self._flush()
            self.loseConnection()
            return
        self.resetTimeout()
        if self._isReadingStopped:
            self._isReadingStopped = False
            if not self.paused:
                self.startReading()
        if self._unread:
            self._serve(self._unread)
        else:
            self._flush()
        if self._isInputEnded:
            self.closeIfAnswered()

    def closeIfAnswered(self) -> None:
        if self._answering is None and not self._isServing:
            super().closeIfAnswered()

    def _limitUnread(self) -> None:
        """Stop reading from a client that sends more and more before it was answered."""
        size = len(self._unread)
        isRoom = self.countUnread(size)
        if (size > MAX_UNREAD or not isRoom) and not self.paused:
            self._isReadingStopped = True
            self.stopReading()

    def _flush(self) -> None:
        if self._unsent:
            answers, self._unsent, self._unsentSize = self._unsent, [], 0
            self.unsent.send(b"".join(answers))

    # Requests for twisted.web

    def _handToTwistedWeb(self, data: bytes) -> None:
        self._isHandedOver = True
        super().dataReceived(data)
        self._reclaim()

    def lineReceived(self, line: bytes) -> None:
        self._isFresh = False
        super().lineReceived(line)

    def requestDone(self, request: BrokerRequest) -> None:
        self._isFresh = True
        super().requestDone(request)
        self._reclaim()

    def _reclaim(self) -> None:
        """
        Read the next head here, if twisted.web is between two requests and has nothing left over.
        """
        if self._isFresh and self.persistent and self.isBetweenRequests():
            self._isHandedOver = False
