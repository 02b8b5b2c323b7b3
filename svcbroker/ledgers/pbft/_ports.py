"""
What a replica is given: something to decide about, and how long to wait.
"""

from __future__ import annotations

from typing import Protocol

from attrs import evolve, frozen

from ...chain import Candidate, Certificate, Header
from ._messages import ProposedBlock


class Application(Protocol):
    """
    What replicas decide about.
    """

    def propose(self, view: int) -> Candidate | None:
        """
        A new block on top of the last stored one, or C{None} where there is nothing to put in.

        @param view: the view it is proposed in.
        """

    def check(self, block: ProposedBlock) -> Candidate | None:
        """
        Execute another replica's block.

        @return: the block executed, or C{None} where it cannot be judged now because the state
            has gone on.
        @raise InvalidBlock: it may not be decided.
        """

    def decided(self, height: int) -> tuple[Header, Certificate] | None:
        """A decided block of a height, for a replica that is behind."""

    def reserve(self, height: int, round: int) -> bool:
        """
        Make sure, on disk where it must be, that a restart will not use a round again.

        @return: whether that could be done; if not, the round is not entered now.
        """


@frozen(kw_only=True)
class Timing:
    """
    How long a replica waits, in seconds.

    @ivar round: the first round's time-out. Each further round of a height doubles it.
    @ivar longest: the longest time-out.
    @ivar resend: how often what was said last is said again.
    """

    round: float = 1.0
    longest: float = 60.0
    resend: float = 0.5

    @classmethod
    def forNetwork(cls, round: float, longestDelay: float) -> Timing:
        """
        Times that leave enough for a round's three messages and one that was lost.

        @param round: the first round's time-out where messages take no time.
        @param longestDelay: the longest time that a message takes.
        """
        usual = cls(round=round + 4 * longestDelay)
        return evolve(
            usual,
            longest=max(usual.longest, 2 * usual.round),
            resend=max(usual.resend, 2 * longestDelay),
        )

    def roundTimeout(self, round: int) -> float:
        """The time-out of the C{round}-th round tried at a height, from 0."""
        return min(self.longest, self.round * float(1 << min(round, 16)))
