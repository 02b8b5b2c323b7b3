"""
Subscriptions and webhooks: the request for one, the place where it starts, and the records that
accounts and operators read of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, TypeAlias

from attrs import frozen

from ..errors import EventIdInvalid, ParameterInvalid
from ._events import EventId, Position

TIME_PREFIX: Final = "OFFSET_TIME:"
"""The beginning of an offset that is a time."""

_HEIGHT = re.compile(r"[0-9]{1,18}", re.ASCII)

_RFC_3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,18}))?"
    r"(?:[Zz]|([+-])([01]\d|2[0-3]):([0-5]\d))",
    re.ASCII,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_LEAP_SECOND = 60


class InterfaceType(Enum):
    """The interface by which a subscriber is reached."""

    RESTFUL = "RESTful"
    JSON_RPC = "JsonRPC"
    MQTT = "MQTT"
    STOMP = "STOMP"


class EventFormat(Enum):
    """The format of events for those who read, follow and receive them."""

    SVC = "svc"
    CLOUD_EVENTS = "cloudevents"
    """CloudEvents 1.0 in structured mode, as JSON."""
    BINARY_CLOUD_EVENTS = "cloudevents-binary"
    """CloudEvents 1.0 in binary mode: attributes beside the content."""


class Edge(Enum):
    """The start of a subscription that names no place."""

    FIRST = "OFFSET_FIRST"
    """With the first event of the log."""
    LAST = "OFFSET_LAST"
    """With the first event after it was made."""


@frozen
class Moment:
    """
    A time, as the place in a log where the first block begins whose time is not before it.

    @ivar milliseconds: the time in milliseconds since the epoch.
    """

    milliseconds: int


Offset: TypeAlias = Edge | EventId | Position | Moment
"""The start of a subscription: at an edge, at a time, or strictly after an event or a place."""


def parseOffset(text: str) -> Offset:
    """
    Read an offset as clients write it: C{OFFSET_FIRST}, C{OFFSET_LAST} (also when there is
    nothing), an event id (strictly after that event), a block's height (from that block on), or
    C{OFFSET_TIME:} with a time (from the first block on that is not before it).

    @raise EventIdTooLong: it has more than 64 characters.
    @raise EventIdInvalid: it is none of these.
    @raise ParameterInvalid: the time after C{OFFSET_TIME:} is malformed.
    """
    if not text.strip(" "):
        return Edge.LAST
    if text in (Edge.FIRST.value, Edge.LAST.value):
        return Edge(text)
    if _HEIGHT.fullmatch(text):
        return Position(int(text), -1)
    if text.startswith(TIME_PREFIX):
        return _parseMoment(text.removeprefix(TIME_PREFIX))
    try:
        return EventId.parse(text)
    except EventIdInvalid:
        raise EventIdInvalid(
            "an offset is OFFSET_FIRST, OFFSET_LAST, an event id, a block's height or "
            "OFFSET_TIME:TIME"
        ) from None


def _parseMoment(text: str) -> Moment:
    """
    Read a time: milliseconds since the epoch, or a date and time of RFC 3339. A fraction of a
    millisecond is rounded up, because no block's time has one.
    """
    if _HEIGHT.fullmatch(text):
        return Moment(int(text))
    found = _RFC_3339.fullmatch(text)
    try:
        if found is None:
            raise ValueError(text)
        year, month, day, hour, minute, second = map(int, found.group(1, 2, 3, 4, 5, 6))
        isLeap = second == _LEAP_SECOND
        time = datetime(year, month, day, hour, minute, second - isLeap, tzinfo=UTC)
    except ValueError:
        raise ParameterInvalid(
            "OFFSET_TIME: is followed by a time as in RFC 3339, such as 2026-11-22T08:00:00Z, or "
            "by milliseconds since the epoch (in a URL, the + of a time zone is written %2B)"
        ) from None
    milliseconds = (time - _EPOCH) // timedelta(milliseconds=1) + 1000 * isLeap
    fraction, sign, hours, minutes = found.group(7, 8, 9, 10)
    if fraction is not None:
        milliseconds -= -int(fraction) * 1000 // 10 ** len(fraction)
    if sign is not None:
        zone = (int(hours) * 60 + int(minutes)) * 60_000
        milliseconds += zone if sign == "-" else -zone
    return Moment(milliseconds)


@frozen(kw_only=True)
class SubscribeRequest:
    """
    A request for a subscription.

    @ivar interfaceType: how it is reached.
    @ivar group: the id of the group; blank for the default one.
    @ivar filters: one or more topics or patterns.
    @ivar offset: where it starts, if it does not resume.
    @ivar tag: only events whose extension C{svc-tag} equals it; C{None} for all.
    @ivar subscriptionId: a UUID; C{None} to have one made.
    @ivar remote: the subscriber's address, as operators see it.
    @ivar mustExist: whether topics named without wildcards must be open.
    @ivar isResumed: whether it goes on after a break, so that its filters were granted when it was
        made. Grants that have gone since leave events out, as they do while it is live.
    @ivar isDurable: whether its position is kept when it goes, so that the same id resumes it.
    @ivar isAcknowledged: whether the subscriber acknowledges what it got; otherwise an event
        counts as notified when it was handed over.
    @ivar hasTombstones: whether erased events are delivered too, without content; otherwise they
        are left out.
    @ivar kind: what it counts as in metrics: the name of its carrier.
    """

    interfaceType: InterfaceType
    group: str
    filters: tuple[str, ...]
    offset: Offset = Edge.LAST
    tag: str | None = None
    subscriptionId: str | None = None
    remote: str = ""
    mustExist: bool = True
    isResumed: bool = False
    isDurable: bool = False
    isAcknowledged: bool = False
    hasTombstones: bool = False
    kind: str = ""


@frozen
class Owner:
    """
    The owner whose durable subscriptions and MQTT sessions a client may manage.

    @ivar name: the name of an account, or the address of a client, as
        L{svcbroker.net.addresses.ownerOf} gives it.
    @ivar account: the name of the account; empty for a client without one.
    """

    name: str
    account: str


@frozen(kw_only=True)
class DurableRecord:
    """
    A durable subscription, or an MQTT session, as an operator sees it.

    @ivar id: the subscription's id; of a session the client id.
    @ivar owner: who made it: an account, or the address of a client; empty if it is not known.
    @ivar isLive: whether a client uses it now.
    @ivar subscriptions: how many subscriptions it has.
    @ivar usedAt: when a client used it last, in milliseconds since the epoch. For a subscription it
        is the day. For a live one it is now.
    @ivar position: where it resumes: up to there everything is acknowledged, by all of its
        subscriptions; C{None} if it has none.
    """

    id: str
    interfaceType: InterfaceType
    group: str
    owner: str
    isLive: bool
    subscriptions: int
    usedAt: int
    position: Position | None


@frozen(kw_only=True)
class DurablePage:
    """
    Some durable subscriptions, in the order of their ids.

    @ivar next: the id after which the next page begins; C{None} on the last page.
    """

    items: Sequence[DurableRecord]
    next: str | None


@frozen(kw_only=True)
class SubscriptionRecord:
    """
    A live subscription as an operator sees it.

    @ivar subscriptionId: its id.
    @ivar filters: what it subscribes to.
    @ivar notified: how many events were acknowledged, or handed over where nothing is
        acknowledged.
    @ivar notifying: how many events wait.
    @ivar notifiedAt: the time of the latest notification, in milliseconds since the epoch; the
        creation time until there is one.
    @ivar createdAt: when it was made, in milliseconds since the epoch.
    """

    subscriptionId: str
    interfaceType: InterfaceType
    group: str
    filters: tuple[str, ...]
    remote: str
    notified: int
    notifying: int
    notifiedAt: int
    createdAt: int


@frozen(kw_only=True)
class WebhookKey:
    """
    A key with which the broker signs requests to webhooks.

    @ivar group: the id of the group whose webhooks it signs for.
    @ivar key: the public key of Ed25519.
    @ivar eventId: the event by which the chain certifies it.
    @ivar until: when it signs no more, in milliseconds since the epoch; C{None} for the newest one
        of its group.
    """

    group: str
    key: bytes
    eventId: str
    until: int | None


@frozen
class WebhookAnswer:
    """
    The outcome of a request to a webhook.

    @ivar at: when that was known, in milliseconds since the epoch.
    @ivar error: why the events were not acknowledged; empty where they were.
    @ivar seconds: how long it took.
    """

    at: int
    error: str
    seconds: float


@frozen(kw_only=True)
class WebhookStatus:
    """
    A webhook: what was asked for, and how it is. It has no header, no secret, and of the URL only
    the host and port, since a path may hold a secret too.

    @ivar remote: where its events are sent, C{host:port}.
    @ivar owner: the account that made it; empty where there were no credentials.
    @ivar secret: the name of the secret that signs; empty for the shared ones.
    @ivar certificate: the name of the certificate that is shown; empty for none.
    @ivar batch: the most events in a request; 0 where each is sent alone.
    @ivar batchSeconds: how long the first event of a batch waits for others.
    @ivar maxAttempts: how often an event is tried; 0 has no end.
    @ivar deadLetter: the topic of its dead letters; empty where there are none.
    @ivar format: how events are written.
    @ivar hasTombstones: whether erased events are sent too.
    @ivar isPaused: whether nothing is sent for now.
    @ivar failures: how many requests have failed since the last success.
    @ivar lastError: why the last request failed; empty where none has since the broker started.
    @ivar lastErrorAt: when that was, in milliseconds since the epoch; C{None} without one.
    @ivar answers: what came of the last requests since the broker started, the newest last.
    @ivar nextAttemptAt: when a request that has failed is made again, in milliseconds since the
        epoch; C{None} where none is waited for.
    @ivar oldest: the oldest event that waits, as far as is known.
    @ivar oldestAt: the time of its block, in milliseconds since the epoch.
    @ivar readAt: the time at which this was so.
    """

    subscriptionId: str
    interfaceType: InterfaceType
    group: str
    filters: tuple[str, ...]
    tag: str | None
    remote: str
    owner: str
    secret: str
    certificate: str
    batch: int
    batchSeconds: int
    maxAttempts: int
    deadLetter: str
    format: EventFormat
    hasTombstones: bool
    isPaused: bool
    failures: int
    lastError: str
    lastErrorAt: int | None
    answers: tuple[WebhookAnswer, ...] = ()
    nextAttemptAt: int | None = None
    oldest: EventId | None
    oldestAt: int | None
    readAt: int


@frozen(kw_only=True)
class WebhookPage:
    """
    Some webhooks, in the order of their ids.

    @ivar next: the id after which the next page begins; C{None} on the last page.
    """

    items: Sequence[WebhookStatus]
    next: str | None
