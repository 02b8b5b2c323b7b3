"""
Reading the stores of a data directory, as they are, also while a daemon writes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from attrs import evolve, frozen

from ..archive import (
    COPY_NAME,
    KEYS_NAME,
    METADATA_NAME,
    STORE_NAME,
    Findings,
    auditDataDirectoryFiles,
    auditGroupFiles,
    readKeyFiles,
)
from ..broker.subscriptions import POSITIONS, SECONDS_A_DAY, KeptPosition
from ..carriers.mqtt.kept import SUBSCRIPTION as SESSIONS
from ..carriers.mqtt.subscription import KeptSubscription
from ..carriers.webhook import KIND as WEBHOOKS
from ..carriers.webhook import WebhookRecord, decodeRecord
from ..chain import Genesis, Header, Malformed, ValidatorSet
from ..daemon.auditing import AUDIT, readAudit
from ..ledgers.pbft import EVIDENCE_NAME
from ..model import Position
from ..proofs import isEngineCertificate
from ..storage import (
    METADATA_WRITES,
    ChainReader,
    Snapshot,
    StorageError,
    StorageOutdated,
    findLoss,
    findLostWrites,
    readTip,
    readWrites,
)
from ._chains import ChainFacts
from ._findings import DAY
from ._metadata import MetadataFacts, SubscriptionFacts, WebhookFacts

_SAMPLES: Final = 500
_OVERHEAD: Final = 1.1  # pages, indexes and fingerprints beside what is sampled
_LEAST_WINDOW: Final = 3600.0

_decodePosition: Final = msgspec.json.Decoder(KeptPosition).decode
_decodeSubscription: Final = msgspec.json.Decoder(KeptSubscription).decode


def readChain(directory: Path, ledger: str, now: float) -> tuple[ChainFacts, float]:
    """
    Look at the chain of a group.

    @param directory: the group's directory, whose name is its id.
    @param ledger: the kind of ledger that it is configured for; empty where it is not served.
    @param now: the wall clock: seconds since the epoch.
    @return: what is known of it, and by how many bytes it grows in a day.
    """
    facts, growth = ChainFacts(group=directory.name, ledger=ledger), 0.0
    path = directory / STORE_NAME
    if not path.exists():
        return evolve(facts, exists=False), growth
    losses: list[str] = []
    validators: Collection[bytes] = ()
    # Before the chain: a key change of a running daemon may remove them meanwhile.
    keys = {file.key for file in readKeyFiles(directory / KEYS_NAME)}
    try:
        # Before the chain, which a running daemon writes first.
        tip = readTip(path)
        with Snapshot.ofLedger(path) as snapshot:
            problem = snapshot.logProblem()
            if problem:
                losses.append(f"{path}-wal is damaged: {problem}")
            with snapshot.moment():
                reader = snapshot.reader()
                if tip is not None:
                    losses.append(findLoss(reader, tip))
                last = reader.tip()
                if last is not None:
                    facts = evolve(
                        facts,
                        height=last.height,
                        time=_timeOf(reader, last.height),
                        isEngines=isEngineCertificate(last.certificate),
                    )
                    growth = _growthOf(snapshot, facts.height, now)
                if not facts.isEngines:
                    validators = _validatorsOf(snapshot)
    except StorageOutdated as error:
        return evolve(facts, error=str(error), isOlder=True), growth
    except (StorageError, Malformed) as error:
        return evolve(facts, error=str(error)), growth
    beside = Findings(directory.name)
    auditGroupFiles(directory, validators, keys, beside, hasEngine=facts.isEngines)
    damage = [f"{each.place}: {each.problem}" for each in beside.kept if each.isDamage]
    if validators and not keys and ledger == "pbft" and not (directory / COPY_NAME).exists():
        damage.append(f"{KEYS_NAME}: there are no keys, so the chain can be read but not go on")
    evidence = directory / EVIDENCE_NAME
    facts = evolve(
        facts,
        losses=[each for each in losses if each],
        damage=damage,
        isCopy=(directory / COPY_NAME).exists(),
        evidence=str(evidence) if evidence.exists() else "",
    )
    return facts, growth


def _validatorsOf(snapshot: Snapshot) -> Collection[bytes]:
    """The public keys of the replicas that decide the next block."""
    rows = snapshot.reader().validatorSets()
    if rows:
        return ValidatorSet.decode(rows[-1].encoded).keys
    [(genesis,)] = snapshot.rows("SELECT genesis FROM chain")
    return Genesis.decode(genesis).validatorSet.keys


def _timeOf(reader: ChainReader, height: int) -> float:
    """The time of a block; 0.0 where there is none."""
    head = reader.blockHead(height)
    return 0.0 if head is None else Header.decode(head.header).timestamp / 1000


def _growthOf(snapshot: Snapshot, height: int, now: float) -> float:
    """By how many bytes a chain grows in a day, from samples of the last day's blocks."""
    reader = snapshot.reader()
    heights = range(1, height + 1)
    first = 1 + bisect_left(heights, now - DAY, key=lambda each: _timeOf(reader, each))
    count = height + 1 - first
    if count <= 0:
        return 0.0
    window = DAY if first > 1 else max(now - _timeOf(reader, 1), _LEAST_WINDOW)
    samples = range(first, height + 1, -(-count // _SAMPLES))
    sizes: list[int] = [
        size
        for each in samples
        for (size,) in snapshot.rows(
            "SELECT length(body) + length(receipts) + length(header) + length(certificate)"
            " FROM body JOIN head USING (height) WHERE height = ?",
            each,
        )
    ]
    return sum(sizes) / max(1, len(sizes)) * count * _OVERHEAD * DAY / window


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
