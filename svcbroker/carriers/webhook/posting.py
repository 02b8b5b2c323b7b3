"""
One request to a receiver, and what its answer means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from attrs import field, frozen
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.web.http_headers import Headers

from ...model import Event
from ...net.deferreds import asDeferred
from ...net.http import HttpClient, HttpError, Problem, discardBody, headerOf, readBody
from ...net.pem import ClientIdentity
from ...net.tracing import Tracer
from ...operations import traceOf
from .messages import USER_AGENT, NotAcknowledged, Payload, RequestForm, checkAnswer, checkStatus
from .settings import WebhookSettings
from .signing import SecretMissing
from .targets import Target

MAX_ANSWER: Final = 64 * 1024
"""The longest body of a receiver's answer, in bytes."""


@frozen(kw_only=True)
class Receiver:
    """
    Where the events of a webhook are sent, and how.

    @ivar form: the form of requests.
    @ivar secret: the name of the secret that signs; empty for the shared ones.
    @ivar certificate: the name of the certificate that is shown; empty for none.
    @ivar headers: more headers of each request. They may hold secrets.
    """

    target: Target
    form: RequestForm
    secret: str = ""
    certificate: str = ""
    headers: Mapping[str, str] = field(factory=dict, repr=False)


class IPoster(Protocol):
    """Sends events to receivers."""

    def post(self, receiver: Receiver, events: Sequence[Event], payload: Payload) -> Deferred[None]:
        """
        Make one request.

        @param events: the events in the payload; one, unless the receiver takes batches.
        @return: fires when the receiver has acknowledged them. Cancelling ends the request.
        @raise NotAcknowledged: it has not, whatever the reason.
        """


class Poster:
    """
    Sends events by HTTP.
    """

    def __init__(
        self,
        makeClient: Callable[[ClientIdentity | None], HttpClient],
        now: Callable[[], float],
        settings: WebhookSettings,
        tracer: Tracer | None = None,
    ) -> None:
        """
        @param makeClient: makes a client, which has connections of its own, and shows a
            certificate if it is given one.
        @param now: the wall clock: seconds since the epoch.
        @param tracer: is told of each request; C{None} for no spans.
        """
        self._makeClient = makeClient
        self._clients: dict[str, tuple[ClientIdentity | None, HttpClient]] = {}
        self._now = now
        self._settings = settings
        self._tracer = tracer

    def close(self) -> Deferred[Any]:
        """Close idle connections. Called once, at the end."""
        return gatherResults([client.close() for _, client in self._clients.values()])

    def _clientOf(self, receiver: Receiver) -> HttpClient:
        """
        The client that shows a receiver's certificate, as it was read last.

        @raise NotAcknowledged: there is no such certificate now.
        """
        name = receiver.certificate
        certificate = self._settings.signer.secrets.certificates.get(name)
        if name and certificate is None:
            raise NotAcknowledged(f"the operator's file has no certificate {name}", isAttempt=False)
        used, client = self._clients.get(name, (None, None))
        if client is None or used is not certificate:
            if client is not None:
                client.close()
            client = self._makeClient(certificate)
            self._clients[name] = certificate, client
        return client

    def post(self, receiver: Receiver, events: Sequence[Event], payload: Payload) -> Deferred[None]:
        """See L{IPoster.post}."""
        span = None
        if self._tracer is not None:
            span = self._tracer.delivering(receiver.target.authority, events)
        if span is None:
            return self._post(receiver, events, payload, _traceOfAll(events))
        return self._post(receiver, events, payload, span.headers).addBoth(span.end)

    @asDeferred
    async def _post(
        self,
        receiver: Receiver,
        events: Sequence[Event],
        payload: Payload,
        trace: Mapping[str, str],
    ) -> None:
        isCall = receiver.form.isCall
        isAcknowledged = False
        try:
            answer = await self._clientOf(receiver).request(
                "POST",
                receiver.target.url,
                headers=self._headers(receiver, events, payload, trace),
                data=payload.body,
                timeout=self._settings.timeout,
                maxBody=MAX_ANSWER,
            )
            try:
                checkStatus(answer.code, headerOf(answer, "Retry-After"))
            except NotAcknowledged:
                discardBody(answer)
                raise
            # To REST the status is the answer, whatever becomes of the body.
            isAcknowledged = not isCall
            told = await readBody(answer)
        except CancelledError:
            if not isAcknowledged:
                raise NotAcknowledged("was given up", isAttempt=False) from None
        except HttpError as error:
            if not isAcknowledged:
                isPermitted = error.problem is not Problem.NOT_PERMITTED
                hint = "" if isPermitted else " (see --webhook-allow)"
                raise NotAcknowledged(f"{error}{hint}", isAttempt=isPermitted) from None
        else:
            if isCall:
                checkAnswer(told, isBatch=receiver.form.isBatch)

    def _headers(
        self,
        receiver: Receiver,
        events: Sequence[Event],
        payload: Payload,
        trace: Mapping[str, str],
    ) -> Headers:
        timestamp = b"%d" % self._now()
        # Of a batch the last one: who has taken it has all events up to there, also where other
        # events are in the batch the next time.
        eventId = str(events[-1].eventId).encode("ascii")
        headers = Headers(
            {
                **{name: [value] for name, value in payload.headers.items()},
                b"User-Agent": [USER_AGENT],
                b"webhook-id": [eventId],
                b"webhook-timestamp": [timestamp],
                b"X-Svc-Timestamp": [timestamp],
                b"X-Svc-Subscription-Id": [receiver.form.subscriptionId.encode("ascii")],
                b"X-Svc-Event-Id": [eventId],
            }
        )
        for text, content in trace.items():
            headers.addRawHeader(text.encode("ascii"), content.encode("ascii"))
        try:
            signatures = self._settings.signer.sign(
                receiver.secret, eventId, timestamp, payload.body
            )
        except SecretMissing:
            raise NotAcknowledged(
                f"the operator's file has no secret {receiver.secret}", isAttempt=False
            ) from None
        for name, value in signatures:
            headers.addRawHeader(name, value)
        for text, content in receiver.headers.items():
            headers.setRawHeaders(text.encode("ascii"), [content.encode("ascii")])
        return headers


def _traceOfAll(events: Sequence[Event]) -> Mapping[str, str]:
    """The trace context of a request. One with events of several traces belongs to none."""
    first, *others = map(traceOf, events)
    return first if all(other == first for other in others) else {}
