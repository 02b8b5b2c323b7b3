"""
Subscriptions: what is asked for, where it starts, and what operators read of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

from attrs import frozen

from ..errors import EventIdInvalid
from ._events import EventId, Position


class InterfaceType(Enum):
    """How a subscriber is reached."""

    RESTFUL = "RESTful"
    JSON_RPC = "JsonRPC"
    MQTT = "MQTT"
    STOMP = "STOMP"


class Edge(Enum):
    """Where a subscription starts that names no place."""

    FIRST = "OFFSET_FIRST"
    """With the first event of the log."""
    LAST = "OFFSET_LAST"
    """With the first event after it was made."""


Offset: TypeAlias = Edge | EventId | Position
"""Where a subscription starts: at an edge, or strictly after an event or a place."""

_HEIGHT = re.compile(r"[0-9]{1,18}", re.ASCII)


def parseOffset(text: str) -> Offset:
    """
    Read an offset as clients write it: C{OFFSET_FIRST}, C{OFFSET_LAST} (also when there is
    nothing), an event id (strictly after that event), or a block's height (from that block on).

    @raise EventIdTooLong: it has more than 64 characters.
    @raise EventIdInvalid: it is none of these.
    """
    if not text.strip(" "):
        return Edge.LAST
    if text in (Edge.FIRST.value, Edge.LAST.value):
        return Edge(text)
    if _HEIGHT.fullmatch(text):
        return Position(int(text), -1)
    try:
        return EventId.parse(text)
    except EventIdInvalid:
        raise EventIdInvalid(
            "an offset is OFFSET_FIRST, OFFSET_LAST, an event id or a block's height"
        ) from None


@frozen(kw_only=True)
class SubscribeRequest:
    """
    What a subscriber asks for.

    @ivar interfaceType: how it is reached.
    @ivar group: the id of the group; blank for the default one.
    @ivar filters: one or more topics or patterns.
    @ivar offset: where it starts, if it does not resume.
    @ivar tag: only events whose extension C{svc-tag} equals it; C{None} for all.
    @ivar subscriptionId: a UUID; C{None} to have one made.
    @ivar remote: the subscriber's address, as operators see it.
    @ivar mustExist: whether topics named without wildcards must be open.
    @ivar isDurable: whether its position is kept when it goes, so that the same id resumes it.
    @ivar isAcknowledged: whether the subscriber acknowledges what it got; otherwise an event
        counts as notified when it was handed over.
    """

    interfaceType: InterfaceType
    group: str
    filters: tuple[str, ...]
    offset: Offset = Edge.LAST
    tag: str | None = None
    subscriptionId: str | None = None
    remote: str = ""
    mustExist: bool = True
    isDurable: bool = False
    isAcknowledged: bool = False


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
