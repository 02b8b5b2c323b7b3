"""
Webhooks as a feature of the daemon: settings, secrets and metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred

from ...broker import IWebhooks
from ...broker.features import (
    Feature,
    Records,
    RunningFeature,
    Services,
    StoredData,
    carrierMetrics,
)
from ...broker.subscriptions import POSITIONS, decodePosition
from ...model import Position
from ...net.alarms import Alarm, Condition, RecentCount
from ...net.bounds import Bound, Sizing, amountText
from ...net.endpoints import AddressPolicy, parseAllowed
from ...net.findings import Finding, Level, good, listed, span, warning
from ...net.metrics import Metric, counter, gauge, only
from ...net.pem import ClientIdentity
from ...net.settings import Choice, List, Seconds, Text, anyText, declareSetting, readSecrets
from ...net.turns import Slots
from .delivery import KIND, MAX_BATCH, DeliveryContext, decodeRecord, webhookGroup
from .posting import MAX_ANSWER, MAX_REQUESTS, Poster, WebhookSettings
from .signing import KEYS, NO_SECRETS, Secrets, WebhookKeys, WebhookSigner, keysGroup, parseSecrets
from .webhookservice import Webhooks

if TYPE_CHECKING:
    from ...net.http import HttpClient

_WEBHOOKS: Final = "webhooks"
_BOTH: Final = "both"
_SECRET: Final = "v1"
_PUBLIC: Final = "v1a"
_IDLE_PER_HOST = 2

WEBHOOKS_FAIL: Final = Condition(
    name="webhooks-fail",
    level=Level.WARNING,
    title="The receiver of a webhook fails",
    meaning="It gets no events until it acknowledges the one that waits, or that is given up. What "
    "it does not get stays in the log.",
    remedy="svcbroker webhook list shows the last error. Mend the receiver, then: svcbroker "
    "webhook retry ID.",
    page="subscriptions",
)
_GIVEN_UP: Final = "{count} events in the last hour"
_ONE_GIVEN_UP: Final = "1 event in the last hour"
EVENTS_GIVEN_UP: Final = Condition(
    name="events-given-up",
    level=Level.WARNING,
    title="Events became dead letters",
    meaning="Receivers of webhooks did not take them after the last attempt, and do not get them.",
    remedy="Read the topics of dead letters. Once the receiver is mended, send what is still "
    "wanted again: svcbroker webhook replay, or by the page of the dead letter.",
    page="subscriptions",
    phrases=(_GIVEN_UP, _ONE_GIVEN_UP),
)

FAILED_OFTEN: Final = 3
"""Requests that fail one after the other before it is told: one may fail for a moment."""

_COPIES: Final = 3
"""An event that is sent is in memory so many times: as it is, and as JSON in Base64."""


def allowedTarget(text: str) -> str:
    """A network, an address or a host's name."""
    parseAllowed(text)
    return text


@frozen(kw_only=True)
class WebhookOptions:
    """The settings of webhooks."""

    allow: tuple[str, ...] = declareSetting(
        "webhook-allow",
        List(of=Text(metavar="NETWORK|HOST", normalise=allowedTarget)),
        (),
        "a network, address or host name that events may be sent to although it is not public; "
        "may be given more than once",
        shown="none",
    )
    secretFile: str = declareSetting(
        "webhook-secret-file",
        Text(metavar="PATH", normalise=anyText),
        "",
        "a file with the secrets that sign what is sent to webhooks, one a line; before it may "
        "stand a name and =, for webhooks that name it; NAME = certificate:PATH is a client "
        "certificate for webhooks",
        shown="none",
    )
    signatures: str = declareSetting(
        "webhook-signatures",
        Choice(words=(_BOTH, _SECRET, _PUBLIC)),
        _BOTH,
        "which signatures of Standard Webhooks requests have: v1 of the secrets, which their "
        "receiver can make too, v1a of the broker's own key, which it can show to others, or both",
    )
    timeout: float = declareSetting(
        "webhook-timeout",
        Seconds(maximum=300),
        10.0,
        "how long the receiver of a webhook may take to acknowledge an event",
        shown="10",
    )
    maxDelay: float = declareSetting(
        "webhook-max-delay",
        Seconds(maximum=86400),
        300.0,
        "the longest time after which an event that was not acknowledged is sent again",
        shown="300",
    )


