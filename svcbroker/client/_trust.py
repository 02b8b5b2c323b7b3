"""
Verifying what brokers answer, against a trusted genesis or checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

from ..errors import BrokerError, EventNotFound, HeightUnknown
from ..files import readFile, writeNew
from ..proofs import (
    Checkpoint,
    ProofInvalid,
    ProvedEvent,
    readCheckpoint,
    readGenesis,
    verifyConsistency,
    verifyProof,
)
from ._effects import NotVerified, Procedure
from ._records import CheckpointRecord, Event
from ._requests import Attempts, Requests, readDocument

BATCH: Final = 50
"""The most proofs that are asked for in one request."""

_records = msgspec.json.Decoder(CheckpointRecord)


class AnswerVerifier:
    """
    Verifies events, each by a proof that the broker is asked for.

    It knows the newest block that it has verified. An event of a later block is proved by the
    signatures of the validators, and its block then becomes the newest, if the log up to it begins
    with the log up to the block known before: so a fork is refused. An event of an earlier block
    is proved to be in the history of the newest.

    @ivar chain: the id of the chain; C{None} until it is known from the checkpoint.
    @ivar newest: the newest verified block.
    """

    def __init__(
        self,
        requests: Requests,
        *,
        genesis: bytes | None = None,
        checkpoint: str | None = None,
        path: Path | None = None,
    ) -> None:
        """
        @param genesis: the trusted genesis, as C{svcbroker chain genesis} writes it.
        @param checkpoint: a trusted checkpoint: C{HEIGHT:HASH}.
        @param path: the file that keeps the newest verified block. It is trusted, too.
        @raise ValueError: genesis or checkpoint are malformed, or nothing is trusted.
        @raise NotVerified: the file is of another chain than the genesis.
        """
        self._requests = requests
        self._path = path
        self._lock = Lock()
        self.chain: bytes | None = None
        trusted: list[Checkpoint] = []
        if genesis is not None:
            made = readGenesis(genesis)
            self.chain = made.chain
            trusted.append(Checkpoint.of(made.header()))
        if checkpoint is not None:
            trusted.append(readCheckpoint(checkpoint.encode()))
        if path is not None and path.exists():
            trusted.append(self._load(path))
        if not trusted:
            raise ValueError("nothing is trusted yet: give a genesis or a checkpoint")
        trusted.sort(key=lambda each: each.height)
        self.newest = trusted[-1]
        # Pairs of trusted blocks that are still to be compared.
        self._unchecked = list(pairwise(trusted))

    def _load(self, path: Path) -> Checkpoint:
        try:
            record = _records.decode(readFile(path))
            chain = bytes.fromhex(record.chain)
            kept = Checkpoint.parse(record.checkpoint)
        except (msgspec.MsgspecError, ValueError) as error:
            raise ValueError(f"{path} is not a file of a verified block: {error}") from None
        if self.chain not in (None, chain):
            raise NotVerified(f"{path} is of another chain than the genesis")
        self.chain = chain
        return kept

    def verify(self, events: Sequence[Event]) -> Procedure[list[Event]]:
        """
        Verify events of the log.

        @return: the events but for those whose contents were erased since they were read.
        @raise NotVerified: one of them is not in the log as it is here, or the log is another one.
        """
        yield from self._start()
        last = max(events, key=lambda each: each.height)
        proved: dict[str, ProvedEvent] = {}
        if last.height > self.newest.height:
            proved[last.eventId] = yield from self._prove(last.eventId)
        earlier = [each.eventId for each in events if each.eventId not in proved]
        for start in range(0, len(earlier), BATCH):
            for each in (yield from self._proveEarlier(earlier[start : start + BATCH])):
                proved[each.eventId] = each
        return [each for each in events if _isProved(each, proved[each.eventId])]

    def prove(self, eventId: str, trusted: int | None = None) -> Procedure[bytes]:
        """
        Get the proof of an event, and verify it.

        @param trusted: the height of the checkpoint that the proof is to lead to; C{None} for a
            proof with signatures.
        @return: the proof: JSON.
        """
        yield from self._start()
        data: bytes
        if trusted is not None:
            found = yield from self._read("checkpoint", height=str(trusted))
            with _refusing("the checkpoint is malformed"):
                block = readCheckpoint(found)
            yield from self._compare(self.newest, block)
            data = yield from self._read("proof", eventId=eventId, trusted=str(block.height))
            self._proved(data, eventId, block)
            return data
        data = yield from self._read("proof", eventId=eventId)
        yield from self._follows(self._proved(data, eventId))
        return data

    def compare(self, text: str) -> Procedure[None]:
        """
        Check that the log up to a block and the log up to the newest verified block are one. The
        block itself is not trusted then: nothing shows that it is final.

        @param text: the block: C{HEIGHT:HASH}.
        """
        yield from self._start()
        with _refusing("the checkpoint is malformed"):
            block = readCheckpoint(text.encode())
        yield from self._compare(self.newest, block)

    def findChain(self) -> Procedure[bytes]:
        """The id of the chain."""
        yield from self._start()
        assert self.chain is not None
        return self.chain

    def _start(self) -> Procedure[None]:
        """Find the chain, and check that everything that is trusted is of one log."""
        if self.chain is None:
            data = yield from self._read("genesis")
            with _refusing("the genesis is malformed"):
                genesis = readGenesis(data)
            yield from self._compare(Checkpoint.of(genesis.header()), self.newest)
            self.chain = genesis.chain
        while self._unchecked:
            pair = self._unchecked[0]
            yield from self._compare(*pair)
            if pair in self._unchecked:
                self._unchecked.remove(pair)

    def _compare(self, first: Checkpoint, second: Checkpoint) -> Procedure[None]:
        older, newer = sorted((first, second), key=lambda each: each.height)
        if older.height == newer.height:
            if older != newer:
                raise NotVerified(f"there are two blocks {older.height}: the log is a fork")
            return
        data = yield from self._read(
            "consistency", older=str(older.height), newer=str(newer.height)
        )
        with _refusing(f"the log up to block {newer.height} does not begin with the trusted one"):
            verifyConsistency(data, older=older, newer=newer, chain=self.chain)

    def _prove(self, eventId: str) -> Procedure[ProvedEvent]:
        """Prove an event of a block after the newest one, which it becomes."""
        proved = self._proved((yield from self._read("proof", eventId=eventId)), eventId)
        yield from self._follows(proved)
        return proved

    def _follows(self, proved: ProvedEvent) -> Procedure[None]:
        """Check that a signed block belongs to the trusted log; a later one becomes the newest."""
        block = proved.block
        while True:
            newest = self.newest
            yield from self._compare(newest, block)
            # Another call may have verified a block meanwhile, with which this one was not
            # compared.
            if self._keep(newest, proved):
                return

    def _keep(self, newest: Checkpoint, proved: ProvedEvent) -> bool:
        """
        Keep a block that was compared with the newest one.

        @return: whether that still was the newest one.
        """
        with self._lock:
            if newest is not self.newest:
                return False
            if proved.block.height > newest.height:
                if self._path is not None:
                    _save(self._path, proved)
                self.newest = proved.block
            return True

    def _proveEarlier(self, eventIds: Sequence[str]) -> Procedure[list[ProvedEvent]]:
        """Prove events of the newest block and those before it."""
        newest = self.newest

        def attempt(attempts: Attempts) -> Procedure[list[ProvedEvent]]:
            calls = [{"eventId": each, "trusted": newest.height} for each in eventIds]
            outcomes = yield from self._requests.batch(attempts, "proof", calls)
            proofs = []
            for outcome in outcomes:
                if isinstance(outcome, BrokerError):
                    raise outcome
                proofs.append(bytes(outcome))
            return [
                self._proved(proof, eventId, newest)
                for proof, eventId in zip(proofs, eventIds, strict=True)
            ]

        with _refusing("an event cannot be proved"):
            return (yield from self._requests.repeat(attempt, alsoAfter=(HeightUnknown,)))

    def _proved(
        self, data: bytes, eventId: str, checkpoint: Checkpoint | None = None
    ) -> ProvedEvent:
        with _refusing("a proof does not hold"):
            proved = verifyProof(data, chain=self.chain, checkpoint=checkpoint)
        if proved.eventId != eventId:
            raise NotVerified(f"the proof of event {eventId} is that of another one")
        return proved

    def _read(self, name: str, **fields: str) -> Procedure[bytes]:
        # A broker may be behind the one that was asked before.
        with _refusing("there is no proof"):
            return (
                yield from self._requests.read(
                    name, fields, readDocument, alsoAfter=(HeightUnknown,)
                )
            )


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    try:
        yield
    except (ProofInvalid, HeightUnknown, EventNotFound) as error:
        raise NotVerified(f"{what}: {error}") from None


def _isProved(event: Event, proved: ProvedEvent) -> bool:
    """
    Whether an event is as it was proved; false for one whose content was erased since.

    @raise NotVerified: it is not as it was proved.
    """
    if proved.content is None and not event.erased:
        return False
    content = None if event.erased else event.content
    author = proved.author
    for name, answered, fact in (
        ("topic", event.topic, proved.topic),
        ("content", content, proved.content),
        ("extensions", event.extensions, dict(proved.extensions)),
        ("timestamp", event.timestamp or proved.timestamp, proved.timestamp),
        ("author", event.author, None if author is None else author.key.hex()),
        ("signature", event.signature, event.signature and author and author.signature.hex()),
        ("time of signing", event.signedAt, event.signedAt and author and author.signedAt),
    ):
        if answered != fact:
            raise NotVerified(f"event {event.eventId} has another {name} in the log")
    return True


def _save(path: Path, proved: ProvedEvent) -> None:
    """Replace the file of the newest verified block, in a format that C{svcbroker verify} reads."""
    block = proved.block
    record = CheckpointRecord(
        group=proved.group,
        chain=proved.chain.hex(),
        height=block.height,
        hash=block.hash.hex(),
        timestamp=proved.timestamp,
        checkpoint=str(block),
    )
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    writeNew(new, msgspec.json.encode(record) + b"\n", 0o666)
    new.replace(path)
