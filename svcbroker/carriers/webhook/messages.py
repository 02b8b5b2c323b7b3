"""
The bodies of requests to receivers, and the meaning of their answers, sans I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from attrs import frozen

from ... import __version__
from ...interfaces import Batch
from ...model import Event, EventFormat, InterfaceType
from ...operations import (
    CLOUD_EVENT_TYPE,
    CLOUD_EVENTS_TYPE,
    EVENT,
    cloudEventHeaders,
    cloudEvents,
)

USER_AGENT: Final = f"svcbroker/{__version__}".encode("ascii")

_DIGITS = 6
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, Any])
_batchDecoder = msgspec.json.Decoder(dict[str, Any] | list[dict[str, Any]])


_CONTENT_TYPE: Final = b"Content-Type"
_JSON: Final = {_CONTENT_TYPE: b"application/json"}
_CLOUD_EVENT: Final = {_CONTENT_TYPE: CLOUD_EVENT_TYPE.encode("ascii")}
_CLOUD_EVENTS: Final = {_CONTENT_TYPE: CLOUD_EVENTS_TYPE.encode("ascii")}


class Payload(msgspec.Struct, frozen=True):
    """
    The content of a request.

    @ivar headers: those that are part of it: the content type, and in binary mode the attributes of
        a CloudEvent.
    """

    body: bytes
    headers: Mapping[bytes, bytes]


class NotAcknowledged(Exception):
    """
    Events were not acknowledged. The text is a few words for the operator and for the account
    that made the webhook: no URL, no header, nothing that the receiver has written.

    @ivar retryAfter: how long the receiver asks to wait, in seconds; 0 where it does not.
    @ivar isAttempt: whether the receiver had its chance: it answered, or could not be reached.
    """

    def __init__(self, reason: str, retryAfter: int = 0, *, isAttempt: bool = True) -> None:
        super().__init__(reason)
        self.retryAfter = retryAfter
        self.isAttempt = isAttempt


def encodeEvents(events: Sequence[Event]) -> Sequence[bytes]:
    """The JSON text of each event, which is the same for all receivers."""
    return [_encoder.encode(EVENT.render(event)) for event in events]


def encodeBody(
    interfaceType: InterfaceType, subscriptionId: str, event: Event, text: bytes
) -> bytes:
    """
    The body of a delivery.

    @param subscriptionId: a UUID: it needs no escapes.
    @param text: what L{encodeEvents} gives for the event.
    """
    params = b'{"subscriptionId":"%b","event":%b}' % (subscriptionId.encode("ascii"), text)
    if interfaceType is not InterfaceType.JSON_RPC:
        return params
    return b'{"jsonrpc":"2.0","id":"%b","method":"onEvent","params":%b}' % (
        str(event.eventId).encode("ascii"),
        params,
    )


@frozen(kw_only=True)
class RequestForm:
    """
    The form of a webhook's requests.

    @ivar interfaceType: RESTful or JsonRPC.
    @ivar format: how events are written. CloudEvents are the same for both interfaces.
    @ivar source: what the C{source} of CloudEvents begins with.
    @ivar isBatch: whether a body is an array of events.
    """

    interfaceType: InterfaceType
    subscriptionId: str
    format: EventFormat = EventFormat.SVC
    source: str = ""
    isBatch: bool = False

    @property
    def isCall(self) -> bool:
        """Whether a request is a call of JSON-RPC."""
        return self.interfaceType is InterfaceType.JSON_RPC and self.format is EventFormat.SVC

    def encode(self, batch: Batch) -> Iterable[Payload]:
        """The payload of each event alone. What is the same for all receivers is made once."""
        if self.format is EventFormat.SVC:
            texts = batch.encoded("webhook", encodeEvents)
            return (
                Payload(encodeBody(self.interfaceType, self.subscriptionId, event, text), _JSON)
                for event, text in zip(batch.events, texts, strict=True)
            )
        make = self._structured if self.format is EventFormat.CLOUD_EVENTS else self._binary
        return batch.encoded(("webhook", self.format.value), lambda _: make(batch))

    def _structured(self, batch: Batch) -> Sequence[Payload]:
        events = cloudEvents(batch, self.source)
        return [Payload(_encoder.encode(each), _CLOUD_EVENT) for each in events]

    def _binary(self, batch: Batch) -> Sequence[Payload]:
        return [
            Payload(event.content, cloudEventHeaders(event, self.source, batch.timestamp))
            for event in batch.events
        ]

    def join(self, payloads: Sequence[Payload]) -> Payload:
        """The payload of one request, of those of its events: in a batch an array."""
        if not self.isBatch:
            [payload] = payloads
            return payload
        body = b"[%b]" % b",".join(each.body for each in payloads)
        return Payload(body, _JSON if self.format is EventFormat.SVC else _CLOUD_EVENTS)


def checkStatus(status: int, retryAfter: str | None) -> None:
    """
    Check the status of an answer. Redirects are not followed.

    @param retryAfter: the header Retry-After.
    @raise NotAcknowledged: it is no 2xx.
    """
    if not 200 <= status <= 299:
        wait = retryAfter.strip() if retryAfter is not None else ""
        isNumber = wait.isascii() and wait.isdigit() and len(wait) <= _DIGITS
        raise NotAcknowledged(f"HTTP status {status}", int(wait) if isNumber else 0)


def checkAnswer(body: bytes, *, isBatch: bool = False) -> None:
    """
    Check the body of a 2xx answer to a JSON-RPC call. An empty one acknowledges, too.

    @param isBatch: whether it was a batch of calls, whose answer may be an array.
    @raise NotAcknowledged: it holds an error, or is no answer of JSON-RPC.
    """
    if not body.strip():
        return
    answer: Any
    try:
        answer = (_batchDecoder if isBatch else _decoder).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NotAcknowledged("the answer is not a JSON object") from None
    for each in answer if isinstance(answer, list) else (answer,):
        if each.get("error") is not None:
            raise NotAcknowledged("the answer is a JSON-RPC error")
