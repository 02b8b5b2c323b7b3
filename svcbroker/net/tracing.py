"""
Spans: what publishing and delivery tell a tracer of, where there is one.

A module of its own: rooms that tell of spans need no tracer to be installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from ..model import Event, PublishEvent

T = TypeVar("T")


class Span(Protocol):
    """
    Work that is being done.

    @ivar headers: the trace context of those that go on with it: C{traceparent}, C{tracestate}.
    """

    @property
    def headers(self) -> Mapping[str, str]: ...

    def end(self, result: T) -> T:
        """
        The work is done. Called once.

        @param result: what has come of it, or a C{Failure}; it is returned.
        """


class Tracer(Protocol):
    """
    Makes spans of work on events whose publisher has sampled their trace.
    """

    def publishing(self, carrier: str, events: Sequence[PublishEvent]) -> Span | None:
        """
        Events are about to be submitted.

        @param carrier: the name of the carrier.
        @return: the span, which ends with the answers; C{None} where no trace is sampled.
        """

    def delivering(self, target: str, events: Sequence[Event]) -> Span | None:
        """
        Events are about to be sent to the receiver of a webhook.

        @param target: its host and port.
        @return: the span, which ends with the receiver's answer; C{None} where no trace is sampled.
        """
