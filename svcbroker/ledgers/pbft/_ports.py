"""
The dependencies of a replica: the application it runs, and its timeouts.
"""

from __future__ import annotations

from typing import Protocol

from attrs import evolve, frozen

from ...chain import Candidate, Certificate, Header
from ._messages import ProposedBlock


class Application(Protocol):
    """
    The application that replicas run.
    """

    def propose(self, view: int) -> Candidate | None:
        """
        Make a new block on top of the last stored one.

        @param view: the view in which it is proposed.
        @return: the block, or C{None} if there is nothing to propose.
        """

    def check(self, block: ProposedBlock) -> Candidate | None:
        """
        Execute another replica's block.

        @return: the block executed, or C{None} if it cannot be checked now because the state has
            moved on.
        @raise InvalidBlock: the block is not valid.
        """

    def decided(self, height: int) -> tuple[Header, Certificate] | None:
        """
        The decided block of a height, for a replica that is behind; C{None} if it is not known.
        """

    def reserve(self, height: int, round: int) -> bool:
        """
        Ensure that no later run of the set uses this round again, with a write to disk if
        necessary.

        @return: whether that succeeded. If not, the replica does not enter the round now.
        """


@frozen(kw_only=True)
class Timing:
    """
    The timeouts of a replica, in seconds.

    @ivar round: the timeout of the first round of a height. Each further round doubles it.
    @ivar longest: the maximum timeout of a round.
    @ivar resend: the interval of retransmissions.
    """

    round: float = 1.0
    longest: float = 60.0
    resend: float = 0.5

    @classmethod
    def forNetwork(cls, round: float, longestDelay: float) -> Timing:
        """
        Timeouts that leave enough time for the three messages of a round and a retransmission.

        @param round: the timeout of the first round on a network without delay.
        @param longestDelay: the longest time that a message takes.
        """
        usual = cls(round=round + 4 * longestDelay)
        return evolve(
            usual,
            longest=max(usual.longest, 2 * usual.round),
            resend=max(usual.resend, 2 * longestDelay),
        )

    def roundTimeout(self, round: int) -> float:
        """The timeout of the C{round}-th round tried at a height, from 0."""
        return min(self.longest, self.round * float(1 << min(round, 16)))
