"""
What a replica wants done.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from ...chain import Candidate, Certificate
from ._messages import Message, Proposal, Vote


class Timer(Enum):
    """The two times that a replica waits for."""

    ROUND = "round"
    """The round has lasted too long."""
    RESEND = "resend"
    """What was said last may have been lost."""


class Send(Struct, frozen=True):
    """
    Send a message.

    @ivar target: a replica's index, or C{None} for all others.
    """

    message: Message
    target: int | None = None


class StartTimer(Struct, frozen=True):
    """
    Wait: hand in C{timer} after C{delay} seconds. A running one of the same kind ends.
    """

    timer: Timer
    delay: float


class StopTimers(Struct, frozen=True):
    """Wait for nothing."""


class Decide(Struct, frozen=True):
    """A block is decided."""

    candidate: Candidate
    certificate: Certificate


class Evidence(Struct, frozen=True):
    """
    A replica contradicted itself.

    @ivar first: what it signed first; this is what counts.
    @ivar second: what it signed then for the same height, round and phase.
    """

    first: Vote | Proposal
    second: Vote | Proposal


Effect: TypeAlias = Send | StartTimer | StopTimers | Decide | Evidence
"""Anything that a replica can want."""
