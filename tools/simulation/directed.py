"""
Schedules written by hand, for attacks that random schedules find too rarely.

Each plays one attack on a L{Harness} of four replicas, of which Z is Byzantine. Correct replicas
withstand it: no two of them decide different blocks. Without the rule that the attack aims at, the
judge reports a violation. To see why a rule of round changes is needed, read its schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from svcbroker.chain import Certificate, Phase
from svcbroker.ledgers.pbft._messages import (
    DecidedBlock,
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    Vote,
)

from .harness import A, B, C, Harness, Z
from .judge import ERROR, Violation
from .replicas import Components
from .trace import Trace


def _proposed(harness: Harness, round: int, leader: int) -> ProposedBlock:
    proposal = harness.sent("proposal", round, leader)
    assert isinstance(proposal, Proposal)
    return proposal.block


def _vote(harness: Harness, phase: Phase, round: int, block: ProposedBlock) -> Vote:
    return harness.adversary.vote(Z, phase, block.header.height, round, block.header.hash)


def _decideAtA(harness: Harness) -> ProposedBlock:
    """
    Only A decides X in round 0, and is then cut off. B and C are locked on X.
    """
    harness.deliver("proposal", 0, [B], A)
    harness.deliver("proposal", 0, [B], C)
    x = _proposed(harness, 0, B)
    for node in (A, B, C):
        harness.deliver("prepare", 0, [A, B, C], node)
    harness.deliver("commit", 0, [B, C], A)
    return x


def _leaveRoundToZ(harness: Harness) -> None:
    """
    B and C enter round 2, which Z leads; Z speeds this up by entering it first.
    """
    harness.timeOut(B, C)
    ahead = harness.adversary.roundChange(Z, 1, 2)
    for node, other in ((B, C), (C, B)):
        harness.deliver("round-change", 1, [other], node)
        harness.receive(node, ahead)
    harness.timeOut(B, C)


def _proposeFalsely(
    harness: Harness, block: ProposedBlock, justification: Sequence[RoundChange]
) -> None:
    """
    Z proposes a block in round 2 with a false justification, and votes for it.
    """
    for node in (B, C):
        harness.receive(node, harness.adversary.proposal(Z, 2, block, justification))
    _completeRound(harness, 2, block, B, C)


def _completeRound(harness: Harness, round: int, block: ProposedBlock, *nodes: int) -> None:
    for kind, phase in (("prepare", Phase.PREPARE), ("commit", Phase.COMMIT)):
        for node in nodes:
            sent = [other for other in nodes if harness.hasSent(kind, round, other)]
            harness.deliver(kind, round, sent, node)
            harness.receive(node, _vote(harness, phase, round, block))


def _claim(
    harness: Harness, block: ProposedBlock, signatures: Sequence[tuple[int, bytes]]
) -> RoundChange:
    """Z claims a lock on a block in round 1."""
    certificate = PreparedCertificate(
        round=1, digest=block.header.hash, signatures=tuple(signatures)
    )
    return harness.adversary.roundChange(Z, 1, 2, certificate, block)


def unjustified(harness: Harness) -> None:
    """Z proposes Y without any round changes."""
    _decideAtA(harness)
    _leaveRoundToZ(harness)
    _proposeFalsely(harness, harness.variant(2), ())


def duplicateSenders(harness: Harness) -> None:
    """Z justifies Y by its own round change, three times."""
    _decideAtA(harness)
    _leaveRoundToZ(harness)
    _proposeFalsely(harness, harness.variant(2), [harness.adversary.roundChange(Z, 1, 2)] * 3)


def forgedSenders(harness: Harness) -> None:
    """Z justifies Y by forged round changes of B and C."""
    _decideAtA(harness)
    _leaveRoundToZ(harness)
    own = harness.adversary.roundChange(Z, 1, 2)
    _proposeFalsely(
        harness, harness.variant(2), [own, replace(own, sender=B), replace(own, sender=C)]
    )


def emptyCertificate(harness: Harness) -> None:
    """
    Z claims a lock on Y in round 1 without signatures. The round changes of B and C claim their
    locks on X in round 0.
    """
    _decideAtA(harness)
    _leaveRoundToZ(harness)
    y = harness.variant(2)
    _proposeFalsely(harness, y, [_claim(harness, y, ()), *harness.changes(2, B, C)])


def duplicateSigners(harness: Harness) -> None:
    """Z claims a lock on Y in round 1 with its own signature, three times."""
    _decideAtA(harness)
    _leaveRoundToZ(harness)
    y = harness.variant(2)
    signed = (Z, _vote(harness, Phase.PREPARE, 1, y).signature)
    _proposeFalsely(harness, y, [_claim(harness, y, [signed] * 3), *harness.changes(2, B, C)])


def tooFewSigners(harness: Harness) -> None:
    """Z claims a lock on Y in round 1 with its own signature, once."""
    _decideAtA(harness)
    _leaveRoundToZ(harness)
    y = harness.variant(2)
    signed = (Z, _vote(harness, Phase.PREPARE, 1, y).signature)
    _proposeFalsely(harness, y, [_claim(harness, y, [signed]), *harness.changes(2, B, C)])


def lostLock(harness: Harness) -> None:
    """
    Only A decides X. B and C crash and restart in round 1, which C leads. If they have lost their
    locks on X, C proposes another block.
    """
    _decideAtA(harness)
    harness.crash(B, C)
    harness.receive(C, harness.adversary.roundChange(Z, 1, 1))
    harness.deliver("round-change", 1, [B], C)
    block = _proposed(harness, 1, C)
    harness.deliver("proposal", 1, [C], B)
    _completeRound(harness, 1, block, B, C)


def _lockA(harness: Harness) -> ProposedBlock:
    """
    Only A is locked on X in round 0. A, B and C enter round 1, which C leads.
    """
    harness.deliver("proposal", 0, [B], A)
    harness.deliver("proposal", 0, [B], C)
    harness.deliver("prepare", 0, [B, C], A)
    harness.timeOut(A, B, C)
    return _proposed(harness, 0, B)


def _proposeY(harness: Harness) -> ProposedBlock:
    """
    C proposes Y in round 1, since B, C and Z are not locked.
    """
    harness.receive(C, harness.adversary.roundChange(Z, 1, 1))
    harness.deliver("round-change", 1, [B], C)
    return _proposed(harness, 1, C)


def _decideAtC(harness: Harness, block: ProposedBlock, other: int) -> None:
    """
    Only C decides a block in round 1, with the votes of another replica and of Z.
    """
    harness.deliver("proposal", 1, [C], other)
    for node in (other, C):
        harness.deliver("prepare", 1, [other, C], node)
        harness.receive(node, _vote(harness, Phase.PREPARE, 1, block))
    harness.deliver("commit", 1, [other], C)
    harness.receive(C, _vote(harness, Phase.COMMIT, 1, block))


def _changeRound(harness: Harness, round: int, *nodes: int) -> None:
    """
    Some replicas leave a round that A, B and C have entered.
    """
    for node in nodes:
        harness.deliver("round-change", round, [A, B, C], node)
    harness.timeOut(*nodes)


def _lockTwice(harness: Harness) -> ProposedBlock:
    """
    A is locked on X in round 0. Only C decides Y in round 1, and is then cut off. B is locked on Y.
    A and B enter round 2.

    @return: X.
    """
    x = _lockA(harness)
    _decideAtC(harness, _proposeY(harness), B)
    _changeRound(harness, 1, A, B)
    return x


def unboundCertificate(harness: Harness) -> None:
    """Z claims a lock on X in round 1 with the signatures of round 0."""
    x = _lockTwice(harness)
    certificate = harness.changes(2, A)[0].prepared
    assert certificate is not None
    lie = _claim(harness, x, certificate.signatures)
    harness.receive(A, harness.adversary.proposal(Z, 2, x, [lie, *harness.changes(2, A, B)]))
    harness.receive(B, harness.adversary.proposal(Z, 2, x, [lie, *harness.changes(2, A, B)]))
    _completeRound(harness, 2, x, A, B)


def lowestPrepared(harness: Harness) -> None:
    """Z proposes X again, although B was locked on Y in a later round."""
    x = _lockTwice(harness)
    justification = [harness.adversary.roundChange(Z, 1, 2), *harness.changes(2, A, B)]
    for node in (A, B):
        harness.receive(node, harness.adversary.proposal(Z, 2, x, justification))
    _completeRound(harness, 2, x, A, B)


def _lockApart(harness: Harness) -> tuple[ProposedBlock, ProposedBlock]:
    """
    A is locked on X in round 0, and B on Y in round 1. A, B and C enter round 2.

    @return: X and Y.
    """
    x = _lockA(harness)
    y = _proposeY(harness)
    harness.deliver("proposal", 1, [C], B)
    harness.receive(B, _vote(harness, Phase.PREPARE, 1, y))
    _changeRound(harness, 1, A, B, C)
    return x, y


def lockedApart(harness: Harness) -> tuple[ProposedBlock, ProposedBlock]:
    """
    A and B are locked on different blocks. Z is silent, so all three correct replicas are needed.
    They enter round 3, which A leads, and decide.

    @return: X and Y.
    """
    x, y = _lockApart(harness)
    _changeRound(harness, 2, A, B, C)
    harness.deliver("round-change", 3, [B, C], A)
    for node in (B, C):
        harness.deliver("proposal", 3, [A], node)
    for kind in ("prepare", "commit"):
        for node in (A, B, C):
            harness.deliver(kind, 3, [A, B, C], node)
    return x, y


def highestView(harness: Harness) -> None:
    """
    X was first proposed before Y, but locked on after it. In round 2 Z proposes X to A and C, which
    are locked on it again, and only A decides it. In round 4 B has to propose X, although B itself
    is locked on Y.
    """
    x, _ = _lockApart(harness)
    justification = [harness.adversary.roundChange(Z, 1, 2), *harness.changes(2, A, C)]
    for node in (A, C):
        harness.receive(node, harness.adversary.proposal(Z, 2, x, justification))
    for node in (A, C):
        harness.deliver("prepare", 2, [A, C], node)
    harness.deliver("commit", 2, [C], A)
    harness.receive(A, _vote(harness, Phase.COMMIT, 2, x))
    _changeRound(harness, 2, B, C)
    ahead = harness.adversary.roundChange(Z, 1, 4)
    for node, other in ((B, C), (C, B)):
        harness.receive(node, ahead)
        harness.deliver("round-change", 3, [other], node)
    harness.timeOut(B, C)
    harness.deliver("round-change", 4, [C], B)
    harness.deliver("proposal", 4, [B], C)
    _completeRound(harness, 4, _proposed(harness, 4, B), B, C)


def firstLock(harness: Harness) -> None:
    """
    A is locked on X in round 0 and on Y in round 1, where only C decides Y. If A then reports its
    first lock, Z may propose X in round 2.
    """
    x = _lockA(harness)
    y = _proposeY(harness)
    harness.deliver("proposal", 1, [C], B)
    _decideAtC(harness, y, A)
    _changeRound(harness, 1, A, B)
    justification = [harness.adversary.roundChange(Z, 1, 2), *harness.changes(2, A, B)]
    for node in (A, B):
        harness.receive(node, harness.adversary.proposal(Z, 2, x, justification))
    _completeRound(harness, 2, x, A, B)


def fewRoundChanges(harness: Harness) -> None:
    """Only A decides X, with the votes of B and Z. Z justifies Y by its own round change and that
    of C, which is not locked."""
    harness.deliver("proposal", 0, [B], A)
    x = _proposed(harness, 0, B)
    for node in (A, B):
        harness.deliver("prepare", 0, [A, B], node)
        harness.receive(node, _vote(harness, Phase.PREPARE, 0, x))
    harness.deliver("commit", 0, [B], A)
    harness.receive(A, _vote(harness, Phase.COMMIT, 0, x))
    _leaveRoundToZ(harness)
    justification = [harness.adversary.roundChange(Z, 1, 2), *harness.changes(2, C)]
    _proposeFalsely(harness, harness.variant(2), justification)


def unsignedCommit(harness: Harness) -> None:
    """A has the commits of A and B. Z sends a commit with a wrong signature."""
    for node in (A, C):
        harness.deliver("proposal", 0, [B], node)
    for node in (A, B):
        harness.deliver("prepare", 0, [A, B, C], node)
    harness.deliver("commit", 0, [B], A)
    commit = _vote(harness, Phase.COMMIT, 0, _proposed(harness, 0, B))
    harness.receive(A, replace(commit, signature=bytes(64)))


def preparesAsCommits(harness: Harness) -> None:
    """A, B and C have prepared X. Z sends B the prepares of A, C and Z as a commit certificate."""
    for node in (A, C):
        harness.deliver("proposal", 0, [B], node)
    x = _proposed(harness, 0, B)
    prepares = [*(harness.sent("prepare", 0, node) for node in (A, C))]
    prepares.append(_vote(harness, Phase.PREPARE, 0, x))
    signatures = [(vote.sender, vote.signature) for vote in prepares if isinstance(vote, Vote)]
    certificate = Certificate(round=0, signatures=signatures)
    harness.receive(B, DecidedBlock(sender=Z, header=x.header, certificate=certificate))


DIRECTED: Mapping[str, Callable[[Harness], None]] = {
    "unjustified": unjustified,
    "duplicate senders": duplicateSenders,
    "forged senders": forgedSenders,
    "empty certificate": emptyCertificate,
    "duplicate signers": duplicateSigners,
    "too few signers": tooFewSigners,
    "lost lock": lostLock,
    "unbound certificate": unboundCertificate,
    "lowest prepared": lowestPrepared,
    "highest view": highestView,
    "first lock": firstLock,
    "few round changes": fewRoundChanges,
    "unsigned commit": unsignedCommit,
    "prepares as commits": preparesAsCommits,
}
"""All directed schedules, by name."""


def play(name: str, components: Components, trace: Trace | None = None) -> Violation | None:
    """
    Play a directed schedule.

    @return: the violation, if any.
    """
    try:
        DIRECTED[name](Harness(components, trace))
    except Violation as violation:
        return violation
    except (KeyError, AssertionError) as error:
        # A replica has not sent a message that the script needs.
        return Violation(ERROR, f"the schedule {name} cannot be played: {error!r}")
    return None
