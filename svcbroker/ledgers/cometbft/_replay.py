"""
The progress of a replay: the engine has blocks that the application lacks, or fetches them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.logger import Logger

INTERVAL: Final = 5.0
"""Seconds between two log lines of one replay."""


class ReplayProgress:
    """
    How far a replay is. Its first block is logged, one each few seconds, and its end.
    """

    _log = Logger()

    def __init__(self, seconds: Callable[[], float], findTarget: Callable[[], int]) -> None:
        """
        @param seconds: the reactor's clock.
        @param findTarget: gives a height that the engine has reached at least; 0 if unknown.
            Called once in each replay.
        """
        self._seconds = seconds
        self._findTarget = findTarget
        self._target = self._height = 0
        self._due = 0.0
        self._isRunning = False

    @property
    def reason(self) -> str:
        """How far it is, in words for an operator; empty while there is no replay."""
        if not self._isRunning:
            return ""
        of = f" of {self._target}" if self._target >= self._height else ""
        return f"replaying blocks: {self._height}{of}"

    def committed(self, height: int, isDeciding: bool) -> None:
        """
        A block was committed.

        @param isDeciding: whether the engine has decided it now, rather than replayed it.
        """
        if isDeciding:
            self.end()
            return
        now = self._seconds()
        if not self._isRunning:
            self._isRunning, self._target, self._due = True, self._findTarget(), now
        self._height = height
        if now >= self._due:
            self._due = now + INTERVAL
            self._log.info("{reason}", reason=self.reason)

    def end(self) -> None:
        """The engine has replayed all, if there was a replay."""
        if self._isRunning:
            self._isRunning = False
            self._log.info("replayed all blocks up to {height}", height=self._height)
