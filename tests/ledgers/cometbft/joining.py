"""
A node with a chain and one that joins, driven as the engine does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.archive import STORE_NAME
from svcbroker.chain import Genesis
from svcbroker.ledgers.cometbft import _snapshots
from svcbroker.ledgers.cometbft._abciapplication import ChainApplication
from svcbroker.ledgers.cometbft._snapshots import ChunkPlan
from svcbroker.ledgers.cometbft.abci import messages
from svcbroker.ledgers.cometbft.abci.messages import ApplyResult, OfferedSnapshot, OfferResult

from .chains import GENESIS, Fill, everyOther, makeChain

COUNT = 60
HEIGHT = 40


class Harness:
    """
    An application in a directory.

    @ivar begun: how often a chain has begun.
    """

    def __init__(self, directory: Path, snapshots: int = 20) -> None:
        directory.mkdir(exist_ok=True)
        self.path = directory / STORE_NAME
        self.begun = 0
        self.application = ChainApplication(
            directory, maybeDeferred, maybeDeferred, self.began, lambda candidate: None, snapshots
        )

    def began(self) -> None:
        self.begun += 1

    @property
    def files(self) -> Sequence[str]:
        """The files in the directory, but for those that SQLite keeps beside an open file."""
        names = (each.name for each in self.path.parent.iterdir())
        return sorted(name for name in names if not name.endswith(("-wal", "-shm")))

    def info(self) -> tuple[int, bytes]:
        """The answer to the engine's last question: the last height and the application's hash."""
        answer: Any = self.application.info(messages.InfoRequest())
        return answer.lastBlockHeight, answer.lastBlockAppHash


class JoiningTestCase(SynchronousTestCase):
    """
    One node with a chain, and one that joins.

    @cvar PIECE: how large pieces get.
    """

    PIECE = 4096

    def setUp(self) -> None:
        self.patch(_snapshots, "ChunkPlan", lambda: ChunkPlan(self.PIECE))
        self.directory = Path(self.mktemp())
        self.directory.mkdir()
        self.there = self.other("there")
        self.here = self.harness("here")
        (self.snapshot, *_) = self.list_(self.there)
        self.pieces = self.piecesOf(self.there, self.snapshot)
        self.assertEqual(self.snapshot.height, HEIGHT)
        self.assertGreater(len(self.pieces), 3)

    def harness(self, name: str, open: bool = True) -> Harness:
        harness = Harness(self.directory / name)
        if open:
            harness.application.open()
        self.addCleanup(harness.application.close)
        return harness

    def other(self, name: str, fill: Fill = everyOther, genesis: Genesis = GENESIS) -> Harness:
        harness = self.harness(name, open=False)
        makeChain(harness.path, COUNT, fill, genesis)
        harness.application.open()
        return harness

    def ask(self, call: Any, request: Any) -> Any:
        return self.successResultOf(Deferred.fromCoroutine(call(request)))

    def list_(self, harness: Harness) -> Sequence[OfferedSnapshot]:
        answer = self.ask(harness.application.listSnapshots, messages.ListSnapshotsRequest())
        snapshots: Sequence[OfferedSnapshot] = answer.snapshots
        return snapshots

    def piecesOf(self, harness: Harness, snapshot: OfferedSnapshot) -> Sequence[bytes]:
        return [
            self.ask(
                harness.application.loadSnapshotChunk,
                messages.LoadSnapshotChunkRequest(
                    height=snapshot.height, format=snapshot.format, chunk=index
                ),
            ).chunk
            for index in range(snapshot.chunks)
        ]

    def offer(
        self,
        harness: Harness,
        snapshot: OfferedSnapshot | None = None,
        appHash: bytes | None = None,
    ) -> OfferResult:
        snapshot = snapshot or self.snapshot
        request = messages.OfferSnapshotRequest(
            snapshot=snapshot, appHash=snapshot.hash if appHash is None else appHash
        )
        result: OfferResult = self.ask(harness.application.offerSnapshot, request).result
        return result

    def apply(self, harness: Harness, index: int, piece: bytes | None = None) -> Any:
        request = messages.ApplySnapshotChunkRequest(
            index=index, chunk=self.pieces[index] if piece is None else piece, sender="peer"
        )
        return self.ask(harness.application.applySnapshotChunk, request)

    def applyAll(self, harness: Harness, pieces: Sequence[bytes] | None = None) -> None:
        for index, piece in enumerate(self.pieces if pieces is None else pieces):
            self.assertIs(self.apply(harness, index, piece).result, ApplyResult.ACCEPT)

    def checkHas(self, harness: Harness) -> None:
        """It has the chain up to the snapshot, and all that follows from it."""
        self.assertEqual(harness.info(), (HEIGHT, self.snapshot.hash))
        self.assertEqual(harness.files, [STORE_NAME])
        mine, theirs = harness.application.store, self.there.application.store
        assert mine is not None and theirs is not None
        for height in range(1, HEIGHT + 1):
            self.assertEqual(mine.block(height), theirs.block(height))
        self.assertEqual(mine.topicBlocks(0, 0, HEIGHT // 2), theirs.topicBlocks(0, 0, HEIGHT // 2))