def readWebhookSecrets(path: str) -> Secrets:
    """
    The secrets of webhooks, from their file; none where there is none.

    @raise ConfigError: it cannot be used.
    """
    if not path:
        return NO_SECRETS
    parse = partial(parseSecrets, directory=Path(path).parent)
    return readSecrets("webhook-secret-file", path, parse)


@frozen(kw_only=True)
class ReadWebhooks:
    """The settings of webhooks, with their secrets."""

    settings: WebhookSettings
    options: WebhookOptions


def readWebhooks(options: WebhookOptions) -> ReadWebhooks:
    """
    Read the secrets.

    @raise ConfigError: their file cannot be used.
    """
    settings = WebhookSettings(
        policy=AddressPolicy.allowing(options.allow),
        signer=WebhookSigner(
            readWebhookSecrets(options.secretFile),
            hasPublic=options.signatures != _SECRET,
            hasSecret=options.signatures != _PUBLIC,
        ),
        timeout=options.timeout,
        maxDelay=options.maxDelay,
    )
    return ReadWebhooks(settings=settings, options=options)


def checkWebhooks(read: ReadWebhooks) -> Iterator[Finding]:
    """Whether clients can have requests sent everywhere."""
    for text in read.options.allow:
        if text in ("0.0.0.0/0", "::/0"):
            yield warning(
                "configuration",
                f"webhook-allow is {text}",
                "a client that may subscribe can have the broker send requests to any service "
                "inside your network",
                "name the networks or hosts of your receivers only",
            )


