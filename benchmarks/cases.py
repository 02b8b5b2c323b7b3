"""
What is measured: requests, and what makes an answer to them right.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import msgspec
from attrs import frozen

from .load import Broken, Shape

TOPIC = "bench"
CONTENT = b"x" * 300
"""What is published: 300 bytes, which need no escapes in a form."""

_SUCCESS = b'"status":"SUCCESS"'
_FIELDS = b"topic=%b&content=%b" % (TOPIC.encode(), CONTENT)
_PATH = b"/svcbroker/rest/publish"


@frozen(kw_only=True)
class Case:
    """
    One row of the table.

    @ivar server: which server: a ledger description, or the number of a bare server's port.
    @ivar name: what is asked.
    @ivar connections: by how many clients at once.
    @ivar makeShape: makes the load, given ids of events that are there.
    @ivar publishes: whether it publishes events, which are counted afterwards.
    """

    server: str | int
    name: str
    connections: int
    makeShape: Callable[[Sequence[str]], Shape]
    publishes: bool = False


def _request(method: bytes, target: bytes, type: bytes = b"", body: bytes = b"") -> bytes:
    head = b"%b %b HTTP/1.1\r\nHost: 127.0.0.1\r\n" % (method, target)
    if body:
        head += b"Content-Type: %b\r\nContent-Length: %d\r\n" % (type, len(body))
    return head + b"\r\n" + body


def _acknowledged(count: int) -> Callable[[bytes], int]:
    def check(body: bytes) -> int:
        if body.count(_SUCCESS) != count or b'"error"' in body:
            raise Broken(f"not {count} publishes have succeeded: {body[:1000]!r}")
        return count

    return check


def postForm(known: Sequence[str] = ()) -> Shape:
    """A publish by POST with a form."""
    form = b"application/x-www-form-urlencoded"
    return Shape.same(_request(b"POST", _PATH, form, _FIELDS), _acknowledged(1))


def getQuery(known: Sequence[str] = ()) -> Shape:
    """A publish by GET."""
    return Shape.same(_request(b"GET", _PATH + b"?" + _FIELDS), _acknowledged(1))


def getNothing(known: Sequence[str] = ()) -> Shape:
    """A GET without parameters, which only a bare server answers like a publish."""
    return Shape.same(_request(b"GET", _PATH), _acknowledged(1))


def rpc(batch: int | None) -> Callable[[Sequence[str]], Shape]:
    """
    A publish by JSON-RPC.

    @param batch: how many in a batch; C{None} is one without a batch.
    """

    def call(number: int) -> Mapping[str, Any]:
        content = b64encode(CONTENT).decode("ascii")
        params = {"topic": TOPIC, "content": content}
        return {"jsonrpc": "2.0", "id": str(number), "method": "publish", "params": params}

    text = msgspec.json.encode(call(1) if batch is None else [call(i) for i in range(batch)])
    request = _request(b"POST", b"/svcbroker/jsonrpc", b"application/json", text)
    return lambda known: Shape.same(request, _acknowledged(batch or 1))


def getEvent(known: Sequence[str]) -> Shape:
    """One event after the other is read."""
    content = b'"content":"%b"' % b64encode(CONTENT)

    def check(body: bytes) -> int:
        if content not in body:
            raise Broken(f"not the event that was published: {body[:1000]!r}")
        return 1

    requests = [
        _request(b"GET", b"/svcbroker/rest/getEvent?eventId=" + eventId.encode())
        for eventId in known
    ]
    return Shape(requests=cycle(requests), check=check)


def _broker(ledger: str) -> list[Case]:
    def publish(name: str, connections: int, shape: Callable[[Sequence[str]], Shape]) -> Case:
        return Case(
            server=ledger, name=name, connections=connections, makeShape=shape, publishes=True
        )

    return [
        *(publish("REST publish, POST", clients, postForm) for clients in (1, 32, 256)),
        publish("REST publish, GET", 32, getQuery),
        publish("JSON-RPC publish", 32, rpc(None)),
        publish("JSON-RPC publish, batches of 10", 8, rpc(10)),
        publish("JSON-RPC publish, batches of 100", 4, rpc(100)),
        Case(server=ledger, name="REST getEvent", connections=32, makeShape=getEvent),
    ]


def _bare() -> list[Case]:
    cases = [
        *(
            (port, "the same POST", clients, postForm)
            for clients in (1, 32, 256)
            for port in (0, 2)
        ),
        *((port, "the same GET", 32, getQuery) for port in (0, 2)),
        *((port, "GET without parameters", 32, getNothing) for port in (0, 1, 2)),
    ]
    return [
        Case(server=port, name=name, connections=clients, makeShape=shape)
        for port, name, clients, shape in cases
    ]


DEFAULT = "pbft"
AT_ONCE = "pbft:interval=0"

CASES: Sequence[Case] = (*_broker(DEFAULT), *_broker(AT_ONCE), *_bare())
"""All rows, in the order of the table."""
