"""
A small ledger: a text file with one request a line.

When it starts, it submits every line of the file to a memory ledger again. The time and the key
are in the file too, so the same lines give the same blocks, with the same hashes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from attrs import evolve
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.python.components import proxyForInterface
from zope.interface import implementer

from svcbroker.errors import LedgerUnavailable, ParameterInvalid
from svcbroker.interfaces import (
    ILedger,
    ILedgerFactory,
    InvalidDescription,
    LedgerContext,
    Submission,
)
from svcbroker.ledgers.memory import MemoryLedger
from svcbroker.model import CloseTopic, OpenTopic, PublishEvent, Request

KINDS = {kind.__name__: kind for kind in (OpenTopic, CloseTopic, PublishEvent)}


def isSupported(request: Request) -> bool:
    """Whether a journal executes a request: not those with signatures and authors, nor erasures."""
    if isinstance(request, PublishEvent):
        return request.author is None
    if isinstance(request, OpenTopic):
        return request.authors is None
    return isinstance(request, CloseTopic)


def encodeLine(now: float, request: Request) -> bytes:
    """A request as a line, with its end."""
    # A request may be of a subclass: the broker submits what carriers have parsed.
    kind = next(name for name, kind in KINDS.items() if isinstance(request, kind))
    return msgspec.json.encode((now, kind, request)) + b"\n"


def decodeLine(line: bytes) -> tuple[float, Request]:
    """What L{encodeLine} wrote."""
    now, kind, request = msgspec.json.decode(line, type=tuple[float, str, msgspec.Raw])
    return now, msgspec.json.decode(request, type=KINDS[kind])


class JournalLedger(proxyForInterface(ILedger, "_memory")):
    """
    Writes down what is submitted, then does it. All that only reads is left to the memory ledger.
    """

    group = ""  # its own, not the memory ledger's, which is made no sooner than start
    chain = b""  # the memory ledger keeps nothing, this one does

    def __init__(self, context: LedgerContext, name: str) -> None:
        self.group = context.group
        self._context = context
        self._path = context.directory / name
        self._now = 0.0
        self._isRunning = False

    def start(self) -> Deferred[None]:
        """See L{ILedger}."""
        return maybeDeferred(self._start)

    def _start(self) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            lines = self._readLines()
            self._file = self._path.open("ab", buffering=0)
            if not lines:
                first = self._context.now(), self._context.entropy(32).hex()
                lines = [msgspec.json.encode(first) + b"\n"]
                self._write(lines[0])
        except OSError as error:
            raise LedgerUnavailable(
                f"{self._path} cannot be used ({error.strerror}): check the data directory"
            ) from error
        try:
            self._now, text = msgspec.json.decode(lines[0], type=tuple[float, str])
            self.chain = key = bytes.fromhex(text)
            self._memory = MemoryLedger(
                evolve(self._context, now=lambda: self._now, entropy=lambda size: key)
            )
            self._memory.start()
            for line in lines[1:]:
                now, request = decodeLine(line)
                self._perform(now, [request])
        except (ValueError, KeyError) as error:
            self._file.close()
            raise LedgerUnavailable(f"{self._path} is damaged: restore it from a backup") from error
        self._isRunning = True

    def _readLines(self) -> list[bytes]:
        if not self._path.exists():
            return []
        with self._path.open("r+b") as file:
            lines = file.read().splitlines(keepends=True)
            if lines and not lines[-1].endswith(b"\n"):
                # A crash cut it off, so nobody was told that it was done.
                file.truncate(file.tell() - len(lines.pop()))
        return lines

    def stop(self) -> Deferred[None]:
        """See L{ILedger}."""
        self._isRunning = False
        # Calls are made in order, so this one comes after every write that was asked for.
        closed = self._context.runInThread(self._file.close)
        return closed.addCallback(lambda _: self._memory.stop())

    def submitMany(self, requests: Sequence[Request]) -> Submission:
        """See L{ILedger}."""
        if not self._isRunning:
            return Submission.refused(len(requests), LedgerUnavailable("the ledger is stopped"))
        if not all(map(isSupported, requests)):
            error = ParameterInvalid("a journal has no signatures, authors, erasures and holds")
            return Submission.refused(len(requests), error)
        submission = Submission(len(requests))
        now = self._context.now()
        lines = b"".join([encodeLine(now, request) for request in requests])
        written = self._context.runInThread(self._write, lines)
        written.addCallbacks(
            lambda _: self._perform(now, requests).outcomes,
            lambda failure: [self._notWritten(failure)] * len(requests),
        )
        written.addCallback(lambda outcomes: submission.settle(0, outcomes))
        return submission

    def _perform(self, now: float, requests: Sequence[Request]) -> Submission:
        self._now = now
        return self._memory.submitMany(requests)

    def _write(self, lines: bytes) -> None:
        end = self._file.seek(0, os.SEEK_END)
        try:
            if self._file.write(lines) < len(lines):
                raise OSError("there is no room")
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(end)
            raise

    def _notWritten(self, failure: Any) -> LedgerUnavailable:
        failure.trap(OSError)
        return LedgerUnavailable("the journal's disk is full or failing")


@implementer(ILedgerFactory)
class JournalFactory:
    """The kind of ledger that C{--ledger journal} chooses."""

    name = "journal"
    summary = "A text file with one request a line. An example."
    settings: Mapping[str, str] = {"file": "name of the file (default journal.txt)"}

    def configure(self, settings: Mapping[str, str]) -> Callable[[LedgerContext], ILedger]:
        """See L{ILedgerFactory}."""
        for key in settings:
            if key not in self.settings:
                raise InvalidDescription(f"{key}: the journal ledger has no such setting")
        name = settings.get("file", "journal.txt")
        if not name or Path(name).name != name:
            raise InvalidDescription(f"file: {name!r} is not a file's name")
        return lambda context: JournalLedger(context, name)
