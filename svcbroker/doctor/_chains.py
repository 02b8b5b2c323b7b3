"""
The chains: whether their files can be opened, end where they should, and were audited.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final

from attrs import evolve, frozen

from ..archive import (
    COPY_NAME,
    KEYS_NAME,
    STORE_NAME,
    Findings,
    auditGroupFiles,
    readKeyFiles,
)
from ..chain import Genesis, Header, Malformed, ValidatorSet
from ..ledgers.pbft import EVIDENCE_NAME
from ..proofs import isEngineCertificate
from ..storage import (
    ChainReader,
    Snapshot,
    StorageError,
    StorageOutdated,
    findLoss,
    readTip,
)
from ._findings import DAY, Finding, date, good, problem, warning


@frozen(kw_only=True)
class ChainFacts:
    """
    What is known of a group's chain.

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
    """Whether a chain can be served, as far as a quick look tells. An audit tells the rest."""
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
