"""
The metadata store: webhooks that fail, and durable subscriptions that are far behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec
from attrs import evolve, frozen

from ..archive import METADATA_NAME, STORE_NAME, Findings, auditDataDirectoryFiles
from ..broker.subscriptions import POSITIONS, SECONDS_A_DAY, KeptPosition
from ..carriers.mqtt.kept import SUBSCRIPTION as SESSIONS
from ..carriers.mqtt.subscription import KeptSubscription
from ..carriers.webhook import WebhookRecord, decodeRecord
from ..daemon.auditing import readAudit
from ..metrics import LastAudit
from ..model import Position
from ..storage import (
    METADATA_WRITES,
    Snapshot,
    StorageError,
    StorageOutdated,
    findLostWrites,
    readWrites,
)
from ._chains import ChainFacts, _timeOf
from ._findings import DAY, Finding, date, good, listed, problem, span, warning

WEBHOOKS = "webhooks"
SUBSCRIPTIONS = "subscriptions"
AUDIT = "audit"

MANY_ATTEMPTS = 10
"""Attempts after which a receiver is not only down for a moment."""

LATE = 3.0
"""How many times the time between two audits may pass without one."""

FAR = 7 * DAY
"""Seconds that a durable subscription may be behind before it is worth a warning."""


@frozen(kw_only=True)
class WebhookFacts:
    """
    What is known of a webhook.

    @ivar id: its subscription id.
    @ivar attempts: how often the event that waits first has failed.
    @ivar waits: for how many seconds that event has been published.
    """

    id: str
    isPaused: bool = False
    attempts: int = 0
    waits: float = 0.0


@frozen(kw_only=True)
class SubscriptionFacts:
    """
    What is known of a durable subscription, or of an MQTT session.

    @ivar id: its id, or the client's.
    @ivar type: as C{svcbroker subscription} takes it: C{STOMP} or C{MQTT}.
    @ivar blocks: how many blocks of its group it has not seen.
    @ivar behind: of how many seconds those are.
    @ivar unused: for how many days no client has used it.
    """

    id: str
    type: str = "STOMP"
    blocks: int = 0
    behind: float = 0.0
    unused: int = 0


@frozen(kw_only=True)
class MetadataFacts:
    """
    What is known of the metadata store.

    @ivar error: why it cannot be read; empty where it can.
    @ivar lost: what it has lost, which is not accepted yet; empty where nothing is.
    @ivar expiry: after how many days without use a position is removed; 0 for never.
    @ivar audits: what the last scheduled audit of each group has found.
    @ivar auditEvery: seconds between two scheduled audits; 0 where there are none.
    """

    dataDir: str
    error: str = ""
    damage: Sequence[str] = ()
    lost: str = ""
    webhooks: Sequence[WebhookFacts] = ()
    subscriptions: Sequence[SubscriptionFacts] = ()
    expiry: int = 0
    audits: Mapping[str, LastAudit] = {}
    auditEvery: float = 0.0
    now: float = 0.0


def checkMetadata(facts: MetadataFacts) -> Iterator[Finding]:
    """Whether the store can be read, and whether readers of the log get on."""
    for text in (facts.error, *facts.damage):
        if text:
            yield problem(
                SUBSCRIPTIONS,
                text,
                "the daemon does not start: positions, sessions and webhooks are kept there",
                "put notes.sqlite back from a backup; or move all of notes.sqlite* away, and all "
                "subscriptions begin anew",
            )
    if facts.lost:
        yield problem(
            SUBSCRIPTIONS,
            facts.lost,
            "readyz answers 503: webhooks that are missing deliver nothing",
            "put notes.sqlite back from a backup; or remove notes.sqlite-last, to go on without "
            "what is missing",
        )
    if facts.error:
        return
    yield from _checkWebhooks(facts)
    yield from _checkSubscriptions(facts)
    yield from _checkAudits(facts)


def _checkWebhooks(facts: MetadataFacts) -> Iterator[Finding]:
    failing = [each for each in facts.webhooks if each.attempts >= MANY_ATTEMPTS]
    paused = [each.id for each in facts.webhooks if each.isPaused]
    for each in failing:
        waits = f"; the event is {span(each.waits)} old" if each.waits else ""
        yield warning(
            WEBHOOKS,
            f"{each.id} has failed {each.attempts} times with the same event{waits}",
            "its receiver gets nothing until it takes that event, or the webhook gives it up",
            f"svcbroker webhook {facts.dataDir} list says why; mend the receiver, then: svcbroker "
            f"webhook {facts.dataDir} retry {each.id}",
        )
    if paused:
        yield warning(
            WEBHOOKS,
            f"{listed(paused)} are paused",
            "their receivers get nothing; what they do not get stays in the log",
            f"svcbroker webhook {facts.dataDir} resume {paused[0]}",
        )
    if facts.webhooks and not failing and not paused:
        yield good(WEBHOOKS, f"{len(facts.webhooks)} get on")


def _checkSubscriptions(facts: MetadataFacts) -> Iterator[Finding]:
    behind = sorted(
        (each for each in facts.subscriptions if each.behind > FAR),
        key=lambda each: -each.behind,
    )
    if behind:
        names = [f"{each.id} ({span(each.behind)}, {each.blocks:,} blocks)" for each in behind]
        yield warning(
            SUBSCRIPTIONS,
            f"{len(behind)} durable subscriptions are far behind: {listed(names)}",
            "no client has taken their events; one that comes back gets them all",
            f"svcbroker subscription {facts.dataDir} list; those that no client needs: "
            f"svcbroker subscription {facts.dataDir} delete {behind[0].type} {quote(behind[0].id)}",
        )
    due = [
        each.id
        for each in facts.subscriptions
        if facts.expiry and each.unused * 5 >= facts.expiry * 4
    ]
    if due:
        yield warning(
            SUBSCRIPTIONS,
            f"{listed(due)} were not used for {facts.expiry * 4 // 5} days and more",
            f"they are removed after {facts.expiry} days; a client that comes back later misses "
            "events",
            "have their clients connect, or give --position-expiry more days",
        )
    if facts.subscriptions and not behind and not due:
        yield good(SUBSCRIPTIONS, f"{len(facts.subscriptions)} durable ones are close to the end")


def _checkAudits(facts: MetadataFacts) -> Iterator[Finding]:
    for group, audit in facts.audits.items():
        when = f"group {group} was audited on {date(audit.endedAt)} up to block {audit.height:,}"
        if not audit.isGood:
            yield problem(
                AUDIT,
                f"{when}, and is damaged: {audit.problem}",
                "what the chain says there cannot be trusted, and cannot be proved",
                f"svcbroker audit {facts.dataDir} names every place; docs/recovery says how to go "
                "on",
            )
        elif facts.auditEvery and facts.now - audit.endedAt > LATE * facts.auditEvery + DAY:
            yield warning(
                AUDIT,
                f"{when}, and not since, although it is to be every {span(facts.auditEvery)}",
                "audits do not come to their end, or the daemon does not run for so long",
                f"look for 'scheduled audit' in the log; by hand: svcbroker audit {facts.dataDir}",
            )
        else:
            yield good(AUDIT, when)
    if not facts.auditEvery and not facts.audits:
        yield good(
            AUDIT,
            f"none is scheduled (--audit-every); svcbroker audit {facts.dataDir} reads everything",
        )


_decodePosition: Final = msgspec.json.Decoder(KeptPosition).decode


_decodeSubscription: Final = msgspec.json.Decoder(KeptSubscription).decode


@frozen
class _Log:
    """A group's log, as far as readers of it are behind."""

    height: int
    timeOf: Callable[[int], float]


