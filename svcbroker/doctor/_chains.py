"""
The chains: whether their files can be opened, end where they should, and were audited.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from ._findings import Finding, date, good, problem, warning


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
