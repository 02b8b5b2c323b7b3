"""
Tests of L{svcbroker.chain.ChainState} and L{svcbroker.chain.Nonces}.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    ChainState,
    History,
    Malformed,
    Nonces,
    TransactionReceipt,
    ValidatorSet,
    execute,
    topicAddress,
)
from svcbroker.chain._execution import PrefixConflict
from svcbroker.chain._state import EMPTY_STATE_ROOT
from svcbroker.model import Execution, topicPrefix

from . import reference, reference_state
from .reference import Sent
from .support import TWINS, few, transactionOf

CHAIN = bytes(range(32))
NODES = ValidatorSet(0, (bytes(32),))
SENDERS = [bytes([number]) * 20 for number in range(3)]
NAMES = [*TWINS, "a", "b/c", "\x80"]

nonces = st.one_of(
    st.integers(0, 12),
    st.sampled_from([1023, 1024, 1025, 1026, 2047, 2048, 5000, 2**64 - 1]),
)
steps = st.builds(
    Sent,
    st.sampled_from(["OPEN", "OPEN", "CLOSE", "PUBLISH", "PUBLISH", "PUBLISH"]),
    st.sampled_from(SENDERS),
    nonces,
    st.sampled_from(NAMES),
)
blocks = st.lists(st.lists(steps, max_size=8), max_size=8)


def newState() -> ChainState:
    """The state of a chain that has no block."""
    return ChainState(CHAIN, NODES, History.of([bytes(32)]))


class AccountTests(SynchronousTestCase):
    """
    The nonces that are executed.
    """

    def test_noncesBeginWithOne(self) -> None:
        """Nonces begin with 1."""
        self.assertFalse(Nonces().accepts(0))
        self.assertTrue(Nonces().accepts(1))
        self.assertFalse(Nonces().after(3).accepts(0))

    def test_lowestAcceptedNonce(self) -> None:
        """The lowest nonce that is still executed lies 1023 behind the highest."""
        account = Nonces().after(2000)
        self.assertTrue(account.accepts(977))
        self.assertFalse(account.accepts(976))
        self.assertFalse(account.after(977).accepts(977))
        self.assertFalse(account.after(977).after(2001).accepts(977))

    def test_jumpBeyondWindowExecutesOnce(self) -> None:
        """A jump by the whole window or more forgets what came before, and executes none twice."""
        for ahead in (1023, 1024, 1025, 10**6):
            account = Nonces().after(1).after(1 + ahead)
            self.assertFalse(account.accepts(1), ahead)
            self.assertFalse(account.accepts(1 + ahead), ahead)
            self.assertTrue(account.accepts(ahead), ahead)

    @few
    @given(st.lists(nonces | st.integers(900, 2100), max_size=30))
    def test_accountMatchesModel(self, tried: list[int]) -> None:
        """An account is what a set of all executed nonces would say, at any size."""
        account, used = Nonces(), set[int]()
        for nonce in tried:
            isNew = account.accepts(nonce)
            self.assertEqual(isNew, reference.isNew(used, nonce))
            if isNew:
                account = account.after(nonce)
                used.add(nonce)
            self.assertEqual(account.encode(), reference.account(used))

    def test_accountHasFixedLength(self) -> None:
        """An account has one length."""
        for size in (0, 8, 135, 137):
            self.assertRaises(Malformed, Nonces.decode, bytes(size))


class ExecutionTests(SynchronousTestCase):
    """
    The effects of transactions.
    """

    def setUp(self) -> None:
        self.state = newState()
        self.height = 0
        self.nonce = 0

    def sent(self, kind: str, topic: str) -> Sent:
        """The first sender's next transaction."""
        self.nonce += 1
        return Sent(kind, SENDERS[0], self.nonce, topic)

    def run_(self, *block: Sent) -> list[tuple[str, int]]:
        """Execute a block at 1000 milliseconds a height."""
        self.height += 1
        outcome = execute(
            self.state, [transactionOf(sent) for sent in block], self.height, self.height * 1000
        )
        self.state.apply(outcome, self.state.history.after(bytes(32)))
        self.assertEqual(self.state.root, outcome.stateRoot)
        return [(receipt.execution.name, receipt.sequence) for receipt in outcome.receipts]

    def test_emptyBlockKeepsState(self) -> None:
        """The state of genesis; a block without transactions leaves it."""
        self.assertEqual(self.state.root, EMPTY_STATE_ROOT)
        self.assertEqual(self.run_(), [])
        self.assertEqual(self.state.root, EMPTY_STATE_ROOT)
        self.assertEqual(self.state.openCount, 0)

    def test_openedTopicHasItsFields(self) -> None:
        """A topic is its opener's, created at its block's time, and never published to."""
        self.assertEqual(self.run_(self.sent("OPEN", "a")), [("DONE", 0)])
        topic = self.state.topic("a")
        assert topic is not None
        self.assertEqual(topic.address, topicAddress(CHAIN, "a"))
        self.assertEqual((topic.sender, topic.created), (SENDERS[0], 1000))
        self.assertEqual((topic.isOpen, topic.sequence, topic.height), (True, 0, 0))

    def test_openingAgainChangesTheAccountAlone(self) -> None:
        """Opening an open topic changes the account alone, whoever does it."""
        self.run_(self.sent("OPEN", "a"))
        before = self.state.topic("a")
        again = Sent("OPEN", SENDERS[1], 1, "a")
        outcome = execute(self.state, [transactionOf(again)], 2, 2000)
        self.assertEqual(outcome.topics, {})
        self.assertEqual([sender for sender, _ in outcome.senders.values()], [SENDERS[1]])
        self.state.apply(outcome, self.state.history.after(bytes(32)))
        self.assertEqual(self.state.topic("a"), before)

    def test_closedTopicTakesNothing(self) -> None:
        """A closed topic takes nothing; opened again it goes on as what it was."""
        self.run_(self.sent("OPEN", "a"), self.sent("PUBLISH", "a"))
        self.assertEqual(
            self.run_(
                self.sent("CLOSE", "a"),
                self.sent("CLOSE", "a"),
                self.sent("PUBLISH", "a"),
            ),
            [("DONE", 0), ("TOPIC_NOT_FOUND", 0), ("TOPIC_NOT_FOUND", 0)],
        )
        self.assertEqual(list(self.state.openTopics(0, 9)), [])
        self.assertEqual(
            self.run_(Sent("OPEN", SENDERS[1], 1, "a"), self.sent("PUBLISH", "a")),
            [("DONE", 0), ("DONE", 2)],
        )
        topic = self.state.topic("a")
        assert topic is not None
        self.assertEqual((topic.sender, topic.created), (SENDERS[0], 1000))
        self.assertEqual((topic.sequence, topic.height), (2, 3))

    def test_onlyOpenCreatesTopics(self) -> None:
        """Nothing makes a topic but an open. The refused ones use up their nonces."""
        unknown = self.sent("PUBLISH", "a")
        self.assertEqual(self.run_(unknown), [("TOPIC_NOT_FOUND", 0)])
        self.assertIsNone(self.state.topic("a"))
        self.assertEqual(self.run_(self.sent("OPEN", "a"), unknown), [("DONE", 0), ("REPEATED", 0)])

    def test_refusedNonceMakesNoAccount(self) -> None:
        """A sender whose every transaction was refused for its nonce has no account."""
        self.assertEqual(self.run_(Sent("OPEN", SENDERS[0], 0, "a")), [("REPEATED", 0)])
        self.assertEqual(self.state.root, EMPTY_STATE_ROOT)

    def test_sequencesInABlock(self) -> None:
        """Events are numbered in the order of their transactions, topic by topic."""
        kinds = ["OPEN a", "OPEN b/c", "PUBLISH a", "PUBLISH b/c", "PUBLISH a", "PUBLISH a"]
        found = self.run_(*(self.sent(*text.split()) for text in kinds))
        self.assertEqual([number for _, number in found], [0, 0, 1, 1, 2, 3])

    def test_outcomeLocatesEvents(self) -> None:
        """An outcome says where the events of each topic stand in the block."""
        kinds = ["OPEN a", "PUBLISH b/c", "PUBLISH a", "OPEN b/c", "PUBLISH b/c", "PUBLISH a"]
        block = [transactionOf(self.sent(*text.split())) for text in kinds]
        outcome = execute(self.state, block, 1, 1)
        self.assertEqual(dict(outcome.published), {0: [2, 5], 1: [4]})

    def test_prefixConflictWithinBlockIsRefused(self) -> None:
        """No block publishes to two topics whose event ids begin alike. Two blocks may."""
        left, right = TWINS
        self.assertEqual(topicPrefix(left), topicPrefix(right))
        self.run_(self.sent("OPEN", left), self.sent("OPEN", right))
        root = self.state.root
        both = [self.sent("PUBLISH", left), self.sent("PUBLISH", right)]
        self.assertRaises(PrefixConflict, self.run_, *both)
        self.assertEqual(self.state.root, root)
        self.assertEqual(self.run_(both[0]), [("DONE", 1)])
        self.assertEqual(self.run_(both[1]), [("DONE", 1)])

    def test_refusedPublishClaimsNoPrefix(self) -> None:
        """A refused publish claims no prefix, and so stands in nobody's way."""
        left, right = TWINS
        self.run_(self.sent("OPEN", left))
        self.assertEqual(
            self.run_(self.sent("PUBLISH", left), self.sent("PUBLISH", right)),
            [("DONE", 1), ("TOPIC_NOT_FOUND", 0)],
        )

    def test_executeChangesNothing(self) -> None:
        """Executing is asking: twice gives the same, and the state stays."""
        self.run_(self.sent("OPEN", "a"), self.sent("PUBLISH", "a"))
        before = self.state.root, self.state.topic("a"), self.state.nonces(SENDERS[0])
        block = [transactionOf(self.sent(*text.split())) for text in ("PUBLISH a", "CLOSE a")]
        first, second = (execute(self.state, block, 2, 2) for _ in range(2))
        self.assertEqual(first, second)
        self.assertEqual(
            (self.state.root, self.state.topic("a"), self.state.nonces(SENDERS[0])), before
        )

    def test_openTopicsAreListedInOrder(self) -> None:
        """Open topics are listed by creation, piece by piece, also after closing and opening."""
        for number in range(6):
            self.run_(self.sent("OPEN", str(number)))
        self.run_(self.sent("CLOSE", "4"), self.sent("CLOSE", "1"), self.sent("CLOSE", "0"))
        self.run_(self.sent("OPEN", "1"))
        self.assertEqual([topic.name for topic in self.state.openTopics(0, 99)], list("1235"))
        self.assertEqual([topic.name for topic in self.state.openTopics(1, 2)], list("23"))
        self.assertEqual(list(self.state.openTopics(4, 2)), [])
        self.assertEqual(self.state.openCount, 4)


