"""
What happened, in a form to compare and in a form to read.
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
    Everything that happens in one run. Two runs of one seed have equal digests.

    @ivar lines: what happened, to be read, where it is kept.
    """

    def __init__(self, isKept: bool = False) -> None:
        self.lines: list[str] = []
        self._isKept = isKept
        self._digest = sha256()

    def note(self, time: float, text: str) -> None:
        """Something happened."""
        line = f"{time - NOW:9.4f}  {text}"
        self._digest.update(line.encode())
        if self._isKept:
            self.lines.append(line)

    def sent(self, time: float, sender: int, target: int, message: Message, fate: str) -> None:
        """
        A message was sent.

        @param fate: when it will arrive, or why it will not.
        """
        self.note(time, f"{sender} -> {target}  {describe(message):<34}  {fate}")

    def digest(self) -> str:
        """What stands for all of it."""
        return self._digest.hexdigest()[:16]


def kindOf(message: Message) -> str:
    """What a message is, in one word."""
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


def describe(message: Message) -> str:
    """A message in some words."""
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
    """Enough of a hash to tell it from others."""
    return hash[:3].hex()
