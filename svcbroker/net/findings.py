"""
Findings of the doctor, and numbers in words for them.

A module of its own: features of all rooms make findings.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import Enum

from attrs import frozen

DAY = 86400.0


class Level(Enum):
    """
    The rating of what was looked at.

    @cvar GOOD: nothing is to be done.
    @cvar WARNING: it works now, and may not later, or not as well as it could.
    @cvar PROBLEM: it does not work, or data or secrets are at risk.
    """

    GOOD = "good"
    WARNING = "warning"
    PROBLEM = "problem"


@frozen
class Finding:
    """
    One finding.

    @ivar subject: what was looked at, in a word or two.
    @ivar text: what was found, in a sentence without a dot.
    @ivar meaning: what follows from it; empty where it is good.
    @ivar remedy: what to do, with the command; empty where it is good.
    """

    level: Level
    subject: str
    text: str
    meaning: str = ""
    remedy: str = ""


def good(subject: str, text: str) -> Finding:
    """A finding about which nothing is to be done."""
    return Finding(Level.GOOD, subject, text)


def warning(subject: str, text: str, meaning: str, remedy: str) -> Finding:
    """A finding of L{Level.WARNING}."""
    return Finding(Level.WARNING, subject, text, meaning, remedy)


def problem(subject: str, text: str, meaning: str, remedy: str) -> Finding:
    """A finding of L{Level.PROBLEM}."""
    return Finding(Level.PROBLEM, subject, text, meaning, remedy)


def span(seconds: float) -> str:
    """A length of time, in words."""
    for size, unit in ((DAY, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if abs(seconds) >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} seconds" if abs(seconds) < 10 else f"{seconds:.0f} seconds"


def date(seconds: float) -> str:
    """A time since the epoch, as ISO 8601 has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.0f} seconds after 1970"


def listed(names: list[str], most: int = 5) -> str:
    """Names with commas between them; only how many, after the first ones."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
