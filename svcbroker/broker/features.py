"""
Features: what stands over the ledgers and the broker, each in a room of its own; and the calls of
the interface, which the broker and they answer.

A room gives the daemon a L{Feature}; C{svcbroker/daemon/features.py} is the one list of them. These
types live here because features of this room need them as well as those of carriers: this is the
lowest room that knows all L{Services}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from attrs import frozen
from twisted.internet.defer import Deferred, succeed
from twisted.python.reflect import namedAny
from zope.interface import implementer

from ..access import LOGINS, Access, AuditTrail
from ..interfaces import IFeaturePlugin, ILedger
from ..model import ConfigurationReport, Disk, InterfaceType, ReloadDifference
from ..net.alarms import Alarm, Alarms, Condition
from ..net.bounds import Bound, Sizing
from ..net.budgets import Budgets
from ..net.findings import Finding
from ..net.history import MeasureHistory
from ..net.metrics import Metric, Metrics, Tracer, counter, gauge
from ..net.settings import NoSettings
from ..version import VersionRecord
from ._administration import AccountQueries, Administration
from ._broker import Broker, TopicAuthors
from ._collaborators import IJobs, IRetention, IWebhooks
from ._eventerasure import EventErasing, EventHolding
from ._metadatastore import GroupOf, MetadataStore
from ._operator import ClientConnection, Operator
from ._proving import Proving
from .find import EventSearch
from .subscriptions import KeptPositions, Subscriptions
from .transparency import CheckpointLines, Transparency

Answers = Mapping[Any, Any]
"""
The objects of features that answer calls, by interface or class: L{IWebhooks}, L{Transparency}, and
by L{InterfaceType} an L{IDurableSubscriptions<svcbroker.broker.IDurableSubscriptions>}.
"""


class Calls:
    """
    The objects that answer the calls of the interface. Made when all features are made.

    @ivar broker: the use cases of clients.
    @ivar answers: what features answer.
    @ivar accounts: what tells of accounts and their grants.
    @ivar admin: what operators may ask.
    @ivar operator: what operators may change.
    @ivar erasing: what erases events, for operators.
    @ivar holding: what keeps events from being erased.
    @ivar proving: what proves something.
    @ivar search: what finds events by the index.
    @ivar authors: what changes the authors of topics.
    @ivar transparency: what serves the transparency logs.
    @ivar webhooks: who sends events to URLs.
    @ivar audit: records operator calls; C{None} where nothing is recorded.
    """

    def __init__(
        self,
        broker: Broker,
        answers: Answers,
        *,
        nodeAddress: str,
        version: VersionRecord,
        hasFaults: bool = False,
        access: Access | None = None,
        audit: AuditTrail | None = None,
        reload: Callable[[], Deferred[Sequence[str]]] = lambda: succeed(()),
        preview: Callable[[], Deferred[ReloadDifference]] | None = None,
        configuration: Callable[[], ConfigurationReport] | None = None,
        metadataLoss: Callable[[], str] = lambda: "",
        measureDisk: Callable[[], Deferred[Disk | None]] = lambda: succeed(None),
        connections: Callable[[], Iterable[ClientConnection]] = tuple,
        alarms: Alarms | None = None,
        history: MeasureHistory | None = None,
    ) -> None:
        """
        @param nodeAddress: what this node is called, C{host:port}.
        @param version: what C{getVersion} tells.
        @param hasFaults: whether operators may make faults.
        @param access: knows the accounts; C{None} where there are none.
        @param audit: records the operator calls.
        @param reload: reads accounts, secrets and certificates again; gives a line for each file
            that cannot be used.
        @param preview: tells what that would change; C{None} where the broker is not configured by
            settings.
        @param configuration: tells all settings that are in force; C{None} where the broker is not
            configured by settings.
        @param metadataLoss: tells what the metadata store has lost, in one line.
        @param measureDisk: measures the disk of the data directory.
        @param connections: all connections of clients.
        @param alarms: what is wrong; C{None} where nothing looks.
        @param history: what was measured; C{None} where nothing is.
        """
        groups, timeouts, reserved = broker.groups, broker.timeouts, broker.limits.reservedTopics
        self.broker = broker
        self.answers = answers
        self.audit = audit
        self.webhooks: IWebhooks = answers[IWebhooks]
        self.admin = Administration(
            groups,
            timeouts,
            version=version,
            nodeAddress=nodeAddress,
            subscriptions=broker.subscriptions,
            listTopics=broker.list,
            work=broker.budgets.work,
            metadataLoss=metadataLoss,
            measureDisk=measureDisk,
            alarms=alarms,
            history=history,
        )
        self.accounts = AccountQueries(groups, access, reserved)
        self.operator = Operator(
            groups,
            timeouts,
            hasFaults=hasFaults,
            durable={each: answers[each] for each in InterfaceType if each in answers},
            reload=reload,
            preview=preview,
            configuration=configuration,
            connections=connections,
            jobs=answers.get(IJobs),
            retention=answers.get(IRetention),
            work=broker.budgets.work,
        )
        self.erasing = EventErasing(
            groups, timeouts, broker.budgets.work, broker.subscriptions, reserved
        )
        self.holding = EventHolding(groups, timeouts, broker.budgets.work)
        self.proving = Proving(groups, timeouts)
        self.search = answers.get(EventSearch) or EventSearch(groups, {})
        self.authors = TopicAuthors(groups, timeouts)
        self.transparency = answers.get(Transparency) or Transparency(
            *(groups, timeouts, self.proving, MappingProxyType({}), MappingProxyType({}))
        )


S = TypeVar("S")

NO_ANSWERS: Final[Answers] = {}


@frozen(kw_only=True)
class Services:
    """
    The objects that all features share.

    @ivar reactor: the reactor.
    @ivar now: the wall clock: seconds since the epoch.
    @ivar steady: a clock that nobody sets, in seconds: the reactor's is the wall clock.
    @ivar entropy: C{entropy(n)} gives C{n} unguessable bytes.
    @ivar random: a number from 0 to 1, for delays; it may be guessed.
    @ivar makeThread: makes a thread for blocking work, given the reactor, a name, and where one
        does not do, how many threads. It has C{run} and C{stop}; see
        L{LedgerThread<svcbroker.daemon.dependencies.LedgerThread>}.
    @ivar runInThread: runs blocking disk work in the thread of the metadata store.
    @ivar budgets: what all connections share.
    @ivar settingsOf: gives the settings that a class declares, also those of another feature.
    @ivar dataDir: the data directory.
    @ivar arguments: the options that the daemon was given, as on a command line.
    @ivar basePath: the context path of HTTP.
    @ivar dialect: the name of the dialect that is served beside the interface; empty for none.
    @ivar address: where HTTP is served, C{host:port}; empty where it is not.
    @ivar localPorts: the names of the ports that only programs of this machine reach.
    @ivar operatorToken: what operators of this machine have to show.
    @ivar version: which svcbroker this is.
    @ivar tracer: is told of what is done; C{None} for no spans.
    @ivar ledgers: the started ledgers, by the ids of their groups.
    @ivar broker: the use cases of clients.
    @ivar subscriptions: the live subscriptions.
    @ivar positions: those of durable subscriptions.
    @ivar metadata: what is kept through restarts.
    @ivar access: who may use the broker.
    @ivar metrics: collects the metrics of all features.
    @ivar alarms: asks all features for what is wrong.
    @ivar history: what was measured in the last day.
    @ivar checkpointLines: what the transparency logs sign beside their trees.
    """

    reactor: Any
    now: Callable[[], float]
    steady: Callable[[], float]
    entropy: Callable[[int], bytes]
    random: Callable[[], float]
    makeThread: Callable[..., Any]
    runInThread: Callable[..., Deferred[Any]]
    budgets: Budgets
    settingsOf: Callable[[type[S]], S]
    dataDir: Path
    arguments: Sequence[str]
    basePath: str
    dialect: str
    address: str
    localPorts: Sequence[str]
    operatorToken: str
    version: VersionRecord
    tracer: Tracer | None
    ledgers: Mapping[str, ILedger]
    broker: Broker
    subscriptions: Subscriptions
    positions: KeptPositions
    metadata: MetadataStore
    access: Access
    metrics: Metrics
    alarms: Alarms
    history: MeasureHistory
    checkpointLines: CheckpointLines


class RunningFeature:
    """
    A feature of a running daemon. What is here does nothing: a feature has what it needs.

    The daemon makes all features in their order, then asks for L{routes} and L{factories}, starts
    them one after the other, and drains all at once. The ledgers run from before a feature is made
    until it is drained.
    """

    answers: Answers = NO_ANSWERS

    def routes(self, calls: Calls) -> Iterable[Any]:
        """
        The routes of C{svcbroker.carriers.http} that it serves on HTTP's port. Called once.

        @param calls: all calls of the interface.
        """
        return ()

    def factories(self, calls: Calls, routes: Sequence[Any]) -> Mapping[str, Any]:
        """
        The factories of protocols for its own ports, by the names of the ports' settings. Called
        once, after L{routes}.

        @param routes: the routes of all features.
        """
        return {}

    def connections(self) -> Iterable[ClientConnection]:
        """
        The connections of clients that it has. Several turns of the reactor may pass until the last
        one is taken, in which clients come and go.
        """
        return ()

    def connected(self) -> int:
        """The number of its L{connections}."""
        return 0

    def metrics(self) -> Iterable[Metric] | Deferred[Iterable[Metric]]:
        """The metrics that it has counted. See L{Source<svcbroker.net.metrics.Source>}."""
        return ()

    def alarms(self) -> Iterable[Alarm] | Deferred[Iterable[Alarm]]:
        """
        The conditions of its L{Feature} that hold now. See L{Source<svcbroker.net.alarms.Source>}.
        """
        return ()

    def start(self) -> Deferred[Any]:
        """
        Begin, before clients are accepted. Called once. A failure fails the daemon's start.
        """
        return succeed(None)

    def drain(self) -> Deferred[Any]:
        """
        Answer what was accepted, then close; fires when that is done. Cancelling its Deferred has
        it close at once. Called once, also where L{start} was not.
        """
        return succeed(None)

    def release(self) -> None:
        """Let go of threads and clocks. Called once, after the ledgers have stopped."""

    def reload(self) -> Callable[[], None]:
        """
        Read the files again that the settings name, and check everything.

        @return: applies what was read, and does not fail. It is not called where another feature
            could not read its own.
        @raise svcbroker.net.settings.ConfigError: a file cannot be used. Nothing has changed.
        """
        return lambda: None


Records = Mapping[str, Mapping[str, bytes]]
"""The metadata store: values by their names, by their kinds."""


@frozen(kw_only=True)
class StoredLog:
    """
    The log of a group, as it is stored.

    @ivar height: the height of its last block.
    @ivar timeOf: the time of a block, in seconds since the epoch.
    """

    height: int
    timeOf: Callable[[int], float]


@frozen(kw_only=True)
class StoredData:
    """
    A data directory, which is read as it is, with a daemon beside it or without one.

    @ivar now: the wall clock: seconds since the epoch.
    @ivar records: the metadata store, in which all records can be read.
    @ivar logs: those of the groups that are served, by their ids.
    @ivar owners: what all features say of the positions of durable subscriptions, see
        L{Feature.owners}.
    """

    dataDir: str
    now: float
    records: Mapping[str, Mapping[str, bytes]] = {}
    logs: Mapping[str, StoredLog] = {}
    owners: Mapping[str, tuple[InterfaceType, str] | None] = {}


def _nothing(*given: Any) -> tuple[()]:
    return ()


@frozen(kw_only=True)
class Feature:
    """
    A feature that a room gives to the daemon.

    @ivar name: its name, in the log and where its metrics fail.
    @ivar make: makes it, given what C{read} has given; it raises
        L{ConfigError<svcbroker.net.settings.ConfigError>} where it cannot do with the ledgers.
    @ivar settings: a frozen class that declares its settings by
        L{declareSetting<svcbroker.net.settings.declareSetting>}.
    @ivar read: reads the files that the settings name, before the process gives up its privileges;
        it raises L{ConfigError<svcbroker.net.settings.ConfigError>} where one cannot be used.
    @ivar entries: by the first word of a kind of its records in the metadata store, what finds the
        group of one.
    @ivar secrets: the settings that name files with secrets.
    @ivar checks: what C{svcbroker doctor} says about what C{read} has given: what would be better
        otherwise.
    @ivar owners: by the ids of the durable subscriptions that it makes for its own clients, the
        interface and the name by which operators know each, given the metadata store; C{None} for
        one that it checks itself.
    @ivar topics: given its settings, the topics that only it publishes to: clients may neither
        publish to them nor open or close them, and their events are not erased.
    @ivar conditions: all that can be wrong with it while it runs, as it tells by
        L{RunningFeature.alarms}.
    @ivar dataChecks: what C{svcbroker doctor} says about its stored data, given its settings.
    @ivar bounds: given its settings, the most memory that it may take, and every attribute and
        variable with a container that grows with what clients send.
    """

    name: str
    make: Callable[[Any, Services], RunningFeature]
    settings: type = NoSettings
    read: Callable[[Any], Any] = lambda settings: settings
    entries: Mapping[str, GroupOf] = {}
    secrets: Sequence[str] = ()
    checks: Callable[[Any], Iterable[Finding]] = _nothing
    owners: Callable[[Records], Mapping[str, tuple[InterfaceType, str] | None]] = lambda records: {}
    dataChecks: Callable[[Any, StoredData], Iterable[Finding]] = _nothing
    bounds: Callable[[Any, Sizing], Iterable[Bound]] = _nothing
    topics: Callable[[Any], Iterable[str]] = _nothing
    conditions: Sequence[Condition] = ()


@implementer(IFeaturePlugin)
@frozen
class FeaturePlugin:
    """
    A feature of another distribution, in a file of C{twisted/plugins}.

    @ivar feature: the full name of its L{Feature}, C{package.module.NAME}. It is imported by the
        daemon, not by every program that lists plugins.
    """

    feature: str

    def load(self) -> Feature:
        """See L{IFeaturePlugin}."""
        found: Feature = namedAny(self.feature)
        return found


def carrierMetrics(
    carrier: str, services: Services, connections: int | None = None
) -> Iterator[Metric]:
    """
    The metrics of each carrier: publishes, and where it has any, connections and log-ins.

    @param carrier: its name: that of its L{PublishPolicy<svcbroker.broker.PublishPolicy>}.
    @param connections: how many are open; C{None} where clients do not connect to it.
    """
    yield counter(
        "svcbroker_publishes",
        "Events that clients have published, by what became of them.",
        ["carrier", "status"],
        services.broker.meter.counts(carrier),
    )
    if connections is not None:
        yield gauge(
            "svcbroker_connections",
            "Open connections of clients.",
            ["carrier"],
            [((carrier,), connections)],
        )
        logins = services.access.logins
        yield counter(
            "svcbroker_logins",
            "Log-ins that were checked, by what became of them.",
            ["carrier", "outcome"],
            [((carrier, outcome), logins[carrier, outcome]) for outcome in LOGINS],
        )


def sessionMetrics(kind: str, count: int) -> Metric:
    """The metric of the number of sessions of a kind."""
    return gauge(
        "svcbroker_sessions",
        "MQTT sessions, those of absent clients included, and log-ins of the console.",
        ["kind"],
        [((kind,), count)],
    )
