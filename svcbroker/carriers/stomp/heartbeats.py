"""
Heart-beats ("Heart-beating"): bytes at least so often, in both directions.
"""

from __future__ import annotations

import re

from ...errors import ParameterInvalid

_SEND_EARLY = 0.75
"""After which part of the agreed time a heart-beat is sent: timers are late, networks slow."""

_MISSED_AFTER = 2.0
"""After how many agreed times without a byte the client counts as gone ("error margin")."""

_HEADER = re.compile(r" *([0-9]{1,9}) *, *([0-9]{1,9}) *", re.ASCII)


class HeartBeats:
    """
    Knows when to be heard, and when the client should have been.

    @ivar sendEvery: the agreed time between what is sent, in seconds; 0 for none.
    @ivar expectEvery: the agreed time between what is received, in seconds; 0 for none.
    """

    def __init__(self, now: float) -> None:
        self.sendEvery = 0.0
        self.expectEvery = 0.0
        self._sent = now
        self._received = now

    def agree(self, header: str, canEvery: int, wantsEvery: int) -> None:
        """
        Find what both sides can and want.

        @param header: the client's C{heart-beat} header.
        @param canEvery: what can be guaranteed here, in milliseconds; 0 for nothing.
        @param wantsEvery: what is wanted here, in milliseconds; 0 for nothing.
        @raise ParameterInvalid: the header is not two numbers.
        """
        found = _HEADER.fullmatch(header)
        if found is None:
            raise ParameterInvalid("heart-beat is not two numbers of milliseconds")
        theyCan, theyWant = int(found[1]), int(found[2])
        if canEvery and theyWant:
            self.sendEvery = max(canEvery, theyWant) / 1000
        if theyCan and wantsEvery:
            self.expectEvery = max(theyCan, wantsEvery) / 1000

    def sent(self, now: float) -> None:
        """Something was sent."""
        self._sent = now

    def received(self, now: float) -> None:
        """Something was received, or could not have been since nothing was read."""
        self._received = now

    @property
    def deadline(self) -> float | None:
        """When to look again; C{None} for never."""
        times = []
        if self.sendEvery:
            times.append(self._sent + self.sendEvery * _SEND_EARLY)
        if self.expectEvery:
            times.append(self._received + self.expectEvery * _MISSED_AFTER)
        return min(times, default=None)

    def isDue(self, now: float) -> bool:
        """Whether it is time to be heard."""
        return self.sendEvery > 0 and now >= self._sent + self.sendEvery * _SEND_EARLY

    def isGone(self, now: float) -> bool:
        """Whether the client was not heard of for too long."""
        return self.expectEvery > 0 and now >= self._received + self.expectEvery * _MISSED_AFTER
