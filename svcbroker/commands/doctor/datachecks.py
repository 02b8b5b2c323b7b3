"""
Checks of stored data: the rights of the data directory, the chains, and the metadata store. The
stores are read as they are, also while a daemon writes them.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Final

import msgspec
from attrs import evolve, frozen

from ...archive import (
    COPY_NAME,
    KEYS_NAME,
    METADATA_NAME,
    STORE_NAME,
    Findings,
    auditDataDirectoryFiles,
    auditGroupFiles,
    readKeyFiles,
)
from ...broker.subscriptions import POSITIONS, SECONDS_A_DAY, KeptPosition
from ...carriers.mqtt.kept import SUBSCRIPTION as SESSIONS
from ...carriers.mqtt.kept import KeptSubscription
from ...carriers.webhook import KIND as WEBHOOKS
from ...carriers.webhook import WebhookRecord, decodeRecord
from ...chain import Genesis, Header, Malformed, ValidatorSet
from ...daemon.auditing import AUDIT, LastAudit, readAudit
from ...ledgers.pbft import EVIDENCE_NAME
from ...model import Position
from ...net.bounds import amountText
from ...net.findings import DAY, Finding, date, good, listed, problem, span, warning
from ...proofs import isEngineCertificate
from ...storage import (
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

_DIRECTORY = "data directory"

_LEFT = (".new", ".new-wal", ".new-shm", ".new-journal")
_COPY = ".backup"


@frozen
class FileFacts:
    """
    A file below the data directory.

    @ivar path: from the data directory on.
    @ivar mode: its rights, as the nine lowest bits.
    @ivar owner: the number of the user that owns it.
    """

    path: str
    mode: int
    owner: int
    size: int = 0


@frozen(kw_only=True)
class DirectoryFacts:
    """
    Facts about the data directory.

    @ivar exists: whether it is there, and a directory.
    @ivar error: why it cannot be looked at; empty where it can.
    @ivar mode: its rights.
    @ivar owner: the number of the user that owns it.
    @ivar ownerName: the name of that user.
    @ivar user: the number of the user that the daemon runs as; of the one who asks, where it does
        not run.
    @ivar userName: the name of that user.
    @ivar files: what is in it.
    @ivar groups: the groups that have a chain in it.
    @ivar served: the groups that are served.
    """

    path: Path
    exists: bool = True
    error: str = ""
    mode: int = 0o700
    owner: int = 0
    ownerName: str = "root"
    user: int = 0
    userName: str = "root"
    files: Sequence[FileFacts] = ()
    groups: Sequence[str] = ()
    served: Sequence[str] = ()


def checkDirectory(facts: DirectoryFacts) -> Iterator[Finding]:
    """Check whether the daemon, and only the daemon, can use what is in its data directory."""
    path = facts.path
    if facts.error:
        yield problem(
            _DIRECTORY,
            f"{path} cannot be looked at: {facts.error}",
            "most of what follows is unknown",
            f"ask again as its owner: sudo -u {facts.ownerName} svcbroker doctor",
        )
        return
    if not facts.exists:
        yield warning(
            _DIRECTORY,
            f"{path} does not exist",
            "the daemon makes it, and begins a new chain for each group",
            "nothing, where the broker is new; else give the --data-dir of its data",
        )
        return
    found = [*_checkRights(facts), *_checkFiles(facts)]
    if found:
        yield from found
        return
    yield good(_DIRECTORY, f"{path} belongs to {facts.ownerName}, and no one else may read it")


def _checkRights(facts: DirectoryFacts) -> Iterator[Finding]:
    path = facts.path
    foreign = [each.path for each in facts.files if each.owner != facts.owner]
    if facts.owner != facts.user and facts.user:
        yield problem(
            _DIRECTORY,
            f"{path} belongs to {facts.ownerName}, and the broker would run as {facts.userName}",
            "the daemon cannot write there as that user",
            f"sudo -u {facts.ownerName} svcbroker doctor, if it runs as {facts.ownerName}; else: "
            f"chown -R {facts.userName}: {path}",
        )
    if foreign:
        yield problem(
            _DIRECTORY,
            f"{listed(foreign)} in {path} do not belong to {facts.ownerName}",
            "the daemon cannot write them: a command was run there as another user, or a backup "
            "was put back as one",
            f"chown -R {facts.ownerName}: {path}",
        )
    # A closed directory shuts off what is in it, whatever its files' own rights are.
    isOpen = bool(facts.mode & 0o055)
    keys = [each.path for each in facts.files if each.path.endswith(".key") and each.mode & 0o077]
    if isOpen and keys:
        yield problem(
            _DIRECTORY,
            f"others may read {listed(keys)} in {path}",
            "with the keys of the replicas one can sign another history of the chain",
            f"chmod -R go= {path}; if others use this machine, get new keys: svcbroker nodes "
            f"{path} rotate all",
        )
    elif facts.mode & 0o077:
        yield warning(
            _DIRECTORY,
            f"others than its owner have rights to {path}",
            "they may read events and the operator's token; the daemon takes the rights away at "
            "its next start",
            f"chmod -R go= {path}",
        )


def _checkFiles(facts: DirectoryFacts) -> Iterator[Finding]:
    path = facts.path
    left = [each for each in facts.files if each.path.endswith(_LEFT)]
    copies = [each for each in facts.files if each.path.endswith(_COPY)]
    if left:
        yield warning(
            _DIRECTORY,
            f"{listed([each.path for each in left])} in {path} were left by a crash or a full disk",
            "they only take room",
            "stop the broker, and remove them: rm "
            + " ".join(str(path / each.path) for each in left),
        )
    if copies:
        room = amountText(sum(each.size for each in copies))
        yield warning(
            _DIRECTORY,
            f"{listed([each.path for each in copies])} in {path} are copies from before an "
            f"upgrade, of {room}",
            "they take room, and keep events that were erased since",
            "once you would not go back to the release before: rm "
            + " ".join(str(path / each.path) for each in copies),
        )
    unserved = [group for group in facts.groups if group not in facts.served]
    if unserved:
        yield warning(
            _DIRECTORY,
            f"{path} has chains of the groups {listed(unserved)}, which are not served",
            "their clients are told that there is no such group",
            f"--group {unserved[0]} for each, beside the others; or move them away",
        )


def filesIn(directory: Path) -> Iterator[FileFacts]:
    """
    All files below a directory.

    @raise OSError: it cannot be read.
    """
    for folder, _, names in os.walk(directory, onerror=_raise):
        for name in names:
            path = Path(folder, name)
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue  # a running daemon has removed it
            if stat.S_ISREG(status.st_mode):
                mode = stat.S_IMODE(status.st_mode)
                relative = str(path.relative_to(directory))
                yield FileFacts(relative, mode, status.st_uid, status.st_size)


def _raise(error: OSError) -> None:
    raise error


@frozen(kw_only=True)
class ChainFacts:
    """
    Facts about a group's chain.

    @ivar group: the group's id.
    @ivar ledger: the kind of ledger that it is configured for; empty for a group that is not
        served.
    @ivar exists: whether it has a chain.
    @ivar isOlder: whether it is in the format of an earlier release.
    @ivar error: why it cannot be opened; empty where it can.
    @ivar isEngines: whether an engine decided its blocks.
    @ivar height: the height of its last block.
    @ivar time: the time of that, in seconds since the epoch; 0.0 where there is none.
    @ivar losses: what is missing of it, or does not hold.
    @ivar damage: what is wrong with the files beside it, such as keys.
    @ivar isCopy: whether it is a copy of another broker's chain, without keys of its own.
    @ivar evidence: the file with evidence of double signing; empty where there is none.
    """

    group: str
    ledger: str = "pbft"
    exists: bool = True
    isOlder: bool = False
    error: str = ""
    isEngines: bool = False
    height: int = 0
    time: float = 0.0
    losses: Sequence[str] = ()
    damage: Sequence[str] = ()
    isCopy: bool = False
    evidence: str = ""


_KINDS = {False: "pbft", True: "cometbft"}


def checkChain(facts: ChainFacts, dataDir: str) -> Iterator[Finding]:
    """Check that a chain can be served, as far as a quick look tells. An audit tells the rest."""
    subject = f"group {facts.group}"
    if not facts.exists:
        if facts.ledger in _KINDS.values():
            yield good(subject, "it has no chain yet: the daemon begins one")
        return
    if facts.isOlder:
        yield warning(
            subject,
            facts.error,
            "the daemon copies the file beside itself and upgrades it at its next start: it needs "
            "room for that, and older releases cannot read it afterwards",
            f"stop the daemon, copy the data (cp -a {dataDir} TARGET; svcbroker backup needs the "
            "release that has written it), and start (docs/upgrades)",
        )
        return
    if facts.error:
        yield problem(
            subject,
            facts.error,
            "the daemon does not start",
            f"svcbroker audit {dataDir} says more; docs/recovery says how to go on",
        )
        return
    found = [*_checkHeld(facts, subject, dataDir)]
    if found:
        yield from found
        return
    last = f", the last of {date(facts.time)}" if facts.time else ""
    yield good(subject, f"{facts.height:,} blocks{last}; keys and the end of the log are well")


def _checkHeld(facts: ChainFacts, subject: str, dataDir: str) -> Iterator[Finding]:
    for text in facts.losses:
        yield problem(
            subject,
            text,
            "blocks that were acknowledged are lost; the daemon refuses to start, since its "
            "replicas would decide heights a second time",
            f"restore the newest backup (docs/recovery); svcbroker audit {dataDir} names the place",
        )
    for text in facts.damage:
        yield problem(
            subject,
            text,
            "the daemon may not start, or not go on with the chain",
            f"put the file back from a backup (docs/recovery); then: svcbroker audit {dataDir}",
        )
    if facts.evidence:
        yield problem(
            subject,
            f"a replica has signed two blocks of one height: {facts.evidence} has both signatures",
            "two processes have used one key: two copies of the data directory were served, or the "
            "key is in other hands",
            f"stop all but one broker with these keys; then: svcbroker nodes {dataDir} rotate all",
        )
    if facts.isCopy and facts.ledger in _KINDS.values():
        yield problem(
            subject,
            f"it is a copy of another broker's chain, and is configured for {facts.ledger}",
            "the daemon does not start: two brokers would go on with one chain",
            "--ledger copy:url=…, or once the original is gone for good: svcbroker promote "
            f"{dataDir}",
        )
        return
    kind = _KINDS[facts.isEngines]
    if facts.height and facts.ledger in _KINDS.values() and facts.ledger != kind:
        yield problem(
            subject,
            f"its blocks were decided by {kind}, and it is configured for {facts.ledger}",
            "the daemon does not start",
            f"--ledger {kind}:…, or --group {facts.group}={kind}:…",
        )


_SAMPLES: Final = 500


_OVERHEAD: Final = 1.1  # pages, indexes and fingerprints beside what is sampled


_LEAST_WINDOW: Final = 3600.0


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


_WEBHOOKS = "webhooks"
_SUBSCRIPTIONS = "subscriptions"
_AUDIT = "audit"

MANY_ATTEMPTS = 10
"""Attempts after which a receiver is not only down for a moment."""

LATE = 3.0
"""Times that the interval between two audits may pass without one."""

FAR = 7 * DAY
"""Seconds that a durable subscription may be behind before it is worth a warning."""


@frozen(kw_only=True)
class WebhookFacts:
    """
    Facts about a webhook.

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
    Facts about a durable subscription, or of an MQTT session.

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
    Facts about the metadata store.

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
    """Check whether the store can be read, and whether readers of the log get on."""
    for text in (facts.error, *facts.damage):
        if text:
            yield problem(
                _SUBSCRIPTIONS,
                text,
                "the daemon does not start: positions, sessions and webhooks are kept there",
                "put notes.sqlite back from a backup; or move all of notes.sqlite* away, and all "
                "subscriptions begin anew",
            )
    if facts.lost:
        yield problem(
            _SUBSCRIPTIONS,
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
            _WEBHOOKS,
            f"{each.id} has failed {each.attempts} times with the same event{waits}",
            "its receiver gets nothing until it takes that event, or the webhook gives it up",
            f"svcbroker webhook {facts.dataDir} list says why; mend the receiver, then: svcbroker "
            f"webhook {facts.dataDir} retry {each.id}",
        )
    if paused:
        yield warning(
            _WEBHOOKS,
            f"{listed(paused)} are paused",
            "their receivers get nothing; what they do not get stays in the log",
            f"svcbroker webhook {facts.dataDir} resume {paused[0]}",
        )
    if facts.webhooks and not failing and not paused:
        yield good(_WEBHOOKS, f"{len(facts.webhooks)} get on")


