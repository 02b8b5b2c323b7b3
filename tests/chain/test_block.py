"""
Tests of L{svcbroker.chain.selectTransactions}, C{proposeBlock} and C{checkBlock}.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    Candidate,
    History,
    InvalidBlock,
    Transaction,
    checkBlock,
    decodeBody,
    proposeBlock,
    selectTransactions,
)
from svcbroker.model import topicPrefix

from . import reference
from .reference import Sent
from .support import FIELDS, GENESIS, TWINS, few, setOf, transactionOf

SENDER = bytes(20)


def transactions(*texts: str) -> list[Transaction]:
    """Transactions such as C{"OPEN a"} of one sender, with nonces from 1."""
    return [
        transactionOf(Sent(text.split()[0], SENDER, nonce, text.split()[1]))
        for nonce, text in enumerate(texts, start=1)
    ]


class SelectTests(SynchronousTestCase):
    """
    The choice of transactions for the next block.
    """

    def test_emptyQueueGivesNothing(self) -> None:
        """Nothing waits, nothing goes."""
        self.assertEqual(list(selectTransactions([], 100, 10)), [])

    def test_sizeLimitHoldsToTheByte(self) -> None:
        """As many as fit, to the byte."""
        waiting = transactions("OPEN a", "OPEN b", "OPEN c")
        size = waiting[0].size + waiting[1].size
        self.assertEqual(list(selectTransactions(waiting, size, 10)), waiting[:2])
        self.assertEqual(list(selectTransactions(waiting, size - 1, 10)), waiting[:1])

    def test_oversizedTransactionGoesAlone(self) -> None:
        """One that alone is too large goes alone."""
        waiting = transactions("OPEN a", "OPEN b")
        self.assertEqual(list(selectTransactions(waiting, 1, 10)), waiting[:1])

    def test_countLimitHolds(self) -> None:
        """No more than so many."""
        waiting = transactions("OPEN a", "OPEN b", "OPEN c")
        self.assertEqual(list(selectTransactions(waiting, 10**6, 2)), waiting[:2])

    def test_selectionEndsBeforePrefixConflict(self) -> None:
        """It ends before a publish to the second of two topics whose event ids begin alike."""
        left, right = TWINS
        waiting = transactions(
            f"OPEN {left}",
            f"OPEN {right}",
            f"PUBLISH {left}",
            f"PUBLISH {left}",
            f"CLOSE {right}",
            f"PUBLISH {right}",
            f"PUBLISH {left}",
        )
        self.assertEqual(list(selectTransactions(waiting, 10**6, 99)), waiting[:5])

    def test_longQueueIsNotScanned(self) -> None:
        """Of a long queue no more is looked at than is needed."""
        taken = []

        def queue() -> object:
            for nonce in range(1, 10**9):
                taken.append(nonce)
                yield transactionOf(Sent("OPEN", SENDER, nonce, "a"))

        selectTransactions(queue(), 10**9, 3)  # type: ignore[arg-type]
        self.assertEqual(len(taken), 3)

    @few
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["OPEN", "CLOSE", "PUBLISH"]),
                st.sampled_from([*TWINS, "a"]),
                st.integers(0, 9),
            ),
            max_size=20,
        ),
        st.integers(1, 1000),
        st.integers(1, 5),
    )
    def test_everyWaitingTransactionGetsIntoABlock(
        self, drawn: list[tuple[str, str, int]], maxBytes: int, maxCount: int
    ) -> None:
        """
        Whatever waits goes into blocks in its order, each block can be executed, and the bounds
        hold.
        """
        waiting = [transactionOf(Sent(kind, SENDER, nonce, topic)) for kind, topic, nonce in drawn]
        state, parent = GENESIS.state(), GENESIS.header()
        went: list[Transaction] = []
        while len(went) < len(waiting):
            chosen = selectTransactions(waiting[len(went) :], maxBytes, maxCount)
            self.assertTrue(1 <= len(chosen) <= maxCount)
            if len(chosen) > 1:
                self.assertLessEqual(sum(one.size for one in chosen), maxBytes)
            candidate = proposeBlock(state, parent, 0, 0, chosen)
            state.apply(candidate.outcome, candidate.history)
            parent = candidate.header
            went += chosen
            ids = [
                (topicPrefix(one.topic), receipt.sequence)
                for one, receipt in zip(chosen, candidate.outcome.receipts, strict=True)
                if receipt.sequence
            ]
            self.assertEqual(len(set(ids)), len(ids))
        self.assertEqual(went, waiting)
        self.assertEqual(parent.transactionTotal, len(waiting))


class CheckTests(SynchronousTestCase):
    """
    Blocks from elsewhere.
    """

    def setUp(self) -> None:
        self.state = GENESIS.state()
        first = proposeBlock(
            self.state,
            GENESIS.header(),
            3,
            GENESIS.created + 10,
            transactions("OPEN a", f"OPEN {TWINS[0]}", f"OPEN {TWINS[1]}"),
        )
        self.state.apply(first.outcome, first.history)
        self.parent = first.header
        self.block = [
            transactionOf(Sent("PUBLISH", SENDER, nonce, "a", bytes([nonce])))
            for nonce in (4, 5, 6)
        ]

    def propose(self, view: int = 5, timestamp: int = GENESIS.created + 20) -> Candidate:
        """The next block."""
        return proposeBlock(self.state, self.parent, view, timestamp, self.block)

    def check(self, candidate: Candidate) -> Candidate:
        """Check a block as another node would, from what came over the wire."""
        return checkBlock(self.state, self.parent, candidate.header, decodeBody(candidate.body))

    def test_proposalIsReproduced(self) -> None:
        """A block that one node proposes, another finds to be the very same."""
        candidate = self.propose()
        self.assertEqual(self.check(candidate), candidate)

    def test_headerDescribesItsBlock(self) -> None:
        """The header describes its block."""
        header = self.propose().header
        self.assertEqual((header.height, header.parent), (2, self.parent.hash))
        self.assertEqual((header.view, header.proposer), (5, (5 + 2) % 4))
        self.assertEqual((header.transactionCount, header.transactionTotal), (3, 6))

    def test_blockMayBeEmpty(self) -> None:
        """A block may be empty."""
        self.block = []
        candidate = self.propose()
        self.assertEqual(self.check(candidate), candidate)
        self.assertEqual(candidate.header.stateRoot, self.parent.stateRoot)

    def test_lateClockTakesParentsTime(self) -> None:
        """A proposer whose clock is behind takes its parent's time."""
        candidate = self.propose(timestamp=0)
        self.assertEqual(candidate.header.timestamp, self.parent.timestamp)
        self.assertEqual(self.check(candidate), candidate)

    def test_everyChangedFieldIsRefused(self) -> None:
        """No field of a header can be anything else, up or down, first bit or last."""
        candidate = self.propose()
        # A later time is another valid block, and so is a view with the same leader.
        free = {"timestamp": 1, "view": len(GENESIS.validators)}
        for name, kind in FIELDS.items():
            value = getattr(candidate.header, name)
            if kind is bytes:
                wrong = [
                    bytes([value[0] ^ 0x80]) + value[1:],
                    value[:-1] + bytes([value[-1] ^ 1]),
                    bytes(32),
                ]
            else:
                wrong = [value - 1, 0, 2**16 - 1]
                if name not in free:
                    wrong.append(value + 1)
            for other in wrong:
                if name in free and other >= getattr(self.parent, name):
                    continue
                self.assertNotEqual(other, value)
                header = replace(candidate.header, **{name: other})
                with self.assertRaises(InvalidBlock):
                    checkBlock(self.state, self.parent, header, self.block)

    def test_viewFixesProposerAndNeverFalls(self) -> None:
        """A view fixes the proposer, and never falls."""
        header = self.propose().header
        for view in (3, 4, 6, 7):
            with self.assertRaises(InvalidBlock):
                checkBlock(self.state, self.parent, replace(header, view=view), self.block)
        fallen = self.propose(view=2)
        self.assertRaises(InvalidBlock, self.check, fallen)
        self.check(self.propose(view=3))

    def test_earlierTimeIsRefused(self) -> None:
        """A time before the parent's is refused, whatever else is right."""
        early = replace(self.propose().header, timestamp=self.parent.timestamp - 1)
        with self.assertRaises(InvalidBlock):
            checkBlock(self.state, self.parent, early, self.block)

    def test_otherTransactionsAreRefused(self) -> None:
        """A header stands for its transactions and their order."""
        header = self.propose().header
        changed = transactionOf(Sent("PUBLISH", SENDER, 6, "a", b"changed"))
        for block in (
            self.block[:2],
            [*self.block, self.block[0]],
            self.block[::-1],
            [*self.block[:2], changed],
            [],
        ):
            with self.assertRaises(InvalidBlock):
                checkBlock(self.state, self.parent, header, block)

    def test_otherValidatorsAreRefused(self) -> None:
        """A header names the nodes that decide it, in their order and of their generation."""
        header = self.propose().header
        for nodes in (
            setOf(0, 0, 1, 2),
            setOf(0, 3, 2, 1, 0),
            setOf(0, 0, 1, 2, 3, 4),
            setOf(0, 0, 1, 2, 4),
            setOf(1, 0, 1, 2, 3),
        ):
            self.state.validators = nodes
            with self.assertRaises(InvalidBlock):
                checkBlock(self.state, self.parent, header, self.block)
        self.state.validators = GENESIS.validatorSet
        checkBlock(self.state, self.parent, header, self.block)

    def test_otherHistoryIsRefused(self) -> None:
        """A header names all headers before it."""
        header = self.propose().header
        genesis, first = GENESIS.header().hash, self.parent.hash
        self.assertEqual(header.history, reference.history([genesis, first]))
        self.assertEqual(self.parent.history, reference.history([genesis]))
        for hashes in ([genesis], [first, genesis], [genesis, first, first], [bytes(32), first]):
            self.state.history = History.of(hashes)
            with self.assertRaises(InvalidBlock):
                checkBlock(self.state, self.parent, header, self.block)

    def test_otherParentIsRefused(self) -> None:
        """A block follows one parent, and one state."""
        candidate = self.propose()
        with self.assertRaises(InvalidBlock):
            checkBlock(self.state, GENESIS.header(), candidate.header, self.block)
        sibling = replace(self.parent, timestamp=self.parent.timestamp - 1)
        with self.assertRaises(InvalidBlock):
            checkBlock(self.state, sibling, candidate.header, self.block)
        with self.assertRaises(InvalidBlock):
            checkBlock(GENESIS.state(), self.parent, candidate.header, self.block)

    def test_prefixConflictIsRefused(self) -> None:
        """A block that publishes to two topics whose event ids begin alike is refused."""
        header = self.propose().header
        block = [
            transactionOf(Sent("PUBLISH", SENDER, nonce, topic))
            for nonce, topic in enumerate(TWINS, start=4)
        ]
        with self.assertRaises(InvalidBlock):
            checkBlock(self.state, self.parent, header, block)

    def test_checkingChangesNothing(self) -> None:
        """Checking leaves the state, whether the block is good or not."""
        candidate, root = self.propose(), self.state.root
        self.check(candidate)
        with self.assertRaises(InvalidBlock):
            checkBlock(self.state, self.parent, candidate.header, [])
        self.assertEqual(self.state.root, root)
