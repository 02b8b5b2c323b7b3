"""
Tests for the blocks that a copy takes, and how it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import evolve
from twisted.internet.defer import Deferred

from svcbroker.archive import _export, audit
from svcbroker.errors import LedgerUnavailable
from svcbroker.interfaces import submit
from svcbroker.ledgers.copy import _copyledger
from svcbroker.model import PublishEvent
from svcbroker.storage import StorageDamaged, StorageFailed
from svcbroker.testing._fixtures import RecordingObserver
from tests.archive.erasable import canary, filesWith, makeErasable

from .rig import URL, CopyTestCase


class FollowingTests(CopyTestCase):
    """
    Tests for what is copied.
    """

    def test_chainIsCopiedAndFollowed(self) -> None:
        """A new copy takes all blocks, and then each that comes; observers hear of these."""
        copy = self.start()
        self.assertEqual(self.contents(), [b"0", b"1", b"2"])
        observer = RecordingObserver()
        copy.addObserver(observer)
        self.publish(b"3", b"4")
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3", b"4"])
        [block] = observer.blocks
        self.assertEqual(block, self.successResultOf(copy.readBlock(5)))
        self.assertTrue(self.successResultOf(copy.getHealth()).isReady)
        self.stop()
        result = audit(self.directory.parent)
        self.assertTrue(result.isGood, list(result.all()))

    def test_restartedCopyResumes(self) -> None:
        """A copy that was stopped goes on at its last block, which it compares."""
        self.start()
        self.stop()
        self.chain.publish("t", b"3")
        self.original.asked.clear()
        self.start()
        self.assertEqual(self.original.asked, [4, 6])
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3"])

    def test_lagIsTold(self) -> None:
        """A copy that gets blocks part by part tells how many it is behind."""
        self.patch(_export, "PART_BYTES", 1)
        self.start()
        behind = [each.behind for each in self.progress]
        self.assertEqual(behind, [3, 2, 1, 0])
        self.clock.advance(30)
        measures = self.copy.measure()
        self.assertEqual((measures.behind, measures.silence, measures.age), (0, 30, 30))
        self.assertEqual(self.reason(), "")

    def test_unreachableOriginalIsAskedAgain(self) -> None:
        """While the original cannot be reached the copy serves reads, and asks ever less often."""
        self.start()
        self.original.directory = None
        self.original.wake()
        self.assertEqual(self.reason(), f"{URL} cannot be reached")
        asked = len(self.original.asked)
        for pause in (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0):
            self.clock.advance(pause - 0.01)
            self.assertEqual(len(self.original.asked), asked)
            self.clock.advance(0.01)
            asked += 1
            self.assertEqual(len(self.original.asked), asked)
        self.assertEqual(self.contents(), [b"0", b"1", b"2"])
        self.original.directory = self.root / "original"
        self.chain.publish("t", b"3")
        self.clock.advance(15)
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3"])
        self.assertEqual(self.reason(), "")

    def test_nothingIsPublishedToCopies(self) -> None:
        """Publishing to a copy is refused, with the address of the original."""
        copy = self.start()
        publishing = submit(copy, PublishEvent(topic="t", content=b"x"))
        error = self.failureResultOf(publishing, LedgerUnavailable).value
        self.assertIn(URL, error.message)

    def test_erasedContentsAreErased(self) -> None:
        """Contents that the original erases are removed from the files of the copy, too."""
        self.chain.publish("t", canary("gone"), canary("kept"))
        self.start()
        self.assertNotEqual(filesWith(self.directory, canary("gone")), [])
        self.chain.erase("t", (4, 4))
        self.original.wake()
        for _ in range(20):
            self.clock.advance(1)
        self.assertEqual(filesWith(self.directory, canary("gone")), [])
        self.assertNotEqual(filesWith(self.directory, canary("kept")), [])

    def test_chainWithErasuresIsCopied(self) -> None:
        """Contents that the original has removed are not needed."""
        chain = makeErasable(self.root / "erased")
        self.addCleanup(chain.close)
        self.original.directory = self.root / "erased"
        self.patch(_export, "PART_BYTES", 1)
        self.start()
        self.assertEqual(self.copy.progress.height, chain.head.height)
        self.assertEqual(self.reason(), "")
        self.stop()
        result = audit(self.directory.parent)
        self.assertTrue(result.isGood, list(result.all()))

    def test_failingDiskIsTriedAgain(self) -> None:
        """Blocks that cannot be stored are stored later; reads wait until then."""
        copy = self.start()
        self.disk.error = StorageFailed("no space")
        self.publish(b"3")
        self.assertIn("no space", self.reason())
        reading = copy.listTopics(0, 9)
        self.assertNoResult(reading)
        self.clock.advance(1)
        self.assertNoResult(reading)
        self.disk.error = None
        self.clock.advance(1)
        self.assertEqual(self.successResultOf(reading).total, 2)
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3"])
        self.assertEqual(self.reason(), "")

    def test_damagedStoreKeepsWhatItHas(self) -> None:
        """Nothing more is copied where blocks cannot be stored for good, and reads are of what is
        stored."""
        copy = self.start()
        self.disk.error = StorageDamaged("the file is damaged")
        self.publish(b"3")
        self.disk.error = None
        asked = len(self.original.asked)
        self.clock.advance(100)
        self.assertEqual(len(self.original.asked), asked)
        self.assertIn("the file is damaged", self.reason())
        self.assertEqual(self.contents(), [b"0", b"1", b"2"])
        topic = copy.topicState("t")
        assert topic is not None
        self.assertEqual((topic.sequence, topic.height), (3, 4))

    def test_stopEndsInTheMiddleOfAPart(self) -> None:
        """A copy that is stopped while it stores blocks verifies no further ones."""
        self.patch(_copyledger, "SLICE", -1.0)
        copy = self.make()
        held: list[Deferred[None]] = []

        def store(call: Callable[..., Any], *args: Any) -> Deferred[None]:
            held.append(Deferred())
            return held[-1].addCallback(lambda _: call(*args))

        copy._context = evolve(self.context, runBriefly=store)
        self.successResultOf(copy.start())
        stopping = copy.stop()
        self.assertNoResult(stopping)
        held[0].callback(None)
        self.clock.advance(0)
        self.successResultOf(stopping)
        self.assertEqual((len(held), copy.progress.height), (1, 1))

    def test_stopDuringFailingDiskEnds(self) -> None:
        """A copy whose disk fails can be stopped."""
        self.start()
        self.disk.error = StorageFailed("no space")
        self.publish(b"3")
        self.disk.error = None
        self.stop()
        self.start()
        self.assertEqual(self.contents(), [b"0", b"1", b"2", b"3"])

    def test_longPartsAreVerifiedInSlices(self) -> None:
        """The reactor gets its turn between blocks, and blocks are stored by then."""
        self.patch(_copyledger, "SLICE", -1.0)
        copy = self.start()
        self.assertEqual(copy.progress.height, 1)
        self.assertEqual(self.successResultOf(copy.listTopics(0, 9)).total, 2)
        self.clock.advance(0)
        self.assertEqual(self.contents(), [b"0", b"1", b"2"])
