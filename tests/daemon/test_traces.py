"""
Tests for L{svcbroker.daemon.traces}: the spans of publishes and webhooks.
"""

from __future__ import annotations

import logging
import sys
from typing import Any
from unittest.mock import patch

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode
from twisted.internet.defer import fail
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY
from svcbroker.broker import Publication, PublishPolicy, SendResult, SendStatus
from svcbroker.broker._groups import Groups, Limits
from svcbroker.broker._pipeline import TracedPublishing
from svcbroker.carriers.webhook.posting import (
    NotAcknowledged,
    Payload,
    Poster,
    RequestForm,
    WebhookReceiver,
    parseUrl,
)
from svcbroker.daemon.config import makeConfig
from svcbroker.daemon.dependencies import StartError
from svcbroker.daemon.traces import OpenTelemetryTracer, _LogHandler, makeTracer
from svcbroker.errors import TopicNotFound
from svcbroker.model import Event, EventId, InterfaceType, OpenTopic
from svcbroker.net.budgets import Budgets
from svcbroker.net.settings import ConfigError
from svcbroker.testing._fixtures import memoryLedger
from tests.carriers.webhook.support import SETTINGS

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
OTHER = f"00-{'1' * 32}-{'2' * 16}-01"
UNSAMPLED = PARENT[:-1] + "0"


def traced(parent: str = PARENT, topic: str = "t") -> Publication:
    """An event with a trace, to be published."""
    return Publication(
        topic=topic, content=b"x", extensions={"svc-traceparent": parent} if parent else {}
    )


class TracerTestCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=ParentBased(root=ALWAYS_OFF), shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = OpenTelemetryTracer(self.provider)

    def spans(self) -> list[Any]:
        """The spans that have ended since the last time."""
        spans = list(self.exporter.get_finished_spans())
        self.exporter.clear()
        return spans


class PublishTests(TracerTestCase):
    """
    L{TracedPublishing}
    """

    def setUp(self) -> None:
        super().setUp()
        self.clock = clock = Clock()
        self.ledger = memoryLedger(clock)
        self.publishing = TracedPublishing(
            Groups({"1": self.ledger}), Limits(), clock, Budgets.of(clock).work, self.tracer
        )
        self.addCleanup(self.publishing.stop)
        self.ledger.submitMany([OpenTopic(topic="t")])
        clock.advance(1)

    def publish(self, *publications: Publication) -> list[Any]:
        """Publish together; the spans."""
        policy = PublishPolicy(carrier="mqtt")
        done = self.publishing.publish(ANYBODY, publications, policy)
        self.clock.advance(1)
        self.answers = self.successResultOf(done)
        return self.spans()

    def test_spanIsChildOfPublishersSpan(self) -> None:
        publishing = self.publishing.publish(ANYBODY, [traced()], PublishPolicy())
        [result] = self.successResultOf(publishing)
        [span] = self.spans()
        self.assertEqual((span.name, span.kind), ("publish t", SpanKind.SERVER))
        self.assertEqual(f"{span.context.trace_id:032x}", TRACE_ID)
        self.assertEqual(f"{span.parent.span_id:016x}", "00f067aa0ba902b7")
        self.assertEqual(
            dict(span.attributes),
            {
                "messaging.system": "svcbroker",
                "messaging.operation.name": "publish",
                "messaging.destination.name": "t",
                "messaging.message.id": result.eventId,
                "svcbroker.carrier": "http",
            },
        )
        self.assertEqual(span.status.status_code, StatusCode.UNSET)

    def test_unsampledOrAbsentTraceHasNoSpan(self) -> None:
        for parent in (UNSAMPLED, "", "x"):
            self.assertEqual(self.publish(traced(parent)), [])
            self.assertEqual(self.answers[0].status, SendStatus.SUCCESS)

    def test_batchHasOneSpanWithLinks(self) -> None:
        [span] = self.publish(traced(""), traced(), traced(OTHER), traced(), traced(UNSAMPLED))
        self.assertEqual(span.attributes["messaging.batch.message_count"], 5)
        self.assertEqual(span.attributes["svcbroker.carrier"], "mqtt")
        self.assertEqual(f"{span.context.trace_id:032x}", TRACE_ID)
        self.assertEqual([f"{link.context.trace_id:032x}" for link in span.links], ["1" * 32])

    def test_refusalIsErrorOfSpan(self) -> None:
        [one] = self.publish(traced(topic="no"))
        [span] = self.publish(traced(), traced(topic="no"))
        for each in (one, span):
            self.assertEqual(each.status.status_code, StatusCode.ERROR)
            self.assertEqual(each.attributes["error.type"], TopicNotFound().name)
        self.assertNotIn("messaging.destination.name", span.attributes)

    def test_timeoutIsErrorOfSpan(self) -> None:
        span = self.tracer.publishing("http", [traced()])
        assert span is not None
        result = SendResult("t", None, SendStatus.TIMEOUT)
        self.assertIs(span.end(result), result)
        self.assertEqual(self.spans()[0].attributes["error.type"], "TIMEOUT")


