"""
A trace through a real daemon: from the request of the publisher to the receiver of a webhook, with
the spans that a receiver of OTLP/HTTP gets.
"""

from __future__ import annotations

import gzip
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from twisted.internet.defer import Deferred
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import Site

from .daemon import TIMEOUT, DaemonTestCase, reactor, until

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN_ID = "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


class Collector(Resource):
    """
    The receiver of a webhook, at C{/hook}, and of spans.

    @ivar delivered: fires with the C{traceparent} of the first delivery.
    @ivar spans: the spans, by the first word of their names.
    @ivar services: the names of the services that they are from.
    """

    isLeaf = True

    def __init__(self) -> None:
        super().__init__()
        self.delivered: Deferred[str | None] = Deferred()
        self.spans: dict[str, Any] = {}
        self.services: set[str] = set()

    def render_POST(self, request: Request) -> bytes:
        assert request.content is not None
        body = request.content.read()
        if request.path == b"/hook":
            self.delivered.callback(request.getHeader("traceparent"))
            return b""
        if request.getHeader("content-encoding") == "gzip":
            body = gzip.decompress(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            attributes = {
                each.key: each.value.string_value for each in resource.resource.attributes
            }
            self.services.add(attributes["service.name"])
            for scope in resource.scope_spans:
                self.spans.update({each.name.partition(" ")[0]: each for each in scope.spans})
        request.setHeader("content-type", "application/x-protobuf")
        return b""


class TraceTests(DaemonTestCase):
    """
    Traces.
    """

    async def test_spansReachCollectorAndReceiver(self) -> None:
        """The last spans are sent when the daemon stops."""
        collector = Collector()
        port = reactor.listenTCP(0, Site(collector), interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        url = f"http://127.0.0.1:{port.getHost().port}"
        daemon = await self.start(f"--traces={url}/v1/traces", "--webhook-allow=127.0.0.0/8")
        await daemon.call("/rest/open", topic="t")
        await daemon.call("/rest/subscribe", topic="t", url=f"{url}/hook")
        answer = await daemon.call(
            "/rest/publish", topic="t", content="x", headers={"traceparent": PARENT}
        )
        self.assertEqual(answer["status"], "SUCCESS")
        handed = await collector.delivered.addTimeout(TIMEOUT, reactor)

        async def isAcknowledged() -> bool:
            told = await daemon.call("/admin/listSubscription")
            [[record]] = [each.values() for each in told["data"].values()]
            return bool(record["notifiedEventCount"] == "1")

        # Only then the span of the delivery has ended.
        await until(isAcknowledged)
        event = await daemon.call("/rest/getEvent", eventId=answer["eventId"])
        self.assertEqual(event["extensions"], {"svc-traceparent": PARENT})
        self.assertEqual(await daemon.stop(), 0)
        self.assertEqual(collector.services, {"svcbroker"})
        self.assertEqual(collector.spans.keys(), {"publish", "deliver"})
        for span in collector.spans.values():
            self.assertEqual(span.trace_id.hex(), TRACE_ID)
            self.assertEqual(span.parent_span_id.hex(), SPAN_ID)
            self.assertLess(span.start_time_unix_nano, span.end_time_unix_nano)
        deliverySpan = collector.spans["deliver"].span_id.hex()
        self.assertEqual(handed, f"00-{TRACE_ID}-{deliverySpan}-01")
