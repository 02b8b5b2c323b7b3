"""
A harness for schedules written by hand, which decide who receives what.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from svcbroker.chain import Kind, Transaction, accountAddress, faultsTolerated
from svcbroker.ledgers.pbft._keys import ReplicaSigner, SignatureVerifier
from svcbroker.ledgers.pbft._protocol import (
    Decide,
    Effect,
    Message,
    ProposedBlock,
    RoundChange,
    Send,
    Timer,
)
from svcbroker.ledgers.pbft._replica import Timing

from .adversary import Adversary
from .chain import StoredBlock, variant
from .clock import VirtualClock
from .genesis import NOW, genesisOf, seedsOf
from .judge import LIVENESS, Judge, Violation
from .replicas import Components, HostReplica
from .trace import Trace, kindOf

A, B, C, Z = range(4)
"""
Of four replicas, three correct ones and a Byzantine one, for which the script speaks. In larger
sets the last f are Byzantine.
"""


class Harness:
    """
    Replicas that decide the first block. Of four, B leads round 0, C round 1, Z, which is
    Byzantine, round 2, and A round 3; then B again.

    @ivar adversary: the knowledge of the Byzantine replicas, which is all messages sent.
    @ivar correct: the indexes of the correct replicas.
    @ivar byzantine: the indexes of the Byzantine ones.
    """

    def __init__(self, components: Components, trace: Trace | None = None, nodes: int = 4) -> None:
        self.trace = Trace() if trace is None else trace
        self.nodes = nodes
        self.genesis = genesisOf(nodes)
        self.judge = Judge(self.genesis)
        self.correct = range(nodes - faultsTolerated(nodes))
        self.byzantine = range(self.correct.stop, nodes)
        seeds = {index: seedsOf(nodes)[index] for index in self.byzantine}
        self.adversary = Adversary(Random(0), self.genesis.chain, nodes, seeds)
        self._clock = VirtualClock(NOW)
        self._sent: dict[tuple[str, int, int], Message] = {}
        self._step = 0
        opening = Transaction.create(
            Kind.OPEN, accountAddress(self.genesis.chain, "client"), 1, 0, "topic"
        )
        self.judge.submitted(opening)
        self.chains = {
            index: components.chain(self.genesis, self._clock, 0.0, {opening.hash})
            for index in range(nodes)
        }
        self._components = components
        self._verifier = SignatureVerifier(self.genesis.validators)
        self.replicas = {index: self._makeReplica(index) for index in self.correct}
        for chain in self.chains.values():
            chain.add(opening)
        for index, replica in self.replicas.items():
            self._perform(index, replica.start(0))
            self._perform(index, replica.propose(1))

    def _makeReplica(self, index: int) -> HostReplica:
        signer = ReplicaSigner(
            index, seedsOf(self.nodes)[index], self.genesis.chain, self._verifier
        )
        rules = self._components.rules(chain=self.genesis.chain, verifier=self._verifier)
        head = self.genesis.header()
        return self._components.replica(signer, rules, self.chains[index], Timing(), head)

    def crash(self, *indexes: int) -> None:
        """Crash replicas that have decided nothing, and restart them with their stored promises."""
        for index in indexes:
            promise = self._components.keep(self.replicas[index].promise)
            self.trace.note(NOW + self._step, f"node {index} crashes and starts")
            self.replicas[index] = replica = self._makeReplica(index)
            self._perform(index, replica.recall(promise))
            self._perform(index, replica.propose(1))

    def receive(self, target: int, *messages: Message) -> None:
        """Have a replica receive messages."""
        for message in messages:
            self._step += 1
            self.trace.sent(NOW + self._step, message.sender, message, [(target, 0.0)])
            self._perform(target, self.replicas[target].receive([message]))

    def receiveTogether(self, target: int, *messages: Message) -> None:
        """Have a replica receive messages that have arrived together."""
        self._step += 1
        for message in messages:
            self.trace.sent(NOW + self._step, message.sender, message, [(target, 0.0)])
        self._perform(target, self.replicas[target].receive(messages))

    def deliver(self, kind: str, round: int, senders: Sequence[int], target: int) -> None:
        """Deliver messages of a round to a replica. Those not delivered are lost."""
        for sender in senders:
            if sender != target:
                self.receive(target, self.sent(kind, round, sender))

    def hasSent(self, kind: str, round: int, sender: int) -> bool:
        """Whether a replica has sent a message of a kind in a round."""
        return (kind, round, sender) in self._sent

    def sent(self, kind: str, round: int, sender: int) -> Message:
        """
        The message of a kind that a replica has sent in a round. A leader's proposal is its
        prepare.
        """
        if kind == "prepare" and not self.hasSent(kind, round, sender):
            kind = "proposal"
        return self._sent[kind, round, sender]

    def timeOut(self, *indexes: int) -> None:
        """Let the current round of some replicas time out."""
        for index in indexes:
            self._perform(index, self.replicas[index].timeOut(Timer.ROUND))

    def variant(self, round: int, delay: int = 0) -> ProposedBlock:
        """A valid block made by a Byzantine replica."""
        block = variant(self.chains[self.byzantine[0]], round, delay)
        assert block is not None
        self.adversary.blocks[block.header.hash] = block
        return block

    def changes(self, round: int, *senders: int) -> list[RoundChange]:
        """The round changes that some replicas have sent for a round."""
        sent = [self.sent("round-change", round, sender) for sender in senders]
        return [change for change in sent if isinstance(change, RoundChange)]

    def mustDecide(self, *indexes: int) -> None:
        """
        Check that some replicas have decided the block.

        @raise Violation: one has not.
        """
        for index in indexes:
            if not self.replicas[index].head.height:
                raise Violation(LIVENESS, f"node {index} has decided nothing")

    def _perform(self, index: int, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                message = effect.message
                self.judge.sent(index, message)
                self.adversary.observe(message)
                round = getattr(message, "round", 0)
                self._sent[kindOf(message), round, index] = message
            elif isinstance(effect, Decide):
                header, transactions = effect.candidate.header, effect.candidate.transactions
                self.trace.note(NOW + self._step, f"node {index} DECIDES {header.hash.hex()[:6]}")
                block = StoredBlock(
                    header=header, certificate=effect.certificate, transactions=transactions
                )
                self.judge.decided(index, header, effect.certificate, transactions)
                self.judge.final(header.height)
                self.chains[index].load(block)
