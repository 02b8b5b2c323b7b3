"""
The bodies of requests to receivers, and the meaning of their answers, sans I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ... import __version__
from ...model import Event, InterfaceType
from ...operations import EVENT

USER_AGENT: Final = f"svcbroker/{__version__}".encode("ascii")

_DIGITS = 6
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, Any])
_batchDecoder = msgspec.json.Decoder(dict[str, Any] | list[dict[str, Any]])


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


def joinBodies(bodies: Sequence[bytes]) -> bytes:
    """The body of a delivery of several events: an array of what each alone would be."""
    return b"[%b]" % b",".join(bodies)


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
