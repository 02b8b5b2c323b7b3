"""
Live and durable subscriptions as a feature of the daemon: settings and metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from shlex import quote
from typing import Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred

from ...model import InterfaceType
from ...net.bounds import (
    DURABLE,
    KEPT_BYTES,
    RETAINED,
    SUBSCRIPTIONS,
    Bound,
    Sizing,
    amountText,
    within,
)
from ...net.budgets import ENTRY_BYTES
from ...net.findings import DAY, Finding, good, listed, span, warning
from ...net.metrics import Metric, gauge, only
from ...net.settings import WholeNumber, declareSetting
from ..features import Feature, RunningFeature, Services, StoredData
from ._backlog import MAX_NAMED, Backlog, Total, WaitingEvents
from ._eventreading import MAX_CALLS, MAX_WAITING
from ._follower import CACHED_BYTES, REMEMBERED_MATCHES, REMEMBERED_TOPICS
from ._logsubscription import SUBSCRIPTION_BYTES
from ._positions import (
    MAX_POSITIONS,
    OWN_INTERFACE,
    POSITIONS,
    SECONDS_A_DAY,
    KeptPosition,
    decodePosition,
    positionGroup,
)

_ROOM: Final = "svcbroker.broker.subscriptions"
_MATCH_BYTES: Final = 8

_SUBSCRIPTIONS: Final = "subscriptions"

_TOTAL: Final = ("group", "kind")
_EACH: Final = ("group", "kind", "name")


@frozen(kw_only=True)
class SubscriptionOptions:
    """The settings of subscriptions."""

    maxPositions: int = declareSetting(
        "max-positions",
        WholeNumber(metavar="NUMBER", minimum=1, maximum=100_000),
        10_000,
        "the most durable subscriptions, and the most MQTT sessions, that one account, or without "
        "accounts the clients of one address, may have made",
    )
    positionExpiry: int = declareSetting(
        "position-expiry",
        WholeNumber(metavar="DAYS", minimum=0, maximum=3650),
        30,
        "how long the position of a durable subscription, or an MQTT session, is kept that no "
        "client uses; 0 for ever",
    )


class SubscriptionFeature(RunningFeature):
    """
    The subscriptions that all carriers share. They stop by the daemon itself, when all who use them
    are drained.
    """

    def __init__(self, options: SubscriptionOptions, services: Services) -> None:
        self._subscriptions = services.subscriptions
        self._positions = services.positions
        self._backlog = BacklogMetrics(services.subscriptions.backlog, services.now)

    def start(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._subscriptions.start()

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._subscriptions.drain()

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        yield gauge(
            "svcbroker_subscriptions",
            "Live subscriptions.",
            ["kind", "durable"],
            [
                ((kind, str(isDurable).lower()), count)
                for (kind, isDurable), count in self._subscriptions.counts.items()
            ],
        )
        yield gauge(
            "svcbroker_durable_positions",
            "Positions that are kept of durable subscriptions, webhooks and MQTT sessions.",
            values=only(self._positions.count()),
        )
        yield from self._backlog.collect()


@frozen
class BacklogMetrics:
    """
    The metrics of waiting events: of all durable subscriptions together, and of the worst by name.

    @ivar now: the wall clock: seconds since the epoch.
    """

    backlog: Backlog
    now: Callable[[], float]

    def collect(self) -> Iterator[Metric]:
        """The families. See L{Source<svcbroker.net.metrics.Source>}."""
        now, survey = self.now(), self.backlog.survey()
        totals = survey.totals.items()
        yield gauge(
            "svcbroker_backlog_events",
            "Events that wait for durable subscriptions, webhooks and MQTT sessions.",
            _TOTAL,
            [(labels, total.count) for labels, total in totals],
        )
        yield gauge(
            "svcbroker_backlog_subscriptions",
            "Durable subscriptions for which events wait.",
            _TOTAL,
            [(labels, total.behind) for labels, total in totals],
        )
        yield gauge(
            "svcbroker_backlog_oldest_seconds",
            "The age of the oldest event that waits for a durable subscription; 0 for none.",
            _TOTAL,
            [(labels, _age(total, now)) for labels, total in totals],
        )
        worst = [((each.group, each.kind, each.name), each) for each in survey.worst]
        yield gauge(
            "svcbroker_subscription_backlog_events",
            f"Events that wait, for the {MAX_NAMED} subscriptions that are furthest behind.",
            _EACH,
            [(labels, each.count) for labels, each in worst],
        )
        yield gauge(
            "svcbroker_subscription_oldest_seconds",
            "The age of the oldest event that waits, for the same subscriptions.",
            _EACH,
            [(labels, _age(each, now)) for labels, each in worst],
        )


def _age(waiting: WaitingEvents | Total, now: float) -> float:
    """The time for which the first event has waited, in seconds."""
    return 0.0 if waiting.oldest is None else max(0.0, now - waiting.oldest / 1000)


FAR: Final = 7 * DAY
"""Seconds that a durable subscription may be behind before it is worth a warning."""


@frozen(kw_only=True)
class IdleSubscription:
    """
    A durable subscription, or a session, as far as it is behind and unused.

    @ivar id: its id, or the client's.
    @ivar type: as C{svcbroker admin subscription} takes it.
    @ivar blocks: how many blocks of its group it has not seen.
    @ivar behind: of how many seconds those are.
    @ivar unused: for how many days no client has used it.
    """

    id: str
    type: InterfaceType = OWN_INTERFACE
    blocks: int = 0
    behind: float = 0.0
    unused: int = 0


def readIdle(data: StoredData) -> Iterator[IdleSubscription]:
    """
    The durable subscriptions of a data directory, without those of webhooks. A session is as far
    behind as the last of its positions.
    """
    today = int(data.now // SECONDS_A_DAY)
    found: dict[tuple[str, InterfaceType, str], list[KeptPosition]] = {}
    for name, value in data.records.get(POSITIONS, {}).items():
        kept = decodePosition(value)
        owner = data.owners.get(name, (OWN_INTERFACE, name))
        if kept.group in data.logs and owner is not None:
            found.setdefault((kept.group, *owner), []).append(kept)
    for (group, type, id), those in found.items():
        log = data.logs[group]
        height, used = min(each.position.height for each in those), max(each.used for each in those)
        blocks = max(0, log.height - height)
        yield IdleSubscription(
            id=id,
            type=type,
            blocks=blocks,
            behind=data.now - log.timeOf(height + 1) if blocks else 0.0,
            unused=max(0, today - used) if used else 0,
        )


def checkIdle(idle: Sequence[IdleSubscription], expiry: int, dataDir: str) -> Iterator[Finding]:
    """
    Check whether clients of durable subscriptions come for their events.

    @param expiry: after how many days without use a position is removed; 0 for never.
    """
    behind = sorted((each for each in idle if each.behind > FAR), key=lambda each: -each.behind)
    if behind:
        names = [f"{each.id} ({span(each.behind)}, {each.blocks:,} blocks)" for each in behind]
        yield warning(
            _SUBSCRIPTIONS,
            f"{len(behind)} durable subscriptions are far behind: {listed(names)}",
            "no client has taken their events; one that comes back gets them all",
            f"svcbroker admin subscription list --data-dir {dataDir}; those that no client needs: "
            f"svcbroker admin subscription delete {behind[0].type.value} {quote(behind[0].id)} "
            f"--data-dir {dataDir}",
        )
    due = [each.id for each in idle if expiry and each.unused * 5 >= expiry * 4]
    if due:
        yield warning(
            _SUBSCRIPTIONS,
            f"{listed(due)} were not used for {expiry * 4 // 5} days and more",
            f"they are removed after {expiry} days; a client that comes back later misses events",
            "have their clients connect, or give --position-expiry more days",
        )
    if idle and not behind and not due:
        yield good(_SUBSCRIPTIONS, f"{len(idle)} durable ones are close to the end")


def checkStoredPositions(options: SubscriptionOptions, data: StoredData) -> Iterator[Finding]:
    """Check the durable subscriptions of a data directory."""
    return checkIdle([*readIdle(data)], options.positionExpiry, data.dataDir)


def subscriptionBounds(options: SubscriptionOptions, sizing: Sizing) -> Iterator[Bound]:
    """The memory of subscriptions, and of what reads the log for them."""
    yield Bound(
        name=SUBSCRIPTIONS,
        how=f"live subscriptions of {amountText(SUBSCRIPTION_BYTES)}",
        holders=(
            *within(f"{_ROOM}._registry.Subscriptions", "_live", "_held"),
            *within(f"{_ROOM}._backlog.Backlog", "_live", "_held"),
            f"{_ROOM}._follower.Dispatcher._audiences",
            *within(f"{_ROOM}._follower.Audience", "receivers", "mergers"),
            f"{_ROOM}._topictree.FilterTrie._plain",
            f"{_ROOM}._topictree.FilterSet.filters",
            f"{_ROOM}._logsubscription.LogSubscription._outstanding",
        ),
    )
    yield Bound(name=RETAINED, holders=within(f"{_ROOM}._topictree._Node", "below", "value"))
    yield Bound(
        name="blocks for subscriptions",
        bytes=sizing.groups * CACHED_BYTES,
        how=f"{amountText(CACHED_BYTES)} of {sizing.ofGroups}",
        holders=within(f"{_ROOM}._follower.Follower", "_cache", "_waiting"),
    )
    yield Bound(
        name="subscriptions that match a topic",
        bytes=sizing.groups * (REMEMBERED_TOPICS * ENTRY_BYTES + REMEMBERED_MATCHES * _MATCH_BYTES),
        how=f"{REMEMBERED_TOPICS:,} topics and {REMEMBERED_MATCHES:,} matches of {sizing.ofGroups}",
        holders=[f"{_ROOM}._follower.Dispatcher._remembered"],
    )
    yield Bound(
        name="calls that wait for events",
        bytes=MAX_WAITING * SUBSCRIPTION_BYTES,
        how=f"{MAX_WAITING:,} of {amountText(SUBSCRIPTION_BYTES)}",
        holders=[f"{_ROOM}._eventreading.EventReading._waiting"],
    )
    yield Bound(
        name="calls that wait for a block",
        bytes=MAX_CALLS * SUBSCRIPTION_BYTES,
        how=f"{MAX_CALLS:,} of {amountText(SUBSCRIPTION_BYTES)}",
        holders=[
            f"{_ROOM}._eventreading.HeightWaits._waiting",
            f"{_ROOM}._follower.Follower._awaited",
        ],
    )
    yield Bound(
        name=DURABLE,
        bytes=MAX_POSITIONS * KEPT_BYTES,
        how=f"{amountText(KEPT_BYTES)} of each of {MAX_POSITIONS:,} subscriptions, "
        f"{options.maxPositions:,} of one account or address (max-positions); their filters are "
        "counted with live ones",
        holders=(
            *within("svcbroker.broker._metadatastore.MetadataStore", "_kinds", "_changes"),
            *within(f"{_ROOM}._positions.KeptPositions", "_index", "_counts"),
        ),
    )


FEATURE: Final = Feature(
    name="subscriptions",
    settings=SubscriptionOptions,
    make=SubscriptionFeature,
    entries={"position": positionGroup},
    dataChecks=checkStoredPositions,
    bounds=subscriptionBounds,
)
