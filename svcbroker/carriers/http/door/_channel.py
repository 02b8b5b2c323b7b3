"""
A connection with a fast door.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Final

from attrs import define, frozen
from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.python.failure import Failure

# Not the module: it is a proxy that warns of what is deprecated, and takes its time for it.
from twisted.web.http import INTERNAL_SERVER_ERROR, NO_CONTENT, OK

from ....net.sending import isDirect, sender
from ....net.turns import EndOfTurn
from ..channel import BrokerChannel
from ..request import BrokerRequest
from ._answers import Answers
from ._calls import HotCall
from ._heads import PARTIAL, Head, readHead
from ._timeouts import LazyTimeouts

MAX_UNREAD: Final = 16 * 1024
"""How much may wait behind the request that is being answered before no more is read, in bytes."""
MAX_UNSENT: Final = 64 * 1024
"""How many bytes of answers are gathered before they are sent."""


@frozen
class Door:
    """
    What the doors of a site's connections have in common.

    @ivar calls: what they answer.
    @ivar answers: makes the answers.
    @ivar turnEnd: when answers are sent that were there at once, over a direct transport.
    """

    calls: Mapping[bytes, HotCall]
    answers: Answers
    turnEnd: EndOfTurn


@define
class _Arriving:
    """A request whose body is not all there."""

    head: Head
    body: BytesIO
    missing: int


class DoorChannel(LazyTimeouts, BrokerChannel):
    """
    A connection that answers plain calls by itself, and leaves everything else to twisted.web.

    Between requests it looks at what has arrived. A plain request for a hot call is answered here.
    Anything else, with all that has arrived behind it, is given to the channel that this one
    inherits from, as if it had come there; when that has answered and nothing is left over, the
    door looks again. So there are no two opinions about an unusual request: the door has none.
    """

    def __init__(self, door: Door) -> None:
        super().__init__()
        self._door = door
        # What has arrived and was not looked at yet.
        self._unread = b""
        self._arriving: _Arriving | None = None
        # The request that is being answered, and its answer to come.
        self._head: Head | None = None
        self._answering: Deferred[bytes | None] | None = None
        self._unsent: list[bytes] = []
        self._unsentSize = 0
        # Whether twisted.web has the connection.
        self._isBelow = False
        # Whether twisted.web has read nothing since it answered.
        self._isFresh = True
        self._isServing = False
        self._isReadingStopped = False
        self._isDirect = False

    def connectionMade(self) -> None:
        self.now = self.site.reactor.seconds
        self._send = sender(self.transport)
        self._isDirect = isDirect(self.transport)
        super().connectionMade()

    def dataReceived(self, data: bytes) -> None:
        if self._isBelow:
            self._passOn(data)
            return
        self.resetTimeout()
        if self._unread:
            data = self._unread + data
        if self._answering is None:
            self._serve(data, mayWait=self._isDirect)
        else:
            self._unread = data
            self._stopReading()

    def drain(self) -> None:
        self._flush()
        if self._answering is None:
            self._isBelow = True
            super().drain()
        else:
            self.persistent = 0

    def loseConnection(self) -> None:
        self._flush()
        self._isBelow = True
        self.persistent = 0
        super().loseConnection()

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        self._isBelow = True
        self._unread = b""
        # A client that leaves cancels the handler.
        answering, self._answering = self._answering, None
        if answering is not None:
            answering.cancel()
        super().connectionLost(reason)

    # Requests for the door

    def _serve(self, data: bytes, mayWait: bool = False) -> None:
        """
        Answer request after request, until one takes its time or is not for the door.

        @param mayWait: whether answers may be sent at the end of this turn of the reactor.
        """
        self._isServing = True
        start = 0
        if self._arriving is not None and not self.paused:
            start = self._receiveBody(self._arriving, data)
        while start < len(data) and self._isFree():
            head = readHead(self._door.calls, data, start)
            if head == PARTIAL:
                break
            if head is None or head.fields.length > self.site.maxBody:
                self._isServing = False
                self._unread = b""
                self._flush()
                self._passOn(data[start:])
                return
            start = head.end + head.fields.length
            body = data[head.end : start]
            if start > len(data):
                self._arriving = _Arriving(head, BytesIO(), head.fields.length)
                start = head.end + self._receiveBody(self._arriving, body)
            else:
                self._ask(head, body)
            if self._unsentSize > MAX_UNSENT:
                self._flush()
        self._isServing = False
        self._unread = data[start:]
        if self._answering is not None:
            self.suspendTimeout()
            self._stopReading()
        if mayWait and self._unsent:
            self._door.turnEnd.addOrCall(self._flush)
        else:
            self._flush()

    def _isFree(self) -> bool:
        """Whether the next request may be looked at: neither client nor call is waited for."""
        return self._answering is None and not self.paused and self._arriving is None

    def _receiveBody(self, arriving: _Arriving, data: bytes) -> int:
        """
        Take what belongs to the body of the request that is arriving.

        @return: how much that is.
        """
        piece = data[: arriving.missing]
        arriving.body.write(piece)
        arriving.missing -= len(piece)
        if not arriving.missing:
            self._arriving = None
            self._ask(arriving.head, arriving.body.getvalue())
        return len(piece)

    def _ask(self, head: Head, body: bytes) -> None:
        call, query, fields, _ = head
        try:
            answering = call.answer(query, fields.contentType if body else None, body)
        except Exception:
            answering = fail()
        # Before the callbacks, which may be called at once.
        self._head, self._answering = head, answering
        answering.addCallbacks(self._answered, self._failed)

    def _answered(self, body: bytes | None) -> None:
        assert self._head is not None
        origin = self._head.fields.origin
        answer = self._door.answers.make(body, origin, isLast=not self.persistent)
        self._finish(answer, NO_CONTENT if body is None else OK, len(body or b""))

    def _failed(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            # Nobody is there to be answered.
            return
        assert self._head is not None
        body = self.site.explain(failure)
        origin = self._head.fields.origin
        answer = self._door.answers.makeFailed(body, origin, isLast=not self.persistent)
        self._finish(answer, INTERNAL_SERVER_ERROR, len(body))

    def _finish(self, answer: bytes, code: int, length: int) -> None:
        if self._answering is None:
            # The client has left, and it was too late to cancel.
            return
        self._answering = None
        self._unsent.append(answer)
        self._unsentSize += len(answer)
        if self.site.hasAccessLog:
            assert self._head is not None
            call = self._head.call
            self.site.logAnswer(self.getPeer(), call.method, call.path, code, length)
        if not self._isServing:
            self._goOn()

    def _goOn(self) -> None:
        """
        A call that took its time was answered.
        """
        if not self.persistent:
            self._flush()
            self.loseConnection()
            return
        self.resumeTimeout()
        if self._isReadingStopped:
            self._isReadingStopped = False
            if not self.paused:
                self._networkProducer.resumeProducing()
        if self._unread:
            self._serve(self._unread)
        else:
            self._flush()

    def _stopReading(self) -> None:
        """Have a client wait that asks more and more before it was answered."""
        if len(self._unread) > MAX_UNREAD and not self.paused:
            self._isReadingStopped = True
            self._networkProducer.pauseProducing()

    def _flush(self) -> None:
        if self._unsent:
            answers, self._unsent, self._unsentSize = self._unsent, [], 0
            self._send(answers[0] if len(answers) == 1 else b"".join(answers))

    # Requests for twisted.web

    def _passOn(self, data: bytes) -> None:
        self._isBelow = True
        super().dataReceived(data)
        self._takeBack()

    def lineReceived(self, line: bytes) -> None:
        self._isFresh = False
        super().lineReceived(line)

    def requestDone(self, request: BrokerRequest) -> None:
        self._isFresh = True
        super().requestDone(request)
        self._takeBack()

    def _takeBack(self) -> None:
        """
        Look at what comes next, if twisted.web is between two requests and has nothing left over.
        """
        if self._isFresh and self.persistent and not self._buffer and not self.requests:
            self._isBelow = False
