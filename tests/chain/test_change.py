"""
Changes of the validator set in the chain: what executes them, and who decides afterwards.
"""

from __future__ import annotations

from attrs import evolve
from msgspec.structs import replace
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.chain import (
    Candidate,
    ChainState,
    Header,
    InvalidBlock,
    Kind,
    Malformed,
    Transaction,
    ValidatorChange,
    checkBlock,
    decodeBody,
    leaderIndex,
    proposeBlock,
)

from . import reference, reference_state
from .reference import Sent
from .support import GENESIS, changeTo, sentChange, setOf, transactionOf

SENDER = bytes(20)


class ChangeTestCase(SynchronousTestCase):
    """
    A small chain, and the reference beside it.
    """

    def setUp(self) -> None:
        self.state = GENESIS.state()
        self.model = reference_state.State(GENESIS.chain, reference.Nodes(0, GENESIS.validators))
        self.parent = GENESIS.header()
        self.nonce = 0

    def change(self, change: ValidatorChange) -> Sent:
        """The next transaction, which carries a change."""
        self.nonce += 1
        return sentChange(self.nonce, change, SENDER)

    def sent(self, kind: str, topic: str) -> Sent:
        """The next transaction."""
        self.nonce += 1
        return Sent(kind, SENDER, self.nonce, topic)

    def block(self, *block: Sent) -> Candidate:
        """The next block, which is not applied."""
        return proposeBlock(
            self.state, self.parent, 0, self.parent.timestamp + 1, [*map(transactionOf, block)]
        )

    def run_(self, *block: Sent) -> list[str]:
        """Have a block executed, by the reference too. How its transactions ended."""
        before = self.state.validators
        candidate = self.block(*block)
        header = candidate.header
        # Another node comes to the same from what is on the wire.
        body = decodeBody(candidate.body)
        self.assertEqual(checkBlock(self.state, self.parent, header, body), candidate)
        self.assertEqual(self.state.validators, before)
        ends = self.model.execute(block, header.height, header.timestamp)
        found = candidate.outcome.receipts
        self.assertEqual([(r.execution.name, r.sequence) for r in found], list(ends))
        self.assertEqual((header.validators, header.nextValidators), (before.hash, self.next()))
        self.assertEqual(header.proposer, leaderIndex(0, header.height, len(before.keys)))
        self.state.apply(candidate.outcome, candidate.history)
        self.assertEqual(self.state.validators.hash, self.next())
        self.assertEqual(self.state.root, self.model.root)
        self.parent = header
        return [end for end, _ in ends]

    def next(self) -> bytes:
        """The hash of the set that the reference has now."""
        return self.model.nodes.hash


class ExecutionTests(ChangeTestCase):
    """
    The ends of changes.
    """

    def test_newSetDecidesNextBlock(self) -> None:
        """After a change the next block is the new set's, and its leader is of the new count."""
        change = changeTo(0, 1, 2, 3, 4, 5, 6)
        self.assertEqual(self.run_(self.change(change)), ["DONE"])
        self.assertEqual(self.state.validators, setOf(1, 0, 1, 2, 3, 4, 5, 6))
        proposers = []
        for _ in range(7):
            self.run_()
            self.assertEqual(self.parent.validators, change.following.hash)
            proposers.append(self.parent.proposer)
        self.assertEqual(proposers, [2, 3, 4, 5, 6, 0, 1])

    def test_setShrinksToOneAndGrows(self) -> None:
        """Down to one node, and up again."""
        self.run_(self.change(changeTo(2)))
        self.run_()
        self.assertEqual(self.parent.proposer, 0)
        self.assertEqual(self.run_(self.change(changeTo(3, 4, since=(2,), generation=1))), ["DONE"])
        self.run_()
        self.assertEqual(self.parent.validators, setOf(2, 3, 4).hash)

    def test_transactionsBesideChangeAreExecuted(self) -> None:
        """Transactions in a block beside a change are executed as ever, before it and after it."""
        ends = self.run_(
            self.sent("OPEN", "a"),
            self.sent("PUBLISH", "a"),
            self.change(changeTo(0, 1, 2, 4)),
            self.sent("PUBLISH", "a"),
        )
        self.assertEqual(ends, ["DONE"] * 4)
        topic = self.state.topic("a")
        assert topic is not None
        self.assertEqual(topic.sequence, 2)

    def test_refusedChangeOnlySpendsNonce(self) -> None:
        """One that does not hold changes nothing but its sender's nonces."""
        good = changeTo(0, 1, 2, 4)
        for bad in (
            changeTo(0, 1, 2, 4, approving=(0, 1)),
            changeTo(0, 1, 2, 4, generation=1),
            changeTo(0, 1, 2, 4, chain=bytes(32)),
            evolve(good, acceptances=(*good.acceptances[:3], bytes(64))),
        ):
            root = self.state.root
            self.assertEqual(self.run_(self.change(bad)), ["REFUSED"])
            self.assertEqual(self.state.validators, GENESIS.validatorSet)
            self.assertNotEqual(self.state.root, root)
            self.assertEqual(self.state.nonces(SENDER).highest, self.nonce)

    def test_malformedChangeIsRefused(self) -> None:
        """A transaction whose content is no change is refused."""
        encoded = changeTo(0, 1, 2, 4).encode()
        for content in (b"", b"x", encoded[:-1], encoded + b"\0", bytes(10)):
            self.nonce += 1
            sent = Sent("VALIDATORS", SENDER, self.nonce, "", content)
            self.assertEqual(self.run_(sent), ["REFUSED"])

    def test_repeatedNonceIsNotExecuted(self) -> None:
        """A nonce counts before all else."""
        change = self.change(changeTo(0, 1, 2, 4))
        self.assertEqual(self.run_(change, change), ["DONE", "REPEATED"])
        self.assertEqual(self.run_(change), ["REPEATED"])

    def test_twoInABlock(self) -> None:
        """A block changes the set once: the second change is refused, whatever it follows."""
        first = changeTo(0, 1, 2, 4)
        beside = changeTo(5, 6)
        after = changeTo(5, since=(0, 1, 2, 4), generation=1)
        ends = self.run_(*map(self.change, (first, beside, after)))
        self.assertEqual(ends, ["DONE", "REFUSED", "REFUSED"])
        self.assertEqual(self.state.validators, first.following)
        self.assertEqual(self.run_(self.change(after)), ["DONE"])

    def test_afterARefusedOne(self) -> None:
        """One that is refused does not stand in the way of the next one."""
        bad = changeTo(0, 4, approving=(0,))
        ends = self.run_(self.change(bad), self.change(changeTo(0, 4)))
        self.assertEqual(ends, ["REFUSED", "DONE"])

    def test_executedChangeCannotBeReplayed(self) -> None:
        """A change that was done is never done again, though its set was left and came back."""
        away = changeTo(0, 1, 2, 4)
        self.run_(self.change(away))
        self.assertEqual(self.run_(self.change(away)), ["REFUSED"])
        back = changeTo(0, 1, 2, 3, since=(0, 1, 2, 4), generation=1)
        self.assertEqual(self.run_(self.change(back)), ["DONE"])
        self.assertEqual(self.state.validators.keys, GENESIS.validators)
        self.assertEqual(self.run_(self.change(away)), ["REFUSED"])

    def test_executeChangesNothing(self) -> None:
        """Executing is asking."""
        candidate = self.block(self.change(changeTo(0, 4)))
        self.assertEqual(candidate.outcome.validators, setOf(1, 0, 4))
        self.assertEqual(self.state.validators, GENESIS.validatorSet)
        self.assertEqual(self.state.history.size, 1)


