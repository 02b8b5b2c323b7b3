"""
The transparency service as a feature of the daemon: settings, routes, metrics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from ...archive import TREES_NAME
from ...broker import DEFAULT_GROUP, Calls
from ...broker.features import Feature, RunningFeature, Services, carrierMetrics
from ...broker.retention import RetentionOptions
from ...interfaces import IProvableLedger
from ...model import filterMatches
from ...net.bounds import Bound, Sizing, within
from ...net.deferreds import asDeferred
from ...net.metrics import Metric, counter, gauge
from ...net.settings import ConfigError, Text, anyText, declareSetting, topicName

if TYPE_CHECKING:
    from ...proofs.scitt import RegistrationPolicy
    from .scittservice import ScittService

_PATH: Final = re.compile(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*")
_TITLES: Final = ("Bad Signature Algorithm", "Malformed request", "Payload Missing", "Rejected")


def scittTopic(text: str) -> str:
    """The topic of the service, which is in paths; empty for none."""
    if text and _PATH.fullmatch(topicName(text)) is None:
        raise ValueError(f"is not of letters, digits and ._~-/ alone, as in a path: {text!r}")
    return text


def serviceName(text: str) -> str:
    """The name of the service in its receipts; empty for one by the chain."""
    if len(text) > 1024 or not text.isprintable():
        raise ValueError("has more than 1024 characters, or some that cannot be printed")
    return text


@frozen(kw_only=True)
class ScittOptions:
    """The settings of the transparency service."""

    topic: str = declareSetting(
        "scitt",
        Text(metavar="TOPIC", normalise=scittTopic),
        "",
        "be a transparency service of SCITT, whose statements are the events of this topic; needs "
        "scitt-policy",
        shown="none",
    )
    policy: str = declareSetting(
        "scitt-policy",
        Text(metavar="FILE", normalise=anyText),
        "",
        "the issuers whose statements are registered, and their keys",
        shown="none",
    )
    name: str = declareSetting(
        "scitt-name",
        Text(metavar="NAME", normalise=serviceName),
        "",
        "the name of the transparency service in its receipts, such as https://broker.example",
        shown="by the chain's id and the topic",
    )


@frozen(kw_only=True)
class ScittSettings:
    """
    The settings, with the files that they name.

    @ivar policy: the policy; C{None} where there is no service.
    """

    options: ScittOptions
    policy: RegistrationPolicy | None = None


def readScitt(options: ScittOptions) -> ScittSettings:
    """
    Read the policy.

    @raise ConfigError: a file cannot be used, or a setting is missing.
    """
    if not options.topic:
        if options.policy:
            raise ConfigError("scitt-policy: there is no scitt, which names the topic")
        return ScittSettings(options=options)
    if not options.policy:
        raise ConfigError("scitt: needs scitt-policy, the file with the issuers")
    try:
        from .policyfile import readPolicy
    except ImportError:
        raise ConfigError("scitt: needs cbor2: pip install 'svcbroker[scitt]'") from None
    return ScittSettings(options=options, policy=readPolicy("scitt-policy", options.policy))


def scittTopics(options: ScittOptions) -> Iterable[str]:
    """See L{Feature}."""
    # The second one has the records that certify keys.
    return (options.topic, "$svc/scitt") if options.topic else ()


class ScittFeature(RunningFeature):
    """
    The service, where there is one.
    """

    def __init__(self, settings: ScittSettings, services: Services) -> None:
        self._settings = settings
        self._services = services
        self._service: ScittService | None = None
        self._thread: Any = None
        if settings.policy is not None:
            self._thread = services.makeThread(services.reactor, "scitt")
            self._service = _makeService(settings, services, self._thread)

    def routes(self, calls: Calls) -> Sequence[Any]:
        """See L{RunningFeature}."""
        if self._service is None:
            return ()
        from .routes import scittRoutes

        path = f"{self._services.basePath}/scitt/{self._service.topic}"
        return [*scittRoutes(path, self._service), *scittRoutes("", self._service)]

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        service = self._service
        if service is not None:
            yield from carrierMetrics("scitt", self._services)
        yield gauge(
            "svcbroker_scitt_entries",
            "The number of entries in the tree of the transparency service.",
            ["topic"],
            [] if service is None else [((service.topic,), service.tree.state.size)],
        )
        yield counter(
            "svcbroker_scitt_refused",
            "Statements that the transparency service has refused, by the title of the refusal.",
            ["topic", "title"],
            []
            if service is None
            else [((service.topic, each), service.refused[each]) for each in _TITLES],
        )

    @asDeferred
    async def start(self) -> None:
        """Begin to follow the log. Nothing waits for it."""
        if self._service is not None:
            await self._service.start()

    @asDeferred
    async def drain(self) -> None:
        """End. What was published stays published."""
        if self._service is not None:
            await self._service.stop()

    def release(self) -> None:
        """See L{RunningFeature}."""
        if self._thread is not None:
            self._thread.stop()

    def reload(self) -> Callable[[], None]:
        """See L{RunningFeature}."""
        service = self._service
        if service is None:
            return lambda: None
        policy = readScitt(self._settings.options).policy
        assert policy is not None
        return lambda: service.use(policy)


def _makeService(settings: ScittSettings, services: Services, thread: Any) -> ScittService:
    """
    The service in the first group.

    @raise ConfigError: its ledger certifies no keys, or statements would be erased.
    """
    from ...storage import TreeFile
    from .scittservice import ScittService
    from .statementtree import StatementTree

    ledgers, options = services.ledgers, settings.options
    group = DEFAULT_GROUP if DEFAULT_GROUP in ledgers else next(iter(ledgers))
    ledger: IProvableLedger | None = IProvableLedger(ledgers[group], None)
    if ledger is None:
        raise ConfigError(f"scitt: the ledger of group {group} has no chain that certifies keys")
    for rule in services.settingsOf(RetentionOptions).rules:
        if filterMatches(rule.pattern, options.topic):
            raise ConfigError(f"scitt: retain {rule} would erase the statements")
    assert settings.policy is not None
    name = f"{sha256(options.topic.encode()).hexdigest()[:16]}.sqlite"
    path = services.dataDir / group / TREES_NAME / name

    def makeFile() -> TreeFile:
        return TreeFile(path, ledger.chain + options.topic.encode())

    tree = StatementTree(
        *(ledger, options.topic, makeFile, services.metadata, services.reactor),
        *(thread.run, thread.runBriefly, services.budgets.work),
    )
    service = ScittService(
        *(options.topic, options.name, settings.policy, ledger, tree),
        *(services.broker, services.reactor, services.now),
    )
    services.checkpointLines.add(group, service.checkpointLines)
    return service


def scittGroup(kind: str, name: str, value: bytes) -> str:
    """The group of an entry of the metadata store."""
    return name.partition("/")[0]


def scittBounds(options: ScittOptions, sizing: Sizing) -> Iterator[Bound]:
    """The memory that statements take: the tree itself is in its file."""
    room = "svcbroker.carriers.scitt"
    yield Bound(
        name="statements of SCITT",
        bytes=(8 * 1024 * 1024 + sizing.maxContent + 11_000 * 250) if options.topic else 0,
        how="statements on their way into the tree, 10,000 whose blocks are late, 1,000 whose "
        "signatures were verified, 1,000 keys, 100 roots",
        holders=[
            *within(f"{room}.statementtree.StatementTree", "_leaves", "documents", "_waiting"),
            *within(f"{room}.scittservice.ScittService", "_registering", "_open", "refused"),
            "svcbroker.proofs.scitt._registration.Registration._verified",
        ],
    )


FEATURE: Final = Feature(
    name="scitt",
    settings=ScittOptions,
    read=readScitt,
    make=ScittFeature,
    entries={"scitt": scittGroup},
    topics=scittTopics,
    bounds=scittBounds,
)