def _checkSubscriptions(facts: MetadataFacts) -> Iterator[Finding]:
    behind = sorted(
        (each for each in facts.subscriptions if each.behind > FAR),
        key=lambda each: -each.behind,
    )
    if behind:
        names = [f"{each.id} ({span(each.behind)}, {each.blocks:,} blocks)" for each in behind]
        yield warning(
            _SUBSCRIPTIONS,
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
            _SUBSCRIPTIONS,
            f"{listed(due)} were not used for {facts.expiry * 4 // 5} days and more",
            f"they are removed after {facts.expiry} days; a client that comes back later misses "
            "events",
            "have their clients connect, or give --position-expiry more days",
        )
    if facts.subscriptions and not behind and not due:
        yield good(_SUBSCRIPTIONS, f"{len(facts.subscriptions)} durable ones are close to the end")


def _checkAudits(facts: MetadataFacts) -> Iterator[Finding]:
    for group, audit in facts.audits.items():
        when = f"group {group} was audited on {date(audit.endedAt)} up to block {audit.height:,}"
        if not audit.isGood:
            yield problem(
                _AUDIT,
                f"{when}, and is damaged: {audit.problem}",
                "what the chain says there cannot be trusted, and cannot be proved",
                f"svcbroker audit {facts.dataDir} names every place; docs/recovery says how to go "
                "on",
            )
        elif facts.auditEvery and facts.now - audit.endedAt > LATE * facts.auditEvery + DAY:
            yield warning(
                _AUDIT,
                f"{when}, and not since, although it is to be every {span(facts.auditEvery)}",
                "audits do not come to their end, or the daemon does not run for so long",
                f"look for 'scheduled audit' in the log; by hand: svcbroker audit {facts.dataDir}",
            )
        else:
            yield good(_AUDIT, when)
    if not facts.auditEvery and not facts.audits:
        yield good(
            _AUDIT,
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
