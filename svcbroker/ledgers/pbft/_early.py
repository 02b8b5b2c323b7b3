"""
Messages that come before a replica can understand them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._messages import Message, Proposal, RoundChange, Vote

HEIGHTS_AHEAD = 10
"""How far above its own a replica keeps messages of other heights."""

MESSAGES_KEPT = 16
"""How many messages of heights to come are kept of each sender."""


class EarlyMessages:
    """
    What was heard of heights to come, within bounds.
    """

    def __init__(self) -> None:
        self._kept: dict[int, list[Message]] = {}

    def keep(self, message: Message, height: int) -> None:
        """
        Keep a message where it may still be of use. Who it is from is known for sure.

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

    def take(self, height: int) -> Sequence[Message]:
        """
        Take out what is of a height, in the order in which each sender said it, and forget what
        is of those below.
        """
        taken: list[Message] = []
        for sender, kept in self._kept.items():
            taken += [message for message in kept if message.height == height]
            self._kept[sender] = [message for message in kept if message.height > height]
        return taken
