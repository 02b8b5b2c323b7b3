"""
The memory that the process may use, the bounds that are made of it, and the table of all bounds.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from twisted.logger import Logger

from ..access import LOGIN_THREADS, LoginLimits
from ..access._access import _MAX_RECENT
from ..access._audittrail import MAX_LOGINS, MAX_PENDING
from ..access._logins import MAX_REMEMBERED as MAX_REMEMBERED_LOGINS
from ..archive import MAX_PART
from ..broker.subscriptions._dispatcher import REMEMBERED_MATCHES, REMEMBERED_TOPICS
from ..broker.subscriptions._eventreading import MAX_CALLS, MAX_WAITING
from ..broker.subscriptions._follower import CACHED_BYTES
from ..broker.subscriptions._logsubscription import SUBSCRIPTION_BYTES
from ..broker.subscriptions._positions import MAX_POSITIONS
from ..broker.subscriptions.feature import SubscriptionOptions
from ..carriers.http import plain
from ..carriers.http.logins import MAX_LOGGED, MAX_SESSIONS
from ..carriers.http.replication import COPY_THREADS
from ..carriers.http.site import largestBody
from ..carriers.mqtt import MqttSettings, messages
from ..carriers.mqtt.mqttsession import SESSION_BYTES
from ..carriers.stomp import frames
from ..carriers.webhook.delivery import MAX_BATCH
from ..carriers.webhook.posting import MAX_ANSWER
from ..carriers.webhook.settings import MAX_REQUESTS
from ..chain import _authorship, _encoding
from ..interfaces import IBoundedLedgerFactory, InvalidDescription
from ..ledgers import findLedgerFactories, readDescription
from ..model import BoundRecord, _topics
from ..net.budgets import (
    ENTRY_BYTES,
    MAX_INPUT,
    MAX_NAMES,
    MAX_OUTPUT,
    MAX_RETAINED,
    MAX_SESSION_BYTES,
    MAX_STRANGERS,
    MAX_WINDOWS,
    STRANGER_BYTES,
    TLS_WEIGHT,
)
from .config import Config
from .plan import Plan
from .ports import PortPlan
from .process import expectedFiles

SHARE: Final = 8
"""One byte in so many of the memory may be in each of the budgets, by default."""

LARGEST_BODIES: Final = 4
"""So many of the largest requests there may be have room in the budget of input, whatever the
memory is."""

PROCESS_BYTES: Final = 70 * 1024 * 1024
"""The memory of the process before its first client, in bytes."""

CONNECTION_BYTES: Final = 10 * 1024
"""The memory of a connection with what it usually has under way, in bytes."""

CHECK_BYTES: Final = 64 * 1024 * 1024
"""The memory that verifying a password takes where no account has one."""

_COPIES: Final = 3
_MATCH_BYTES: Final = 8
_KIB: Final = 1024
_UNLIMITED: Final = "max"
_UNLIMITED_V1: Final = 1 << 62

_log = Logger()


def usableMemory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """
    The bytes of memory that this process may use: the least of what the machine has, what its
    control groups allow, and its own limits.

    @param proc: where the kernel's own file system is mounted.
    @param groups: where that of control groups is.
    """
    limits = [machineMemory()]
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft = resource.getrlimit(kind)[0]
        if soft != resource.RLIM_INFINITY:
            limits.append(soft)
    return min(limits + [most for most, _ in groupLimits(proc / "self", groups)])


def machineMemory() -> int:
    """The bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def groupLimits(process: Path, groups: Path) -> Iterator[tuple[int, Path]]:
    """
    The bytes of memory that the control groups of a process allow, and the folder of each: of the
    group itself and of each one above it.

    @param process: its folder in the kernel's own file system.
    @param groups: where the file system of control groups is mounted.
    """
    with suppress(OSError):
        lines = (process / "cgroup").read_text("utf-8").splitlines()
        name = next((line[3:] for line in lines if line.startswith("0::")), "/").strip("/")
        # In a container the group's own files are at the root.
        for path in (groups / name, *(groups / name).parents):
            with suppress(OSError, ValueError):
                text = (path / "memory.max").read_text("ascii").strip()
                if text != _UNLIMITED:
                    yield int(text), path
            if path == groups:
                break
    with suppress(OSError, ValueError):
        path = groups / "memory"
        most = int((path / "memory.limit_in_bytes").read_text("ascii"))
        if most < _UNLIMITED_V1:
            yield most, path


