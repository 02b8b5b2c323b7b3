"""
The effects of a replica's inputs, for the caller to carry out.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

from msgspec import Struct

from ...chain import Candidate, Certificate
from ._messages import Message, Proposal, Vote


class Timer(IntEnum):
    """The two timers of a replica."""

    ROUND = 0
    """The round has timed out."""
    RESEND = 1
    """It is time to retransmit."""


class Send(Struct, frozen=True):
    """
    Send a message.

    @ivar target: a replica's index, or C{None} for all others.
    """

    message: Message
    target: int | None = None


class StartTimer(Struct, frozen=True):
    """
    Start a timer: call L{timeOut<svcbroker.ledgers.pbft._replica.Replica.timeOut>} with C{timer}
    after C{delay} seconds. Replaces a running timer of the same kind. A timer that is no
    longer needed is not stopped: the replica ignores it.
    """

    timer: Timer
    delay: float


class Decide(Struct, frozen=True):
    """Store a decided block."""

    candidate: Candidate
    certificate: Certificate


class Evidence(Struct, frozen=True):
    """
    Report that a replica has signed two different values for one height, round and phase.

    @ivar first: the message received first; it is the one that counts.
    @ivar second: the contradicting message.
    """

    first: Vote | Proposal
    second: Vote | Proposal


Effect: TypeAlias = Send | StartTimer | Decide | Evidence
"""Any effect of a replica."""
