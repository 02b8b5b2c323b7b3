"""
The header fields of requests that become parameters of their calls.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen
from twisted.web.server import Request

from ...operations import readTrace


@frozen
class PublishHeaders:
    """
    The header fields of a request that become parameters of its call: those of what it publishes,
    and of what its client has seen.

    @ivar idempotencyKey: C{Idempotency-Key}; empty where there is none.
    @ivar trace: the extensions of C{traceparent} and C{tracestate}; see L{readTrace}.
    @ivar after: C{svc-after}: the id of an event; empty where there is none.
    """

    idempotencyKey: bytes
    trace: Mapping[str, str]
    after: bytes


def publishHeaders(
    idempotencyKey: bytes | None,
    traceparent: bytes | None,
    tracestate: bytes | None,
    after: bytes | None,
) -> PublishHeaders | None:
    """
    Read the header fields that become parameters.

    @return: C{None} where there are none.
    """
    trace: Mapping[str, str] = {}
    if traceparent:
        trace = readTrace(traceparent.decode("latin-1"), (tracestate or b"").decode("latin-1"))
    if not idempotencyKey and not trace and not after:
        return None
    return PublishHeaders(idempotencyKey or b"", trace, after or b"")


def publishHeadersOf(request: Request) -> PublishHeaders | None:
    """
    The header fields of a request that become parameters. Several of one name are joined, which
    makes them invalid.
    """
    names = (b"idempotency-key", b"traceparent", b"tracestate", b"svc-after")
    found = (request.requestHeaders.getRawHeaders(name) for name in names)
    return publishHeaders(*(None if values is None else b", ".join(values) for values in found))
