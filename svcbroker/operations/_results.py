"""
The results of several calls: their records as they are on the wire, and how these are made of the
broker's values; the records of failures that any call can have.

Field names are the published interface's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from secrets import token_hex
from time import gmtime, strftime
from typing import Annotated, Any, Final, Generic, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, convert
from msgspec.structs import replace
from twisted.logger import Logger
from twisted.python.failure import Failure

from .. import broker, model
from ..errors import (
    BrokerError,
    EventErased,
    GroupUnknown,
    LedgerUnavailable,
    NodeBehind,
    ParameterInvalid,
    TransactionTimeout,
    UnknownError,
)
from ..interfaces import Batch
from ._cloudevents import cloudEvents, sourceOf
from ._declarations import Result, same

_T = TypeVar("_T")


class EventResult(Struct, frozen=True):
    """
    One published event. The content is Base64 text of the published bytes. Where it was signed,
    there are the public key and the signature of its author in hexadecimal digits, and the author's
    own time in milliseconds since the epoch. Of an erased event there are neither content nor
    signature.
    """

    topic: str
    content: bytes
    extensions: dict[str, str]
    eventId: str
    author: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    signedAt: int | UnsetType = UNSET
    erased: bool | UnsetType = UNSET


class LoggedEvent(Struct, frozen=True):
    """
    One published event, and its place in the log: the time of its block in milliseconds since the
    epoch, the block's height, and its number in its topic, from 1. Its author and its erasure are
    as in C{Event}.
    """

    topic: str
    content: bytes
    extensions: dict[str, str]
    eventId: str
    timestamp: int
    blockNumber: int
    sequenceNumber: int
    author: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    signedAt: int | UnsetType = UNSET
    erased: bool | UnsetType = UNSET


class EventPageResult(Struct, frozen=True):
    """
    Events of the log. The next page begins at the offset C{next}, which is an event's id or a
    block's height. At the end everything was read; otherwise there may be more. Where erased events
    were left out, there is their number.
    """

    events: list[LoggedEvent]
    next: str
    atEnd: bool
    leftOut: int | UnsetType = UNSET


class Envelope(Struct, Generic[_T], frozen=True):
    """The answer of an admin query: code 0, message success, and the data."""

    code: Literal[0]
    message: Literal["success"]
    data: _T


def prefixedHex(data: bytes) -> str:
    return "0x" + data.hex()


def utc(milliseconds: int) -> str:
    """A time as the interface writes it."""
    return strftime("%Y-%m-%d %H:%M:%S", gmtime(milliseconds // 1000))


def recordOf(type: Any) -> Callable[[Any], Any]:
    """The render function that makes a record of a value: the attributes are the record's."""
    return partial(convert, type=type, from_attributes=True)


EventWriter: TypeAlias = Callable[[Batch], Sequence[Any]]
"""Makes records of the events of a batch, which are JSON objects on the wire."""


def _event(event: model.Event) -> EventResult:
    made = EventResult(event.topic, event.content, dict(event.extensions), str(event.eventId))
    isPlain = event.author is None and not event.isErased
    return made if isPlain else replace(made, **_authorship(event))


def _authorship(event: model.Event) -> dict[str, Any]:
    """The fields of an event that was signed or erased."""
    author = event.author
    fields: dict[str, Any] = {"erased": True} if event.isErased else {}
    if author is not None:
        fields["author"], fields["signedAt"] = author.key.hex(), author.signedAt
        if author.signature:
            fields["signature"] = author.signature.hex()
    return fields


def loggedEvents(batch: Batch) -> list[LoggedEvent]:
    """
    The events of a batch, as C{events} answers them and as streams send them.
    """
    timestamp = batch.timestamp
    made = [
        LoggedEvent(
            event.topic,
            event.content,
            dict(event.extensions),
            str(event.eventId),
            timestamp,
            event.eventId.height,
            event.eventId.sequence,
        )
        for event in batch.events
    ]
    for number, event in enumerate(batch.events):
        if event.author is not None or event.isErased:
            made[number] = replace(made[number], **_authorship(event))
    return made


def eventWriter(format: model.EventFormat, source: str, group: str) -> EventWriter:
    """
    Make the function that writes a batch in a format.

    @param source: what the C{source} of a CloudEvent begins with.
    @param group: the id of the group of the batches.
    """
    if format is model.EventFormat.SVC:
        return loggedEvents
    return partial(cloudEvents, source=sourceOf(source, group))


def _eventPage(answer: tuple[broker.ReadPage, EventWriter]) -> EventPageResult:
    page, write = answer
    events = [event for batch in page.batches for event in write(batch)]
    return EventPageResult(events, str(page.next), page.isAtEnd, page.leftOut or UNSET)


def envelope(type: Any, render: Callable[[Any], Any] = same) -> Result:
    """The result of an admin query: a value of this type in an envelope."""

    def renderEnvelope(answer: Any) -> Envelope[Any]:
        return Envelope(0, "success", render(answer))

    return Result(type=Envelope[type], render=renderEnvelope)


BOOLEAN = Result(type=bool)
STRING = Result(type=str)
EVENT = Result(type=EventResult, render=_event)
EVENT_PAGE = Result(type=EventPageResult, render=_eventPage)


COMMON_ERRORS: Final = (
    ParameterInvalid,
    GroupUnknown,
    LedgerUnavailable,
    NodeBehind,
    TransactionTimeout,
    UnknownError,
)
"""The errors that every operation can have."""


class ErasureResult(Struct, frozen=True):
    """
    The erasure of an event's content: the time of the block, in milliseconds since
    the epoch, the account of the operator who asked for it, the reason, and the hash of the
    transaction. Where the ledger tells it, there are the event's topic, and the sequence numbers of
    the first and the last of the consecutive events that were erased with it.
    """

    timestamp: int
    account: str
    reason: str
    transHash: str
    topic: str | UnsetType = UNSET
    first: int | UnsetType = UNSET
    last: int | UnsetType = UNSET


class ErrorRecord(Struct, frozen=True):
    """
    A failure, as REST and the admin queries answer it. Where the content of an event was erased, it
    says when and why.
    """

    code: Annotated[int, Meta(ge=100000, le=299999)]
    message: str
    erased: ErasureResult | UnsetType = UNSET


def erasureOf(error: BrokerError) -> ErasureResult | UnsetType:
    """The erasure of an event's content, where the error tells of it."""
    if not isinstance(error, EventErased):
        return UNSET
    return ErasureResult(
        error.time,
        error.account,
        error.reason,
        f"0x{error.transaction.hex()}",
        error.topic or UNSET,
        error.first or UNSET,
        error.last or UNSET,
    )


class Incidents:
    """
    Logs unexpected failures under ids that clients are told.
    """

    _log = Logger()

    def __init__(self, makeId: Callable[[], str] = lambda: token_hex(6)) -> None:
        """
        @param makeId: gives a new incident id.
        """
        self._makeId = makeId

    def explain(self, failure: Failure) -> BrokerError:
        """
        The error that a client is told: the failure itself if it is a L{BrokerError}, otherwise an
        L{UnknownError<svcbroker.errors.UnknownError>} with an incident id, under which the log
        has the cause. It has no traceback: who keeps the error would be in a cycle with its frames.
        """
        error = failure.value
        if isinstance(error, BrokerError):
            return error.with_traceback(None)
        incident = self._makeId()
        self._log.failure("Incident {incident}", failure=failure, incident=incident)
        return UnknownError(f"unknown error, incident {incident}")
