"""
Checks of stored data: the rights of the data directory, the chains, and the metadata store. The
stores are read as they are, also while a daemon writes them.
"""

from __future__ import annotations

import os
import stat
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

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
from ...broker.features import Records, StoredData, StoredLog
from ...chain import Genesis, Header, Malformed, ValidatorSet
from ...daemon.features import FEATURES
from ...ledgers.pbft import EVIDENCE_NAME
from ...model import InterfaceType
from ...net.bounds import amountText
from ...net.findings import DAY, Finding, date, good, listed, problem, warning
from ...proofs import ledgerOfCertificate
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
    """Check that the daemon, and only the daemon, can use the files of its data directory."""
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
            f"chmod -R go= {path}; if others use this machine, get new keys: svcbroker net nodes "
            f"rotate all --data-dir {path}",
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
    @ivar decidedBy: the kind of ledger that decided its blocks.
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
    decidedBy: str = "pbft"
    height: int = 0
    time: float = 0.0
    losses: Sequence[str] = ()
    damage: Sequence[str] = ()
    isCopy: bool = False
    evidence: str = ""


_KINDS: Final = frozenset({"pbft", "cometbft", "evm"})


def checkChain(facts: ChainFacts, dataDir: str) -> Iterator[Finding]:
    """Check that a chain can be served, as far as a quick look tells. An audit tells the rest."""
    subject = f"group {facts.group}"
    if not facts.exists:
        if facts.ledger in _KINDS:
            yield good(subject, "it has no chain yet: the daemon begins one")
        return
    if facts.isOlder:
        yield warning(
            subject,
            facts.error,
            "the daemon copies the file beside itself and upgrades it at its next start: it needs "
            "room for that, and older releases cannot read it afterwards",
            f"stop the daemon, copy the data (cp -a {dataDir} TARGET; svcbroker chain backup "
            "needs the "
            "release that has written it), and start (docs/upgrades)",
        )
        return
    if facts.error:
        yield problem(
            subject,
            facts.error,
            "the daemon does not start",
            f"svcbroker chain audit {dataDir} says more; docs/backup says how to go on",
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
            f"restore the newest backup (docs/backup); svcbroker chain audit {dataDir} names "
            "the place",
        )
    for text in facts.damage:
        yield problem(
            subject,
            text,
            "the daemon may not start, or not go on with the chain",
            f"put the file back from a backup (docs/backup); then: svcbroker chain audit {dataDir}",
        )
    if facts.evidence:
        yield problem(
            subject,
            f"a replica has signed two blocks of one height: {facts.evidence} has both signatures",
            "two processes have used one key: two copies of the data directory were served, or the "
            "key is in other hands",
            "stop all but one broker with these keys; then: svcbroker net nodes rotate all "
            f"--data-dir {dataDir}",
        )
    if facts.isCopy and facts.ledger in _KINDS:
        yield problem(
            subject,
            f"it is a copy of another broker's chain, and is configured for {facts.ledger}",
            "the daemon does not start: two brokers would go on with one chain",
            "--ledger copy:url=…, or once the original is gone for good: svcbroker chain promote "
            f"{dataDir}",
        )
        return
    kind = facts.decidedBy
    if facts.height and facts.ledger in _KINDS and facts.ledger != kind:
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
                        decidedBy=ledgerOfCertificate(last.certificate),
                    )
                    growth = _growthOf(snapshot, facts.height, now)
                if facts.decidedBy == "pbft":
                    validators = _validatorsOf(snapshot)
    except StorageOutdated as error:
        return evolve(facts, error=str(error), isOlder=True), growth
    except (StorageError, Malformed) as error:
        return evolve(facts, error=str(error)), growth
    beside = Findings(directory.name)
    auditGroupFiles(directory, validators, keys, beside, hasEngine=facts.decidedBy != "pbft")
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


_METADATA = "metadata store"


@frozen(kw_only=True)
class MetadataFacts:
    """
    Facts about the metadata store.

    @ivar error: why it cannot be read; empty where it can.
    @ivar damage: what is wrong with its records.
    @ivar lost: what it has lost, which is not accepted yet; empty where nothing is.
    @ivar records: what is in it, where all of it can be read.
    """

    error: str = ""
    damage: Sequence[str] = ()
    lost: str = ""
    records: Mapping[str, Mapping[str, bytes]] = {}


def checkMetadata(facts: MetadataFacts) -> Iterator[Finding]:
    """Check whether the store can be read, and is whole."""
    for text in (facts.error, *facts.damage):
        if text:
            yield problem(
                _METADATA,
                text,
                "the daemon does not start: positions, sessions and webhooks are kept there",
                "put notes.sqlite back from a backup; or move all of notes.sqlite* away, and all "
                "subscriptions begin anew",
            )
    if facts.lost:
        yield problem(
            _METADATA,
            facts.lost,
            "readyz answers 503: webhooks that are missing deliver nothing",
            "put notes.sqlite back from a backup; or remove notes.sqlite-last, to go on without "
            "what is missing",
        )


def readMetadata(dataDir: Path) -> MetadataFacts:
    """Look at the metadata store of a data directory."""
    path = dataDir / METADATA_NAME
    # Read first: a running broker goes on writing.
    known, writes = readWrites(path), b"0"
    if not path.exists():
        return MetadataFacts(lost=findLostWrites(path, known, 0))
    records: dict[str, dict[str, bytes]] = {}
    try:
        with Snapshot.ofMetadata(path) as snapshot, snapshot.moment():
            for kind, name, value in snapshot.rows("SELECT kind, name, value FROM note"):
                if (kind, name) == METADATA_WRITES:
                    writes = value
                else:
                    records.setdefault(kind, {})[name] = value
    except StorageOutdated:
        return MetadataFacts()
    except StorageError as error:
        return MetadataFacts(error=str(error))
    findings = Findings("")
    auditDataDirectoryFiles(dataDir, findings)
    lost = findLostWrites(path, known, int(writes)) if writes.isdigit() else ""
    damage = [
        f"{each.place}: {each.problem}"
        for each in findings.kept
        if each.isDamage and each.problem != lost
    ]
    return MetadataFacts(lost=lost, damage=damage, records={} if damage else records)


@contextmanager
def readData(
    dataDir: Path, records: Records, chains: Mapping[str, ChainFacts], now: float
) -> Iterator[StoredData]:
    """
    A data directory, for the checks of features.

    @param records: those of its metadata store.
    @param chains: the facts about the chains of the groups that are served.
    """
    with ExitStack() as stack:
        logs = {}
        for group, chain in chains.items():
            if chain.height and not chain.error:
                snapshot = stack.enter_context(Snapshot.ofLedger(dataDir / group / STORE_NAME))
                timeOf = partial(_timeOf, snapshot.reader())
                logs[group] = StoredLog(height=chain.height, timeOf=timeOf)
        owners: dict[str, tuple[InterfaceType, str] | None] = {}
        for feature in FEATURES:
            owners.update(feature.owners(records))
        yield StoredData(dataDir=str(dataDir), now=now, records=records, logs=logs, owners=owners)
