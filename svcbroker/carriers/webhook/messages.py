"""
The bodies and signatures of requests to receivers, and the meaning of their answers, sans I/O.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from attrs import define, field

from ... import __version__
from ...model import Event, InterfaceType
from ...operations import EVENT

USER_AGENT: Final = f"svcbroker/{__version__}".encode("ascii")
MIN_SECRET: Final = 16
"""The shortest secret, in bytes."""
MAX_SECRETS: Final = 4
"""The most secrets that sign at the same time."""

_DIGITS = 6
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(dict[str, Any])


class NotAcknowledged(Exception):
    """
    An event was not acknowledged. The text is a few words for the operator.

    @ivar retryAfter: how long the receiver asks to wait, in seconds; 0 where it does not.
    """

    def __init__(self, reason: str, retryAfter: int = 0) -> None:
        super().__init__(reason)
        self.retryAfter = retryAfter


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


@define(eq=False)
class Signer:
    """
    Signs deliveries: HMAC-SHA256 over the timestamp in digits, a dot, and the body.

    While one secret replaces another there is a signature for each, and a receiver accepts
    either.
    """

    _secrets: tuple[bytes, ...] = field(default=(), repr=False)

    def use(self, secrets: tuple[bytes, ...]) -> None:
        """Sign with other secrets from now on."""
        self._secrets = secrets

    def sign(self, timestamp: bytes, body: bytes) -> bytes | None:
        """
        The value of C{X-Svc-Signature}: C{v1=<hex digits>} for each secret, with commas between
        them; C{None} where there is no secret.
        """
        if not self._secrets:
            return None
        signed = timestamp + b"." + body
        return b",".join(
            b"v1=" + hmac.new(secret, signed, hashlib.sha256).hexdigest().encode("ascii")
            for secret in self._secrets
        )


def parseSecrets(data: bytes) -> tuple[bytes, ...]:
    """
    The secrets in a file: one a line, without the white space around it; empty lines do not
    count.

    @raise ValueError: there is none, one is short, or there are many. The text goes after the
        file's name.
    """
    secrets = tuple(line.strip() for line in data.splitlines() if line.strip())
    if not secrets:
        raise ValueError("has no secret")
    if len(secrets) > MAX_SECRETS:
        raise ValueError(f"has more than {MAX_SECRETS} secrets")
    if any(len(secret) < MIN_SECRET for secret in secrets):
        raise ValueError(f"has a secret of less than {MIN_SECRET} bytes")
    return secrets


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


def checkAnswer(body: bytes) -> None:
    """
    Check the body of a 2xx answer to a JSON-RPC call. An empty one acknowledges, too.

    @raise NotAcknowledged: it holds an error, or is no answer of JSON-RPC.
    """
    if not body.strip():
        return
    try:
        answer = _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise NotAcknowledged("the answer is not a JSON object") from None
    if answer.get("error") is not None:
        raise NotAcknowledged("the answer is a JSON-RPC error")
