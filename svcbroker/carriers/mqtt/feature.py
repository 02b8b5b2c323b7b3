"""
MQTT as a feature of the daemon: its port, WebSocket, settings and metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from attrs import frozen
from prometheus_client.core import Metric
from twisted.internet.defer import Deferred

from ...broker import Answers, Calls, ClientConnection
from ...broker.features import (
    Feature,
    Records,
    RunningFeature,
    Services,
    carrierMetrics,
    sessionMetrics,
)
from ...broker.subscriptions import SECONDS_A_DAY
from ...broker.subscriptions.feature import SubscriptionOptions
from ...model import InterfaceType
from ...net.bounds import (
    CONNECTIONS,
    DURABLE,
    INPUT,
    KEPT_BYTES,
    NAMES,
    RETAINED,
    SUBSCRIPTIONS,
    WINDOWS,
    Bound,
    Sizing,
    amountText,
    cacheBound,
    within,
)
from ...net.settings import Endpoint, Flag, declareSetting
from .carrier import MqttCarrier, MqttFactory, webSocketRoute
from .context import NEVER, MqttSettings, makeContext
from .delivery import makeOptions
from .kept import SUBSCRIPTION, KeptSubscription
from .messages import _encodedTopic, _encodeEnvelope, _readEnvelope
from .mqttsession import SESSION_BYTES
from .sessions import entryGroup

PORT: Final = "mqtt"
"""The name of the port, and of its setting."""

_ROOM: Final = "svcbroker.carriers.mqtt"


@frozen(kw_only=True)
class MqttOptions:
    """The settings of MQTT."""

    endpoint: str = declareSetting(
        PORT,
        Endpoint(),
        "tcp:1883:interface=127.0.0.1",
        "where MQTT is served: a port of loopback, or a Twisted endpoint string; empty "
        "switches its port off",
    )
    openTopics: bool = declareSetting(
        "mqtt-open-topics",
        Flag(),
        True,
        "open a topic with the first MQTT publish to it",
        shown="on",
    )


class MqttFeature(RunningFeature):
    """MQTT on its port and over WebSocket."""

    def __init__(self, options: MqttOptions, services: Services) -> None:
        kept = services.settingsOf(SubscriptionOptions)
        settings = MqttSettings(
            openTopics=options.openTopics,
            maxContent=services.broker.limits.maxContent,
            maxOwnSessions=kept.maxPositions,
            maxRetainedBytes=services.budgets.retained,
            maxSessionExpiry=kept.positionExpiry * SECONDS_A_DAY or NEVER,
        )
        context = makeContext(
            services.access,
            services.broker,
            services.ledgers,
            services.subscriptions,
            services.metadata,
            services.reactor,
            services.now,
            services.entropy,
            settings,
        )
        self._services = services
        self._carrier = MqttCarrier(context)
        self._factory = MqttFactory(self._carrier)
        self.answers: Answers = {InterfaceType.MQTT: self._carrier.sessions}

    def routes(self, calls: Calls) -> Iterable[Any]:
        """See L{RunningFeature}."""
        return [webSocketRoute(self._factory, self._services.basePath)]

    def factories(self, calls: Calls, routes: Sequence[Any]) -> Mapping[str, Any]:
        """See L{RunningFeature}."""
        return {PORT: self._factory}

    def connections(self) -> Iterable[ClientConnection]:
        """See L{RunningFeature}."""
        return self._carrier.clients()

    def connected(self) -> int:
        """See L{RunningFeature}."""
        return self._carrier.connections

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        yield from carrierMetrics("mqtt", self._services, self.connected())
        yield sessionMetrics("mqtt", len(self._carrier.sessions))

    def start(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._carrier.start()

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._carrier.drain()


def sessionOwners(records: Records) -> Mapping[str, tuple[InterfaceType, str]]:
    """The clients of the subscriptions of sessions. Operators do not know their ids."""
    found = {}
    for name, value in records.get(SUBSCRIPTION, {}).items():
        kept = msgspec.json.decode(value, type=KeptSubscription)
        found[kept.subscriptionId] = (InterfaceType.MQTT, msgspec.json.decode(name)[1])
    return found


def mqttBounds(options: MqttOptions, sizing: Sizing) -> Iterator[Bound]:
    """The memory of MQTT's connections and sessions, in the budgets that all connections share."""
    yield Bound(
        name=INPUT,
        holders=[f"{_ROOM}.codec.Decoder._parts", f"{_ROOM}.receiving.Receiving._unsubmitted"],
    )
    yield Bound(name=WINDOWS, holders=[f"{_ROOM}.delivery.Window._runs"])
    yield Bound(
        name=RETAINED, holders=within(f"{_ROOM}.retained.Retainers", "_accounts", "_topics")
    )
    yield Bound(
        name=SUBSCRIPTIONS,
        how=f"MQTT sessions of {amountText(SESSION_BYTES)}, filters and wills",
        holders=(
            *within(
                f"{_ROOM}.sessions.Sessions",
                *("_sessions", "_counts", "_expiring", "_shares"),
            ),
            *within(f"{_ROOM}.wills.Wills", "_counted", "_publishing", "_waiting"),
        ),
    )
    yield Bound(
        name=NAMES,
        holders=(
            f"{_ROOM}.codec.Decoder._topics",
            f"{_ROOM}.delivery.Delivery._aliases",
            f"{_ROOM}.messages.TopicAliases._topics",
        ),
    )
    yield Bound(name=CONNECTIONS, holders=[f"{_ROOM}.carrier.MqttCarrier._links"])
    sessions = MqttSettings().maxSessions
    yield Bound(
        name=DURABLE, bytes=sessions * KEPT_BYTES, how=f"and of each of {sessions:,} MQTT sessions"
    )
    yield cacheBound("MQTT", [_readEnvelope, _encodeEnvelope, _encodedTopic, makeOptions])


FEATURE: Final = Feature(
    name="mqtt",
    settings=MqttOptions,
    make=MqttFeature,
    entries={"mqtt": entryGroup},
    owners=sessionOwners,
    bounds=mqttBounds,
)
