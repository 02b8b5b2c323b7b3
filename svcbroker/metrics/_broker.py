"""
Metrics of publishing, subscriptions, access control and carriers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product

from attrs import fields, frozen
from prometheus_client.core import Metric

from ..access import LOGINS, Access
from ..broker import Broker
from ..broker.subscriptions import KeptPositions, Subscriptions
from ..carriers.http import Sessions
from ..carriers.mqtt import MqttCarrier
from ..carriers.webhook import Webhooks
from ..interfaces import Action, Quotas
from ._families import counter, gauge, only


@frozen(kw_only=True)
class BrokerMetrics:
    """
    The metrics of what clients do.

    @ivar connections: tell how many connections each carrier has, by its name.
    @ivar consoleSessions: the log-ins of the console.
    """

    broker: Broker
    subscriptions: Subscriptions
    positions: KeptPositions
    access: Access
    webhooks: Webhooks
    mqtt: MqttCarrier
    connections: Mapping[str, Callable[[], int]]
    consoleSessions: Sessions

    def collect(self) -> Iterator[Metric]:
        """The families. See L{Source<svcbroker.metrics.Source>}."""
        yield counter(
            "svcbroker_publishes",
            "Events that clients have published, by what became of them.",
            ["carrier", "status"],
            self.broker.meter.counts(),
        )
        yield gauge(
            "svcbroker_connections",
            "Open connections of clients.",
            ["carrier"],
            [((name,), count()) for name, count in self.connections.items()],
        )
        yield gauge(
            "svcbroker_sessions",
            "MQTT sessions, those of absent clients included, and log-ins of the console.",
            ["kind"],
            [(("mqtt",), len(self.mqtt.sessions)), (("console",), len(self.consoleSessions))],
        )
        yield gauge(
            "svcbroker_subscriptions",
            "Live subscriptions.",
            ["kind", "durable"],
            [
                ((kind, str(isDurable).lower()), count)
                for (kind, isDurable), count in self.subscriptions.counts.items()
            ],
        )
        yield gauge(
            "svcbroker_durable_positions",
            "Positions that are kept of durable subscriptions, webhooks and MQTT sessions.",
            values=only(self.positions.count()),
        )
        yield from self._webhooks()
        refusals = self.access.refusals
        yield counter(
            "svcbroker_logins",
            "Log-ins that were checked, by what became of them.",
            ["carrier", "outcome"],
            [(key, self.access.logins[key]) for key in product(self.connections, LOGINS)],
        )
        yield counter(
            "svcbroker_access_refusals",
            "Calls that were not granted to the account.",
            ["action"],
            [((name,), refusals[name]) for name in ("any", *(each.value for each in Action))],
        )
        yield counter(
            "svcbroker_quota_refusals",
            "Calls that were refused because a quota of the account was used up.",
            ["quota"],
            [((each.name,), self.access.exceeded[each.name]) for each in fields(Quotas)],
        )

    def _webhooks(self) -> Iterator[Metric]:
        states, counts = self.webhooks.states(), self.webhooks.counts
        yield gauge(
            "svcbroker_webhooks",
            "Webhooks, by how their last request went.",
            ["state"],
            [((state,), count) for state, count in states.items()],
        )
        yield counter(
            "svcbroker_webhook_requests",
            "Requests to the receivers of webhooks, by what became of them.",
            ["outcome"],
            [
                (("acknowledged",), counts.acknowledged),
                (("failed",), counts.failed),
                (("unsent",), counts.unsent),
            ],
        )
        yield counter(
            "svcbroker_webhook_events_given_up",
            "Events that became dead letters of webhooks.",
            values=only(counts.givenUp),
        )
