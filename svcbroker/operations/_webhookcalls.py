"""
The calls about webhooks but C{subscribe} and C{unSubscribe}: list, pause, resume, retry, skip; for
the accounts that made them, and as operator calls.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from attrs import evolve
from msgspec import Struct

from .. import model
from ..errors import (
    BrokerError,
    EventErased,
    EventIdBlank,
    EventIdInvalid,
    EventIdTooLong,
    EventNotFound,
    HeightUnknown,
    ParameterInvalid,
    SubscriptionIdBlank,
    SubscriptionIdInvalid,
    SubscriptionNotFound,
)
from ..model import EventFormat
from ._declarations import (
    AFTER,
    ERASED,
    GROUP,
    SUBSCRIPTION_ID,
    Operation,
    Parameter,
    Result,
    limitOf,
)
from ._results import BOOLEAN, envelope
from ._types import (
    EventIdType,
    FormatType,
    NumberType,
    OptionalSubscriptionIdType,
    ParameterType,
    TextsType,
    TopicType,
)

_MAX_BATCH: Final = 1000
"""The most events in a request to a webhook."""
_MAX_BATCH_SECONDS: Final = 60
"""The longest time that the first event of a batch waits for others."""
_MAX_ATTEMPTS: Final = 1000
"""The most attempts for an event, where there is an end."""
_OVERLAP: Final = 7 * 86400
"""For how long a key that was replaced signs too where nothing else is asked for."""
_MAX_OVERLAP: Final = 366 * 86400
"""The longest time for which a key that was replaced signs too."""
_MAX_PAGE: Final = 1000
"""The most webhooks on a page."""

_headersDecoder = msgspec.json.Decoder()


class _HeadersType(TextsType):
    """Headers of requests: an object of strings; as text its JSON."""

    schema: Mapping[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
    textSchema: Mapping[str, Any] | None = {
        "type": "string",
        "contentMediaType": "application/json",
    }
    isPrivate = True

    def fromText(self, raw: bytes) -> Mapping[str, str]:
        try:
            value = _headersDecoder.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise ParameterInvalid("is not JSON") from None
        return self.fromJSON(value)


class WebhookAnswerResult(Struct, frozen=True):
    """
    The outcome of a request to a webhook: the time, in milliseconds since the epoch; the error,
    which is empty where the events were acknowledged; and how long it took, in milliseconds.
    """

    timestamp: int
    error: str
    milliseconds: int


class WebhookResult(Struct, frozen=True):
    """
    A webhook: what was asked for, but for headers, and how it is. The receiver is the host and port
    of its URL. The topic of dead letters is null where there are none. Failures counts the requests
    since the last success; the last error is empty where there was none since the broker started.
    Answers are those of the last requests, the newest last. The next attempt is null where none is
    waited for, since the receiver takes its events, or the webhook is paused.
    The oldest event that waits is null where none was found so far; its age is in seconds, by the
    time of its block.
    """

    subscriptionId: str
    interfaceType: str
    groupId: str
    topics: list[str]
    tag: str | None
    receiver: str
    owner: str
    secret: str | None
    certificate: str | None
    batch: int | None
    batchSeconds: int | None
    maxAttempts: int | None
    deadLetter: str | None
    format: str
    erased: Literal["skip", "tombstone"]
    paused: bool
    failures: int
    lastError: str
    lastErrorTimestamp: int | None
    answers: list[WebhookAnswerResult]
    nextAttemptTimestamp: int | None
    oldestEventId: str | None
    oldestEventAge: int | None


class WebhooksResult(Struct, frozen=True):
    """
    A page of webhooks, in the order of their ids. The next page begins after the id in next, which
    is null on the last page.
    """

    webhooks: list[WebhookResult]
    next: str | None


def _webhooksOf(page: model.WebhookPage) -> WebhooksResult:
    """Make the record of a page."""
    return WebhooksResult(webhooks=[_webhook(each) for each in page.items], next=page.next)


def _webhook(status: model.WebhookStatus) -> WebhookResult:
    age = None if status.oldestAt is None else max(0, status.readAt - status.oldestAt) // 1000
    return WebhookResult(
        subscriptionId=status.subscriptionId,
        interfaceType=status.interfaceType.value,
        groupId=status.group,
        topics=list(status.filters),
        tag=status.tag,
        receiver=status.remote,
        owner=status.owner,
        secret=status.secret or None,
        certificate=status.certificate or None,
        batch=status.batch or None,
        batchSeconds=status.batchSeconds if status.batch else None,
        maxAttempts=status.maxAttempts or None,
        deadLetter=status.deadLetter or None,
        format=status.format.value,
        erased="tombstone" if status.hasTombstones else "skip",
        paused=status.isPaused,
        failures=status.failures,
        lastError=status.lastError,
        lastErrorTimestamp=status.lastErrorAt,
        answers=[
            WebhookAnswerResult(each.at, each.error, round(each.seconds * 1000))
            for each in status.answers
        ],
        nextAttemptTimestamp=status.nextAttemptAt,
        oldestEventId=None if status.oldest is None else str(status.oldest),
        oldestEventAge=age,
    )


SUBSCRIBE_OPTIONS: Final = (
    Parameter(
        name="headers",
        type=_HeadersType(),
        default={},
        description="More headers of each request, such as Authorization: an object of strings.",
    ),
    Parameter(
        name="secret",
        type=ParameterType(),
        default=None,
        description="The name of the operator's secret that signs; absent takes the shared ones.",
    ),
    Parameter(
        name="batch",
        type=NumberType(ParameterInvalid, 1, _MAX_BATCH),
        default=None,
        description="The most events in a request, whose body is an array then; absent sends each "
        "alone.",
    ),
    Parameter(
        name="batchSeconds",
        type=NumberType(ParameterInvalid, 0, _MAX_BATCH_SECONDS),
        default=None,
        description="How long the first event of a batch waits for others; by default 1.",
    ),
    Parameter(
        name="maxAttempts",
        type=NumberType(ParameterInvalid, 1, _MAX_ATTEMPTS),
        default=None,
        description="How often an event is tried before it is a dead letter; absent has no end.",
    ),
    Parameter(
        name="deadLetter",
        type=TopicType(),
        default=None,
        description="The topic of dead letters; by default $svc/dead/ and the subscription's id.",
    ),
    Parameter(
        name="format",
        type=FormatType(tuple(EventFormat)),
        default=EventFormat.SVC,
        description="How events are written: svc (the default), cloudevents (CloudEvents 1.0 in "
        "structured mode) or cloudevents-binary (in binary mode, each event alone).",
    ),
    Parameter(
        name="certificate",
        type=ParameterType(),
        default=None,
        description="The name of the operator's client certificate that is shown; absent shows "
        "none.",
    ),
    ERASED,
)
"""The parameters of C{subscribe} that the published interface does not have."""

_PAGE = (
    GROUP,
    Parameter(
        name="subscriptionId",
        type=OptionalSubscriptionIdType(),
        default=None,
        description="Only this one.",
    ),
    AFTER,
    limitOf(_MAX_PAGE),
)
_EVENT_ID = Parameter(
    name="eventId",
    type=EventIdType(),
    absent=EventIdBlank,
    description="The oldest event that waits, as the list shows it.",
)
_ID_ERRORS = (SubscriptionIdBlank, SubscriptionIdInvalid, SubscriptionNotFound)
_EVENT_ID_ERRORS = (EventIdBlank, EventIdTooLong, EventIdInvalid, EventNotFound)

_DONE = envelope(bool)


def _both(
    name: str,
    path: str,
    summary: str,
    *more: Parameter,
    method: Any,
    errors: tuple[type[BrokerError], ...] = (),
) -> tuple[Operation, Operation]:
    """A call about one webhook for clients, and the same one for operators."""
    errors = (*_ID_ERRORS, *(_EVENT_ID_ERRORS if more else ()), *errors)
    return tuple(  # type: ignore[return-value]
        Operation(
            name=each,
            summary=summary,
            parameters=(SUBSCRIPTION_ID, *more),
            result=result,
            errors=errors,
            method=method,
        )
        for each, result in ((name, BOOLEAN), (f"webhooks/{path}", _DONE))
    )


class WebhookKeyResult(Struct, frozen=True):
    """
    A key that signs requests to webhooks: as Standard Webhooks writes it, the event by which the
    chain certifies it, and when it signs no more, in milliseconds since the epoch; null for the
    newest one.
    """

    key: str
    groupId: str
    eventId: str
    until: int | None


def _keysOf(keys: Sequence[model.WebhookKey]) -> list[WebhookKeyResult]:
    """Make the records of keys."""
    return [
        WebhookKeyResult(
            key="whpk_" + b64encode(each.key).decode("ascii"),
            groupId=each.group,
            eventId=each.eventId,
            until=each.until,
        )
        for each in keys
    ]


_MANAGING = (
    _both(
        "pauseWebhook",
        "pause",
        "Send nothing to a webhook, also after restarts, until it is resumed.",
        method=lambda calls: calls.webhooks.pauseWebhook,
    ),
    _both(
        "resumeWebhook",
        "resume",
        "Send to a paused webhook again.",
        method=lambda calls: calls.webhooks.resumeWebhook,
    ),
    _both(
        "retryWebhook",
        "retry",
        "Make a webhook's next attempt now, rather than when it is due.",
        method=lambda calls: calls.webhooks.retryWebhook,
    ),
    _both(
        "skipEvent",
        "skip",
        "Have a webhook go on after the oldest event that waits, as if it were acknowledged.",
        _EVENT_ID,
        method=lambda calls: calls.webhooks.skipEvent,
    ),
    _both(
        "replayDeadLetter",
        "replay",
        "Send the event of a dead letter to its webhook once more. Tells whether the receiver has "
        "acknowledged it; the answers of the webhook say why not.",
        evolve(_EVENT_ID, description="The id of the dead letter."),
        method=lambda calls: calls.webhooks.replayDeadLetter,
        errors=(EventErased, HeightUnknown),
    ),
)

WEBHOOK_OPERATIONS: Final = (
    Operation(
        name="listWebhooks",
        summary="List the webhooks of this account; of an operator, all webhooks of the group.",
        parameters=_PAGE,
        result=Result(type=WebhooksResult, render=_webhooksOf),
        errors=(SubscriptionIdInvalid,),
        method=lambda calls: calls.webhooks.listWebhooks,
    ),
    *(operation for operation, _ in _MANAGING),
)
"""The calls of clients; see L{OPERATIONS<svcbroker.operations.OPERATIONS>}."""

WEBHOOK_CALLS: Final = (
    Operation(
        name="webhooks/list",
        summary="List the webhooks of a group, with the last error of each and the oldest event "
        "that waits.",
        parameters=_PAGE,
        result=envelope(WebhooksResult, _webhooksOf),
        errors=(SubscriptionIdInvalid,),
        method=lambda calls: calls.webhooks.listWebhooks,
        changedBy=(),
    ),
    *(call for _, call in _MANAGING),
    Operation(
        name="webhooks/delete",
        summary="End a webhook, and forget where it stands.",
        parameters=(SUBSCRIPTION_ID,),
        result=_DONE,
        errors=_ID_ERRORS,
        method=lambda calls: calls.webhooks.unSubscribe,
    ),
    Operation(
        name="webhooks/rotateKey",
        summary="Sign requests to webhooks with another key from now on, and with those before it "
        "for some time more. The answer has all keys of the group that sign now.",
        parameters=(
            GROUP,
            Parameter(
                name="overlap",
                type=NumberType(ParameterInvalid, 0, _MAX_OVERLAP),
                default=_OVERLAP,
                description="For how many seconds those before it sign too; by default 7 days.",
            ),
        ),
        result=envelope(list[WebhookKeyResult], _keysOf),
        method=lambda calls: calls.webhooks.rotateKey,
    ),
)
"""The operator calls; see L{OPERATOR_CALLS<svcbroker.operations.OPERATOR_CALLS>}."""
