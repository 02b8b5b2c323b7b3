"""
How far a copy is.
"""

from __future__ import annotations

from typing import Final

from attrs import frozen
from twisted.logger import Logger

from ._following import CopyRefused

TOLD: Final = 10.0
"""Seconds after which a copy that is still behind logs again how far it is."""


@frozen(kw_only=True)
class CopyProgress:
    """
    How far a copy is.

    @ivar height: the height of its last block.
    @ivar original: the height up to which the original could be copied when it last answered;
        C{None} where it has not answered since the start.
    @ivar reason: why nothing can be copied now; empty where nothing is known to prevent it.
    @ivar refused: why nothing more is copied; C{None} while copying goes on.
    """

    height: int
    original: int | None
    reason: str
    refused: CopyRefused | None

    @property
    def behind(self) -> int | None:
        """How many blocks it is behind what the original had when it last answered."""
        return None if self.original is None else max(0, self.original - self.height)


class ProgressLog:
    """
    Logs how far a copy is: when it falls behind, every L{TOLD} seconds while it is behind, and when
    it has caught up.
    """

    _log = Logger()

    def __init__(self, group: str) -> None:
        self._group = group
        self._toldAt: float | None = None
        self._wasBehind = True
        self._reason = ""

    def tell(self, progress: CopyProgress, now: float) -> None:
        """
        Log what is new.

        @param now: the time, in seconds.
        """
        if progress.reason != self._reason:
            self._reason = progress.reason
            if self._reason:
                self._log.warn("group {group}: {reason}", group=self._group, reason=self._reason)
        if progress.reason:
            return
        if not progress.behind:
            if self._wasBehind:
                self._wasBehind = False
                self._log.info(
                    "group {group}: the copy is up to date, at block {height}",
                    group=self._group,
                    height=progress.height,
                )
        elif self._toldAt is None or not 0 <= now - self._toldAt < TOLD:
            self._toldAt, self._wasBehind = now, True
            self._log.info(
                "group {group}: the copy is at block {height}, {behind} blocks behind",
                group=self._group,
                height=progress.height,
                behind=progress.behind,
            )
