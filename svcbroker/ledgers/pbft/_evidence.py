"""
Evidence of double signing, kept on disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from ...files import readFile
from ...model import DoubleVote
from ._effects import Evidence
from ._messages import Proposal, Vote

EVIDENCE_NAME = "evidence.jsonl"
"""The file's name in the directory of a chain."""


class _Signed(msgspec.Struct, frozen=True):
    """
    A signed vote or proposal: what L{votePayload<svcbroker.chain.votePayload>} needs, in hex.
    """

    phase: str
    digest: str
    signature: str

    @classmethod
    def of(cls, message: Vote | Proposal) -> _Signed:
        """What a message has signed."""
        return cls(message.phase.name, message.digest.hex(), message.signature.hex())


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file: two signatures of one key that contradict each other."""

    chain: str
    key: str
    node: int
    height: int
    round: int
    first: _Signed
    second: _Signed


class EvidenceFile:
    """
    Keeps the first evidence against each key: one is proof enough, and bounds the file.

    @ivar contradictions: what the file holds, oldest first.
    """

    _log = Logger()

    def __init__(
        self, directory: Path, chain: bytes, runInThread: Callable[..., Deferred[Any]]
    ) -> None:
        """
        Read the file of a chain. What cannot be read is logged and ignored.

        @param directory: the chain's directory.
        @param runInThread: runs blocking disk work.
        """
        self._path = directory / EVIDENCE_NAME
        self._chain = chain
        self._runInThread = runInThread
        self._keys: set[str] = set()
        self.contradictions: list[DoubleVote] = []
        try:
            for line in readFile(self._path).splitlines() if self._path.exists() else ():
                self._note(msgspec.json.decode(line, type=_Record))
        except (OSError, msgspec.DecodeError):
            self._log.failure("{path} is damaged", path=self._path)

    def add(self, key: bytes, evidence: Evidence) -> None:
        """
        Write evidence against a key, unless there is some already. A failure is logged: evidence is
        not worth stopping the ledger for.
        """
        if key.hex() in self._keys:
            return
        first, second = evidence.first, evidence.second
        record = _Record(
            chain=self._chain.hex(),
            key=key.hex(),
            node=first.sender,
            height=first.height,
            round=first.round,
            first=_Signed.of(first),
            second=_Signed.of(second),
        )
        self._note(record)
        writing = self._runInThread(_append, self._path, msgspec.json.encode(record) + b"\n")
        writing.addErrback(lambda failure: self._log.failure("evidence was not written", failure))

    def _note(self, record: _Record) -> None:
        self._keys.add(record.key)
        self.contradictions.append(
            DoubleVote(node=record.node, height=record.height, round=record.round)
        )


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