@frozen(kw_only=True)
class BudgetSizes:
    """
    The most bytes of each kind for all connections together; see L{svcbroker.net.budgets}.

    @ivar retained: the most bytes of the indexes of retained messages of all groups.
    """

    output: int
    input: int
    windows: int
    retained: int
    subscriptions: int
    names: int

    @classmethod
    def of(cls, config: Config, memory: int) -> BudgetSizes:
        """
        The budgets of a daemon.

        @param memory: what the process may use, in bytes.
        """
        share = memory // SHARE
        return cls(
            output=config.maxUnsent or min(MAX_OUTPUT, share),
            input=max(min(MAX_INPUT, share), LARGEST_BODIES * largestBody(config.maxContent)),
            windows=min(MAX_WINDOWS, share),
            retained=min(MAX_RETAINED, share),
            subscriptions=min(MAX_SESSION_BYTES, share),
            names=min(MAX_NAMES, share),
        )


@frozen(kw_only=True)
class Bound(BoundRecord):
    """
    The most memory of one kind, and what holds it. One with C{each} is not in the sum.

    @ivar holders: the attributes and variables that hold it, C{module.Class.attribute}.
    """

    holders: Sequence[str] = ()


@frozen(kw_only=True)
class MemoryTable:
    """
    All bounds of a configuration.

    @ivar bounds: each of them.
    @ivar memory: what the process may use, in bytes.
    """

    bounds: Sequence[Bound]
    memory: int

    @property
    def total(self) -> int:
        """The sum of all bounds, in bytes."""
        return sum(each.bytes for each in self.bounds if not each.each)

    @property
    def isOver(self) -> bool:
        """Whether that is more than the process may use."""
        return self.total > self.memory

    def announce(self) -> None:
        """Log where the sum is more than the process may use. Called once, at the start."""
        if self.isOver:
            _log.warn("{advice}", advice=self.advice)

    @property
    def advice(self) -> str:
        """The advice where the bounds add up to too much, in a line."""
        largest = max((each for each in self.bounds if not each.each), key=lambda each: each.bytes)
        return (
            f"what may be in memory adds up to {amountText(self.total)}, and the process may use "
            f"{amountText(self.memory)}; the largest bound is {largest.name}, "
            f"{amountText(largest.bytes)} ({largest.how}): lower it, or allow more memory"
        )

    def lines(self) -> Iterator[str]:
        """The table, for people."""
        for each in self.bounds:
            of = f" {each.each}" if each.each else ""
            yield f"  {amountText(each.bytes):>10}{of}  {each.name}: {each.how}"


