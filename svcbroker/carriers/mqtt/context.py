"""
The context of all connections: the settings of MQTT, the broker, the retained messages, the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from attrs import field, frozen
from attrs.validators import and_, ge, le
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Cooperator

from ...access import Access
from ...broker import Broker, MetadataStore, PublishPolicy
from ...broker.subscriptions import Subscriptions
from ...interfaces import ILedger
from ...net.budgets import MAX_RETAINED, TimedWork
from .retained import RetainedIndex

MAX_U16 = 65_535
REPLAY_SECONDS: Final = 0.005
REPLAY_STEPS: Final = 256
"""The longest slice of all replays in one turn of the reactor, in seconds and in messages. A client
can ask for millions of messages with a few bytes."""

PACKET_MARGIN = 64 * 1024 + 256
"""The most bytes of a PUBLISH beside its content: topic name, properties, header."""

NEVER = 0xFFFFFFFF
"""The session expiry interval of a session that does not expire."""


def _u16(default: int) -> int:
    value: int = field(default=default, validator=and_(ge(1), le(MAX_U16)))
    return value


@frozen(kw_only=True)
class MqttSettings:
    """
    The settings of MQTT.

    @ivar openTopics: whether a publish to a topic that is not open opens it.
    @ivar maxContent: the largest content of an event, in bytes.
    @ivar receiveMaximum: the most publishes of a client that wait for their acknowledgement.
    @ivar sendMaximum: the most unacknowledged deliveries with QoS 1 and 2 to a client, if it
        does not allow fewer.
    @ivar maxInFlightBytes: the most bytes of those, unless it is a single one.
    @ivar topicAliasMaximum: the most topic aliases of a client, and of the broker for a client
        that allows them.
    @ivar maxKeepAlive: the longest keep-alive of an MQTT 5 client, in seconds.
    @ivar maxSessionExpiry: the longest session expiry interval, in seconds;
        L{NEVER} for no bound.
    @ivar maxSessions: the most sessions, those of absent clients included.
    @ivar maxOwnSessions: the most sessions that outlive connections of one owner.
    @ivar maxSubscriptions: the most topic filters of a session.
    @ivar maxFilterBytes: the most bytes of those together.
    @ivar maxRetainedBytes: the most bytes of the indexes of retained messages of all groups.
    @ivar connectTimeout: the seconds that a client has to send its CONNECT.
    """

    openTopics: bool = True
    maxContent: int = 1024 * 1024
    receiveMaximum: int = _u16(1024)
    sendMaximum: int = _u16(1024)
    maxInFlightBytes: int = 4 * 1024 * 1024
    topicAliasMaximum: int = _u16(64)
    maxKeepAlive: int = _u16(60)
    maxSessionExpiry: int = NEVER
    maxSessions: int = 100_000
    maxOwnSessions: int = 10_000
    maxSubscriptions: int = 1000
    maxFilterBytes: int = 64 * 1024
    maxRetainedBytes: int = MAX_RETAINED
    connectTimeout: float = 10.0

    @property
    def maximumPacketSize(self) -> int:
        """The most bytes of a packet of a client."""
        return self.maxContent + PACKET_MARGIN


def policyOf(settings: MqttSettings, *, stopsAtRefusal: bool) -> PublishPolicy:
    """
    The policy of MQTT: a publish is answered when its outcome is known, without a time-out.
    """
    return _POLICIES[settings.openTopics, stopsAtRefusal]


_POLICIES: Final = {
    (opensTopics, stopsAtRefusal): PublishPolicy(
        carrier="mqtt",
        hasTimeout=False,
        opensTopics=opensTopics,
        mayBeEmpty=True,
        stopsAtRefusal=stopsAtRefusal,
        wantsResults=False,
        isPaced=True,
    )
    for opensTopics in (False, True)
    for stopsAtRefusal in (False, True)
}


@frozen(kw_only=True)
class Context:
    """
    The dependencies of all connections.

    @ivar access: logs clients in.
    @ivar broker: publishes events.
    @ivar retained: the retained messages of each group that is served, by its id.
    @ivar subscriptions: deliver events.
    @ivar store: keeps state on disk.
    @ivar clock: measures time.
    @ivar cooperator: runs the replays of retained messages of all connections, in slices.
    @ivar now: the wall clock: seconds since the epoch.
    @ivar entropy: C{entropy(n)} gives C{n} unguessable bytes.
    """

    access: Access
    broker: Broker
    retained: Mapping[str, RetainedIndex]
    subscriptions: Subscriptions
    store: MetadataStore
    clock: IReactorTime
    cooperator: Cooperator
    now: Callable[[], float]
    entropy: Callable[[int], bytes]
    settings: MqttSettings

    def later(self, seconds: float, call: Callable[[], object], isWrite: bool = False) -> TimedWork:
        """Do work after a time; see L{TimedWork}."""
        return self.broker.budgets.work.after(seconds, call, isWrite)

    def maxRetained(self, group: str) -> int:
        """The most bytes that a group's index of retained messages may have beside the others."""
        others = sum(each.size for name, each in self.retained.items() if name != group)
        return self.settings.maxRetainedBytes - others


def makeContext(
    access: Access,
    broker: Broker,
    ledgers: Mapping[str, ILedger],
    subscriptions: Subscriptions,
    store: MetadataStore,
    clock: IReactorTime,
    now: Callable[[], float],
    entropy: Callable[[int], bytes],
    settings: MqttSettings,
) -> Context:
    """
    The context for the groups of these ledgers.
    """
    return Context(
        access=access,
        broker=broker,
        retained={group: RetainedIndex(ledger, store, clock) for group, ledger in ledgers.items()},
        subscriptions=subscriptions,
        store=store,
        clock=clock,
        cooperator=_makeCooperator(clock),
        now=now,
        entropy=entropy,
        settings=settings,
    )


def _makeCooperator(clock: IReactorTime) -> Cooperator:
    def startSlice() -> Callable[[], bool]:
        end, steps = clock.seconds() + REPLAY_SECONDS, REPLAY_STEPS

        def isOver() -> bool:
            nonlocal steps
            steps -= 1
            return not steps or clock.seconds() >= end

        return isOver

    return Cooperator(startSlice, lambda run: clock.callLater(0, run))
