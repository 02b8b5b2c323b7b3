"""
The header fields of requests that belong to what they publish.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen
from twisted.web.server import Request

from ...operations import readTrace


@frozen
class PublishHeaders:
    """
    The header fields of a request that belong to what it publishes.

    @ivar idempotencyKey: C{Idempotency-Key}; empty where there is none.
    @ivar trace: the extensions of C{traceparent} and C{tracestate}; see L{readTrace}.
    """

    idempotencyKey: bytes
    trace: Mapping[str, str]


def publishHeaders(
    idempotencyKey: bytes | None, traceparent: bytes | None, tracestate: bytes | None
) -> PublishHeaders | None:
    """
    Read the header fields that belong to what is published.

    @return: C{None} where there are none.
    """
    trace: Mapping[str, str] = {}
    if traceparent:
        trace = readTrace(traceparent.decode("latin-1"), (tracestate or b"").decode("latin-1"))
    if not idempotencyKey and not trace:
        return None
    return PublishHeaders(idempotencyKey or b"", trace)


def publishHeadersOf(request: Request) -> PublishHeaders | None:
    """
    The header fields of a request that belong to what it publishes. Several idempotency keys are
    joined, which makes them invalid, as it does several traceparents.
    """
    names = (b"idempotency-key", b"traceparent", b"tracestate")
    found = (request.requestHeaders.getRawHeaders(name) for name in names)
    return publishHeaders(*(None if values is None else b", ".join(values) for values in found))
