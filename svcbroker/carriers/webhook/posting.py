"""
One request to a receiver, and what its answer means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.web.http_headers import Headers

from ...model import Event, InterfaceType
from ...net.deferreds import asDeferred
from ...net.http import HttpClient, HttpError, Problem
from .messages import USER_AGENT, NotAcknowledged, checkAnswer, checkStatus, encodeBody
from .settings import WebhookSettings
from .targets import Target

MAX_ANSWER: Final = 64 * 1024
"""The longest body of a receiver's answer, in bytes."""


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


class Poster:
    """
    Sends events by HTTP.
    """

    def __init__(
        self, client: HttpClient, now: Callable[[], float], settings: WebhookSettings
    ) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        """
        self._client = client
        self._now = now
        self._settings = settings

    @asDeferred
    async def post(
        self,
        target: Target,
        interfaceType: InterfaceType,
        subscriptionId: str,
        event: Event,
        text: bytes,
    ) -> None:
        """See L{IPoster.post}."""
        body = encodeBody(interfaceType, subscriptionId, event, text)
        isCall = interfaceType is InterfaceType.JSON_RPC
        isAcknowledged = False
        try:
            answer = await self._client.request(
                b"POST",
                target.url,
                headers=self._headers(subscriptionId, event, body),
                body=body,
                timeout=self._settings.timeout,
            )
            try:
                checkStatus(answer.status, answer.header("Retry-After"))
            except NotAcknowledged:
                answer.discard()
                raise
            # To REST the status is the answer, whatever becomes of the body.
            isAcknowledged = not isCall
            told = await answer.read(MAX_ANSWER)
        except (HttpError, CancelledError) as error:
            if not isAcknowledged:
                reason = str(error) or "was given up"
                if isinstance(error, HttpError) and error.problem is Problem.NOT_PERMITTED:
                    reason += " (see --webhook-allow)"
                raise NotAcknowledged(reason) from None
        else:
            if isCall:
                checkAnswer(told)

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
