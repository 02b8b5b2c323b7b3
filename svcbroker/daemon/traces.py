"""
Spans by OpenTelemetry, sent over OTLP/HTTP. It is imported only where C{--traces} asks for it.

There are spans only for events whose publisher has sampled their trace. They wait in a bounded
queue and are sent by a thread of OpenTelemetry; while the queue is full, further ones are lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from twisted.logger import Logger
from twisted.python.failure import Failure

from .. import __version__
from ..broker import SendResult, SendStatus
from ..errors import BrokerError
from ..model import Event, PublishEvent
from ..operations import traceOf
from .dependencies import StartError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span

T = TypeVar("T")

EXPORT_TIMEOUT: Final = 5.0
"""The time that the receiver may take for some spans, in seconds."""
STOP_TIMEOUT: Final = 2.0
"""The time that the last spans may take at the end of the process, in seconds."""

_MAX_LINKS: Final = 32
_log = Logger()


def receiverUrl(text: str) -> str:
    """The URL of a receiver of spans; empty for none."""
    parts = urlsplit(text)
    if text and (parts.scheme not in {"http", "https"} or not parts.netloc or len(text) > 1024):
        raise ValueError(f"is not a URL such as http://127.0.0.1:4318/v1/traces: {text[:100]!r}")
    return text


class OpenTelemetryTracer:
    """
    Makes spans. See L{Tracer<svcbroker.net.metrics.Tracer>}.
    """

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._api = trace
        self._propagator = TraceContextTextMapPropagator()
        self._provider = provider
        self._tracer = provider.get_tracer("svcbroker", __version__)

    def publishing(self, carrier: str, events: Sequence[PublishEvent]) -> OpenSpan | None:
        """See L{Tracer.publishing<svcbroker.net.metrics.Tracer.publishing>}."""
        kind = self._api.SpanKind.SERVER
        return self._start("publish", kind, events, {"svcbroker.carrier": carrier})

    def delivering(self, target: str, events: Sequence[Event]) -> OpenSpan | None:
        """See L{Tracer.delivering<svcbroker.net.metrics.Tracer.delivering>}."""
        attributes = {"server.address": target, "messaging.message.id": str(events[-1].eventId)}
        return self._start("deliver", self._api.SpanKind.CLIENT, events, attributes)

    def stop(self) -> None:
        """Send the last spans. Blocks, for L{STOP_TIMEOUT} at most. Called once, at the end."""
        thread = Thread(target=self._provider.shutdown, daemon=True)
        thread.start()
        thread.join(STOP_TIMEOUT)

    def _start(
        self,
        operation: str,
        kind: Any,
        events: Sequence[Event | PublishEvent],
        attributes: Mapping[str, str],
    ) -> OpenSpan | None:
        """
        Start a span below the first sampled trace of some events. It has links to others.
        """
        contexts = self._sampledContexts(events)
        if not contexts:
            return None
        first, *others = contexts
        topic = events[0].topic
        isOne = all(event.topic == topic for event in events)
        span = self._tracer.start_span(
            f"{operation} {topic}" if isOne else operation,
            context=first,
            kind=kind,
            attributes={
                "messaging.system": "svcbroker",
                "messaging.operation.name": operation,
                **({"messaging.destination.name": topic} if isOne else {}),
                **({"messaging.batch.message_count": len(events)} if len(events) > 1 else {}),
                **attributes,
            },
            links=[
                self._api.Link(self._api.get_current_span(each).get_span_context())
                for each in others[:_MAX_LINKS]
            ],
        )
        headers: dict[str, str] = {}
        self._propagator.inject(headers, self._api.set_span_in_context(span))
        return OpenSpan(span, headers)

    def _sampledContexts(self, events: Iterable[Event | PublishEvent]) -> list[Any]:
        contexts = {}
        for event in events:
            trace = traceOf(event) if event.extensions else {}
            if trace and trace["traceparent"] not in contexts:
                context = self._propagator.extract(trace)
                spanContext = self._api.get_current_span(context).get_span_context()
                if spanContext.trace_flags.sampled:
                    contexts[trace["traceparent"]] = context
        return list(contexts.values())


class OpenSpan:
    """
    A span. See L{Span<svcbroker.net.metrics.Span>}.
    """

    def __init__(self, span: Span, headers: Mapping[str, str]) -> None:
        self._span = span
        self.headers = headers

    def end(self, result: T) -> T:
        """See L{Span.end<svcbroker.net.metrics.Span.end>}."""
        from opentelemetry.trace import Status, StatusCode

        answers = result if isinstance(result, list) else [result]
        errors = [error for error in map(_errorOf, answers) if error is not None]
        for each in answers[:1]:
            if isinstance(each, SendResult) and each.eventId:
                self._span.set_attribute("messaging.message.id", each.eventId)
        if errors:
            name, text = errors[0]
            self._span.set_attribute("error.type", name)
            self._span.set_status(Status(StatusCode.ERROR, text))
        self._span.end()
        return result


def _errorOf(answer: object) -> tuple[str, str] | None:
    """The name and the text of an error among answers; C{None} for any other answer."""
    error = answer.value if isinstance(answer, Failure) else answer
    if isinstance(error, BrokerError):
        return error.name, error.message
    if isinstance(error, BaseException):
        return type(error).__name__, str(error)
    if isinstance(error, SendResult) and error.status is not SendStatus.SUCCESS:
        return error.status.value, ""
    return None


class _LogHandler(logging.Handler):
    """Passes on what OpenTelemetry logs in its threads."""

    def __init__(self, reactor: Any) -> None:
        super().__init__(logging.WARNING)
        self._reactor = reactor

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self._reactor.callFromThread(_log.warn, "OpenTelemetry: {text}", text=text)


def importExporter() -> None:
    """
    Import what spans are sent with.

    @raise StartError: OpenTelemetry is not installed.
    """
    try:
        import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        import_module("opentelemetry.sdk.trace.export")
    except ImportError as error:
        raise StartError(
            f"traces: OpenTelemetry is not installed: pip install 'svcbroker[tracing]' ({error})"
        ) from None


def makeTracer(url: str, instance: str, reactor: Any) -> OpenTelemetryTracer:
    """
    A tracer that sends its spans over OTLP/HTTP. OpenTelemetry's own environment variables, such as
    C{OTEL_EXPORTER_OTLP_HEADERS} and C{OTEL_SERVICE_NAME}, count.

    @param url: the URL of the receiver.
    @param instance: what this broker is called.
    @raise StartError: OpenTelemetry is not installed.
    """
    importExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased

    logger = logging.getLogger("opentelemetry")
    logger.addHandler(_LogHandler(reactor))
    logger.propagate = False
    own = {
        "service.name": "svcbroker",
        "service.version": __version__,
        "service.instance.id": instance or "svcbroker",
    }
    # Of Resource.create alone the environment would not win.
    resource = Resource.create(own).merge(OTELResourceDetector().detect())
    provider = TracerProvider(
        sampler=ParentBased(root=ALWAYS_OFF), resource=resource, shutdown_on_exit=False
    )
    exporter = OTLPSpanExporter(endpoint=url, timeout=EXPORT_TIMEOUT)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetryTracer(provider)