class WebhookFeature(RunningFeature):
    """Webhooks that send by HTTP, and by HTTPS with the trust roots of the system."""

    def __init__(self, read: ReadWebhooks, services: Services) -> None:
        self._read = read
        self._services = services
        self._webhooks = makeWebhooks(read.settings, services)
        self._givenUp = RecentCount(services.reactor, 3600.0)
        self.answers = {IWebhooks: self._webhooks}

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        yield from carrierMetrics("webhook", self._services)
        states, counts = self._webhooks.states(), self._webhooks.counts
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

    def alarms(self) -> Iterator[Alarm]:
        """See L{RunningFeature}."""
        return webhookAlarms(self._webhooks, self._givenUp)

    def start(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._webhooks.start()

    def drain(self) -> Deferred[Any]:
        """See L{RunningFeature}."""
        return self._webhooks.stop()

    def reload(self) -> Callable[[], None]:
        """Read the secrets again."""
        return partial(
            self._read.settings.signer.use, readWebhookSecrets(self._read.options.secretFile)
        )


def webhookAlarms(webhooks: Webhooks, givenUp: RecentCount) -> Iterator[Alarm]:
    """
    The webhooks whose receivers fail, and the dead letters of the last hour.

    @param givenUp: counts these.
    """
    for group, id, error in webhooks.failing(FAILED_OFTEN):
        yield Alarm(condition=WEBHOOKS_FAIL, text=f"{id}: {error}", group=group)
    recent = givenUp.grown(webhooks.counts.givenUp)
    if recent:
        text = _ONE_GIVEN_UP if recent == 1 else _GIVEN_UP.format(count=round(recent))
        yield Alarm(condition=EVENTS_GIVEN_UP, text=text)


def makeWebhooks(settings: WebhookSettings, services: Services) -> Webhooks:
    """Webhooks over the network. Not started."""

    def makeHttpClient(certificate: ClientIdentity | None) -> HttpClient:
        # Only for this: it imports treq, which brokers without webhooks do not need.
        from ...net.http import CertificatePolicy, makeClient

        return makeClient(
            services.reactor,
            maxBody=MAX_ANSWER,
            keep=_IDLE_PER_HOST,
            # Receivers may get an event twice anyway, and know it by its id.
            isRepeatable=True,
            connectTimeout=settings.timeout,
            tls=None if certificate is None else CertificatePolicy(certificate),
            policy=settings.policy,
        )

    keys = WebhookKeys(services.ledgers, services.metadata, services.now)
    poster = Poster(makeHttpClient, services.now, settings, services.tracer, keys.current)
    context = DeliveryContext(
        clock=services.reactor,
        now=services.now,
        random=services.random,
        poster=poster,
        slots=Slots(settings.connections, settings.connectionsPerHost),
        settings=settings,
    )
    return Webhooks(
        services.subscriptions,
        services.metadata,
        services.access,
        services.reactor.nameResolver,
        context,
        services.entropy,
        services.broker,
        keys,
        poster.close,
    )


MANY_ATTEMPTS: Final = 10
"""Attempts after which a receiver is not only down for a moment."""


@frozen(kw_only=True)
class WebhookFacts:
    """
    Facts about a stored webhook.

    @ivar id: its subscription id.
    @ivar attempts: how often the event that waits first has failed.
    @ivar waits: for how many seconds that event has been published.
    """

    id: str
    isPaused: bool = False
    attempts: int = 0
    waits: float = 0.0


def webhookOwners(records: Records) -> Mapping[str, None]:
    """The ids of the subscriptions of webhooks, which are told of as webhooks."""
    return dict.fromkeys(records.get(KIND, {}))


def readWebhookFacts(data: StoredData) -> Iterator[WebhookFacts]:
    """The webhooks of a data directory."""
    positions = data.records.get(POSITIONS, {})
    for name, value in data.records.get(KIND, {}).items():
        record = decodeRecord(value)
        log = data.logs.get(record.group)
        if log is None:
            continue
        attempts, waits = 0, 0.0
        if record.failed is not None:
            height, index, count = record.failed
            done = decodePosition(positions[name]).position if name in positions else None
            if done is None or done < Position(height, index):
                attempts, waits = count, max(0.0, data.now - log.timeOf(height))
        yield WebhookFacts(id=name, isPaused=record.isPaused, attempts=attempts, waits=waits)


def checkWebhookFacts(webhooks: Sequence[WebhookFacts], dataDir: str) -> Iterator[Finding]:
    """Check whether the receivers of webhooks take their events."""
    failing = [each for each in webhooks if each.attempts >= MANY_ATTEMPTS]
    paused = [each.id for each in webhooks if each.isPaused]
    for each in failing:
        waits = f"; the event is {span(each.waits)} old" if each.waits else ""
        yield warning(
            _WEBHOOKS,
            f"{each.id} has failed {each.attempts} times with the same event{waits}",
            "its receiver gets nothing until it takes that event, or the webhook gives it up",
            f"svcbroker webhook list --data-dir {dataDir} says why; mend the receiver, then: "
            f"svcbroker webhook retry {each.id} --data-dir {dataDir}",
        )
    if paused:
        yield warning(
            _WEBHOOKS,
            f"{listed(paused)} are paused",
            "their receivers get nothing; what they do not get stays in the log",
            f"svcbroker webhook resume {paused[0]} --data-dir {dataDir}",
        )
    if webhooks and not failing and not paused:
        yield good(_WEBHOOKS, f"{len(webhooks)} get on")


def checkStoredWebhooks(options: WebhookOptions, data: StoredData) -> Iterator[Finding]:
    """Check the webhooks of a data directory."""
    return checkWebhookFacts([*readWebhookFacts(data)], data.dataDir)


def webhookBounds(options: WebhookOptions, sizing: Sizing) -> Iterator[Bound]:
    """The memory of webhooks, and of what is sent to them."""
    delivery = _COPIES * (MAX_BATCH + sizing.maxContent) + MAX_ANSWER
    yield Bound(
        name="requests to webhooks",
        bytes=MAX_REQUESTS * delivery,
        how=f"{MAX_REQUESTS:,} of {amountText(delivery)} are under way at a time",
    )
    yield Bound(
        name="a webhook",
        bytes=2048,
        how="about; it is a durable subscription, and is bounded with them",
        each="each",
        holders=["svcbroker.carriers.webhook.webhookservice.Webhooks._webhooks"],
    )


FEATURE: Final = Feature(
    name=_WEBHOOKS,
    settings=WebhookOptions,
    read=readWebhooks,
    make=WebhookFeature,
    entries={KIND: webhookGroup, KEYS: keysGroup},
    secrets=("webhook-secret-file",),
    checks=checkWebhooks,
    owners=webhookOwners,
    dataChecks=checkStoredWebhooks,
    bounds=webhookBounds,
    conditions=(WEBHOOKS_FAIL, EVENTS_GIVEN_UP),
)
