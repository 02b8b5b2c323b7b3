"""
The messages a replica has received and stores: those of one round, and those of heights to come.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define

from ...chain import Candidate, Phase
from ._messages import Message, Proposal, RoundChange, Vote

_PREPARE = Phase.PREPARE  # attribute access on an Enum is slow

Signatures = Sequence[tuple[int, bytes]]
"""Pairs of a replica's index and its signature, by ascending index."""


HEIGHTS_AHEAD = 10
"""How many heights beyond its own a replica stores messages for."""

MESSAGES_KEPT = 16
"""
How many messages of future heights are stored for each sender. Bounds what a Byzantine replica can
store here.
"""


@define
class VoteSet:
    """
    The messages received for one round: at most one of each kind from each replica.

    @ivar proposal: the leader's proposal, once accepted.
    @ivar accepted: the block of that proposal, executed.
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
        The votes of a phase, by sender. Only the first vote of each sender is stored. The leader's
        proposal is its prepare.
        """
        return self._prepares if phase is _PREPARE else self._commits

    def mayAccuse(self, message: Vote | Proposal) -> bool:
        """Whether no evidence has been reported yet against the sender for this phase."""
        return (message.phase, message.sender) not in self._accused

    def accuse(self, message: Vote | Proposal) -> None:
        """
        Record that evidence against the sender was reported: one report for each phase is enough.
        """
        self._accused.add((message.phase, message.sender))

    def signatures(self, phase: Phase, digest: bytes, quorum: int) -> Signatures | None:
        """
        A quorum's signatures for one block, or C{None} if there are fewer.
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
        """The hashes of the blocks that have commits."""
        return {vote.digest for vote in self._commits.values()}

    def onlyCommits(self) -> VoteSet:
        """The part that still matters after the round: its commits can still decide a block."""
        return VoteSet(commits=self._commits, accused=self._accused)


class FutureMessages:
    """
    A bounded store of messages for future heights.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[Message]] = {}

    def add(self, message: Message, height: int) -> None:
        """
        Store a message, if it may still be needed. The link has authenticated its sender.

        @param height: the height that is being decided.
        """
        if not isinstance(message, Proposal | Vote | RoundChange):
            return
        kept = self._kept.setdefault(message.sender, [])
        if (
            message.height <= height + HEIGHTS_AHEAD
            and len(kept) < MESSAGES_KEPT
            and message not in kept
        ):
            kept.append(message)

    def pop(self, height: int) -> Sequence[Message]:
        """
        Remove and return the messages of a height, in the order received from each sender; drop
        those of lower heights.
        """
        popped: list[Message] = []
        for sender, kept in self._kept.items():
            popped += [message for message in kept if message.height == height]
            self._kept[sender] = [message for message in kept if message.height > height]
        return popped
