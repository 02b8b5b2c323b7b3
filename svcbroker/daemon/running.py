"""
The features of a running daemon: made, started, reloaded, drained and stopped together; and the
configuration that is in force: what the daemon was started with, and what a reload has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from attrs import field, frozen
from twisted.internet.defer import CancelledError, Deferred, DeferredList, FirstError, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..access import Access, AuditTrail
from ..broker import Answers, Broker, Calls, ClientConnection, Limits, MetadataStore, bindToChains
from ..broker.features import Feature, RunningFeature, Services
from ..broker.subscriptions import KeptPositions, Subscriptions
from ..broker.subscriptions.feature import SubscriptionOptions
from ..broker.transparency import LOG_TOPIC, CheckpointLines
from ..interfaces import ILedger, InvalidDescription
from ..model import (
    AccountChange,
    BoundRecord,
    CertificateChange,
    ConfigurationReport,
    ReloadDifference,
    SettingChange,
    SettingRecord,
    SettingSource,
)
from ..net.alarms import Alarms
from ..net.deferreds import asDeferred
from ..net.history import MeasureHistory
from ..net.metrics import Metric, Metrics, gauge
from ..net.settings import ConfigError, Setting, maskSecrets
from ..storage import MetadataFile, StorageError
from ..version import readVersion
from .alarms import certificateAlarms, healthAlarms
from .config import SETTINGS, Config
from .dependencies import Dependencies, StartError
from .directory import METADATA, DiskMeter
from .features import ENTRY_GROUPS, FEATURES
from .history import SERIES
from .plan import AccessControl, Plan, metadataRefusal
from .ports import HTTP, PortPlan
from .service import OperatorFile, Reload, operatorUrl
from .traces import makeTracer

_RELOADED: Final = ("anonymous", "log-level")
"""The settings of the file that a reload changes."""


class ConfigurationInForce:
    """
    The settings with their values and what has given them.
    """

    def __init__(
        self,
        config: Config,
        sources: Mapping[str, SettingSource],
        file: Path | None,
        now: Callable[[], float],
        bounds: Sequence[BoundRecord] = (),
        memory: int = 0,
    ) -> None:
        """
        @param config: what the daemon is started with.
        @param sources: what has given the settings that are no defaults, by their names.
        @param file: the configuration file.
        @param now: the wall clock: seconds since the epoch.
        @param bounds: how much memory each kind may take.
        @param memory: how much the process may use, in bytes.
        """
        self._bounds, self._memory = bounds, memory
        self._config = self._read = config
        self._sources = dict(sources)
        self._file = file
        self._now = now
        self._startedAt = now()
        self._reloadedAt: float | None = None

    def reloaded(self, config: Config, sources: Mapping[str, SettingSource]) -> None:
        """The file was read again, with the files of accounts and secrets."""
        self._read = config
        self._reloadedAt = self._now()
        for setting in SETTINGS:
            if setting.name in _RELOADED:
                self._config = self._config.change({setting: config.value(setting)})
                self._sources[setting.name] = sources.get(setting.name, SettingSource.DEFAULT)

    def difference(self, read: Config) -> Iterator[SettingChange]:
        """
        Compare the settings with those that were read now, without secrets.

        @param read: what the file and the command line say.
        """
        for setting in SETTINGS:
            before, after = self._config.value(setting), read.value(setting)
            if before != after:
                yield SettingChange(
                    name=setting.name,
                    before=_texts(before),
                    after=_texts(after),
                    needsRestart=setting.name not in _RELOADED,
                )

    def describe(self) -> ConfigurationReport:
        """All settings, without secrets. Called when an operator asks."""
        return ConfigurationReport(
            settings=[self._record(setting) for setting in SETTINGS],
            file="" if self._file is None else str(self._file),
            startedAt=_milliseconds(self._startedAt),
            reloadedAt=None if self._reloadedAt is None else _milliseconds(self._reloadedAt),
            bounds=self._bounds,
            memory=self._memory,
        )

    def _record(self, setting: Setting) -> SettingRecord:
        value = self._config.value(setting)
        return SettingRecord(
            name=setting.name,
            values=_texts(value),
            default=setting.default,
            source=self._sources.get(setting.name, SettingSource.DEFAULT),
            help=setting.help,
            needsRestart=value != self._read.value(setting),
        )


def _texts(value: Any) -> Sequence[str]:
    """The values of a setting as they may be written on a command line, without secrets."""
    values = value if isinstance(value, tuple) else (value,)
    return [maskSecrets(_text(each)) for each in values]


def _text(value: Any) -> str:
    """A value as it may be written on a command line."""
    match value:
        case bool():
            return "on" if value else "off"
        case float():
            return f"{value:g}"
    return str(value)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


ReadSettings: TypeAlias = Callable[[], tuple[Config, Callable[[], None]]]
"""
Reads the configuration again, and gives it with what applies settings of the process. It raises
L{ConfigError} where it cannot be used.
"""

_log = Logger()


ReadFiles: TypeAlias = Callable[[], tuple[Config, Callable[[], None]]]
"""
Reads the configuration and the files of all features again, and gives it with what applies them. It
raises L{ConfigError} where one of them cannot be used.
"""


@frozen(kw_only=True)
class ReloadPreview:
    """
    Compares what a daemon has read with what its files have now.

    @ivar readFiles: reads settings and files again. What applies them is not called.
    @ivar control: the access control.
    @ivar ports: the ports that may have certificates.
    @ivar runInThread: runs blocking disk work.
    """

    readFiles: ReadFiles
    control: AccessControl
    inForce: ConfigurationInForce
    ports: Sequence[PortPlan]
    runInThread: Callable[..., Deferred[Any]]

    @asDeferred
    async def difference(self) -> ReloadDifference:
        """Read all files. Fires with what a reload would change; nothing has changed."""
        problems: list[str] = []
        settings: Sequence[SettingChange] = ()
        accounts: Sequence[AccountChange] = ()
        try:
            read, _ = self.readFiles()
            await self.control.access.readAgain()
            if self.control.accounts is not None:
                accounts = await self.control.accounts.difference()
            settings = [*self.inForce.difference(read)]
        except (ConfigError, InvalidDescription) as error:
            problems.append(f"Accounts and settings would stay as they are: {error}")
        certificates = []
        for port in self.ports:
            if port.certificates is None:
                continue
            found = await self.runInThread(port.certificates.read, False)
            if found is not None and found.options is None:
                problems.append(
                    f"The certificates of {port.name} would stay as they are: {found.reason}"
                )
            elif found is not None:
                end = _milliseconds(found.validUntil)
                certificates.append(CertificateChange(port=port.name, validUntil=end))
        return ReloadDifference(
            settings=settings, accounts=accounts, certificates=certificates, problems=problems
        )


def _isCancelled(failure: Failure) -> bool:
    """Whether something, or the first of several things, was cancelled."""
    error = failure.value
    return isinstance(error, CancelledError) or (
        isinstance(error, FirstError) and _isCancelled(error.subFailure)
    )


@frozen(kw_only=True)
class RunningFeatures:
    """
    All features, and the services that they share.

    @ivar factories: what makes the protocols of connections, by the name of the port.
    @ivar running: the features, in the order in which they start.
    @ivar calls: the calls of the interface.
    @ivar readFiles: reads settings and files again, and gives what applies them.
    @ivar release: lets go of the services, at the very end.
    """

    factories: Mapping[str, Any]
    running: Sequence[RunningFeature]
    calls: Calls
    subscriptions: Subscriptions
    metadata: MetadataStore
    access: Access
    operatorFile: OperatorFile
    readFiles: ReadFiles
    audit: AuditTrail | None = None
    release: Callable[[], None] = field(default=lambda: None)

    @asDeferred
    async def start(self) -> None:
        """
        Start one after the other. Where one cannot start, all are drained and let go.
        """
        try:
            await self.access.start()
            for each in self.running:
                await each.start()
            await self.operatorFile.start()
        except BaseException:
            await self._drain()
            self.stop()
            raise

    def drain(self) -> Deferred[None]:
        """
        Drain all, the while the ledgers still run. What subscriptions keep is on disk then, also
        where this is cancelled because clients take too long.
        """
        return Deferred.fromCoroutine(self._drain())

    async def _drain(self) -> None:
        try:
            drains = [each.drain for each in self.running]
            draining = [maybeDeferred(drain) for drain in (*drains, self.operatorFile.drain)]
            found = await DeferredList(draining, consumeErrors=True)
            failures = [failure for isGood, failure in found if not isGood]
            others = [each for each in failures if not _isCancelled(each)]
            for failure in others:
                _log.failure("A feature did not close in order", failure)
            if len(others) < len(failures):
                _log.warn("Some clients did not take their answers in time")
        finally:
            await self.subscriptions.stop()
            if self.audit is not None:
                self.audit.stop()
            await self.metadata.stop()

    @asDeferred
    async def reload(self) -> None:
        """
        Read settings, accounts, grants, limits and secrets again.

        @raise ConfigError, InvalidDescription: one of the files cannot be used. Nothing has
            changed.
        """
        isGood = False
        try:
            _, useFiles = self.readFiles()
            await self.access.reload()
            useFiles()
            isGood = True
        finally:
            if self.audit is not None:
                self.audit.reloaded(isGood)

    def stop(self) -> None:
        """Let go of everything, after the ledgers have stopped."""
        self.calls.broker.stop()
        for each in self.running:
            each.release()
        self.release()


@frozen(kw_only=True)
class Start:
    """
    The arguments of a daemon's start.

    @ivar inForce: tells operators of the configuration.
    @ivar features: the features that it makes.
    @ivar arguments: the options that the daemon was given.
    """

    config: Config
    plan: Plan
    dependencies: Dependencies
    inForce: ConfigurationInForce
    readSettings: ReadSettings
    features: Sequence[Feature] = FEATURES
    arguments: Sequence[str] = ()

    def makeFeatures(
        self, ledgers: Mapping[str, ILedger], address: str, reload: Reload
    ) -> RunningFeatures:
        """
        All features over started ledgers.

        @param address: where HTTP is served, C{host:port}; empty where it is not.
        @param reload: called by operators.
        @raise StartError: the metadata store cannot be opened, spans cannot be made, or a feature
            cannot do with the ledgers.
        """
        config, dependencies = self.config, self.dependencies
        url = operatorUrl(address, config.basePath, self._httpEndpoint)
        operatorFile = OperatorFile(config.dataDir, url, dependencies.entropy)
        base = _Base.make(self, ledgers, address)
        services = base.services(operatorFile.token)
        running = []
        answers: dict[Any, Any] = {}
        for feature in self.features:
            try:
                made = feature.make(self.plan.read[feature.name], services)
            except ConfigError as error:
                raise StartError(str(error)) from None
            services.metrics.add(feature.name, made.metrics)
            services.alarms.add(feature.name, made.alarms)
            services.history.connected.append(made.connected)
            answers.update(made.answers)
            running.append(made)
        services.metrics.add("certificates", partial(_certificateMetrics, self.plan))
        services.alarms.add(
            "certificates", partial(certificateAlarms, self.plan.ports, dependencies.now)
        )

        def connections() -> Iterator[ClientConnection]:
            return (found for each in running for found in each.connections())

        calls = base.calls(services, answers, reload, connections, self._preview(base, running))
        services.alarms.add("health", lambda: calls.admin.getHealth().addCallback(healthAlarms))
        routes = [route for each in running for route in each.routes(calls)]
        factories: dict[str, Any] = {}
        for each in running:
            factories.update(each.factories(calls, routes))
        return RunningFeatures(
            factories=factories,
            running=running,
            calls=calls,
            subscriptions=services.subscriptions,
            metadata=services.metadata,
            access=services.access,
            operatorFile=operatorFile,
            readFiles=partial(self._readFiles, services.access, running),
            audit=base.audit,
            release=base.release,
        )

    def _readFiles(
        self, access: Access, running: Sequence[RunningFeature]
    ) -> tuple[Config, Callable[[], None]]:
        """See L{ReadFiles}."""
        read, useSettings = self.readSettings()
        anonymous = self.plan.access.reread(read.anonymous)
        uses = [each.reload() for each in running]

        def useFiles() -> None:
            useSettings()
            if not access.isOpen:
                access.changeAnonymous(anonymous)
            for use in uses:
                use()

        return read, useFiles

    def _preview(self, base: _Base, running: Sequence[RunningFeature]) -> ReloadPreview:
        return ReloadPreview(
            readFiles=partial(self._readFiles, base.control.access, running),
            control=base.control,
            inForce=self.inForce,
            ports=self.plan.ports,
            runInThread=base.thread.run,
        )

    @property
    def _httpEndpoint(self) -> str:
        return next((port.text for port in self.plan.ports if port.name == HTTP), "")


@frozen(kw_only=True)
class _Base:
    """The objects made before the features, and released after them."""

    start: Start
    ledgers: Mapping[str, ILedger]
    address: str
    tracer: Any
    thread: Any
    store: MetadataFile
    metadata: MetadataStore
    control: AccessControl
    audit: AuditTrail | None

    @classmethod
    def make(cls, start: Start, ledgers: Mapping[str, ILedger], address: str) -> _Base:
        """
        Open the metadata store, and make the access control.

        @raise StartError: that cannot be done.
        """
        config, dependencies = start.config, start.dependencies
        reactor, now = dependencies.reactor, dependencies.now
        tracer = None
        if config.traces:
            tracer = makeTracer(config.traces, config.advertise or address, reactor)
        thread = dependencies.makeThread(reactor, "notes")
        try:
            store = MetadataFile.open(config.dataDir / METADATA)
            metadata = MetadataStore(store, reactor, thread.run)
        except StorageError as error:
            thread.stop()
            raise StartError(metadataRefusal(error)) from error
        if store.loss:
            _log.error("{loss}", loss=store.loss)
        bindToChains(metadata, {group: each.chain for group, each in ledgers.items()}, ENTRY_GROUPS)
        plan, audit = start.plan.access, None
        if config.auditTopic and plan.hasAccounts:
            audit = AuditTrail(config.auditTopic, ledgers, reactor, now)
        return cls(
            start=start,
            ledgers=ledgers,
            address=address,
            tracer=tracer,
            thread=thread,
            store=store,
            metadata=metadata,
            control=plan.make(
                *(reactor, now, dependencies.entropy, dependencies.makeThread),
                *(dependencies.budgets.work, audit),
            ),
            audit=audit,
        )

    def _reservedTopics(self) -> Iterator[str]:
        """The topics that only the broker itself publishes to."""
        config = self.start.config
        yield LOG_TOPIC
        if self.audit is not None:
            yield config.auditTopic
        for feature in self.start.features:
            yield from feature.topics(config.of(feature.settings))

    def services(self, operatorToken: str) -> Services:
        """Make the services that all features share."""
        config, dependencies = self.start.config, self.start.dependencies
        reactor, budgets = dependencies.reactor, dependencies.budgets
        kept = config.of(SubscriptionOptions)
        positions = KeptPositions(self.metadata, budgets.subscriptions)
        subscriptions = Subscriptions(
            self.ledgers,
            reactor,
            dependencies.now,
            dependencies.entropy,
            positions,
            maxOwnPositions=kept.maxPositions,
            positionExpiry=kept.positionExpiry,
            budgets=budgets,
        )
        conditions = [each for feature in self.start.features for each in feature.conditions]
        limits = Limits(
            maxContent=config.maxContent,
            chainTimeout=config.chainTimeout,
            reservedTopics=frozenset(self._reservedTopics()),
        )
        broker = Broker(
            *(self.ledgers, reactor, limits, subscriptions),
            source=config.basePath,
            tracer=self.tracer,
            budgets=budgets,
        )
        return Services(
            reactor=reactor,
            now=dependencies.now,
            steady=dependencies.steady,
            entropy=dependencies.entropy,
            random=dependencies.random,
            makeThread=dependencies.makeThread,
            runInThread=self.thread.run,
            budgets=budgets,
            settingsOf=config.of,
            dataDir=config.dataDir,
            arguments=self.start.arguments,
            basePath=config.basePath,
            dialect=config.dialect,
            address=self.address,
            localPorts=[port.name for port in self.start.plan.ports if port.isLocal],
            operatorToken=operatorToken,
            version=readVersion(),
            tracer=self.tracer,
            ledgers=self.ledgers,
            broker=broker,
            subscriptions=subscriptions,
            positions=positions,
            metadata=self.metadata,
            access=self.control.access,
            metrics=Metrics(reactor, dependencies.budgets.work),
            alarms=Alarms(conditions, reactor, dependencies.now),
            history=MeasureHistory(SERIES, dependencies.now),
            checkpointLines=CheckpointLines(),
        )

    def calls(
        self,
        services: Services,
        answers: Answers,
        reload: Reload,
        connections: Callable[[], Iterator[ClientConnection]],
        preview: ReloadPreview,
    ) -> Calls:
        """All calls of the interface, with what features answer."""
        config = self.start.config
        return Calls(
            services.broker,
            answers,
            nodeAddress=config.advertise or self.address,
            version=services.version,
            hasFaults=config.faults,
            access=services.access,
            audit=self.audit,
            reload=reload,
            preview=preview.difference,
            configuration=self.start.inForce.describe,
            metadataLoss=lambda: self.store.loss,
            measureDisk=DiskMeter(config.dataDir, self.thread.run, services.reactor).measure,
            connections=connections,
            alarms=services.alarms,
            history=services.history,
        )

    def release(self) -> None:
        """Let go of everything."""
        if self.tracer is not None:
            self.tracer.stop()
        self.control.stop()
        self.thread.stop()


def _certificateMetrics(plan: Plan) -> Iterator[Metric]:
    ends = [
        ((port.name,), port.certificates.validUntil)
        for port in plan.ports
        if port.certificates is not None
    ]
    name = "svcbroker_certificate_expiry_timestamp_seconds"
    yield gauge(name, "When the certificate of a port expires.", ["port"], ends)
