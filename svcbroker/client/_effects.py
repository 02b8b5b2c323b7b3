"""
Procedures: the work of the clients without I/O; and the errors of the clients: those that a broker
answers, rebuilt from their codes, and those that only a client has.

A procedure is a generator. It yields an effect, which its client performs, and is sent the
effect's outcome; what it returns is the result of a call. What it gives to the user before its
end (events), it yields as L{Deliver}. So each client, blocking or not, only performs effects.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from typing import Annotated, Any, Final, Protocol, TypeAlias, TypeVar

from attrs import frozen
from msgspec import Meta, Struct

from ..errors import (
    TABLE,
    BrokerError,
    EventErased,
    NotAuthenticated,
    Overloaded,
    QuotaExceeded,
    SequenceConflict,
)
from ._records import Event

_SEQUENCE: Final = re.compile(r"it has ([0-9]+)$")
_CLASSES: Final[Mapping[int, type[BrokerError]]] = {each.code: each for each in TABLE}


MAX_ANSWER: Final = 256 * 1024 * 1024
"""The most bytes of an answer that is read. The longest are events and proofs with large contents;
a broker, or who pretends to be one, cannot take up all the memory."""


class Unreachable(BrokerError):
    """
    No broker has answered: connections were refused or lost, or answers did not come in time.

    @ivar isSent: whether the request may have arrived, so that it may have been executed.
    @ivar isFinal: whether trying again would not help: the broker's certificate is not trusted, or
        its answer is too long.
    """

    code, text = 300001, "the broker cannot be reached"

    def __init__(
        self, message: str | None = None, *, isSent: bool = True, isFinal: bool = False
    ) -> None:
        super().__init__(message)
        self.isSent = isSent
        self.isFinal = isFinal


def answerTooLong() -> Unreachable:
    """The error for an answer of more than L{MAX_ANSWER} bytes, which is not read."""
    return Unreachable(f"the answer is longer than {MAX_ANSWER} bytes", isFinal=True)


class AnswerInvalid(BrokerError):
    """An answer that is not one of a broker: another server is at this URL, or a proxy."""

    code, text = 300002, "the answer is not one of a broker"


class NotVerified(BrokerError):
    """
    An answer of a broker does not follow from what is trusted: the event is not in the log as it
    was answered, or the log is not a continuation of the one that this client has verified.
    """

    code, text = 300003, "the answer cannot be verified"


# pydoctor takes a pattern inside of an annotation for a type.
_HEX: Final = Meta(pattern=r"^0x([0-9a-f]{2})*\Z")


class ErasureAnswer(Struct):
    """
    Time and reason of an erasure, as the interface writes them. A broker of before does not tell
    which events were erased with it.
    """

    timestamp: int
    account: str
    reason: str
    transHash: Annotated[str, _HEX]
    topic: str = ""
    first: int = 0
    last: int = 0


def errorOf(
    code: int, message: str, retryAfter: float | None = None, erasure: ErasureAnswer | None = None
) -> BrokerError:
    """
    The error that a broker answered.

    @param code: its code; for one that is not known here, a L{BrokerError} with this code.
    @param retryAfter: the answer's header C{Retry-After}, in seconds.
    @param erasure: when and why the event was erased, where the answer says so.
    """
    if code == EventErased.code and erasure is not None:
        return EventErased(
            message,
            topic=erasure.topic,
            first=erasure.first,
            last=erasure.last,
            time=erasure.timestamp,
            account=erasure.account,
            reason=erasure.reason,
            transaction=bytes.fromhex(erasure.transHash.removeprefix("0x")),
        )
    if code == Overloaded.code and retryAfter is not None:
        return QuotaExceeded(message, retryAfter)
    if code == SequenceConflict.code:
        found = _SEQUENCE.search(message)
        return SequenceConflict(None if found is None else int(found[1]))
    known = _CLASSES.get(code)
    if known is not None:
        return known(message)
    error = BrokerError(message)
    error.code = code  # type: ignore[misc]  # of a broker that is newer than this client
    return error


def statusError(status: int, retryAfter: float | None) -> BrokerError:
    """
    The error for an answer that has no error of a broker in its body.

    @param status: its HTTP status.
    """
    message = f"HTTP status {status}"
    if status in (429, 503):
        return QuotaExceeded(message, retryAfter or 0.0)
    if status in (502, 504):
        return Unreachable(message)
    if status == 401:
        return NotAuthenticated(message)
    return AnswerInvalid(message)


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