class DeliveryTests(TracerTestCase):
    """
    Spans of L{Poster}.
    """

    def post(self, answer: Any, *parents: str) -> list[Any]:
        """Send events to a receiver; the spans."""
        requests: list[Any] = []

        class Client:
            def request(self, *args: Any, headers: Any, **more: Any) -> Any:
                requests.append(headers.getRawHeaders("traceparent"))
                return answer

        client: Any = Client()
        poster = Poster(lambda _: client, lambda: 0.0, SETTINGS, self.tracer)
        form = RequestForm(interfaceType=InterfaceType.RESTFUL, subscriptionId="s", isBatch=True)
        events = [
            Event(
                topic="t",
                content=b"x",
                extensions={"svc-traceparent": parent} if parent else {},
                eventId=EventId("0123abcd", 1, number),
            )
            for number, parent in enumerate(parents)
        ]
        receiver = WebhookReceiver(target=parseUrl("https://a.example:1/"), form=form)
        posting = poster.post(receiver, events, Payload(b"x", {}))
        self.failureResultOf(posting, NotAcknowledged)
        [self.sent] = requests
        return self.spans()

    def test_receiverContinuesSpanOfDelivery(self) -> None:
        [span] = self.post(fail(NotAcknowledged("HTTP status 500")), "", PARENT)
        self.assertEqual((span.name, span.kind), ("deliver t", SpanKind.CLIENT))
        self.assertEqual(f"{span.parent.span_id:016x}", "00f067aa0ba902b7")
        self.assertEqual(self.sent, [f"00-{TRACE_ID}-{span.context.span_id:016x}-01"])
        self.assertEqual(span.attributes["server.address"], "a.example:1")
        self.assertEqual(span.attributes["messaging.message.id"], "0123abcd-1-1")
        self.assertEqual(span.attributes["error.type"], "NotAcknowledged")
        self.assertEqual(span.status.description, "HTTP status 500")

    def test_unsampledTraceIsHandedOn(self) -> None:
        self.assertEqual(self.post(fail(NotAcknowledged("no")), UNSAMPLED), [])
        self.assertEqual(self.sent, [UNSAMPLED])


class MakeTracerTests(SynchronousTestCase):
    """
    L{makeTracer} and its setting.
    """

    def test_unreachableReceiverDoesNotHoldStop(self) -> None:
        """The resource names this broker; the environment wins."""
        logger = logging.getLogger("opentelemetry")
        self.addCleanup(setattr, logger, "propagate", logger.propagate)
        before = list(logger.handlers)
        self.addCleanup(setattr, logger, "handlers", before)

        class Reactor:
            def callFromThread(self, *args: Any, **more: Any) -> None:
                pass

        tracer = makeTracer("http://127.0.0.1:1/v1/traces", "broker:1", Reactor())
        [handler] = [each for each in logger.handlers if each not in before]
        self.assertIsInstance(handler, _LogHandler)
        attributes = dict(tracer._provider.resource.attributes)
        self.assertEqual(attributes["service.name"], "svcbroker")
        self.assertEqual(attributes["service.instance.id"], "broker:1")
        span = tracer.publishing("http", [traced()])
        assert span is not None
        span.end(Failure(TopicNotFound()))
        tracer.stop()

    def test_missingPackageFailsStart(self) -> None:
        missing = {"opentelemetry.exporter.otlp.proto.http.trace_exporter": None}
        with patch.dict(sys.modules, missing):
            error = self.assertRaises(StartError, makeTracer, "http://a/", "", None)
        self.assertIn("traces: OpenTelemetry is not installed", str(error))

    def test_urlIsChecked(self) -> None:
        self.assertEqual(
            makeConfig({"traces": "https://a/v1/traces"}).traces, "https://a/v1/traces"
        )
        for url in ("127.0.0.1:4318", "ftp://a/", "http://"):
            error = self.assertRaises(ConfigError, makeConfig, {"traces": url})
            self.assertIn("traces: is not a URL such as", str(error))
