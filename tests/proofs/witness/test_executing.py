"""
Tests for a witness that executes: what it cosigns, and what it finds wrong.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred

from svcbroker.archive import STORE_NAME, Eraser
from svcbroker.broker.transparency import LOG_TOPIC
from svcbroker.ledgers.copy._original import OriginalAnswer
from svcbroker.proofs.tlog import CheckpointRefused, WitnessKey
from svcbroker.proofs.witness import Witness, WitnessError, describe, resumeWitness
from svcbroker.proofs.witness._executing import RETRY
from svcbroker.proofs.witness._statefile import LAST_NAME, STATE_NAME
from svcbroker.storage import StorageError

from ...ledgers.copy.rig import FakeOriginal
from .lying import ORIGIN, ChainLog, LyingChain
from .rig import ExecutingTestCase


class ExecutingTests(ExecutingTestCase):
    """
    What is cosigned of blocks, and what is not.
    """

    def test_executedCheckpointsAreCosigned(self) -> None:
        """Checkpoints are cosigned by a key whose name says so, from empty directories on."""
        self.follow()
        self.assertTrue(self.key.isExecuting)
        self.cosigned(0, self.log.size)
        self.publish(b"more")
        self.cosigned(self.log.size - 1, self.log.size)
        self.again()
        self.publish(b"and more")
        self.cosigned(self.log.size - 1, self.log.size)

    def test_requestsWaitForBlocksOnTheirWay(self) -> None:
        """A checkpoint of blocks that are not here yet waits, and is refused after a while."""
        self.follow()
        size = self.log.size
        self.chain.publish("t", b"late")
        waiting = self.ask(self.log, 0, size + 1)
        self.assertNoResult(waiting)
        self.original.wake()
        self.successResultOf(waiting)
        self.chain.publish("t", b"never")
        self.original.directory = None
        refusal = self.refusal(size + 1, size + 2)
        self.assertEqual(refusal.status, 503)
        self.assertIn(f"has executed the log up to size {size + 1}", str(refusal))
        self.assertEqual(self.witness.seen[ORIGIN].head.size, size + 1)

    def test_keyThatTheChainDoesNotCertifyIsUnknown(self) -> None:
        """
        A log whose key the executed chain does not certify is not cosigned, nor one whose key is
        not among those that are given. So the log of another chain is not taken for wrong.
        """
        other = ChainLog(self.chain, "x.example")
        self.given = {"x.example": [other.key.verifier]}
        self.follow()
        for log in (other, self.log):
            self.assertEqual(self.refusal(0, 3, log).status, 404)
        self.executed.useLogs({ORIGIN: [self.log.key.verifier]})
        self.assertEqual(self.refusal(0, 3, other).status, 404)
        self.cosigned(0, 3)

    def test_signedLieIsFoundAndNeverSignedPast(self) -> None:
        """
        A block that validators have signed, with a number twice, is kept and named; nothing is
        cosigned from there on, also not after a restart, nor with a new copy.
        """
        self.follow()
        size = self.log.size
        self.cosigned(0, size)
        assert isinstance(self.chain, LyingChain)
        self.chain.lie("t", b"another number 1", 1)
        self.original.wake()
        height = self.chain.head.height
        self.assertEqual(len(list(self.directory.glob(f"refused-{height}.export"))), 1)
        for restart in (lambda: None, self.again, self.wiped):
            restart()
            refusal = self.refusal(size, size + 1)
            self.assertEqual(refusal.status, 422)
            self.assertIn(f"block {height} does not hold", str(refusal))
            self.assertIn("validators of this chain have signed it", str(refusal))
            [wrong] = self.witness.wrongs.values()
            self.assertEqual(wrong.text, str(refusal))
            self.assertEqual(self.witness.seen[ORIGIN].head.size, size)

    def wiped(self) -> None:
        """Restart the witness with an empty copy."""
        self.stop()
        shutil.rmtree(self.directory)
        self.follow()

    def test_lieOnTheWayIsNotHeldAgainstTheLog(self) -> None:
        """A block that anybody on the way can have changed is not copied, and not kept as wrong."""
        self.follow()
        self.original.change = lambda answer: evolve(answer, stream=self.changed(answer))
        self.publish(b"more")
        size = self.log.size
        self.assertEqual(self.refusal(0, size).status, 503)
        self.assertEqual(self.witness.wrongs, {})
        self.cosigned(0, size - 1)
        self.original.change = lambda answer: answer
        self.clock.advance(RETRY)
        self.cosigned(size - 1, size)
        self.assertEqual(len(self.witness._logs[ORIGIN]), 1)

    def changed(self, answer: OriginalAnswer) -> bytes:
        """Another content in the last block."""
        return answer.stream.replace(b"more", b"less")

    def test_checkpointOfOtherBlocksIsFoundWrong(self) -> None:
        """
        A checkpoint that the log has signed, and that is not of the executed blocks, is kept as
        evidence, and nothing is cosigned any more.
        """
        fork = self.fork()
        self.follow()
        fork.publish("t", b"another")
        self.publish(b"one")
        other, size = ChainLog(fork), self.log.size
        refusal = self.refusal(0, size, other)
        self.assertEqual(refusal.status, 422)
        self.assertIn(f"a checkpoint of size {size} that is not of the blocks", str(refusal))
        [wrong] = self.witness.wrongs.values()
        assert wrong.note is not None
        self.assertEqual(wrong.note.text, other.head(size).text)
        self.assertTrue(wrong.note.verified([self.log.key.verifier]))
        self.again()
        self.assertEqual(self.refusal(0, size).status, 422)

    def test_findingThatIsNotStoredCounts(self) -> None:
        """If the disk is full, nothing is cosigned all the same."""
        fork = self.fork()
        self.follow()
        fork.publish("t", b"another")
        self.publish(b"one")
        other, size = ChainLog(fork), self.log.size
        real = self.witness.keepWrong

        def fail(*arguments: object) -> None:
            raise StorageError("the disk is full")

        self.witness.keepWrong = fail  # type: ignore[assignment,method-assign]
        self.failureResultOf(self.ask(other, 0, size), StorageError)
        self.assertEqual(self.refusal(0, size).status, 422)
        self.witness.keepWrong = real  # type: ignore[method-assign]
        self.assertEqual((self.witness.seen, self.witness.wrongs), ({}, {}))

    def test_copyOfAnotherHistoryIsNotCosigned(self) -> None:
        """
        A witness whose copy was replaced by that of another history of the chain cosigns neither
        that nor the first one.
        """
        fork = self.fork()
        self.follow()
        size = self.log.size
        self.publish(b"one")
        self.cosigned(0, size + 1)
        self.stop()
        shutil.rmtree(self.directory)
        self.original = FakeOriginal(self.root / "fork")
        fork.publish("t", b"another", b"two")
        fork.publish("t", b"more")
        self.follow()
        log = ChainLog(fork)
        self.assertEqual(self.refusal(size + 1, size + 2, log).status, 422)
        self.assertEqual(list(self.witness.forks), [ORIGIN])
        self.publish(b"two")
        refusal = self.refusal(size + 1, size + 2)
        self.assertEqual(refusal.status, 422)
        self.assertIn("is not the log that it has cosigned", str(refusal))
        self.assertEqual(self.witness.seen[ORIGIN].head.size, size + 1)

    def fork(self) -> LyingChain:
        """The chain of this test, up to here, in another directory."""
        fork = self.makeChain("fork")
        fork.open(LOG_TOPIC)
        mine, self.chain = self.chain, fork
        self.certify(self.log)
        self.chain = mine
        self.assertEqual(fork.head, mine.head)
        return fork

    def test_copyThatWasThereIsExecutedAgain(self) -> None:
        """
        Nothing of a copy that was there before is cosigned before its blocks were executed again;
        of a damaged one nothing at all.
        """
        self.follow()
        self.stop()
        audits: list[Deferred[Any]] = []

        def later(run: Callable[[], Any]) -> Deferred[Any]:
            audits.append(Deferred())
            return audits[-1].addCallback(lambda _: run())

        self.audit = later  # type: ignore[method-assign]
        self.follow()
        waiting = self.ask(self.log, 0, self.log.size)
        self.assertNoResult(waiting)
        audits.pop().callback(None)
        self.successResultOf(waiting)
        self.stop()
        with closing(sqlite3.connect(self.directory / STORE_NAME)) as database, database:
            database.execute("UPDATE body SET body = body || x'00' WHERE height = 3")
        self.follow()
        self.publish(b"more")
        waiting = self.ask(self.log, self.log.size - 1, self.log.size)
        audits.pop().callback(None)
        error = self.failureResultOf(waiting, CheckpointRefused).value
        self.assertIn("the copy is damaged (group 1, block 3", str(error))

    def test_wrongIsKeptAcrossResume(self) -> None:
        """Resuming a witness from its own checkpoints does not make it forget what is wrong."""
        self.follow()
        self.cosigned(0, self.log.size)
        self.witness.keepWrong("ab", "block 7 does not hold")
        self.witness.keepWrong("ab", "another")
        note = self.witness.seen[ORIGIN].note
        self.stop()
        (self.place / LAST_NAME).unlink()
        with self.assertRaises(WitnessError):
            Witness.open(self.place, {}, lambda: 1000.0)
        resumeWitness(self.place, {ORIGIN: [self.log.key.verifier]}, [note])
        self.follow()
        self.assertEqual(self.witness.wrongs["ab"].text, "block 7 does not hold")
        lines = describe(self.witness)
        self.assertIn("chain ab: WRONG 1970-01-01 00:16:40 UTC: block 7 does not hold", lines)

    def test_lostRowOfWhatIsWrongIsNoticed(self) -> None:
        """A database without the row of what is wrong is not the last one that was written."""
        self.follow()
        self.witness.keepWrong("ab", "block 7 does not hold")
        self.stop()
        with closing(sqlite3.connect(self.place / STATE_NAME)) as database, database:
            changed = database.execute("DELETE FROM note WHERE kind = 'wrong'")
            self.assertEqual(changed.rowcount, 1)
        with self.assertRaisesRegex(WitnessError, "does not start"):
            Witness.open(self.place, {}, lambda: 1000.0)

    def test_withheldContentsAreNotCosigned(self) -> None:
        """
        If contents are missing that no block erases, nothing from there on is cosigned, also
        after a restart, of which the copy does not remember it.
        """
        self.follow()
        size = self.log.size
        self.cosigned(0, size)
        self.chain.decide([self.chain.say("t", b"withheld")], erased=[0])
        self.original.wake()
        for restart in (lambda: None, self.again):
            restart()
            refusal = self.refusal(size, size + 1)
            self.assertEqual(refusal.status, 503)
            self.assertRegex(str(refusal), "withholds the contents|contents of events 4 to 4")
        self.assertEqual(self.witness.wrongs, {})

    def test_erasedContentsAreCosigned(self) -> None:
        """Contents that a later block erases may be missing."""
        self.chain.erase("t", (2, 2))
        Eraser(self.chain.store).run()
        self.follow()
        self.cosigned(0, self.log.size)

    def test_authorThatHasNotSignedIsFound(self) -> None:
        """A block in which an event counts that its author has not signed is wrong."""
        assert isinstance(self.chain, LyingChain)
        self.chain.openFor("by", "ann")
        self.chain.lie("by", b"forged", 1, author="ann")
        self.follow()
        self.assertEqual(self.refusal(0, self.log.size).status, 422)

    def test_keyThatExecutesCosignsNothingElse(self) -> None:
        """The witness itself refuses what nobody has confirmed."""
        self.follow()
        request = self.log.request(0, 3).encode()
        for executed in (None, self.log.head(2)):
            with self.assertRaises(CheckpointRefused):
                self.witness.addCheckpoint(request, executed)
        self.assertEqual(self.witness.seen, {})

    def test_plainKeysAreNoKeysThatExecute(self) -> None:
        """Only the end of a witness's name says that it executes."""
        for name in ("w.example", "executed", "w.example/executed/1"):
            self.assertFalse(WitnessKey(name, bytes(32)).verifier.isExecuting)
        self.assertFalse(self.log.key.verifier.isExecuting)
