"""
Lengths of time as settings have them: a number and a unit.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

UNITS: Final = "units s, m, h, d, w"
"""The units, for error texts."""

_LENGTH = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def secondsOf(text: str) -> int | None:
    """The seconds of a length of time; C{None} where the text is none."""
    found = _LENGTH.fullmatch(text)
    return None if found is None else int(found[1]) * _SECONDS[found[2]]


@frozen
class Period:
    """
    A length of time between two of something.

    @ivar seconds: in seconds; 0 stands for never.
    """

    seconds: int


def period(text: str) -> Period:
    """A length of time such as 24h; empty for never."""
    seconds = secondsOf(text) if text else 0
    if seconds is None:
        raise ValueError(f"is not a length of time such as 24h ({UNITS}): {text!r}")
    return Period(seconds)
