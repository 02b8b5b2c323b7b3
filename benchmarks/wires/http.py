"""
HTTP: the requests that svcbroker is measured with, which bare servers are asked, too.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from secrets import token_bytes
from typing import Any

import msgspec

from svcbroker.commands.bench import httpRequest

from ..loader import Load, Protocol
from .talk import CONTENT

TOPIC = "bench"
_SUCCESS = b'"status":"SUCCESS"'
_FAILURE = b'"error"'
_FIELDS = b"topic=%b&content=%b" % (TOPIC.encode(), CONTENT)
_PATH = b"/svcbroker/rest/publish"
_FORM = b"application/x-www-form-urlencoded"
_JSON = b"application/json"

TRANSACTIONS = 1000
"""How many transactions each connection has for an engine, which takes each of them only once."""


def _publishes(one: bytes, events: int = 1) -> Load:
    return Load(
        protocol=Protocol.HTTP,
        frames=lambda number: [one],
        events=events,
        wanted=_SUCCESS,
        wantedTimes=events,
        unwanted=_FAILURE,
    )


def postForm() -> Load:
    """A publish by POST with a form."""
    return _publishes(httpRequest(b"POST", _PATH, _FORM, _FIELDS))


def getQuery() -> Load:
    """A publish by GET."""
    return _publishes(httpRequest(b"GET", _PATH + b"?" + _FIELDS))


def rpcText(batch: int | None) -> bytes:
    """
    Publishes by JSON-RPC.

    @param batch: how many in a batch; C{None} is one without a batch.
    """

    def call(number: int) -> Mapping[str, Any]:
        content = b64encode(CONTENT).decode("ascii")
        params = {"topic": TOPIC, "content": content}
        return {"jsonrpc": "2.0", "id": str(number), "method": "publish", "params": params}

    return msgspec.json.encode(call(1) if batch is None else [call(i) for i in range(batch)])


def rpc(batch: int | None = None) -> Load:
    """Publishes by JSON-RPC: see L{rpcText}."""
    body = rpcText(batch)
    return _publishes(httpRequest(b"POST", b"/svcbroker/jsonrpc", _JSON, body), batch or 1)


def getEvent(known: Sequence[str]) -> Load:
    """
    One event after the other is read.

    @param known: the ids of events that were published.
    """
    requests = [
        httpRequest(b"GET", b"/svcbroker/rest/getEvent?eventId=" + eventId.encode())
        for eventId in known
    ]
    return Load(
        protocol=Protocol.HTTP,
        frames=lambda number: requests,
        wanted=b'"content":"%b"' % b64encode(CONTENT),
        wantedTimes=1,
        unwanted=_FAILURE,
    )


def commitTransaction() -> Load:
    """
    A transaction as long as a publish's content, for a CometBFT engine with its own example
    application (C{kvstore}). The engine answers when the block is decided and executed.
    """

    def request(number: int) -> bytes:
        key = b"%b%06d" % (token_bytes(8).hex().encode(), number)
        transaction = b64encode(key + b"=" + CONTENT[len(key) + 1 :])
        body = (
            b'{"jsonrpc":"2.0","id":0,"method":"broadcast_tx_commit","params":{"tx":"%b"}}'
            % transaction
        )
        return httpRequest(b"POST", b"/", _JSON, body)

    return Load(
        protocol=Protocol.HTTP,
        frames=lambda number: list(map(request, range(TRANSACTIONS))),
        isOwn=True,
        wanted=b'"height":"',
        wantedTimes=1,
        unwanted=_FAILURE,
    )
