"""
The trace of a run, to compare and to read.
"""

from __future__ import annotations

from hashlib import sha256

from svcbroker.chain import Phase
from svcbroker.ledgers.pbft._messages import (
    BlockRequest,
    DecidedBlock,
    Message,
    Proposal,
    RoundChange,
    Vote,
)

from .genesis import NOW


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

    def sent(self, time: float, sender: int, message: Message, fate: str) -> None:
        """
        Add a message.

        @param fate: for each target, when it will arrive, or why it will not.
        """
        self.note(time, f"{sender} sends {describe(message):<34} to {fate}")

    def digest(self) -> str:
        """The digest of the whole trace."""
        return self._digest.hexdigest()[:16]


def kindOf(message: Message) -> str:
    """The kind of a message."""
    match message:
        case Vote(phase=Phase.PREPARE):
            return "prepare"
        case Vote():
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
    return message.round if isinstance(message, Vote | Proposal | RoundChange) else 0


def describe(message: Message) -> str:
    """A short description of a message."""
    where = f"{kindOf(message)} h{message.height}"
    match message:
        case Vote():
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
