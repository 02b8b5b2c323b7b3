"""
The calls that only REST has, since their requests or their answers are no JSON of ours: C{follow},
C{cloudevents} and C{logProof}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from attrs import evolve
from twisted.internet.defer import Deferred, succeed

from ..access import Principal
from ..broker import Broker, PublishPolicy, SendResult
from ..errors import (
    BrokerError,
    ContentBlank,
    EventIdBlank,
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    HeightUnknown,
    Overloaded,
    PatternInvalid,
    TopicBlank,
    TopicInvalid,
    TopicNotFound,
    TopicTooLong,
)
from ..model import Edge, EventFormat, InterfaceType, Offset, SubscribeRequest
from ..net.deferreds import asDeferred
from ._declarations import Operation, Parameter
from ._operations import EVENT_ID, PUBLISH
from ._parameters import CONTENT, ERASED, FILTERS, FORMAT, GROUP, SEEN, TAG
from ._publishing import makePublication
from ._results import STRING
from ._types import OffsetType

_MAY_BE_EMPTY: Final = PublishPolicy(mayBeEmpty=True)


def _followRequest(
    principal: Principal,
    topic: tuple[str, ...],
    groupId: str,
    offset: Offset,
    tag: str | None,
    format: EventFormat,
    hasTombstones: bool = False,
) -> Deferred[tuple[SubscribeRequest, EventFormat]]:
    """
    The subscription that a call of C{follow} asks for, and the format of its events. Its checks are
    those of subscribing.
    """
    request = SubscribeRequest(
        interfaceType=InterfaceType.RESTFUL,
        group=groupId,
        filters=topic,
        offset=offset,
        tag=tag,
        hasTombstones=hasTombstones,
    )
    return succeed((request, format))


FOLLOW: Final = Operation(
    name="follow",
    summary="Follow topics: their events as Server-Sent Events, from a place in the log on.",
    parameters=(
        FILTERS,
        GROUP,
        Parameter(
            name="from",
            argument="offset",
            type=OffsetType(),
            default=Edge.LAST,
            description="Where to begin. The header Last-Event-ID wins over it.",
        ),
        TAG,
        FORMAT,
        ERASED,
        SEEN,
    ),
    result=STRING,
    errors=(
        TopicBlank,
        TopicTooLong,
        TopicInvalid,
        PatternInvalid,
        EventIdTooLong,
        EventIdInvalid,
        EventNotFound,
        HeightUnknown,
        TopicNotFound,
        Overloaded,
    ),
    method=lambda broker: _followRequest,
)
"""Its answer is a stream."""


def _publishing(broker: Broker) -> Callable[..., Deferred[SendResult]]:
    @asDeferred
    async def publish(principal: Principal, **given: Any) -> SendResult:
        [answer] = await broker.publish(principal, (makePublication(**given),), _MAY_BE_EMPTY)
        if isinstance(answer, BrokerError):
            raise answer
        assert answer is not None
        return answer

    return publish


CLOUD_EVENTS: Final = evolve(
    PUBLISH,
    name="cloudevents",
    summary="Publish a CloudEvent to an open topic.",
    # CloudEvents may have no data.
    parameters=tuple(
        evolve(CONTENT, default=b"") if each is CONTENT else each for each in PUBLISH.parameters
    ),
    errors=tuple(each for each in PUBLISH.errors if each is not ContentBlank),
    method=_publishing,
    batch=None,
)
"""
The event is the request, in structured or in binary mode. Its attributes are an extension, and its
source and id are its idempotency key.
"""

LOG_PROOF: Final = Operation(
    name="logProof",
    summary="Prove that an event is in the transparency log, with the cosignatures of witnesses.",
    parameters=(EVENT_ID, GROUP, SEEN),
    result=STRING,
    errors=(EventIdBlank, EventIdTooLong, EventIdInvalid, EventNotFound, HeightUnknown),
    method=lambda broker: broker.transparency.prove,
)
"""Its answer is a file of C{c2sp.org/tlog-proof}."""
