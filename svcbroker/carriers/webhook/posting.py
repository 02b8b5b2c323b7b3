"""
One request to a receiver, and what came of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

from attrs import frozen
from twisted.internet import protocol
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IConsumer, IReactorTime
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from ...model import Event, InterfaceType
from .connecting import MAX_ANSWER, AddressRefused
from .messages import USER_AGENT, NotAcknowledged, checkAnswer, checkStatus, encodeBody
from .settings import WebhookSettings
from .targets import Target


class IPoster(Protocol):
    """Sends events to receivers."""

    def post(
        self,
        target: Target,
        interfaceType: InterfaceType,
        subscriptionId: str,
        event: Event,
        text: bytes,
    ) -> Deferred[None]:
        """
        Send one event.

        @param text: what L{encodeEvents<svcbroker.carriers.webhook.messages.encodeEvents>}
            gives for it.
        @return: fires when the receiver has acknowledged it. Cancelling ends the request.
        @raise NotAcknowledged: it has not, whatever the reason.
        """


@implementer(IBodyProducer)
@frozen
class _Body:
    """A body that is there."""

    _data: bytes

    @property
    def length(self) -> int:
        return len(self._data)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._data)
        return succeed(None)

    def stopProducing(self) -> None:
        """Everything is written."""

    def pauseProducing(self) -> None:
        """Everything is written."""

    def resumeProducing(self) -> None:
        """Everything is written."""


class _Gatherer(protocol.Protocol):
    """Gathers an answer's body."""

    transport: Any

    def __init__(self) -> None:
        self.done: Deferred[bytes] = Deferred(lambda _: self._leave())
        self._data = bytearray()

    def _leave(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > MAX_ANSWER and not self.done.called:
            self.done.errback(NotAcknowledged("the answer is too large"))
            self._leave()

    def connectionLost(self, reason: Failure = protocol.connectionDone) -> None:
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(bytes(self._data))
        else:
            self.done.errback(reason)


class Poster:
    """
    Sends events by HTTP.
    """

    def __init__(
        self,
        agent: IAgent,
        clock: IReactorTime,
        now: Callable[[], float],
        settings: WebhookSettings,
    ) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        """
        self._agent = agent
        self._clock = clock
        self._now = now
        self._settings = settings

    def post(
        self,
        target: Target,
        interfaceType: InterfaceType,
        subscriptionId: str,
        event: Event,
        text: bytes,
    ) -> Deferred[None]:
        """See L{IPoster.post}."""
        body = encodeBody(interfaceType, subscriptionId, event, text)
        headers = self._headers(subscriptionId, event, body)
        posting = Deferred.fromCoroutine(self._post(target, interfaceType, headers, body))
        return posting.addErrback(_explain)

    def _headers(self, subscriptionId: str, event: Event, body: bytes) -> Headers:
        timestamp = b"%d" % self._now()
        headers = Headers(
            {
                b"Content-Type": [b"application/json"],
                b"User-Agent": [USER_AGENT],
                b"X-Svc-Timestamp": [timestamp],
                b"X-Svc-Subscription-Id": [subscriptionId.encode("ascii")],
                b"X-Svc-Event-Id": [str(event.eventId).encode("ascii")],
            }
        )
        signature = self._settings.signer.sign(timestamp, body)
        if signature is not None:
            headers.addRawHeader(b"X-Svc-Signature", signature)
        return headers

    async def _post(
        self, target: Target, interfaceType: InterfaceType, headers: Headers, body: bytes
    ) -> None:
        deadline = self._clock.seconds() + self._settings.timeout
        asked: Deferred[IResponse] = self._agent.request(
            b"POST", target.url.encode("ascii"), headers, _Body(body)
        )
        response = await asked.addTimeout(self._settings.timeout, self._clock)
        gatherer = _Gatherer()
        response.deliverBody(gatherer)
        gatherer.done.addTimeout(max(0.0, deadline - self._clock.seconds()), self._clock)
        try:
            checkStatus(response.code, _retryAfter(response))
        except NotAcknowledged:
            # What else it says does not matter.
            gatherer.done.addErrback(_ignore)
            gatherer.done.cancel()
            raise
        if interfaceType is InterfaceType.JSON_RPC:
            checkAnswer(await gatherer.done)
        else:
            # The status has acknowledged already, whatever becomes of the rest.
            await gatherer.done.addErrback(_ignore)


def _retryAfter(response: IResponse) -> str | None:
    values: list[str] | None = response.headers.getRawHeaders("Retry-After")
    return values[0] if values else None


def _ignore(failure: Failure) -> None:
    """Nobody waits for what failed."""


def _explain(failure: Failure) -> NoReturn:
    """
    Whatever went wrong, in the operator's words.

    @raise NotAcknowledged: always.
    """
    if failure.check(NotAcknowledged):
        failure.raiseException()
    if failure.check(AddressRefused):
        raise NotAcknowledged("its address is not permitted") from None
    # A request that fails half-way has its reasons in a list.
    reasons = getattr(failure.value, "reasons", None) or [failure]
    raise NotAcknowledged(reasons[0].type.__name__) from failure.value
