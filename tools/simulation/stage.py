"""
A stage for schedules that are written by hand: who hears what is up to the script.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from svcbroker.chain import Kind, Transaction, accountAddress
from svcbroker.ledgers.pbft._effects import Decide, Effect, Send, Timer
from svcbroker.ledgers.pbft._keys import Signer, Verifier
from svcbroker.ledgers.pbft._messages import Message, ProposedBlock, RoundChange
from svcbroker.ledgers.pbft._ports import Timing

from .chain import StoredBlock, variant
from .clock import VirtualClock
from .genesis import NOW, genesisOf, seedsOf
from .judge import Judge
from .plot import Plot
from .replicas import HostReplica, Parts
from .trace import Trace, kindOf

A, B, C, Z = range(4)
"""Three correct nodes and a traitor, who has no replica: the script speaks for it."""


class Stage:
    """
    Four nodes that decide the first block. Node 1 leads round 0, node 2 round 1, node 3, the
    traitor, round 2, and node 0 round 3.

    @ivar plot: what the traitor has overheard, and can say: everything.
    """

    def __init__(self, parts: Parts, trace: Trace | None = None) -> None:
        self.trace = Trace() if trace is None else trace
        self.genesis = genesisOf(4)
        self.judge = Judge(self.genesis)
        self.plot = Plot(Random(0), self.genesis.chain, 4, {Z: seedsOf(4)[Z]})
        self._clock = VirtualClock(NOW)
        self._said: dict[tuple[str, int, int], Message] = {}
        self._step = 0
        opening = Transaction.create(
            Kind.OPEN, accountAddress(self.genesis.chain, "client"), 1, 0, "topic"
        )
        self.judge.submitted(opening)
        self.chains = {
            index: parts.chain(self.genesis, self._clock, 0.0, {opening.hash})
            for index in (A, B, C, Z)
        }
        self._parts = parts
        self._verifier = Verifier(self.genesis.validators)
        self.replicas = {index: self._makeReplica(index) for index in (A, B, C)}
        for chain in self.chains.values():
            chain.add(opening)
        for index, replica in self.replicas.items():
            self._perform(index, replica.start(0))
            self._perform(index, replica.propose(1))

    def _makeReplica(self, index: int) -> HostReplica:
        signer = Signer(index, seedsOf(4)[index], self.genesis.chain, self._verifier)
        rules = self._parts.rules(chain=self.genesis.chain, verifier=self._verifier)
        head = self.genesis.header()
        return self._parts.replica(signer, rules, self.chains[index], Timing(), head)

    def crash(self, *indexes: int) -> None:
        """Have nodes crash that have decided nothing, and begin anew from what they promised."""
        for index in indexes:
            promise = self._parts.keep(self.replicas[index].promise)
            self.trace.note(NOW + self._step, f"node {index} crashes and starts")
            self.replicas[index] = replica = self._makeReplica(index)
            self._perform(index, replica.recall(promise))
            self._perform(index, replica.propose(1))

    def hear(self, target: int, *messages: Message) -> None:
        """Have a node hear some messages."""
        for message in messages:
            self._step += 1
            self.trace.sent(NOW + self._step, message.sender, target, message, "arrives")
            self._perform(target, self.replicas[target].receive(message))

    def pass_(self, kind: str, round: int, senders: Sequence[int], target: int) -> None:
        """Have a node hear what some nodes have said of a round; the rest is lost."""
        for sender in senders:
            if sender != target:
                self.hear(target, self.said(kind, round, sender))

    def hasSaid(self, kind: str, round: int, sender: int) -> bool:
        """Whether a node has said something of a kind of a round."""
        return (kind, round, sender) in self._said

    def said(self, kind: str, round: int, sender: int) -> Message:
        """What a node has said of a round. A leader's proposal is its prepare."""
        if kind == "prepare" and not self.hasSaid(kind, round, sender):
            kind = "proposal"
        return self._said[kind, round, sender]

    def timeOut(self, *indexes: int) -> None:
        """Have nodes lose patience with their round."""
        for index in indexes:
            self._perform(index, self.replicas[index].timeOut(Timer.ROUND))

    def variant(self, round: int, delay: int = 0) -> ProposedBlock:
        """A valid block of the traitor's own."""
        block = variant(self.chains[Z], round, delay)
        assert block is not None
        self.plot.blocks[block.header.hash] = block
        return block

    def changes(self, round: int, *senders: int) -> list[RoundChange]:
        """What some nodes have said when they came to a round."""
        said = [self.said("round-change", round, sender) for sender in senders]
        return [change for change in said if isinstance(change, RoundChange)]

    def _perform(self, index: int, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                message = effect.message
                self.judge.said(index, message)
                self.plot.overhear(message)
                round = getattr(message, "round", 0)
                self._said[kindOf(message), round, index] = message
            elif isinstance(effect, Decide):
                header, transactions = effect.candidate.header, effect.candidate.transactions
                self.trace.note(NOW + self._step, f"node {index} DECIDES {header.hash.hex()[:6]}")
                block = StoredBlock(
                    header=header, certificate=effect.certificate, transactions=transactions
                )
                self.judge.decided(index, header, effect.certificate, transactions)
                self.judge.final(header.height)
                self.chains[index].load(block)
