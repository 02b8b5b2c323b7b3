"""
Schedules written by hand, for what random ones find too rarely.

Each takes a L{Stage} of four nodes, of which Z is the traitor, and plays one attack on it. Sound
replicas come through: nobody decides two blocks. Where the rule that the attack is aimed at is
missing, the judge sees a fork. Who wants to know why a rule of round changes is there may read its
schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from svcbroker.chain import Phase
from svcbroker.ledgers.pbft._messages import (
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    Vote,
)

from .judge import ERROR, Violation
from .replicas import Parts
from .stage import A, B, C, Stage, Z
from .trace import Trace


def _proposed(stage: Stage, round: int, leader: int) -> ProposedBlock:
    proposal = stage.said("proposal", round, leader)
    assert isinstance(proposal, Proposal)
    return proposal.block


def _vote(stage: Stage, phase: Phase, round: int, block: ProposedBlock) -> Vote:
    return stage.plot.vote(Z, phase, block.header.height, round, block.header.hash)


def _decided(stage: Stage) -> ProposedBlock:
    """
    A alone decides X in round 0, and is not heard of any more. B and C are bound to X.
    """
    stage.pass_("proposal", 0, [B], A)
    stage.pass_("proposal", 0, [B], C)
    x = _proposed(stage, 0, B)
    for node in (A, B, C):
        stage.pass_("prepare", 0, [A, B, C], node)
    stage.pass_("commit", 0, [B, C], A)
    return x


def _alone(stage: Stage) -> ProposedBlock:
    """
    A alone decides X. B and C come to round 2, which is Z's. Z lets them: it says that it is there
    already.
    """
    x = _decided(stage)
    stage.timeOut(B, C)
    ahead = stage.plot.roundChange(Z, 1, 2)
    for node, other in ((B, C), (C, B)):
        stage.pass_("round-change", 1, [other], node)
        stage.hear(node, ahead)
    stage.timeOut(B, C)
    return x


def _usurped(stage: Stage, block: ProposedBlock, excuse: Sequence[RoundChange]) -> None:
    """
    Z proposes a block in round 2 with an excuse, and helps whoever takes it to decide it.
    """
    for node in (B, C):
        stage.hear(node, stage.plot.proposal(Z, 2, block, excuse))
    _helped(stage, 2, block, B, C)


def _helped(stage: Stage, round: int, block: ProposedBlock, *nodes: int) -> None:
    for kind, phase in (("prepare", Phase.PREPARE), ("commit", Phase.COMMIT)):
        for node in nodes:
            said = [other for other in nodes if stage.hasSaid(kind, round, other)]
            stage.pass_(kind, round, said, node)
            stage.hear(node, _vote(stage, phase, round, block))


def _claim(
    stage: Stage, block: ProposedBlock, signatures: Sequence[tuple[int, bytes]]
) -> RoundChange:
    """Z says that it was bound to a block in round 1."""
    certificate = PreparedCertificate(
        round=1, digest=block.header.hash, signatures=tuple(signatures)
    )
    return stage.plot.roundChange(Z, 1, 2, certificate, block)


def unjustified(stage: Stage) -> None:
    """Z proposes Y without any round changes."""
    _alone(stage)
    _usurped(stage, stage.variant(2), ())


def duplicateSenders(stage: Stage) -> None:
    """Z justifies Y by its own round change, three times."""
    _alone(stage)
    _usurped(stage, stage.variant(2), [stage.plot.roundChange(Z, 1, 2)] * 3)


def forgedSenders(stage: Stage) -> None:
    """Z justifies Y by round changes of B and C that these never signed."""
    _alone(stage)
    own = stage.plot.roundChange(Z, 1, 2)
    _usurped(stage, stage.variant(2), [own, replace(own, sender=B), replace(own, sender=C)])


def emptyCertificate(stage: Stage) -> None:
    """Z says that it was bound to Y in round 1, and shows no signatures. B's and C's round
    changes say that they are bound to X, in round 0."""
    _alone(stage)
    y = stage.variant(2)
    _usurped(stage, y, [_claim(stage, y, ()), *stage.changes(2, B, C)])


def duplicateSigners(stage: Stage) -> None:
    """The same, and Z shows its own signature, three times."""
    _alone(stage)
    y = stage.variant(2)
    signed = (Z, _vote(stage, Phase.PREPARE, 1, y).signature)
    _usurped(stage, y, [_claim(stage, y, [signed] * 3), *stage.changes(2, B, C)])


def tooFewSigners(stage: Stage) -> None:
    """The same, and Z shows its own signature, once."""
    _alone(stage)
    y = stage.variant(2)
    signed = (Z, _vote(stage, Phase.PREPARE, 1, y).signature)
    _usurped(stage, y, [_claim(stage, y, [signed]), *stage.changes(2, B, C)])


def lostLock(stage: Stage) -> None:
    """A alone decides X. B and C crash, and begin in round 1, which is C's. If they do not know any
    more that they are bound to X, C proposes another block."""
    _decided(stage)
    stage.crash(B, C)
    stage.hear(C, stage.plot.roundChange(Z, 1, 1))
    stage.pass_("round-change", 1, [B], C)
    block = _proposed(stage, 1, C)
    stage.pass_("proposal", 1, [C], B)
    _helped(stage, 1, block, B, C)


def _twice(stage: Stage) -> tuple[ProposedBlock, ProposedBlock]:
    """
    A alone is bound to X, in round 0. B and C do not know, and Y is proposed in round 1. C alone
    decides it, and is not heard of any more. B is bound to Y. A and B come to round 2.
    """
    stage.pass_("proposal", 0, [B], A)
    stage.pass_("proposal", 0, [B], C)
    x = _proposed(stage, 0, B)
    stage.pass_("prepare", 0, [B, C], A)
    stage.timeOut(A, B, C)
    free = stage.plot.roundChange(Z, 1, 1)
    stage.hear(C, free)
    stage.pass_("round-change", 1, [B], C)
    y = _proposed(stage, 1, C)
    stage.pass_("proposal", 1, [C], B)
    for node in (B, C):
        stage.pass_("prepare", 1, [B, C], node)
        stage.hear(node, _vote(stage, Phase.PREPARE, 1, y))
    stage.pass_("commit", 1, [B], C)
    stage.hear(C, _vote(stage, Phase.COMMIT, 1, y))
    for node, other in ((A, B), (B, A)):
        stage.pass_("round-change", 1, [other, C], node)
    stage.timeOut(A, B)
    return x, y


def unboundCertificate(stage: Stage) -> None:
    """Z says that it was bound to X in round 1, and shows the signatures of round 0."""
    x, _ = _twice(stage)
    certificate = stage.changes(2, A)[0].prepared
    assert certificate is not None
    lie = _claim(stage, x, certificate.signatures)
    stage.hear(A, stage.plot.proposal(Z, 2, x, [lie, *stage.changes(2, A, B)]))
    stage.hear(B, stage.plot.proposal(Z, 2, x, [lie, *stage.changes(2, A, B)]))
    _helped(stage, 2, x, A, B)


def lowestPrepared(stage: Stage) -> None:
    """Z proposes X again, although somebody was bound to Y later."""
    x, _ = _twice(stage)
    excuse = [stage.plot.roundChange(Z, 1, 2), *stage.changes(2, A, B)]
    for node in (A, B):
        stage.hear(node, stage.plot.proposal(Z, 2, x, excuse))
    _helped(stage, 2, x, A, B)


def boundApart(stage: Stage) -> tuple[ProposedBlock, ProposedBlock]:
    """
    A is bound to X, in round 0, and B to Y, in round 1. All three correct nodes are needed, and
    Z says nothing. They come to round 3, which is A's, and decide.

    @return: X and Y.
    """
    stage.pass_("proposal", 0, [B], A)
    stage.pass_("proposal", 0, [B], C)
    x = _proposed(stage, 0, B)
    stage.pass_("prepare", 0, [B, C], A)
    stage.timeOut(A, B, C)
    stage.hear(C, stage.plot.roundChange(Z, 1, 1))
    stage.pass_("round-change", 1, [B], C)
    y = _proposed(stage, 1, C)
    stage.pass_("proposal", 1, [C], B)
    stage.pass_("prepare", 1, [C], B)
    stage.hear(B, _vote(stage, Phase.PREPARE, 1, y))
    for round in (1, 2):
        for node in (A, B, C):
            stage.pass_("round-change", round, [A, B, C], node)
        stage.timeOut(A, B, C)
    stage.pass_("round-change", 3, [B, C], A)
    for node in (B, C):
        stage.pass_("proposal", 3, [A], node)
    for kind in ("prepare", "commit"):
        for node in (A, B, C):
            stage.pass_(kind, 3, [A, B, C], node)
    return x, y


DIRECTED: Mapping[str, Callable[[Stage], None]] = {
    "unjustified": unjustified,
    "duplicate senders": duplicateSenders,
    "forged senders": forgedSenders,
    "empty certificate": emptyCertificate,
    "duplicate signers": duplicateSigners,
    "too few signers": tooFewSigners,
    "lost lock": lostLock,
    "unbound certificate": unboundCertificate,
    "lowest prepared": lowestPrepared,
}
"""All of them."""


def play(name: str, parts: Parts, trace: Trace | None = None) -> Violation | None:
    """
    Play one of them.

    @return: what did not hold.
    """
    try:
        DIRECTED[name](Stage(parts, trace))
    except Violation as violation:
        return violation
    except (KeyError, AssertionError) as error:
        # Somebody has not said what the script needs: the protocol is broken in another way.
        return Violation(ERROR, f"the schedule {name} cannot be played: {error!r}")
    return None