def amountText(size: float) -> str:
    """An amount of bytes in words."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < _KIB:
            return f"{size:.0f} {unit}"
        size /= _KIB
    return f"{size:.1f} GiB" if size < _KIB else f"{size / _KIB:.1f} TiB"


def planMemory(config: Config, plan: Plan, memory: int) -> MemoryTable:
    """
    The table of a daemon with this plan, in this process.

    @param memory: what the process may use, in bytes.
    """
    table = plan.access.table
    costs = () if table is None else table.costs
    return boundsOf(config, plan.ports, costs, memory, expectedFiles())


def boundsOf(
    config: Config, ports: Sequence[PortPlan], costs: Sequence[str], memory: int, files: int
) -> MemoryTable:
    """
    The table of everything that grows with what clients send, or with what is stored.

    @param ports: where is listened.
    @param costs: what verifying the passwords costs, see
        L{AccountTable<svcbroker.access.AccountTable>}.
    @param memory: what the process may use, in bytes.
    @param files: how many files it may have open.
    """
    sizes = BudgetSizes.of(config, memory)
    return MemoryTable(
        bounds=(
            *_budgetBounds(sizes),
            *_keptBounds(sizes),
            *_connectionBounds(ports, costs, files),
            *_groupBounds(config),
            *_cacheBounds(),
            *_requestBounds(config),
            *_clientUnits(),
            *_storedUnits(config),
        ),
        memory=memory,
    )


def _budgetBounds(sizes: BudgetSizes) -> Iterator[Bound]:
    share = f"or 1/{SHARE} of the memory where that is less"
    yield Bound(
        name="the process", bytes=PROCESS_BYTES, how="code and libraries, before the first client"
    )
    yield Bound(
        name="unread output",
        bytes=sizes.output,
        how=f"max-unsent; by default {amountText(MAX_OUTPUT)}, {share}",
        holders=_within("svcbroker.net.budgets.OutputBudget", "_owners", "_counted", "_blocked"),
    )
    yield Bound(
        name="input",
        bytes=sizes.input,
        how=f"{amountText(MAX_INPUT)}, {share}; at least {LARGEST_BODIES} of the largest requests "
        "(max-content)",
        holders=(
            "svcbroker.carriers.http.connection.IncompleteBody.content",
            "svcbroker.carriers.stomp.session.StompTransaction.publications",
            "svcbroker.carriers.mqtt.decoder.Decoder._parts",
            "svcbroker.carriers.mqtt.receiving.Receiving._unsubmitted",
            "svcbroker.net.budgets.ByteBudget._owners",
        ),
    )
    yield Bound(
        name="windows",
        bytes=sizes.windows,
        how=f"deliveries not acknowledged: {amountText(MAX_WINDOWS)}, {share}",
        holders=(
            "svcbroker.carriers.mqtt.delivery.Window._runs",
            "svcbroker.carriers.stomp.messages.AckWindow._sent",
            "svcbroker.carriers.stomp.messages.AckWindow._waiting",
        ),
    )
    yield Bound(
        name="retained messages",
        bytes=sizes.retained,
        how=f"the indexes of all groups: {amountText(MAX_RETAINED)}, {share}",
        holders=(
            "svcbroker.broker.subscriptions._topictree._Node.below",
            "svcbroker.broker.subscriptions._topictree._Node.value",
            *_within("svcbroker.carriers.mqtt.retained.Retainers", "_accounts", "_topics"),
        ),
    )


def _keptBounds(sizes: BudgetSizes) -> Iterator[Bound]:
    share = f"or 1/{SHARE} of the memory where that is less"
    yield Bound(
        name="sessions and subscriptions",
        bytes=sizes.subscriptions,
        how=f"live subscriptions of {amountText(SUBSCRIPTION_BYTES)}, MQTT sessions of "
        f"{amountText(SESSION_BYTES)}, filters and wills: {amountText(MAX_SESSION_BYTES)}, {share}",
        holders=(
            *_within("svcbroker.broker.subscriptions._registry.Subscriptions", "_live", "_held"),
            *_within("svcbroker.broker.subscriptions._backlog.Backlog", "_live", "_held"),
            "svcbroker.broker.subscriptions._dispatcher.Dispatcher._audiences",
            *_within("svcbroker.broker.subscriptions._dispatcher.Audience", "receivers", "mergers"),
            "svcbroker.broker.subscriptions._topictree.FilterTrie._plain",
            "svcbroker.broker.subscriptions._topictree.FilterSet.filters",
            "svcbroker.broker.subscriptions._logsubscription.LogSubscription._outstanding",
            *_within("svcbroker.carriers.stomp.deliveries.Deliveries", "_byKey", "_byNumber"),
            *_within(
                "svcbroker.carriers.mqtt.sessions.Sessions",
                *("_sessions", "_counts", "_expiring", "_shares"),
            ),
            *_within("svcbroker.carriers.mqtt.wills.Wills", "_counted", "_publishing", "_waiting"),
        ),
    )
    yield Bound(
        name="names that connections remember",
        bytes=sizes.names,
        how=f"topics, topic aliases, headers with credentials: {amountText(MAX_NAMES)}, {share}",
        holders=(
            "svcbroker.carriers.http.fastpath.FastChannel._blocks",
            "svcbroker.carriers.mqtt.decoder.Decoder._topics",
            "svcbroker.carriers.mqtt.delivery.Delivery._aliases",
            "svcbroker.carriers.mqtt.messages.TopicAliases._topics",
        ),
    )


def _connectionBounds(
    ports: Sequence[PortPlan], costs: Sequence[str], files: int
) -> Iterator[Bound]:
    hasTls = any(port.tls is not None for port in ports)
    size = CONNECTION_BYTES + (STRANGER_BYTES * (TLS_WEIGHT - 1) if hasTls else 0)
    yield Bound(
        name="connections",
        bytes=files * size,
        how=f"{files:,} open files (LimitNOFILE), each with {amountText(size)} for what a client "
        "usually has under way" + (" and TLS" if hasTls else ""),
        holders=(
            "svcbroker.carriers.http.connection.BrokerSite.channels",
            "svcbroker.carriers.mqtt.carrier.MqttCarrier._links",
            "svcbroker.carriers.stomp.carrier.StompFactory.protocols",
            "svcbroker.carriers.http.follow.Following._streams",
            "svcbroker.net.budgets.WorkBudget.queues",
            *_within("svcbroker.net.turns.Slots", "_busy", "_queues", "_ready"),
            "svcbroker.broker._copies.Copies._waiting",
        ),
    )
    yield Bound(
        name="connections before their log-in",
        bytes=MAX_STRANGERS * STRANGER_BYTES,
        how=f"{MAX_STRANGERS:,} of {amountText(STRANGER_BYTES)} beside that; one of TLS counts as "
        f"{TLS_WEIGHT}",
        holders=_within("svcbroker.net.budgets.Strangers", "_all", "_lanes", "_weights"),
    )
    if costs:
        check = max(map(_checkBytes, costs))
        yield Bound(
            name="passwords being verified",
            bytes=LOGIN_THREADS * check,
            how=f"{LOGIN_THREADS} at a time, of {amountText(check)}",
        )
    limits = LoginLimits()
    yield Bound(
        name="log-ins",
        bytes=ENTRY_BYTES
        * (MAX_REMEMBERED_LOGINS + limits.addresses + limits.waiting + MAX_SESSIONS + _MAX_RECENT),
        how=f"{MAX_REMEMBERED_LOGINS:,} credentials, {limits.addresses:,} addresses with failures, "
        f"{limits.waiting:,} that wait, {MAX_SESSIONS:,} of the console, {_MAX_RECENT:,} accounts",
        holders=(
            *_within("svcbroker.access._logins.HttpLogins", "_known", "_checks"),
            *_within("svcbroker.access._logins.LoginQueue", "_failures", "_waiting"),
            *_within("svcbroker.carriers.http.logins.LogIns", "_sessions", "_counts"),
            "svcbroker.access._access.Access._recent",
        ),
    )
    yield Bound(
        name="the audit trail",
        bytes=ENTRY_BYTES * (MAX_LOGINS + 2 * MAX_PENDING),
        how=f"{MAX_LOGINS:,} log-ins, {MAX_PENDING:,} records that are not written",
        holders=_within("svcbroker.access._audittrail.AuditTrail", "_logins", "_counts", "_single"),
    )


def _checkBytes(cost: str) -> int:
    """The memory that verifying a password takes, by the parameters of its hash."""
    parameters = dict(each.split("=", 1) for each in cost.split(",") if "=" in each)
    return int(parameters.get("m", CHECK_BYTES // _KIB)) * _KIB


def _groupBounds(config: Config) -> Iterator[Bound]:
    count = len(config.groups)
    yield Bound(
        name="blocks for subscriptions",
        bytes=count * CACHED_BYTES,
        how=f"{amountText(CACHED_BYTES)} of {_groups(count)}",
        holders=_within("svcbroker.broker.subscriptions._follower.Follower", "_cache", "_waiting"),
    )
    yield Bound(
        name="subscriptions that match a topic",
        bytes=count * (REMEMBERED_TOPICS * ENTRY_BYTES + REMEMBERED_MATCHES * _MATCH_BYTES),
        how=f"{REMEMBERED_TOPICS:,} topics and {REMEMBERED_MATCHES:,} matches of {_groups(count)}",
        holders=("svcbroker.broker.subscriptions._dispatcher.Dispatcher._remembered",),
    )
    for group in config.groups:
        description = config.ledger if group.ledger is None else group.ledger
        kind, told = _ledgerMemory(description)
        if told is None:
            how = f"not told by {kind}"
            yield Bound(name=f"the ledger of group {group.id}", bytes=0, how=how)
            continue
        for name, size in told.items():
            how = f"the ledger {kind} of group {group.id}"
            if name == "pending transactions":
                how += "; mempool, which counts them as they are in a block"
            yield Bound(name=name, bytes=size, how=how, holders=_LEDGER_HOLDERS.get(name, ()))


def _ledgerMemory(description: str) -> tuple[str, Mapping[str, int] | None]:
    """The kind of a ledger, and its bounds; C{None} where they are not known."""
    try:
        read = readDescription(description)
        for factory in findLedgerFactories():
            bounded = IBoundedLedgerFactory(factory, None)
            if factory.name == read.name and bounded is not None:
                return read.name, bounded.memory(read.settings)
    except InvalidDescription:
        # The plan of the groups tells it.
        return description, None
    return read.name, None


def _cacheBounds() -> Iterator[Bound]:
    sizes = [each.cache_parameters()["maxsize"] for each in _CACHED]
    entries = sum(sizes) + _authorship._REMEMBERED + MAX_LOGGED
    yield Bound(
        name="names and signatures that were checked",
        bytes=entries * ENTRY_BYTES + plain.MAX_REMEMBERED**2,
        how=f"{entries:,} entries, and {plain.MAX_REMEMBERED:,} heads of requests",
        holders=(
            *(f"{each.__module__}.{each.__qualname__}" for each in _CACHED),
            "svcbroker.chain._authorship._verified",
            "svcbroker.carriers.http.plain._common",
            "svcbroker.carriers.http.logins.OriginPolicy._logged",
        ),
    )


def _requestBounds(config: Config) -> Iterator[Bound]:
    yield Bound(
        name="calls that wait for events",
        bytes=MAX_WAITING * SUBSCRIPTION_BYTES,
        how=f"{MAX_WAITING:,} of {amountText(SUBSCRIPTION_BYTES)}",
        holders=("svcbroker.broker.subscriptions._eventreading.EventReading._waiting",),
    )
    yield Bound(
        name="calls that wait for a block",
        bytes=MAX_CALLS * SUBSCRIPTION_BYTES,
        how=f"{MAX_CALLS:,} of {amountText(SUBSCRIPTION_BYTES)}",
        holders=(
            "svcbroker.broker.subscriptions._eventreading.HeightWaits._waiting",
            "svcbroker.broker.subscriptions._follower.Follower._awaited",
        ),
    )
    # As events, and as JSON with their contents in Base64.
    delivery = _COPIES * (MAX_BATCH + config.maxContent) + MAX_ANSWER
    yield Bound(
        name="requests to webhooks",
        bytes=MAX_REQUESTS * delivery,
        how=f"{MAX_REQUESTS:,} of {amountText(delivery)} are under way at a time",
    )
    yield Bound(
        name="parts of chains for copies",
        bytes=COPY_THREADS * MAX_PART,
        how=f"{COPY_THREADS} are read at a time, of at most {amountText(MAX_PART)}; then they are "
        "output",
    )


def _clientUnits() -> Iterator[Bound]:
    yield Bound(
        name="a connection of HTTP",
        bytes=plain.MAX_HEAD,
        how="at most, beside the above: the head of a request while it arrives",
        each="each",
    )
    yield Bound(
        name="an account whose clients are connected",
        bytes=2 * _KIB,
        how="about, and what it was asked for lately: some hundred bytes for each topic",
        each="each",
        holders=(
            *_within("svcbroker.access._access.Access", "_principals", "_usages", "_expiries"),
            *_within("svcbroker.access._principal.Principal", "_answers", "_endings", "_groups"),
            "svcbroker.access._principal.Principal.onEnd.<locals>.forget.kept",
            *_within("svcbroker.access._principal.Usage", "_counts", "_buckets"),
        ),
    )


def _storedUnits(config: Config) -> Iterator[Bound]:
    kept = config.of(SubscriptionOptions)
    yield Bound(
        name="a topic",
        bytes=_TOPIC_BYTES,
        how="about, as long as the chain is",
        each="each",
        holders=(
            *_within("svcbroker.chain._state.ChainState", "_open", "_topicIndexes", "_topics"),
            *_within("svcbroker.chain._state.ChainState", "_senders", "_senderIndexes"),
            "svcbroker.chain._merkle.MerkleTree._levels",
        ),
    )
    yield Bound(
        name="what is kept of durable subscriptions",
        bytes=(MAX_POSITIONS + MqttSettings().maxSessions) * _KEPT_BYTES,
        how=f"{amountText(_KEPT_BYTES)} of each of {MAX_POSITIONS:,} subscriptions, "
        f"{kept.maxPositions:,} of one account or address (max-positions), and of as many "
        "sessions; their filters are counted with live ones",
        holders=(
            "svcbroker.broker._metadatastore.MetadataStore._kinds",
            "svcbroker.broker._metadatastore.MetadataStore._changes",
            *_within(
                "svcbroker.broker.subscriptions._positions.KeptPositions", "_index", "_counts"
            ),
        ),
    )
    yield Bound(
        name="a webhook",
        bytes=2 * _KIB,
        how="about; it is a durable subscription, and is bounded with them",
        each="each",
        holders=("svcbroker.carriers.webhook.webhookservice.Webhooks._webhooks",),
    )


def _groups(count: int) -> str:
    return "the group" if count == 1 else f"each of {count} groups"


def _within(owner: str, *names: str) -> Sequence[str]:
    return [f"{owner}.{name}" for name in names]


_TOPIC_BYTES: Final = 700
_KEPT_BYTES: Final = 512

_CACHED: Final[Sequence[Any]] = (
    _topics.checkTopicName,
    _topics.topicPrefix,
    _encoding.topicAddress,
    _encoding.accountAddress,
    _encoding.keyAddress,
    _encoding._encodeShort,
    messages._readEnvelope,
    messages._encodedTopic,
    frames._shareHeaders,
)
"""Functions whose results are cached by what clients send."""

_LEDGER_HOLDERS: Final[Mapping[str, Sequence[str]]] = {
    "pending transactions": (
        *_within("svcbroker.ledgers.pbft._blockapplication.TransactionPool", "_waiting", "_claims"),
        *_within("svcbroker.ledgers.cometbft._outbox.Outbox", "_queue", "_waiting", "_sent"),
        "svcbroker.interfaces._submission.Submission.outcomes",
    ),
    "blocks that events are verified with": (
        "svcbroker.ledgers._eventverifier.EventVerifier._blocks",
    ),
    "trees that proofs are made of": (
        "svcbroker.archive._prover.Prover._trees",
        "svcbroker.archive._prover.BlockTrees.hashes",
        "svcbroker.archive._replay.StoredKeys._counts",
    ),
    "erasures that were verified": ("svcbroker.archive._eraser.ErasureVerifier._verified",),
    "votes that were verified": (
        *_within("svcbroker.ledgers.pbft._keys.SignatureVerifier", "verified", "_signatures"),
        "svcbroker.ledgers.pbft._replica.Replica._verified",
    ),
    "blocks being decided": (
        *_within(
            "svcbroker.ledgers.pbft._replica.Replica",
            *("_broadcasts", "_candidates", "_effects", "_own", "_reached", "_rounds"),
        ),
        *_within("svcbroker.ledgers.pbft._network.SimulatedNetwork", "_arrived", "_inFlight"),
    ),
    "parsed batches": ("svcbroker.ledgers.cometbft._machine.ChainMachine._known",),
}
"""The attributes with what the ledgers tell of, by its name."""
