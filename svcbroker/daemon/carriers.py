"""
The broker and its carriers, put together from the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from twisted.logger import Logger

from ..access import AuditTrail
from ..broker import (
    RETENTION,
    Broker,
    Copies,
    GroupOf,
    Limits,
    MetadataStore,
    Retention,
    bindToChains,
    retentionGroup,
)
from ..broker.subscriptions import SECONDS_A_DAY, KeptPositions, Subscriptions, positionGroup
from ..broker.transparency import LOG, LOG_TOPIC, logGroup
from ..carriers import mqtt
from ..carriers.http import Following, HttpSettings, Replication, Sessions, makeSite
from ..carriers.stomp import (
    WEEVENT_1_1,
    FrameLimits,
    StompFactory,
    StompSettings,
    webSocketRoute,
)
from ..carriers.webhook import (
    NO_SECRETS,
    Secrets,
    Signer,
    WebhookSettings,
    makeWebhooks,
    parseSecrets,
    webhookGroup,
)
from ..console import Console
from ..files import openFile
from ..interfaces import ILedger
from ..metrics import AuditMetrics, BrokerMetrics, WitnessMetrics
from ..model import InterfaceType
from ..net.endpoints import AddressPolicy
from ..operations import WEEVENT, WEEVENT_INTERFACE
from ..storage import MetadataFile, StorageError
from ..version import readVersion
from .auditing import AUDIT, AuditSchedule, auditGroup
from .config import Config, ConfigError
from .dependencies import Dependencies, StartError
from .directory import measureDisk
from .inforce import ConfigurationInForce
from .lifecycles import Carriers, Lifecycle
from .metrics import DaemonMetrics
from .operatorfile import OperatorFile, operatorUrl
from .plan import Plan
from .ports import HTTP, MQTT, STOMP
from .traces import makeTracer
from .transparency import TransparencyLogs, readWitnessPolicy

T = TypeVar("T")

METADATA = "notes.sqlite"
"""The file of the metadata store in the data directory."""

ENTRY_GROUPS: Mapping[str, GroupOf] = {
    "position": positionGroup,
    "webhook": webhookGroup,
    "mqtt": mqtt.entryGroup,
    RETENTION: retentionGroup,
    AUDIT: auditGroup,
    LOG: logGroup,
}
"""How the group of each entry of the metadata store is found."""

COPY_THREADS = 2
"""How many threads read blocks for copies."""

MAX_SECRETS_FILE = 64 * 1024
"""The largest file of secrets, in bytes."""


def readWebhookSecrets(config: Config) -> Secrets:
    """
    The secrets of webhooks, from their file.

    @raise ConfigError: it cannot be used.
    """
    path = config.webhookSecretFile
    if not path:
        return NO_SECRETS
    parse = partial(parseSecrets, directory=Path(path).parent)
    return _readSecrets("webhook-secret-file", path, parse)


def _readSecrets(setting: str, path: str, parse: Callable[[bytes], T]) -> T:
    try:
        with openFile(path) as file:
            data = file.read(MAX_SECRETS_FILE + 1)
        if len(data) > MAX_SECRETS_FILE:
            raise ConfigError(f"{setting}: {path} is larger than {MAX_SECRETS_FILE} bytes")
        return parse(data)
    except OSError as error:
        raise ConfigError(f"{setting}: cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{setting}: {path} {error}") from None


def makeWebhookSettings(config: Config) -> WebhookSettings:
    """
    The settings of webhooks, with the secrets read from their file.

    @raise ConfigError: the file of the secrets cannot be used.
    """
    return WebhookSettings(
        policy=AddressPolicy.allowing(config.webhookAllow),
        signer=Signer(readWebhookSecrets(config)),
        timeout=config.webhookTimeout,
        maxDelay=config.webhookMaxDelay,
    )


def makeCarriers(
    config: Config,
    plan: Plan,
    webhookSettings: WebhookSettings,
    dependencies: Dependencies,
    ledgers: Mapping[str, ILedger],
    address: str,
    inForce: ConfigurationInForce,
    readSettings: Callable[[], tuple[Config, Callable[[], None]]],
) -> Carriers:
    """
    The broker over started ledgers, and everything that serves its clients.

    @param address: where HTTP is served, C{host:port}; empty where it is not.
    @param inForce: tells operators of the configuration.
    @param readSettings: reads the configuration again, and gives it with what applies settings of
        the process. It raises L{ConfigError} where it cannot be used.
    @raise StartError: the metadata store cannot be opened, or spans cannot be made.
    """
    reactor, now, entropy = dependencies.reactor, dependencies.now, dependencies.entropy
    tracer = None
    if config.traces:
        tracer = makeTracer(config.traces, config.advertise or address, reactor)
    thread = dependencies.makeThread(reactor, "notes")
    try:
        witnessPolicy = readWitnessPolicy(config)
    except ConfigError as error:
        raise StartError(str(error)) from None
    try:
        store = MetadataFile.open(config.dataDir / METADATA)
        metadata = MetadataStore(store, reactor, thread.run)
    except StorageError as error:
        thread.stop()
        raise StartError(f"data-dir: {error}") from error
    if store.loss:
        Logger().error("{loss}", loss=store.loss)
    bindToChains(metadata, {group: each.chain for group, each in ledgers.items()}, ENTRY_GROUPS)
    budgets = dependencies.budgets
    positions = KeptPositions(metadata, dependencies.budgets.subscriptions)
    subscriptions = Subscriptions(
        ledgers,
        reactor,
        now,
        entropy,
        positions,
        maxOwnPositions=config.maxPositions,
        positionExpiry=config.positionExpiry,
        budgets=budgets,
    )
    audit: AuditTrail | None = None
    if config.auditTopic and plan.access.hasAccounts:
        audit = AuditTrail(config.auditTopic, ledgers, reactor, now)
    control = plan.access.make(reactor, now, entropy, dependencies.makeThread, audit)
    access = control.access
    webhooks = makeWebhooks(
        reactor,
        subscriptions,
        metadata,
        access,
        webhookSettings,
        now=now,
        entropy=entropy,
        random=dependencies.random,
        tracer=tracer,
    )
    version = readVersion()
    transparency = TransparencyLogs(config, witnessPolicy, ledgers, metadata, dependencies)
    broker = Broker(
        ledgers,
        reactor,
        Limits(
            maxContent=config.maxContent,
            chainTimeout=config.chainTimeout,
            reservedTopics=frozenset({LOG_TOPIC, *([config.auditTopic] if audit else [])}),
        ),
        nodeAddress=config.advertise or address,
        version=version,
        subscriptions=subscriptions,
        webhooks=webhooks,
        hasFaults=config.faults,
        access=access,
        audit=audit,
        source=config.basePath,
        logs=transparency.logs,
        witnessings=transparency.witnessings,
        tracer=tracer,
        budgets=budgets,
    )
    webhooks.publishBy(broker)
    makeStomp = partial(
        StompFactory,
        broker,
        subscriptions,
        access,
        entropy,
        version=version.version,
        settings=StompSettings(frames=FrameLimits(maxBody=config.maxContent)),
    )
    stomp = makeStomp()
    stomps = [stomp]
    # By context path: what speaks STOMP over WebSocket, and other interfaces than ours.
    webSockets, dialects = {config.basePath: stomp}, {}
    if config.dialect:
        webSockets[WEEVENT.basePath] = weevent = makeStomp(dialect=WEEVENT_1_1)
        stomps.append(weevent)
        dialects[WEEVENT.basePath] = WEEVENT_INTERFACE
    mqttContext = mqtt.makeContext(
        access,
        broker,
        ledgers,
        subscriptions,
        metadata,
        reactor,
        now,
        entropy,
        mqtt.MqttSettings(
            openTopics=config.mqttOpenTopics,
            maxContent=config.maxContent,
            maxOwnSessions=config.maxPositions,
            maxRetainedBytes=budgets.retained,
            maxSessionExpiry=config.positionExpiry * SECONDS_A_DAY or mqtt.NEVER,
        ),
    )
    mqttCarrier = mqtt.MqttCarrier(mqttContext)
    broker.operator.handleConfiguration(inForce.describe)
    broker.admin.handleMetadataLoss(lambda: store.loss)
    broker.admin.handleDisk(partial(thread.run, measureDisk, config.dataDir))
    broker.operator.manage(InterfaceType.STOMP, subscriptions)
    broker.operator.manage(InterfaceType.MQTT, mqttCarrier.sessions)
    mqttFactory = mqtt.MqttFactory(mqttCarrier)
    # A converter that is a generic class hides from mypy what it takes.
    corsOrigins: Any = config.corsOrigins
    hostNames: Any = config.hostNames
    url = operatorUrl(address, config.basePath, config.http)
    operatorFile = OperatorFile(config.dataDir, url, entropy)
    httpSettings = HttpSettings(
        basePath=config.basePath,
        accessLog=config.accessLog,
        corsOrigins=corsOrigins,
        hostNames=hostNames,
    )
    following = Following(broker, subscriptions, httpSettings)
    copyThreads = dependencies.makeThread(reactor, "copies", COPY_THREADS)
    replication = Replication(config.basePath, Copies(broker.groups, reactor, copyThreads.run))
    sessions = Sessions(reactor, entropy, config.basePath)
    metrics = DaemonMetrics(config, plan.ports, access, httpSettings, ledgers, reactor, budgets)
    site = makeSite(
        broker,
        httpSettings,
        access,
        [
            following.route,
            replication.route,
            *(webSocketRoute(factory, path) for path, factory in webSockets.items()),
            mqtt.webSocketRoute(mqttFactory, config.basePath),
            *Console(config.basePath, access, sessions, broker.groups, operatorFile.token).routes(),
            *metrics.routes,
        ],
        operatorToken=operatorFile.token,
        dialects=dialects,
        sessions=sessions,
    )

    metrics.collectFrom(
        BrokerMetrics(
            broker=broker,
            subscriptions=subscriptions,
            positions=positions,
            access=access,
            webhooks=webhooks,
            mqtt=mqttCarrier,
            connections={
                "http": lambda: len(site.channels),
                "mqtt": lambda: mqttCarrier.connections,
                "stomp": lambda: sum(len(each.protocols) for each in stomps),
            },
            consoleSessions=sessions,
        ),
        dependencies,
        thread.run,
        METADATA,
    )
    audits = AuditSchedule(config.dataDir, config.auditEvery.seconds, metadata, reactor, now)
    metrics.metrics.add("audit", AuditMetrics(audits).collect)
    metrics.metrics.add("witnesses", WitnessMetrics(transparency.witnessings, now).collect)
    retentions = [
        Retention(ledger, config.retain, metadata, reactor, now) for ledger in ledgers.values()
    ]

    def readFiles() -> Callable[[], None]:
        read, useSettings = readSettings()
        anonymous = plan.access.reread(read.anonymous)
        secrets = readWebhookSecrets(config)

        def useFiles() -> None:
            useSettings()
            if not access.isOpen:
                access.changeAnonymous(anonymous)
            webhookSettings.signer.use(secrets)

        return useFiles

    def release() -> None:
        if tracer is not None:
            tracer.stop()
        control.stop()
        thread.stop()
        copyThreads.stop()

    return Carriers(
        factories={HTTP: site, STOMP: stomp, MQTT: mqttFactory, **metrics.factories},
        lifecycles=[
            Lifecycle(start=access.start),
            Lifecycle(start=metrics.start, drain=metrics.drain),
            Lifecycle(drain=following.drain),
            Lifecycle(drain=replication.drain),
            Lifecycle(drain=subscriptions.drain),
            Lifecycle(drain=site.drain),
            *(Lifecycle(drain=each.drain) for each in stomps),
            Lifecycle(start=mqttCarrier.start, drain=mqttCarrier.drain),
            Lifecycle(start=webhooks.start, drain=webhooks.stop),
            Lifecycle(start=operatorFile.start, drain=operatorFile.drain),
            *(Lifecycle(start=each.start, drain=each.stop) for each in retentions),
            Lifecycle(start=audits.start, drain=audits.stop),
            Lifecycle(start=transparency.start, drain=transparency.stop),
        ],
        broker=broker,
        subscriptions=subscriptions,
        metadata=metadata,
        access=access,
        readFiles=readFiles,
        audit=audit,
        release=release,
    )