class BlockTests(ChangeTestCase):
    """
    Blocks from elsewhere around a change.
    """

    def refused(self, header: Header, *block: Sent) -> None:
        """A block may not come next."""
        with self.assertRaises(InvalidBlock):
            checkBlock(self.state, self.parent, header, [*map(transactionOf, block)])

    def test_headerCannotHideOrClaimChange(self) -> None:
        """A header can neither hide a change nor claim one."""
        change = self.change(changeTo(0, 4))
        honest = self.block(change).header
        self.refused(replace(honest, nextValidators=GENESIS.validatorSet.hash), change)
        empty = self.block().header
        self.refused(replace(empty, nextValidators=setOf(1, 0, 4).hash))

    def test_newSetCannotDecideItsOwnBlock(self) -> None:
        """A set does not decide the block that brings it."""
        change = self.change(changeTo(0, 4))
        following = setOf(1, 0, 4)
        honest = self.block(change).header
        self.refused(
            replace(honest, validators=following.hash, proposer=leaderIndex(0, 1, 2)), change
        )

    def test_oldSetCannotDecideNextBlock(self) -> None:
        """The set before does not decide the block after."""
        self.run_(self.change(changeTo(0, 4)))
        header = self.block().header
        self.refused(replace(header, validators=GENESIS.validatorSet.hash))
        self.refused(replace(header, proposer=leaderIndex(0, header.height, 4)))

    def test_restoredStateContinuesAlike(self) -> None:
        """A state that is made again of what is kept goes on alike."""
        self.run_(self.sent("OPEN", "a"), self.change(changeTo(0, 4)))
        state = self.state
        topic, account = state.topic("a"), state.nonces(SENDER)
        assert topic is not None
        again = ChainState(
            GENESIS.chain, state.validators, state.history, [topic], [(SENDER, account)]
        )
        block = [transactionOf(self.sent("PUBLISH", "a"))]
        candidates = [proposeBlock(each, self.parent, 0, 0, block) for each in (state, again)]
        self.assertEqual(candidates[0].header, candidates[1].header)


class TransactionTests(SynchronousTestCase):
    """
    The transaction that carries a change.
    """

    def test_changeHasContentOnly(self) -> None:
        """It has content, but neither a topic nor extensions."""
        content = changeTo(0, 4).encode()
        made = Transaction.create(Kind.VALIDATORS, SENDER, 1, 2, "", content)
        self.assertEqual(Transaction.decode(made.head + made.content), made)
        for topic, extensions in (("a", {}), ("", {"svc-a": "b"}), ("a", {"svc-a": "b"})):
            bad = Transaction.create(Kind.VALIDATORS, SENDER, 1, 2, topic, content, extensions)
            self.assertRaises(Malformed, Transaction.decode, bad.head + bad.content)
        for kind in (Kind.OPEN, Kind.CLOSE, Kind.PUBLISH):
            bad = Transaction.create(kind, SENDER, 1, 2, "")
            self.assertRaises(Malformed, Transaction.decode, bad.head)
