"""
The bytes of topics, counted in pieces.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers import _storedledger
from svcbroker.ledgers._storedledger import TopicBytes
from svcbroker.model import Topic


class FakeChain:
    """
    The state and the store of a chain with events of one byte, one a block, of which a piece has
    two.

    @ivar heights: the height of the latest event of each topic; it has one in each block.
    """

    def __init__(self, **heights: int) -> None:
        self.heights = heights
        self.reads = 0

    def topicIndex(self, name: str) -> int | None:
        """See L{svcbroker.chain.ChainState}."""
        return list(self.heights).index(name) if name in self.heights else None

    def topicAt(self, index: int) -> Topic:
        """See L{svcbroker.chain.ChainState}."""
        name, height = list(self.heights.items())[index]
        fields: dict[str, Any] = {"address": bytes(20), "sender": bytes(20), "created": 0}
        return Topic(name=name, isOpen=True, sequence=height, height=height, **fields)

    def eventBytes(self, index: int, afterHeight: int) -> tuple[int, int, bool]:
        """See L{svcbroker.storage.ChainReader}."""
        self.reads += 1
        height = min(self.topicAt(index).height, afterHeight + 2)
        return height, height - afterHeight, height < afterHeight + 2


class TopicBytesTests(SynchronousTestCase):
    """Tests for L{TopicBytes}."""

    def setUp(self) -> None:
        self.chain = FakeChain(a=3, b=0)
        self.turns: list[Deferred[None]] = []
        chain: Any = self.chain
        self.counter = TopicBytes(chain, chain, self.turn)

    def turn(self) -> Deferred[None]:
        """Another turn, which comes when it is told to."""
        self.turns.append(Deferred())
        return self.turns[-1]

    def count(self, *names: str) -> list[int | None]:
        """What is counted, with as many turns as that takes."""
        counting: Deferred[Any] = Deferred.fromCoroutine(self.counter.count(names))
        while self.turns:
            self.turns.pop().callback(None)
        return list(self.successResultOf(counting))

    def test_onlyLaterBlocksAreReadAgain(self) -> None:
        """A topic without new events is not read at all; one without events never."""
        self.assertEqual(self.count("a", "b", "never"), [3, 0, None])
        self.assertEqual(self.chain.reads, 2)
        self.assertEqual(self.count("a", "b"), [3, 0])
        self.assertEqual(self.chain.reads, 2)
        self.chain.heights["a"] = 4
        self.assertEqual(self.count("a"), [4])
        self.assertEqual(self.chain.reads, 3)

    def test_otherWorkComesBetweenPieces(self) -> None:
        """Each piece but the last is followed by another turn."""
        counting = Deferred.fromCoroutine(self.counter.count(["a"]))
        self.assertNoResult(counting)
        self.assertEqual(self.chain.reads, 1)
        self.turns.pop().callback(None)
        self.assertEqual(self.successResultOf(counting), [3])

    def test_longTopicsTakeSeveralCalls(self) -> None:
        """A call reads no more than its pieces, and the next one goes on."""
        self.patch(_storedledger, "PIECES_A_CALL", 2)
        self.chain.heights.update(a=9, b=1)
        self.assertEqual(self.count("a", "b"), [None, None])
        self.assertEqual(self.count("a", "b"), [None, None])
        self.assertEqual(self.count("a", "b"), [9, 1])

    def test_forgottenTopicsAreCountedAnew(self) -> None:
        """Those that never were opened are nothing to forget."""
        self.count("a")
        self.counter.forget(["a", "b", "never"])
        self.assertEqual(self.count("a"), [3])
        self.assertEqual(self.chain.reads, 4)
