"""
Schedules written by hand, for attacks that random schedules find too rarely.

Each plays one attack on a L{Harness}, mostly of four replicas, of which Z is Byzantine. Correct
replicas withstand it: no two of them decide different blocks. Without the rule that the attack aims
at, the judge reports a violation. To see why a rule of round changes is needed, read its schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen
from msgspec.structs import replace

from svcbroker.chain import Certificate, Phase
from svcbroker.ledgers.pbft._keys import DoubleSign
from svcbroker.ledgers.pbft._protocol import (
    DecidedBlock,
    PhaseVote,
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
)

from .harness import A, B, C, Harness, Z
from .judge import ERROR, SIGNATURE, Violation
from .replicas import Components
from .trace import Trace


def _proposed(harness: Harness, round: int, leader: int) -> ProposedBlock:
    proposal = harness.sent("proposal", round, leader)
    assert isinstance(proposal, Proposal)
    return proposal.block


def _vote(harness: Harness, phase: Phase, round: int, block: ProposedBlock) -> PhaseVote:
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
    signatures = [(vote.sender, vote.signature) for vote in prepares if isinstance(vote, PhaseVote)]
    certificate = Certificate(round=0, signatures=signatures)
    harness.receive(B, DecidedBlock(sender=Z, header=x.header, certificate=certificate))


def _skipToB(harness: Harness, *nodes: int) -> None:
    """
    Two replicas leave round 2 and enter round 4, which B leads again; Z speeds this up by entering
    it first.
    """
    _changeRound(harness, 2, *nodes)
    ahead = harness.adversary.roundChange(Z, 1, 4)
    for node in nodes:
        harness.receive(node, ahead)
        harness.deliver("round-change", 3, nodes, node)
    harness.timeOut(*nodes)


def _proposeAgain(harness: Harness, round: int, leader: int, other: int) -> None:
    """
    A correct leader proposes with the round changes of another replica and of Z, and the three
    decide.
    """
    harness.receive(leader, harness.adversary.roundChange(Z, 1, round))
    harness.deliver("round-change", round, [other], leader)
    if harness.hasSent("proposal", round, leader):
        harness.deliver("proposal", round, [leader], other)
        _completeRound(harness, round, _proposed(harness, round, leader), leader, other)


def _proposeFromZ(harness: Harness, block: ProposedBlock, *nodes: int) -> None:
    """Z proposes a block in round 2, justified by the round changes of A, B and C."""
    for node in nodes:
        justification = harness.changes(2, A, B, C)
        harness.receive(node, harness.adversary.proposal(Z, 2, block, justification))


def _enterRoundOfZ(harness: Harness) -> None:
    """A, B and C enter round 2 without a lock."""
    harness.timeOut(A, B, C)
    _changeRound(harness, 1, A, B, C)


def earlierRoundChanges(harness: Harness) -> None:
    """
    Only C decides Y in round 1. B is locked on Y. Z justifies another block in round 2 by the
    round changes to round 1, which no lock is in.
    """
    harness.timeOut(A, B, C)
    _decideAtC(harness, _proposeY(harness), B)
    _changeRound(harness, 1, A, B)
    other = harness.variant(2)
    old = [harness.adversary.roundChange(Z, 1, 1), *harness.changes(1, A, B)]
    for node in (A, B):
        harness.receive(node, harness.adversary.proposal(Z, 2, other, old))
    _completeRound(harness, 2, other, A, B)


def otherBlock(harness: Harness) -> None:
    """Z claims the lock on X that B has, and puts Y beside its certificate."""
    _decideAtA(harness)
    _leaveRoundToZ(harness)
    y = harness.variant(2)
    certificate = harness.changes(2, B)[0].prepared
    lie = harness.adversary.roundChange(Z, 1, 2, certificate, y)
    _proposeFalsely(harness, y, [lie, *harness.changes(2, B, C)])


def misledLeader(harness: Harness) -> None:
    """
    A is locked on X. Z sends C, the leader of round 1, the certificate of that lock with another
    block. C has to propose X nevertheless.
    """
    x = _lockA(harness)
    certificate = harness.changes(1, A)[0].prepared
    lie = harness.adversary.roundChange(Z, 1, 1, certificate, harness.variant(0, 1))
    assert x.header.hash != harness.variant(0, 1).header.hash
    harness.receive(C, lie)
    harness.deliver("round-change", 1, [A, B], C)
    _decideTogether(harness, 1, C)


def _decideTogether(harness: Harness, round: int, leader: int) -> None:
    """A, B and C decide what a leader proposes; they must, since nothing is lost."""
    if harness.hasSent("proposal", round, leader):
        for kind in ("proposal", "prepare", "commit"):
            for node in (A, B, C):
                senders = [leader] if kind == "proposal" else [A, B, C]
                sent = [other for other in senders if harness.hasSent(kind, round, other)]
                harness.deliver(kind, round, sent, node)
    harness.mustDecide(A, B, C)


def commitsOfTwoRounds(harness: Harness) -> None:
    """
    A is locked on X in round 0, and B on Y in round 1. In round 2 Z proposes X to A and C, and only
    C is locked on it. If the commit of A in round 0 counts, C decides X; but A reports the lock of
    round 0, which is below that of B.
    """
    x, _ = _lockApart(harness)
    justification = [harness.adversary.roundChange(Z, 1, 2), *harness.changes(2, A, C)]
    for node in (A, C):
        harness.receive(node, harness.adversary.proposal(Z, 2, x, justification))
    harness.deliver("prepare", 2, [A], C)
    harness.receive(C, _vote(harness, Phase.COMMIT, 2, x))
    harness.deliver("commit", 0, [A], C)
    _changeRound(harness, 2, A, B)
    harness.receive(A, harness.adversary.roundChange(Z, 1, 3))
    harness.deliver("round-change", 3, [B], A)
    harness.deliver("proposal", 3, [A], B)
    _completeRound(harness, 3, _proposed(harness, 3, A), A, B)


def leaderTwice(harness: Harness) -> None:
    """
    Z leads round 2 and proposes X to A and C, and Y to B. Only A decides X. If the proposal of Z
    and its prepare count as two, B is locked on Y with them and its own.
    """
    _enterRoundOfZ(harness)
    x, y = harness.variant(2), harness.variant(2, 1)
    _proposeFromZ(harness, x, A, C)
    _proposeFromZ(harness, y, B)
    for node, other in ((A, C), (C, A)):
        harness.deliver("prepare", 2, [other], node)
    harness.receive(B, _vote(harness, Phase.PREPARE, 2, y))
    harness.deliver("commit", 2, [C], A)
    harness.receive(A, _vote(harness, Phase.COMMIT, 2, x))
    _skipToB(harness, B, C)
    _proposeAgain(harness, 4, B, C)


def chosenView(harness: Harness) -> None:
    """Z proposes a block of a view in which it leads, but which nobody is in."""
    _enterRoundOfZ(harness)
    block = harness.variant(1_000_000_002)
    _proposeFromZ(harness, block, A, B, C)
    _completeRound(harness, 2, block, A, B, C)


def commitWithoutBlock(harness: Harness) -> None:
    """
    Z proposes X to A and B. C knows only their prepares and that of Z. If C commits, A decides X
    with A, C and Z, and neither B nor C is locked on it.
    """
    _enterRoundOfZ(harness)
    x = harness.variant(2)
    _proposeFromZ(harness, x, A, B)
    for node in (A, C):
        harness.deliver("prepare", 2, [A, B], node)
        harness.receive(node, _vote(harness, Phase.PREPARE, 2, x))
    if harness.hasSent("commit", 2, C):
        harness.deliver("commit", 2, [C], A)
    harness.receive(A, _vote(harness, Phase.COMMIT, 2, x))
    _skipToB(harness, B, C)
    _proposeAgain(harness, 4, B, C)


def leaderUnlocked(harness: Harness) -> None:
    """
    Only A decides X, with the votes of B, which leads the round, and of Z. B must be locked on X.
    """
    harness.deliver("proposal", 0, [B], A)
    x = _proposed(harness, 0, B)
    for node in (A, B):
        harness.deliver("prepare", 0, [A, B], node)
        harness.receive(node, _vote(harness, Phase.PREPARE, 0, x))
    harness.deliver("commit", 0, [B], A)
    harness.receive(A, _vote(harness, Phase.COMMIT, 0, x))
    harness.timeOut(B, C)
    _proposeAgain(harness, 1, C, B)


def twoQuorums(harness: Harness) -> None:
    """
    Of 5, 6 or 8 replicas, f+1 correct ones decide X with the f Byzantine ones, and f+1 others then
    decide Y with them: 2f+1 each.
    """
    bad = harness.byzantine
    few = len(bad) + 1
    first, second = range(few), range(few, 2 * few)
    x = _proposed(harness, 0, B)
    for node in first:
        harness.deliver("proposal", 0, [B], node)
    _voteTogether(harness, 0, x, first)
    # The replicas of the second group enter the first round that one of them leads.
    round = second[0] - 1
    for number in range(round):
        harness.timeOut(*second)
        for node in second:
            harness.receive(node, *(harness.adversary.roundChange(z, 1, number + 1) for z in bad))
            sent = [n for n in second if harness.hasSent("round-change", number + 1, n)]
            harness.deliver("round-change", number + 1, sent, node)
    if harness.hasSent("proposal", round, second[0]):
        for node in second:
            harness.deliver("proposal", round, second[:1], node)
        _voteTogether(harness, round, _proposed(harness, round, second[0]), second)


def _voteTogether(harness: Harness, round: int, block: ProposedBlock, nodes: Sequence[int]) -> None:
    """Some correct replicas get the votes of each other and of all Byzantine ones."""
    digest = block.header.hash
    for kind, phase in (("prepare", Phase.PREPARE), ("commit", Phase.COMMIT)):
        for node in nodes:
            sent = [other for other in nodes if harness.hasSent(kind, round, other)]
            harness.deliver(kind, round, sent, node)
            harness.receive(
                node,
                *(harness.adversary.vote(z, phase, 1, round, digest) for z in harness.byzantine),
            )


def numberedAnew(harness: Harness) -> None:
    """Z justifies Y by its own round change, under two numbers beside its own."""
    _decideAtA(harness)
    _leaveRoundToZ(harness)
    own = harness.adversary.roundChange(Z, 1, 2)
    justification = [own, replace(own, sender=Z - 4), replace(own, sender=Z + 4)]
    _proposeFalsely(harness, harness.variant(2), justification)


def mostClaimed(harness: Harness) -> None:
    """Z claims the lock on X that A has had since round 0, although B is locked on Y later."""
    x = _lockTwice(harness)
    [change] = harness.changes(2, A)
    lie = harness.adversary.roundChange(Z, 1, 2, change.prepared, x)
    for node in (A, B):
        justification = [lie, *harness.changes(2, A, B)]
        harness.receive(node, harness.adversary.proposal(Z, 2, x, justification))
    _completeRound(harness, 2, x, A, B)


def lateCommit(harness: Harness) -> None:
    """
    A is locked on X by the same messages as bring it to round 1. Its commit would be of that round,
    where it then commits Y.
    """
    harness.deliver("proposal", 0, [B], A)
    harness.deliver("proposal", 0, [B], C)
    ahead = harness.adversary.roundChange(Z, 1, 1)
    harness.timeOut(B, C)
    harness.receiveTogether(A, harness.sent("prepare", 0, C), *harness.changes(1, C), ahead)
    y = _proposeY(harness)
    harness.deliver("proposal", 1, [C], B)
    _decideAtC(harness, y, A)


def latePrepare(harness: Harness) -> None:
    """
    A receives X with the messages that bring it to round 1. Its prepare would be of that round,
    where it then prepares Y.
    """
    ahead = harness.adversary.roundChange(Z, 1, 1)
    harness.timeOut(B, C)
    harness.receiveTogether(A, harness.sent("proposal", 0, B), *harness.changes(1, C), ahead)
    _decideAtC(harness, _proposeY(harness), A)


def anyProposer(harness: Harness) -> None:
    """
    Z, which does not lead round 0, proposes a block of its own to A and another one to C. A
    proposal counts as the leader's prepare, but the others refuse a certificate with it.
    """
    for node, delay in ((A, 1), (C, 2)):
        block = harness.variant(0, delay)
        harness.receive(node, harness.adversary.proposal(Z, 0, block, ()))
        harness.receive(node, _vote(harness, Phase.PREPARE, 0, block))
    harness.timeOut(A, B, C)
    harness.deliver("round-change", 1, [A, B], C)
    _decideTogether(harness, 1, C)


def hastyLeader(harness: Harness) -> None:
    """
    A is locked on X. C, the leader of round 1, must wait for a quorum of round changes, although
    that of Z comes first.
    """
    _lockA(harness)
    harness.receive(C, harness.adversary.roundChange(Z, 1, 1))
    harness.deliver("round-change", 1, [A, B], C)
    _decideTogether(harness, 1, C)


@frozen
class Script:
    """
    A schedule written by hand.

    @ivar nodes: how many replicas it needs.
    """

    run: Callable[[Harness], None]
    nodes: int = 4


DIRECTED: Mapping[str, Script] = {
    "unjustified": Script(unjustified),
    "duplicate senders": Script(duplicateSenders),
    "forged senders": Script(forgedSenders),
    "empty certificate": Script(emptyCertificate),
    "duplicate signers": Script(duplicateSigners),
    "too few signers": Script(tooFewSigners),
    "lost lock": Script(lostLock),
    "unbound certificate": Script(unboundCertificate),
    "lowest prepared": Script(lowestPrepared),
    "highest view": Script(highestView),
    "first lock": Script(firstLock),
    "few round changes": Script(fewRoundChanges),
    "unsigned commit": Script(unsignedCommit),
    "prepares as commits": Script(preparesAsCommits),
    "earlier round changes": Script(earlierRoundChanges),
    "other block": Script(otherBlock),
    "misled leader": Script(misledLeader),
    "commits of two rounds": Script(commitsOfTwoRounds),
    "leader twice": Script(leaderTwice),
    "chosen view": Script(chosenView),
    "commit without block": Script(commitWithoutBlock),
    "leader unlocked": Script(leaderUnlocked),
    "two quorums of 5": Script(twoQuorums, 5),
    "two quorums of 6": Script(twoQuorums, 6),
    "two quorums of 8": Script(twoQuorums, 8),
    "numbered anew": Script(numberedAnew),
    "most claimed": Script(mostClaimed),
    "late commit": Script(lateCommit),
    "late prepare": Script(latePrepare),
    "any proposer": Script(anyProposer),
    "hasty leader": Script(hastyLeader),
}
"""All directed schedules, by name."""


def play(name: str, components: Components, trace: Trace | None = None) -> Violation | None:
    """
    Play a directed schedule.

    @return: the violation, if any.
    """
    script = DIRECTED[name]
    try:
        script.run(Harness(components, trace, script.nodes))
    except Violation as violation:
        return violation
    except DoubleSign as error:
        return Violation(SIGNATURE, f"a replica tried to sign twice: {error}")
    except (KeyError, AssertionError) as error:
        # A replica has not sent a message that the script needs.
        return Violation(ERROR, f"the schedule {name} cannot be played: {error!r}")
    return None
