"""
STOMP as a feature of the daemon: its port, WebSockets, settings and metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from attrs import frozen
from prometheus_client.core import Metric
from twisted.internet.defer import Deferred, gatherResults

from ...broker import Answers, Calls, ClientConnection
from ...broker.features import Feature, RunningFeature, Services, carrierMetrics
from ...model import InterfaceType
from ...net.bounds import (
    CONNECTIONS,
    INPUT,
    SUBSCRIPTIONS,
    WINDOWS,
    Bound,
    Sizing,
    cacheBound,
    within,
)
from ...net.settings import Endpoint, declareSetting
from ...operations import WEEVENT
from .carrier import StompFactory, webSocketRoute
from .frames import FrameLimits, StompSettings, _shareHeaders
from .requests import WEEVENT_1_1

PORT: Final = "stomp"
"""The name of the port, and of its setting."""

_ROOM: Final = "svcbroker.carriers.stomp"


@frozen(kw_only=True)
class StompOptions:
    """The settings of STOMP."""

    endpoint: str = declareSetting(
        PORT,
        Endpoint(),
        "tcp:61613:interface=127.0.0.1",
        "where STOMP is served: a port of loopback, or a Twisted endpoint string; empty "
        "switches its port off",
    )


class StompFeature(RunningFeature):
    """STOMP on its port and over WebSocket, and that of a dialect over WebSocket."""

    def __init__(self, options: StompOptions, services: Services) -> None:
        make = partial(
            StompFactory,
            *(services.broker, services.subscriptions, services.access, services.entropy),
            version=services.version.version,
            settings=StompSettings(frames=FrameLimits(maxBody=services.broker.limits.maxContent)),
        )
        self._services = services
        self._factory = make()
        # By context path. That of the dialect may be that of the interface.
        self._webSockets = {services.basePath: self._factory}
        self._all = [self._factory]
        if services.dialect == WEEVENT.name:
            self._webSockets[WEEVENT.basePath] = make(dialect=WEEVENT_1_1)
            self._all.append(self._webSockets[WEEVENT.basePath])
        self.answers: Answers = {InterfaceType.STOMP: services.subscriptions}

    def routes(self, calls: Calls) -> Iterable[Any]:
        """See L{RunningFeature}."""
        return [webSocketRoute(factory, path) for path, factory in self._webSockets.items()]

    def factories(self, calls: Calls, routes: Sequence[Any]) -> Mapping[str, Any]:
        """See L{RunningFeature}."""
        return {PORT: self._factory}

    def connections(self) -> Iterable[ClientConnection]:
        """See L{RunningFeature}."""
        return (each.client() for factory in self._all for each in factory.protocols.inTurns())

    def connected(self) -> int:
        """See L{RunningFeature}."""
        return sum(len(each.protocols) for each in self._all)

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        return carrierMetrics("stomp", self._services, self.connected())

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return gatherResults([each.drain() for each in self._all])


def stompBounds(options: StompOptions, sizing: Sizing) -> Iterator[Bound]:
    """The memory of STOMP's connections, in the budgets that all connections share."""
    yield Bound(name=INPUT, holders=[f"{_ROOM}.session.StompTransaction.publications"])
    yield Bound(name=WINDOWS, holders=within(f"{_ROOM}.messages.AckWindow", "_sent", "_waiting"))
    yield Bound(
        name=SUBSCRIPTIONS, holders=within(f"{_ROOM}.session.Deliveries", "_byKey", "_byNumber")
    )
    yield Bound(name=CONNECTIONS, holders=[f"{_ROOM}.carrier.StompFactory.protocols"])
    yield cacheBound("STOMP", [_shareHeaders])


FEATURE: Final = Feature(name="stomp", settings=StompOptions, make=StompFeature, bounds=stompBounds)