class ModelTests(SynchronousTestCase):
    """
    The state against plain dictionaries.
    """

    @few
    @given(blocks)
    def test_stateMatchesModel(self, drawn: list[list[Sent]]) -> None:
        """
        After any blocks, the state is what the model says, and one that is built of its rows
        has the same root. A block that the model cannot have is refused, and leaves no trace.
        """
        state, model = newState(), reference_state.State(CHAIN)
        done: list[tuple[list[Sent], int]] = []
        rows: dict[int, object] = {}
        for height, block in enumerate(drawn, start=1):
            transactions = [transactionOf(sent) for sent in block]
            root = state.root
            try:
                ends = model.execute(block, height, height * 10)
            except reference_state.Conflict:
                self.assertRaises(PrefixConflict, execute, state, transactions, height, height * 10)
                self.assertEqual(state.root, root)
                # The model is spoilt: play again what was before.
                model = reference_state.State(CHAIN)
                for earlier, number in done:
                    model.execute(earlier, number, number * 10)
                continue
            done.append((block, height))
            outcome = execute(state, transactions, height, height * 10)
            self.assertEqual([(r.execution.name, r.sequence) for r in outcome.receipts], list(ends))
            self.assertEqual(
                sorted(place for places in outcome.published.values() for place in places),
                [place for place, (_, sequence) in enumerate(ends) if sequence],
            )
            state.apply(outcome, state.history.after(bytes(32)))
            self.assertEqual((state.root, outcome.stateRoot), (model.root, model.root))
            rows.update(outcome.topics)
        self.compare(state, model)
        # The changes that outcomes name are all that a store needs.
        self.assertEqual([rows[index] for index in range(len(rows))], list(state._topics))

    def compare(self, state: ChainState, model: reference_state.State) -> None:
        """Compare all that the state answers with the model."""
        for name in NAMES:
            found, expected = state.topic(name), model.topics.get(name)
            self.assertEqual(found is None, expected is None)
            if found is not None and expected is not None:
                self.assertEqual(
                    (found.address, found.sender, found.created),
                    (expected.address, expected.sender, expected.created),
                )
                self.assertEqual(
                    (found.isOpen, found.sequence, found.height),
                    (expected.isOpen, expected.sequence, expected.height),
                )
        expectedOpen = [topic.name for topic in model.topics.values() if topic.isOpen]
        self.assertEqual([topic.name for topic in state.openTopics(0, 99)], expectedOpen)
        self.assertEqual(state.openCount, len(expectedOpen))
        for sender in SENDERS:
            self.assertEqual(
                state.nonces(sender).encode(),
                reference.account(model.accounts.get(sender, set())),
            )
        rebuilt = ChainState(
            CHAIN,
            NODES,
            state.history,
            [topic for name in model.topics if (topic := state.topic(name)) is not None],
            [(sender, Nonces.decode(state.nonces(sender).encode())) for sender in model.accounts],
        )
        self.assertEqual(rebuilt.root, state.root)
        self.assertEqual(list(rebuilt.openTopics(0, 99)), list(state.openTopics(0, 99)))

    @few
    @given(blocks)
    def test_splittingBlocksKeepsSequences(self, drawn: list[list[Sent]]) -> None:
        """
        One topic's events have the same numbers however they are cut into blocks.
        """
        flat = [sent for block in drawn for sent in block if sent.topic != TWINS[1]]
        together, apart = newState(), newState()
        numbered = execute(together, [transactionOf(sent) for sent in flat], 1, 1).receipts
        found: list[TransactionReceipt] = []
        for sent in flat:
            outcome = execute(apart, [transactionOf(sent)], 1, 1)
            apart.apply(outcome, apart.history.after(bytes(32)))
            found += outcome.receipts
        self.assertEqual(found, list(numbered))
        self.assertLessEqual({receipt.execution for receipt in found}, set(Execution))
