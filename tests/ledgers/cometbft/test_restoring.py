"""
Tests of beginning with a snapshot: the application of a node that joins, driven as the engine
does, with the application of one that has the chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred, maybeDeferred

from svcbroker.archive import STORE_NAME
from svcbroker.chain import Genesis, execute
from svcbroker.ledgers.cometbft._home import POWER
from svcbroker.ledgers.cometbft._snapshots import UNFINISHED, Manifest, RestoreFailed
from svcbroker.ledgers.cometbft.abci import messages
from svcbroker.ledgers.cometbft.abci.messages import (
    ApplyResult,
    OfferResult,
    ValidatorPublicKey,
    ValidatorUpdate,
)
from svcbroker.storage import TIP_SUFFIX, StorageError, Store

from .chains import GENESIS, everyOther, makeChain
from .joining import HEIGHT, Harness, JoiningTestCase


class JoiningTests(JoiningTestCase):
    """
    Tests for the engine's calls of a node that joins.
    """

    def test_lastChunkCompletesChain(self) -> None:
        """It has the chain when the last piece is there, and not before; and after a restart."""
        self.assertIs(self.offer(self.here), OfferResult.ACCEPT)
        progress, unfinished = self.here.application.progress, STORE_NAME + UNFINISHED
        for index in range(len(self.pieces) - 1):
            self.assertIs(self.apply(self.here, index).result, ApplyResult.ACCEPT)
            self.assertGreater(self.here.application.progress, progress)
            progress = self.here.application.progress
            self.assertEqual(self.here.info(), (0, b""))
            self.assertLessEqual(set(self.here.files), {unfinished, unfinished + TIP_SUFFIX})
        self.assertEqual(self.here.begun, 0)
        self.assertIs(self.apply(self.here, len(self.pieces) - 1).result, ApplyResult.ACCEPT)
        self.assertEqual(self.here.begun, 1)
        self.assertEqual([name for name in self.here.files if UNFINISHED in name], [])
        self.checkHas(self.here)
        self.here.application.close()
        again = self.harness("here")
        self.assertEqual(again.begun, 1)
        self.checkHas(again)

    def test_restoredChainExecutesNextBlock(self) -> None:
        """It executes the next block as the other node has it."""
        self.offer(self.here)
        self.applyAll(self.here)
        application = self.here.application
        theirs = self.there.application.store
        assert theirs is not None
        application.finalizeBlock(
            messages.FinalizeBlockRequest(
                height=HEIGHT + 1, time=(GENESIS.created + HEIGHT + 1) * 1_000_000
            )
        )
        self.ask(application.commit, messages.CommitRequest())
        row = theirs.block(HEIGHT + 1)
        assert application.machine is not None and row is not None
        self.assertEqual(application.machine.head.hash, row.hash)

    def test_restoredChainOffersSnapshots(self) -> None:
        """Whoever joined offers the same to the next one."""
        self.offer(self.here)
        self.applyAll(self.here)
        third = self.harness("third")
        snapshot = next(each for each in self.list_(self.here) if each.height == 20)
        self.assertIn(snapshot, self.list_(self.there))
        self.assertIs(self.offer(third, snapshot), OfferResult.ACCEPT)
        self.applyAll(third, self.piecesOf(self.here, snapshot))
        self.assertEqual(third.info(), (20, snapshot.hash))

    def test_crashStartsFromNothing(self) -> None:
        """Cut off in the middle, it begins anew, and nothing of before is left."""
        self.offer(self.here)
        self.apply(self.here, 0)
        # As a crash leaves it: nobody has closed anything.
        again = self.harness("here")
        self.assertEqual(again.files, [])
        self.assertEqual(again.begun, 0)
        self.assertIs(self.apply(again, 1).result, ApplyResult.REJECT_SNAPSHOT)
        self.assertIs(self.offer(again), OfferResult.ACCEPT)
        self.applyAll(again)
        self.checkHas(again)

    def test_newOfferStartsFromNothing(self) -> None:
        """Another offer, or the same one again, begins from nothing."""
        older = self.list_(self.there)[1]
        self.offer(self.here, older)
        self.applyAll(self.here, self.piecesOf(self.there, older)[:1])
        self.offer(self.here)
        self.apply(self.here, 0)
        self.offer(self.here)
        self.applyAll(self.here)
        self.checkHas(self.here)

    def test_stopLeavesNothing(self) -> None:
        """Stopped in the middle, it leaves nothing behind."""
        self.offer(self.here)
        self.apply(self.here, 0)
        self.here.application.close()
        self.assertEqual(self.here.files, [])

    def test_badChunkIsRefetched(self) -> None:
        """
        A piece that is no good is fetched again, from somebody else, whichever piece it is.
        """
        self.offer(self.here)
        for index, piece in enumerate(self.pieces):
            changed = bytearray(piece)
            changed[len(piece) // 2] ^= 1
            for bad in (bytes(changed), b"", self.pieces[index - 1]):
                answer = self.apply(self.here, index, bad)
                self.assertEqual(
                    answer,
                    messages.ApplySnapshotChunkResponse(
                        result=ApplyResult.RETRY, refetchChunks=(index,), rejectSenders=("peer",)
                    ),
                )
            self.assertIs(self.apply(self.here, index).result, ApplyResult.ACCEPT)
        self.checkHas(self.here)

    def test_chunkOfOtherHistoryIsRefused(self) -> None:
        """Pieces of another history of the same chain are refused as soon as it shows."""

        def fill(height: int) -> Sequence[bytes] | None:
            contents = everyOther(height)
            return [b"other"] if contents is not None and height == 2 else contents

        other = self.other("other", fill)
        (snapshot, *_) = self.list_(other)
        self.assertEqual(snapshot.height, HEIGHT)
        self.offer(self.here)
        for piece in self.piecesOf(other, snapshot):
            self.assertIs(self.apply(self.here, 0, piece).result, ApplyResult.RETRY)
        self.applyAll(self.here)
        self.checkHas(self.here)

    def test_chunkOutOfOrderIsRefused(self) -> None:
        """A piece out of turn, and one that nobody offered, ends it."""
        self.assertIs(self.apply(self.here, 0).result, ApplyResult.REJECT_SNAPSHOT)
        self.offer(self.here)
        self.assertIs(self.apply(self.here, 1).result, ApplyResult.REJECT_SNAPSHOT)
        self.applyAll(self.here)
        self.assertIs(self.apply(self.here, 0).result, ApplyResult.REJECT_SNAPSHOT)
        self.checkHas(self.here)

    def test_unverifiedOffersAreRejected(self) -> None:
        """Offers that are not verified by the engine, or do not fit together, are rejected."""
        snapshot = self.snapshot
        manifest = Manifest.decode(snapshot.metadata)
        foreign = Genesis(group="foreign", created=1, validators=GENESIS.validators)
        bad = [
            evolve(snapshot, height=HEIGHT - 1),
            evolve(snapshot, chunks=snapshot.chunks + 1),
            evolve(snapshot, metadata=b""),
            evolve(snapshot, metadata=snapshot.metadata[:-8]),
            evolve(snapshot, metadata=evolve(manifest, genesis=foreign).encode()),
            evolve(self.list_(self.there)[1], hash=snapshot.hash),
        ]
        for each in bad:
            self.assertIs(self.offer(self.here, each), OfferResult.REJECT)
        named = evolve(snapshot, hash=bytes(32))
        self.assertIs(self.offer(self.here, named, snapshot.hash), OfferResult.REJECT)
        self.assertIs(self.offer(self.here, appHash=bytes(32)), OfferResult.REJECT)
        self.assertIs(self.offer(self.here, appHash=b""), OfferResult.REJECT)
        other = evolve(snapshot, format=3)
        self.assertIs(self.offer(self.here, other), OfferResult.REJECT_FORMAT)
        request = messages.OfferSnapshotRequest(appHash=snapshot.hash)
        answer = self.ask(self.here.application.offerSnapshot, request)
        self.assertIs(answer.result, OfferResult.REJECT_FORMAT)
        self.assertEqual(self.here.files, [])

    def test_foreignGenesisIsRejected(self) -> None:
        """A chain of another genesis is not the one that the engine has verified."""
        foreign = Genesis(group="foreign", created=GENESIS.created, validators=GENESIS.validators)
        (snapshot, *_) = self.list_(self.other("foreign", genesis=foreign))
        self.assertIs(self.offer(self.here, snapshot, self.snapshot.hash), OfferResult.REJECT)

    def test_diskFailureFailsApplication(self) -> None:
        """An application whose disk fails cannot go on, and begins anew when it is opened."""
        self.offer(self.here)

        def fail(*arguments: object) -> None:
            raise StorageError("the disk is full")

        patch = self.patch(Store, "extend", fail)
        failure = self.failureResultOf(
            Deferred.fromCoroutine(
                self.here.application.applySnapshotChunk(
                    messages.ApplySnapshotChunkRequest(chunk=self.pieces[0])
                )
            )
        )
        failure.trap(StorageError)
        patch.restore()
        self.here.application.close()
        self.here.application.open()
        self.offer(self.here)
        self.applyAll(self.here)
        self.checkHas(self.here)

    def test_invalidProvedBlockFailsRestore(self) -> None:
        """
        A block that is proved, but does not follow by the rules, is not the fault of its sender:
        the application says so, and does not go on.
        """
        self.offer(self.here)
        restoring = self.here.application._restorer._restoring
        assert restoring is not None
        restoring._replay.state.apply(
            execute(restoring._replay.state, [], 1, 0),
            restoring._replay.state.history.after(bytes(32)),
        )
        failure = self.failureResultOf(
            Deferred.fromCoroutine(
                self.here.application.applySnapshotChunk(
                    messages.ApplySnapshotChunkRequest(chunk=self.pieces[0])
                )
            )
        )
        failure.trap(RestoreFailed)
        self.assertIn("block 1", failure.getErrorMessage())


class AnewTests(JoiningTestCase):
    """
    A node that has a chain already, whose engine begins anew.
    """

    def begun(self, harness: Harness) -> None:
        """The engine has begun a chain, and ended."""
        harness.application.initChain(
            messages.InitChainRequest(
                time=GENESIS.created * 1_000_000,
                chainId=GENESIS.group,
                validators=tuple(
                    ValidatorUpdate(publicKey=ValidatorPublicKey(ed25519=key), power=POWER)
                    for key in GENESIS.validators
                ),
                initialHeight=1,
            )
        )

    def test_emptyChainIsReplaced(self) -> None:
        """A chain without blocks is replaced."""
        self.begun(self.here)
        self.assertEqual(self.here.begun, 1)
        self.offer(self.here)
        self.applyAll(self.here)
        self.checkHas(self.here)
        self.assertEqual(self.here.begun, 2)

    def test_shorterChainIsReplaced(self) -> None:
        """A shorter one of the same history is replaced, and so is the same one."""
        older = next(each for each in self.list_(self.there) if each.height == 20)
        self.offer(self.here, older)
        self.applyAll(self.here, self.piecesOf(self.there, older))
        for _ in range(2):
            self.assertIs(self.offer(self.here), OfferResult.ACCEPT)
            self.applyAll(self.here)
            self.checkHas(self.here)

    def test_replacedStoreIsClosedInItsThread(self) -> None:
        """Calls of the old store in the thread of the disk end before it is closed."""
        self.begun(self.here)
        application, calls = self.here.application, []
        old = application.store
        assert old is not None

        def run(call: Any, *args: Any) -> Deferred[Any]:
            calls.append(call)
            return maybeDeferred(call, *args)

        self.offer(self.here)
        self.applyAllBut(self.here)
        self.patch(application, "_runInThread", run)
        self.assertIs(self.apply(self.here, len(self.pieces) - 1).result, ApplyResult.ACCEPT)
        self.assertIn(old.close, calls)

    def test_longerChainIsKept(self) -> None:
        """A longer one is not thrown away for less."""
        self.offer(self.here)
        self.applyAll(self.here)
        older = next(each for each in self.list_(self.there) if each.height == 20)
        self.assertIs(self.offer(self.here, older), OfferResult.REJECT)
        self.checkHas(self.here)

    def test_otherHistoryIsKept(self) -> None:
        """One of another history is kept, and the operator is told."""

        def fill(height: int) -> Sequence[bytes] | None:
            contents = everyOther(height)
            return [b"other"] if contents is not None and height == 2 else contents

        other = self.harness("other", open=False)
        makeChain(other.path, 30, fill)
        other.application.open()
        before = other.info()
        self.offer(other)
        self.applyAllBut(other)
        request = messages.ApplySnapshotChunkRequest(
            index=len(self.pieces) - 1, chunk=self.pieces[-1], sender="peer"
        )
        failure = self.failureResultOf(
            Deferred.fromCoroutine(other.application.applySnapshotChunk(request))
        )
        failure.trap(RestoreFailed)
        self.assertIn("two histories", failure.getErrorMessage())
        self.assertEqual(other.info(), before)

    def applyAllBut(self, harness: Harness) -> None:
        for index in range(len(self.pieces) - 1):
            self.assertIs(self.apply(harness, index).result, ApplyResult.ACCEPT)
