"""
The messages a replica has received and stores: those of one round, and those of heights to come.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from ...chain import Candidate, Phase
from ...probes import probe
from ._messages import Message, Proposal, RoundChange, Vote

Signatures = Sequence[tuple[int, bytes]]
"""Pairs of a replica's index and its signature, by ascending index."""


ROUNDS_AHEAD = 32
"""
How many rounds beyond its own a replica stores messages for. Bounds the memory that a Byzantine
replica can fill with votes of far rounds.
"""

HEIGHTS_AHEAD = 10
"""How many heights beyond its own a replica stores messages for."""

MESSAGES_KEPT = 16
"""
How many messages of future heights are stored for each sender. Bounds what a Byzantine replica can
store here.
"""


Votes: TypeAlias = dict[int, Vote | Proposal]
"""The votes of one phase, by sender: the first one of each."""


class VoteSet(Struct):
    """
    The messages received for one round: at most one of each kind from each replica.

    @ivar proposal: the leader's proposal, once accepted.
    @ivar accepted: the block of that proposal, executed.
    @ivar prepares: the prepares; the leader's proposal is its prepare.
    @ivar commits: the commits.
    @ivar changes: round changes to this round, by sender.
    @ivar accused: the phases and senders against whom evidence was reported.
    """

    proposal: Proposal | None = None
    accepted: Candidate | None = None
    prepares: Votes = {}
    commits: Votes = {}
    changes: dict[int, RoundChange] = {}
    accused: set[tuple[Phase, int]] = set()

    def mayAccuse(self, message: Vote | Proposal) -> bool:
        """Whether no evidence has been reported yet against the sender for this phase."""
        return (message.phase, message.sender) not in self.accused

    def accuse(self, message: Vote | Proposal) -> None:
        """
        Record that evidence against the sender was reported: one report for each phase is enough.
        """
        self.accused.add((message.phase, message.sender))

    def onlyCommits(self) -> VoteSet:
        """The part that still matters after the round: its commits can still decide a block."""
        return VoteSet(commits=self.commits, accused=self.accused)


def quorumOf(votes: Votes, digest: bytes, quorum: int) -> Signatures | None:
    """
    A quorum's signatures for one block, or C{None} if there are fewer.
    """
    found = [(sender, vote.signature) for sender, vote in votes.items() if vote.digest == digest]
    if len(found) < quorum:
        return None
    found.sort()
    return tuple(found[:quorum])


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
        elif len(kept) >= MESSAGES_KEPT:
            probe("replica: no room for messages of later heights")
        elif message not in kept:
            probe("replica: message of a far height")

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