def readMetadata(facts: MetadataFacts, served: Mapping[str, ChainFacts]) -> MetadataFacts:
    """
    Look at the metadata store of a data directory.

    @param facts: what is known of it from the configuration.
    @param served: what is known of the chains, by group.
    """
    dataDir, now = Path(facts.dataDir), facts.now
    path = dataDir / METADATA_NAME
    # Read first: a running broker goes on writing.
    known, writes = readWrites(path), b"0"
    if not path.exists():
        return evolve(facts, lost=findLostWrites(path, known, 0))
    try:
        kept: dict[str, list[tuple[str, bytes]]]
        kept = {kind: [] for kind in (WEBHOOKS, SESSIONS, POSITIONS, AUDIT)}
        with Snapshot.ofMetadata(path) as snapshot, snapshot.moment():
            for kind, name, value in snapshot.rows("SELECT kind, name, value FROM note"):
                if kind in kept:
                    kept[kind].append((name, value))
                elif (kind, name) == METADATA_WRITES:
                    writes = value
    except StorageOutdated:
        return facts
    except StorageError as error:
        return evolve(facts, error=str(error))
    findings = Findings("")
    auditDataDirectoryFiles(dataDir, findings)
    lost = findLostWrites(path, known, int(writes)) if writes.isdigit() else ""
    facts = evolve(facts, lost=lost)
    damage = [
        f"{each.place}: {each.problem}"
        for each in findings.kept
        if each.isDamage and each.problem != lost
    ]
    if damage:
        return evolve(facts, damage=damage)
    webhooks = {name: decodeRecord(value) for name, value in kept[WEBHOOKS]}
    positions = {name: _decodePosition(value) for name, value in kept[POSITIONS]}
    # The client of each position of an MQTT session.
    clients: dict[str, str] = {
        _decodeSubscription(value).subscriptionId: msgspec.json.decode(name)[1]
        for name, value in kept[SESSIONS]
    }
    hooked: list[WebhookFacts] = []
    subscribed: list[SubscriptionFacts] = []
    for group, chain in served.items():
        if not chain.height or chain.error:
            continue
        with Snapshot.ofLedger(dataDir / group / STORE_NAME) as snapshot:
            reader = snapshot.reader()
            log = _Log(chain.height, partial(_timeOf, reader))
            hooked.extend(_webhooks(webhooks, positions, group, log, now))
            others = {id: each for id, each in positions.items() if id not in webhooks}
            subscribed.extend(_subscriptions(others, clients, group, log, now))
    audits = {name: readAudit(value) for name, value in kept[AUDIT]}
    return evolve(facts, webhooks=hooked, subscriptions=subscribed, audits=audits)


