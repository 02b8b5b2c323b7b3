"""
What a replica has heard of one round.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define

from ...chain import Candidate, Phase
from ._messages import Proposal, RoundChange, Vote

_PREPARE = Phase.PREPARE  # Python looks an enum's member up anew each time

Signatures = Sequence[tuple[int, bytes]]
"""Pairs of a replica's index and its signature, by rising index."""


@define
class Tally:
    """
    What was heard of one round: at most one message of each kind from each replica.

    @ivar proposal: the leader's proposal, once it was accepted.
    @ivar accepted: the block of it.
    @ivar changes: round changes to this round, by sender.
    """

    proposal: Proposal | None = None
    accepted: Candidate | None = None
    changes: dict[int, RoundChange] = Factory(dict)
    _accused: set[tuple[Phase, int]] = Factory(set)
    _prepares: dict[int, Vote | Proposal] = Factory(dict)
    _commits: dict[int, Vote | Proposal] = Factory(dict)

    def votes(self, phase: Phase) -> dict[int, Vote | Proposal]:
        """
        The votes of a phase, by sender: of each the first, which is the one that counts. The
        leader's proposal is its prepare.
        """
        return self._prepares if phase is _PREPARE else self._commits

    def mayAccuse(self, message: Vote | Proposal) -> bool:
        """Whether its sender was not yet accused of a contradiction in its phase."""
        return (message.phase, message.sender) not in self._accused

    def accuse(self, message: Vote | Proposal) -> None:
        """Take note of a contradiction, of which one proof is enough."""
        self._accused.add((message.phase, message.sender))

    def signatures(self, phase: Phase, digest: bytes, quorum: int) -> Signatures | None:
        """
        A quorum's signatures for one block; C{None} where there are not as many.
        """
        votes = self.votes(phase)
        if len(votes) < quorum:
            return None
        found = [
            (sender, vote.signature)
            for sender, vote in sorted(votes.items())
            if vote.digest == digest
        ]
        return tuple(found[:quorum]) if len(found) >= quorum else None

    def committed(self) -> set[bytes]:
        """The blocks that have commits."""
        return {vote.digest for vote in self._commits.values()}

    def onlyCommits(self) -> Tally:
        """What still matters of a round once it is over: its commits can still decide."""
        return Tally(commits=self._commits, accused=self._accused)
