"""
Procedures: the work of the clients without I/O.

A procedure is a generator. It yields an effect, which its client performs, and is sent the
effect's outcome; what it returns is the result of a call. What it gives to the user before its
end (events), it yields as L{Deliver}. So each client, blocking or not, only performs effects.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from attrs import frozen

from ._errors import Unreachable
from ._records import Event

T = TypeVar("T")

MAX_DIGITS = 6
"""Of the seconds that a broker may ask to wait: eleven days."""


@frozen(kw_only=True)
class HttpRequest:
    """
    Make a request, and follow no redirects. Its outcome is an L{HttpResponse}, or L{Unreachable}
    where there is no answer.

    @ivar timeout: how long to wait for the connection, and for each piece of the answer, in
        seconds.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""
    timeout: float


@frozen(kw_only=True)
class HttpResponse:
    """
    An answer.

    @ivar headers: its headers, by their names in lower case.
    @ivar body: its body; empty for the answer to L{OpenStream}, whose body is read by
        L{ReadStream}.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def retryAfter(self) -> float | None:
        """The header C{Retry-After} in seconds; C{None} where it is absent, a date or absurd."""
        value = self.headers.get("retry-after", "")
        isNumber = value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS
        return float(value) if isNumber else None


@frozen
class OpenStream:
    """
    Make a request whose answer is read by L{ReadStream}, and close the stream that was open
    before. Its outcome is as that of the request.
    """

    request: HttpRequest


@frozen
class ReadStream:
    """
    Read from the open stream. Its outcome is some bytes, no bytes at the stream's end, or
    L{Unreachable} where the connection was lost.

    @ivar timeout: how long to wait for them, in seconds.
    """

    timeout: float


@frozen
class Delay:
    """
    Wait. Its outcome is C{None}.

    @ivar seconds: how long.
    """

    seconds: float


@frozen
class Deliver:
    """
    Give events to the user. Its outcome is C{None}, once the user asks for more.
    """

    events: Sequence[Event]


Effect: TypeAlias = HttpRequest | OpenStream | ReadStream | Delay | Deliver
Procedure: TypeAlias = Generator[Effect, Any, T]


def send(request: HttpRequest) -> Procedure[HttpResponse]:
    """
    Make a request.

    @raise Unreachable: there is no answer.
    """
    response: HttpResponse = _checked((yield request))
    return response


def openStream(request: HttpRequest) -> Procedure[HttpResponse]:
    """
    Make a request whose answer is a stream.

    @raise Unreachable: there is no answer.
    """
    response: HttpResponse = _checked((yield OpenStream(request)))
    return response


def readStream(timeout: float) -> Procedure[bytes]:
    """
    Read some bytes of the stream.

    @return: no bytes at the stream's end.
    @raise Unreachable: the connection was lost, or nothing was received in time.
    """
    piece: bytes = _checked((yield ReadStream(timeout)))
    return piece


def _checked(outcome: T | Unreachable) -> T:
    if isinstance(outcome, Unreachable):
        raise outcome
    return outcome


Events: TypeAlias = AsyncGenerator[Event, None]
"""Events for C{async for}."""


class Performer(Protocol):
    """
    Performs the effects of one procedure.
    """

    async def perform(self, effect: Effect) -> Any:
        """Perform an effect, and return its outcome."""

    async def close(self) -> None:
        """Close the stream that is open."""


async def run(procedure: Procedure[T], performer: Performer) -> T:
    """Drive a procedure to its result."""
    outcome = None
    while True:
        try:
            effect = procedure.send(outcome)
        except StopIteration as stop:
            result: T = stop.value
            return result
        outcome = await performer.perform(effect)


async def iterate(procedure: Procedure[Any], performer: Performer) -> Events:
    """Drive a procedure, and yield the events that it delivers."""
    outcome = None
    try:
        while True:
            try:
                effect = procedure.send(outcome)
            except StopIteration:
                return
            if isinstance(effect, Deliver):
                for event in effect.events:
                    yield event
                outcome = None
            else:
                outcome = await performer.perform(effect)
    finally:
        await performer.close()
