"""
The transparency logs as a feature of the daemon: the logs of the groups, the witnesses that cosign
them (c2sp.org/tlog-witness), settings and metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.web.http_headers import Headers

from ...chain import Malformed
from ...files import readFile
from ...interfaces import IProvableLedger
from ...net.alarms import Alarm, Condition
from ...net.deferreds import asDeferred
from ...net.findings import Finding, Level, span, warning
from ...net.metrics import Metric, counter, gauge
from ...net.settings import ConfigError, Seconds, Text, anyText, declareSetting
from ...proofs.tlog import MAX_NOTE_SIZE, Policy, checkName
from .._proving import Proving
from ..features import Feature, RunningFeature, Services
from ._cosigning import WitnessFailed, Witnessing, WitnessingRule, checkWitnesses
from ._logservice import Transparency
from ._transparencylog import LOG, CosignedCheckpoints, TransparencyLog, logGroup

if TYPE_CHECKING:
    from ...net.http import HttpClient

TIMEOUT: Final = 30.0
"""The time that a witness may take for an answer, in seconds."""
CONNECT_TIMEOUT: Final = 10.0
"""The time that connecting to a witness may take, in seconds."""

_HEADERS: Final = Headers(
    {b"Content-Type": [b"text/plain; charset=utf-8"], b"User-Agent": [b"svcbroker"]}
)


class WitnessClient:
    """
    Makes the requests to witnesses. Any address may be asked: the operator names them.
    """

    def __init__(self, client: HttpClient) -> None:
        self._client = client

    @asDeferred
    async def addCheckpoint(self, url: str, body: bytes) -> tuple[int, bytes]:
        """See L{IWitnessClient<svcbroker.broker.transparency._cosigning.IWitnessClient>}."""
        # Only for this: it imports treq, which brokers without witnesses do not need.
        from ...net.http import HttpError, readBody

        try:
            answer = await self._client.request(
                *("POST", f"{url.rstrip('/')}/add-checkpoint"),
                headers=_HEADERS,
                data=body,
                timeout=TIMEOUT,
                maxBody=MAX_NOTE_SIZE,
            )
            return answer.code, await readBody(answer)
        except HttpError as error:
            raise WitnessFailed(str(error)) from None

    def close(self) -> Deferred[Any]:
        """Close the connections that are kept."""
        return self._client.close()


def makeWitnessClient(reactor: Any) -> WitnessClient:
    """A client over the network."""
    from ...net.http import makeClient

    # A checkpoint that a witness has already seen changes nothing.
    client = makeClient(
        reactor,
        maxBody=MAX_NOTE_SIZE,
        keep=1,
        isRepeatable=True,
        connectTimeout=CONNECT_TIMEOUT,
    )
    return WitnessClient(client)


WITNESS_REFUSES: Final = Condition(
    name="witness-refuses",
    level=Level.PROBLEM,
    title="A witness refuses the log: a fork",
    meaning="The chain is not the one that the witness has seen. It was restored from an older "
    "backup, or changed.",
    remedy="Keep the directory as it is, and compare the checkpoints: see docs/transparency.",
    page="checkpoints",
)
_SILENT: Final = "{witness}: nothing for {time}"
_FAILING: Final = "{witness}: nothing for {time} ({error})"
WITNESS_BEHIND: Final = Condition(
    name="witness-behind",
    level=Level.WARNING,
    title="A witness is behind",
    meaning="It has not cosigned the latest events. Their proofs lack its signature.",
    remedy="Ask who runs it, or whether it knows the key of the log. The page of checkpoints tells "
    "its last error.",
    page="checkpoints",
    phrases=(_SILENT, _FAILING),
)

BEHIND: Final = 3600.0
"""Seconds without a cosignature of a log that has grown after which a witness is behind."""

_LABELS = ["group", "witness"]


def logOrigin(text: str) -> str:
    """The beginning of the names of transparency logs, without a slash at its end."""
    if text:
        try:
            checkName(text)
        except Malformed as error:
            raise ValueError(str(error)) from None
        if "://" in text or len(text) > 256:
            raise ValueError(f"is not a name such as broker.example/svcbroker: {text!r}")
    return text.rstrip("/")


@frozen(kw_only=True)
class TransparencyOptions:
    """The settings of the transparency logs."""

    origin: str = declareSetting(
        "log-origin",
        Text(metavar="NAME", normalise=logOrigin),
        "",
        "broker.example/svcbroker names the transparency logs broker.example/svcbroker/log/GROUP",
        shown="svcbroker/ and the chain's id",
    )
    policy: str = declareSetting(
        "witness-policy",
        Text(metavar="FILE", normalise=anyText),
        "",
        "the tlog-policy with the witnesses of the transparency logs, their URLs, and the quorum",
        shown="none",
    )
    interval: float = declareSetting(
        "witness-interval",
        Seconds(maximum=86400),
        60.0,
        "after how many seconds witnesses are asked again to cosign a log that has grown",
        shown="60",
    )


@frozen(kw_only=True)
class TransparencySettings:
    """
    The settings of the logs, with the files that they name.

    @ivar policy: the witnesses; C{None} for none.
    """

    origin: str = ""
    policy: Policy | None = None
    rule: WitnessingRule = WitnessingRule()


def readTransparency(options: TransparencyOptions) -> TransparencySettings:
    """
    Read the policy of the witnesses.

    @raise ConfigError: its file cannot be used.
    """
    policy, path = None, options.policy
    if path:
        try:
            policy = Policy.parse(readFile(path))
            checkWitnesses(policy)
        except OSError as error:
            raise ConfigError(f"witness-policy: cannot read {path}: {error.strerror}") from error
        except (Malformed, ValueError) as error:
            raise ConfigError(f"witness-policy: {path}: {error}") from None
    rule = WitnessingRule(interval=options.interval)
    return TransparencySettings(origin=options.origin, policy=policy, rule=rule)


def checkTransparency(settings: TransparencySettings) -> Iterator[Finding]:
    """Whether witnesses protect against two histories."""
    policy = settings.policy
    if policy is not None and policy.warning:
        yield warning(
            "configuration",
            f"witness-policy: {policy.warning}",
            "honest witnesses can cosign two histories of the log, each with a quorum",
            f"a larger number in the line of the group {policy.quorum}",
        )


class TransparencyFeature(RunningFeature):
    """
    The logs of the groups whose ledgers have a chain, and what has them cosigned.

    @ivar logs: the logs by the id of their group.
    @ivar witnessings: what has them cosigned, where there are witnesses.
    """

    _log = Logger()

    def __init__(self, settings: TransparencySettings, services: Services) -> None:
        reactor, now, random = services.reactor, services.now, services.random
        metadata, policy = services.metadata, settings.policy
        self.logs: dict[str, TransparencyLog] = {}
        self.witnessings: dict[str, Witnessing] = {}
        self._policy = policy
        self._now = now
        self._client: WitnessClient | None = None
        if policy is not None:
            self._client = makeWitnessClient(reactor)
        for group, ledger in services.ledgers.items():
            provable: IProvableLedger | None = IProvableLedger(ledger, None)
            if provable is None:
                continue
            origin = f"{settings.origin}/log/{group}" if settings.origin else ""
            cosigned = None if policy is None else CosignedCheckpoints(group, policy, metadata)
            log = TransparencyLog(
                *(provable, metadata, reactor.seconds, origin, cosigned, services.checkpointLines)
            )
            self.logs[group] = log
            if cosigned is not None and self._client is not None:
                self.witnessings[group] = Witnessing(
                    *(log, cosigned, self._client, metadata, reactor, now, random, settings.rule)
                )
        groups, timeouts = services.broker.groups, services.broker.timeouts
        serving = (groups, timeouts, Proving(groups, timeouts), self.logs, self.witnessings)
        self.answers = {Transparency: Transparency(*serving)}

    def metrics(self) -> Iterator[Metric]:
        """See L{RunningFeature}."""
        return WitnessMetrics(self.witnessings, self._now).collect()

    def alarms(self) -> Iterator[Alarm]:
        """See L{RunningFeature}."""
        return witnessAlarms(self.witnessings, self._now())

    @asDeferred
    async def start(self) -> None:
        """Begin to have the logs cosigned. Nothing waits for it."""
        if self._policy is not None and self._policy.warning:
            self._log.warn("witness-policy: {reason}", reason=self._policy.warning)
        for each in self.witnessings.values():
            await each.start()

    @asDeferred
    async def drain(self) -> None:
        """End. Requests under way are given up."""
        for each in self.witnessings.values():
            await each.stop()
        if self._client is not None:
            await self._client.close()


def witnessAlarms(witnessings: Mapping[str, Witnessing], now: float) -> Iterator[Alarm]:
    """
    The witnesses that refuse, or are behind.

    @param witnessings: what has the logs cosigned, by the id of the group.
    """
    for group, witnessing in witnessings.items():
        newest = witnessing.newest
        for each in witnessing.witnesses:
            lag = 0 if newest is None else newest.head.size - each.size
            if each.isRefusing:
                text = f"{each.party.name}: {each.lastError}"
                yield Alarm(condition=WITNESS_REFUSES, text=text, group=group)
            elif lag > 0 and each.time and now - each.time > BEHIND:
                words = _FAILING if each.lastError else _SILENT
                time = span(now - each.time)
                text = words.format(witness=each.party.name, time=time, error=each.lastError)
                yield Alarm(condition=WITNESS_BEHIND, text=text, group=group)


@frozen
class WitnessMetrics:
    """
    The metrics of the witnesses of each group: nothing where there are none.

    @ivar witnessings: what has the logs cosigned, by the id of the group.
    @ivar now: the wall clock: seconds since the epoch.
    """

    witnessings: Mapping[str, Witnessing]
    now: Callable[[], float]

    def collect(self) -> Iterator[Metric]:
        """The families. See L{Source<svcbroker.net.metrics.Source>}."""
        now = self.now()
        sizes, blocks, seconds, refusing, refusals, failures = [], [], [], [], [], []
        cosigned = []
        for group, witnessing in self.witnessings.items():
            newest, served = witnessing.newest, witnessing.cosigned.newest
            cosigned.append(((group,), 0 if served is None else served.head.size))
            for each in witnessing.witnesses:
                labels = (group, each.party.name)
                lag = 0 if newest is None else max(0, newest.head.size - each.size)
                sizes.append((labels, each.size))
                blocks.append((labels, lag))
                seconds.append((labels, max(0.0, now - each.time) if lag and each.time else 0.0))
                refusing.append((labels, each.isRefusing))
                refusals.append((labels, each.refusals))
                failures.append((labels, each.failures))
        yield gauge(
            "svcbroker_log_cosigned_size",
            "The size of the newest checkpoint that a quorum of witnesses has cosigned.",
            ["group"],
            cosigned,
        )
        yield gauge(
            "svcbroker_witness_size",
            "The size of the log that the witness has cosigned last.",
            _LABELS,
            sizes,
        )
        yield gauge(
            "svcbroker_witness_lag_blocks",
            "How many blocks of the newest checkpoint the witness has not cosigned.",
            _LABELS,
            blocks,
        )
        yield gauge(
            "svcbroker_witness_lag_seconds",
            "How long ago the witness has cosigned, while it is behind; else 0.",
            _LABELS,
            seconds,
        )
        yield gauge(
            "svcbroker_witness_refusing",
            "Whether the witness says that the log has not only grown.",
            _LABELS,
            refusing,
        )
        yield counter(
            "svcbroker_witness_refusals",
            "How often the witness has said that the log has not only grown.",
            _LABELS,
            refusals,
        )
        yield gauge(
            "svcbroker_witness_failures",
            "How often the witness has failed since it has cosigned last.",
            _LABELS,
            failures,
        )


FEATURE: Final = Feature(
    name="transparency",
    settings=TransparencyOptions,
    read=readTransparency,
    make=TransparencyFeature,
    entries={LOG: logGroup},
    checks=checkTransparency,
    conditions=(WITNESS_REFUSES, WITNESS_BEHIND),
)
