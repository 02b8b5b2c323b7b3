"""
A clock that counts turns.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.task import Clock


class CountingClock(Clock):
    """A clock that counts turns, as the daemon's reactor does."""

    turns = 0
    isBehind = False

    def turn(self) -> None:
        """Make the calls that are due, but not those that they make; then read."""
        calls: list[Any] = list(self.getDelayedCalls())
        for call in [each for each in calls if each.getTime() <= self.seconds()]:
            function, args, keywords = call.func, call.args, call.kw
            call.cancel()
            function(*args, **keywords)
        self.turns += 1