def _webhooks(
    webhooks: Mapping[str, WebhookRecord],
    positions: Mapping[str, KeptPosition],
    group: str,
    log: _Log,
    now: float,
) -> Iterator[WebhookFacts]:
    for name, record in webhooks.items():
        if record.group != group:
            continue
        attempts, waits = 0, 0.0
        if record.failed is not None:
            height, index, count = record.failed
            done = positions.get(name)
            if done is None or done.position < Position(height, index):
                attempts, waits = count, max(0.0, now - log.timeOf(height))
        yield WebhookFacts(id=name, isPaused=record.isPaused, attempts=attempts, waits=waits)


def _subscriptions(
    positions: Mapping[str, KeptPosition],
    clients: Mapping[str, str],
    group: str,
    log: _Log,
    now: float,
) -> Iterator[SubscriptionFacts]:
    """Each subscription, and each session, which is as far behind as the last of its positions."""
    today = int(now // SECONDS_A_DAY)
    found: dict[tuple[str, str], list[KeptPosition]] = {}
    for name, kept in positions.items():
        if kept.group == group:
            key = ("MQTT", clients[name]) if name in clients else ("STOMP", name)
            found.setdefault(key, []).append(kept)
    for (type, id), those in found.items():
        height, used = min(each.position.height for each in those), max(each.used for each in those)
        blocks = max(0, log.height - height)
        yield SubscriptionFacts(
            id=id,
            type=type,
            blocks=blocks,
            behind=now - log.timeOf(height + 1) if blocks else 0.0,
            unused=max(0, today - used) if used else 0,
        )
