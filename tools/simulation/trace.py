"""
The trace of a run, to compare and to read.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from marshal import dumps

from svcbroker.chain import Phase
from svcbroker.ledgers.pbft._protocol import (
    BlockRequest,
    DecidedBlock,
    Message,
    PhaseVote,
    Proposal,
    RoundChange,
)

from .genesis import NOW

CUT_OFF, LOST = -1.0, -2.0
_FATES = {CUT_OFF: "cut off", LOST: "lost"}
_MARSHAL_VERSION = 2  # later ones encode equal values differently


class Trace:
    """
    Everything that happens in a run. Two runs of one seed have equal digests.

    @ivar lines: the trace, if it is kept.
    """

    def __init__(self, isKept: bool = False) -> None:
        self.lines: list[str] = []
        self._isKept = isKept
        self._digest = sha256()

    def note(self, time: float, text: str) -> None:
        """Add a line."""
        line = f"{time - NOW:9.4f}  {text}"
        self._digest.update(line.encode())
        if self._isKept:
            self.lines.append(line)

    def sent(
        self, time: float, sender: int, message: Message, fates: Sequence[tuple[int, float]]
    ) -> None:
        """
        Add a message.

        @param fates: pairs of a target and the seconds until the message arrives there, or
            L{CUT_OFF} or L{LOST}.
        """
        # Formatting each message would take a tenth of a run's time.
        digest: bytes = getattr(message, "digest", b"")
        entry = (time, sender, kindOf(message), message.height, roundOf(message), digest)
        self._digest.update(dumps((*entry, list(fates)), _MARSHAL_VERSION))
        if self._isKept:
            ends = [f"{target} {_FATES.get(fate) or f'+{fate:.4f}'}" for target, fate in fates]
            text = f"{sender} sends {describe(message):<34} to {', '.join(ends)}"
            self.lines.append(f"{time - NOW:9.4f}  {text}")

    def digest(self) -> str:
        """The digest of the whole trace."""
        return self._digest.hexdigest()[:16]


def kindOf(message: Message) -> str:
    """The kind of a message."""
    match message:
        case PhaseVote(phase=Phase.PREPARE):
            return "prepare"
        case PhaseVote():
            return "commit"
        case Proposal():
            return "proposal"
        case RoundChange():
            return "round-change"
        case BlockRequest():
            return "request"
        case DecidedBlock():
            return "decided"


def roundOf(message: Message) -> int:
    """The round of a message, or 0."""
    return message.round if isinstance(message, PhaseVote | Proposal | RoundChange) else 0


def describe(message: Message) -> str:
    """A short description of a message."""
    where = f"{kindOf(message)} h{message.height}"
    match message:
        case PhaseVote():
            return f"{where} r{message.round} {short(message.digest)}"
        case Proposal():
            return f"{where} r{message.round} {short(message.digest)}"
        case RoundChange():
            bound = message.prepared
            to = "free" if bound is None else f"bound r{bound.round} {short(bound.digest)}"
            return f"{where} r{message.round} {to}"
        case DecidedBlock():
            return f"{where} r{message.certificate.round} {short(message.header.hash)}"
        case BlockRequest():
            return where


def short(hash: bytes) -> str:
    """The first digits of a hash."""
    return hash[:3].hex()
