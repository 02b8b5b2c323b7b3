"""
Replicas that are Byzantine: an honest core, and vices that twist what it says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from attrs import evolve
from msgspec.structs import replace

from svcbroker.chain import Kind, Phase, Transaction, leaderIndex
from svcbroker.ledgers.pbft._application import BlockApplication
from svcbroker.ledgers.pbft._effects import Effect, Send, Timer
from svcbroker.ledgers.pbft._messages import (
    DecidedBlock,
    Message,
    PreparedCertificate,
    Proposal,
    ProposedBlock,
    RoundChange,
    Vote,
)
from svcbroker.ledgers.pbft._replica import Replica

from .chain import HostChain, variant
from .plot import Plot


class Traitor(Replica):
    """
    The honest core of a traitor, with what its vices need to see. Made by L{corrupted}.

    @ivar plot: what all of them know.
    @ivar others: the indexes of all others.
    """

    plot: Plot
    others: Sequence[int]

    def leads(self, round: int) -> bool:
        """Whether a round of the height that is being decided is its own."""
        view = self.head.view + round
        return leaderIndex(view, self.height, self.plot.nodes) == self.index

    def another(
        self, round: int, delay: int, more: Sequence[Transaction] = ()
    ) -> ProposedBlock | None:
        """A valid new block of its own, or C{None}."""
        application = self._application
        assert isinstance(application, HostChain | BlockApplication)
        return variant(application, self.head.view + round, delay, more)


class Vice(Protocol):
    """A way of being Byzantine."""

    def twist(self, traitor: Traitor, effects: Sequence[Effect]) -> Sequence[Effect]:
        """What it wants done, in place of what its honest core wants done."""

    def heard(self, traitor: Traitor, message: Message) -> Sequence[Effect]:
        """What it wants done in addition, when a message arrives."""

    def waited(self, traitor: Traitor) -> Sequence[Effect]:
        """What it wants done in addition, when a time-out has passed."""


class _Vice:
    """By default there is no harm in it."""

    def twist(self, traitor: Traitor, effects: Sequence[Effect]) -> Sequence[Effect]:
        return [twisted for effect in effects for twisted in self._one(traitor, effect)]

    def _one(self, traitor: Traitor, effect: Effect) -> Sequence[Effect]:
        return [effect]

    def heard(self, traitor: Traitor, message: Message) -> Sequence[Effect]:
        return ()

    def waited(self, traitor: Traitor) -> Sequence[Effect]:
        return ()


class SilentLeader(_Vice):
    """It never proposes."""

    def _one(self, traitor: Traitor, effect: Effect) -> Sequence[Effect]:
        if isinstance(effect, Send) and isinstance(effect.message, Proposal):
            traitor.plot.acts["silent leader"] += 1
            return ()
        return [effect]


class WrongRoot(_Vice):
    """The blocks that it proposes claim another state than theirs."""

    def _one(self, traitor: Traitor, effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and isinstance(effect.message, Proposal)):
            return [effect]
        said = effect.message
        header = evolve(said.block.header, stateRoot=bytes(32))
        block = replace(said.block, header=header)
        traitor.plot.acts["wrong state root"] += 1
        lie = traitor.plot.proposal(traitor.index, said.round, block, said.justification)
        return [replace(effect, message=lie)]


class Inventor(_Vice):
    """The blocks that it proposes hold what nobody sent."""

    def _one(self, traitor: Traitor, effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and isinstance(effect.message, Proposal)):
            return [effect]
        said, plot = effect.message, traitor.plot
        sender = plot.random.randbytes(20)
        invented = Transaction.create(Kind.OPEN, sender, 1, 0, "topic/invented")
        block = traitor.another(said.round, 0, [invented])
        if block is None:
            return [effect]
        plot.acts["invented transaction"] += 1
        lie = plot.proposal(traitor.index, said.round, block, said.justification)
        return [replace(effect, message=lie)]


class Equivocator(_Vice):
    """As a leader it tells half of the others of one block, and half of another."""

    def _one(self, traitor: Traitor, effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and isinstance(effect.message, Proposal)):
            return [effect]
        said, plot = effect.message, traitor.plot
        block = traitor.another(said.round, 1)
        if block is None:
            return [effect]
        plot.acts["equivocation"] += 1
        plot.blocks[block.header.hash] = block
        other = plot.proposal(traitor.index, said.round, block, said.justification)
        half = plot.random.sample(list(traitor.others), len(traitor.others) // 2)
        return [Send(other if target in half else said, target) for target in traitor.others]


class DoubleVoter(_Vice):
    """It prepares and commits every block that it hears of, whatever else it voted for."""

    def __init__(self) -> None:
        self._voted: set[tuple[int, int, bytes]] = set()

    def heard(self, traitor: Traitor, message: Message) -> Sequence[Effect]:
        if not isinstance(message, Proposal | Vote) or message.height != traitor.height:
            return ()
        place = (message.height, message.round, message.digest)
        if place in self._voted or not 0 <= message.round < 1000:
            return ()
        self._voted.add(place)
        traitor.plot.acts["vote for anything"] += 1
        return [
            Send(traitor.plot.vote(traitor.index, phase, *place))
            for phase in (Phase.PREPARE, Phase.COMMIT)
        ]


class Liar(_Vice):
    """Its round changes contradict each other, and claim what is not so."""

    def _one(self, traitor: Traitor, effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and isinstance(effect.message, RoundChange)):
            return [effect]
        traitor.plot.acts["conflicting view change"] += 1
        lies = self.lies(traitor, effect.message)
        return [
            replace(effect, target=target, message=traitor.plot.random.choice(lies))
            for target in traitor.others
        ]

    def lies(self, traitor: Traitor, said: RoundChange) -> Sequence[RoundChange]:
        """All that could be claimed instead."""
        plot, me, height, round = traitor.plot, traitor.index, said.height, said.round
        lies = [said, plot.roundChange(me, height, round)]
        for certificate, block in plot.stale(height, round)[:1]:
            # The oldest certificate; the same with a later round's number on it; and one of
            # its own signature many times.
            last = round - 1
            digest = certificate.digest
            lies += [
                plot.roundChange(me, height, round, lie, block)
                for lie in (certificate, replace(certificate, round=last))
            ]
            for known in list(plot.blocks.values())[-2:]:
                if known.header.height != height:
                    continue
                digest = known.header.hash
                padded = plot.padded(Phase.PREPARE, me, height, last, digest)
                lies += [
                    plot.roundChange(
                        me,
                        height,
                        round,
                        PreparedCertificate(round=last, digest=digest, signatures=signatures),
                        known,
                    )
                    for signatures in (padded, ())
                ]
        return lies


class Usurper(_Vice):
    """As the leader of a later round it proposes a block of its own, whatever others are bound
    to, and justifies it in every way that it can think of."""

    def __init__(self) -> None:
        self._done: set[tuple[int, int]] = set()

    def _one(self, traitor: Traitor, effect: Effect) -> Sequence[Effect]:
        said = effect.message if isinstance(effect, Send) else None
        # Where it has usurped a round, its honest core keeps silent.
        if isinstance(said, Proposal | Vote) and (said.height, said.round) in self._done:
            return ()
        return [effect]

    def heard(self, traitor: Traitor, message: Message) -> Sequence[Effect]:
        if not isinstance(message, RoundChange) or message.height != traitor.height:
            return ()
        place = (message.height, message.round)
        if not 0 < message.round < 1000 or place in self._done or not traitor.leads(message.round):
            return ()
        plot = traitor.plot
        if len(plot.changes.get(place, {})) < plot.quorum - 1 and plot.random.random() < 0.5:
            return ()
        block = traitor.another(message.round, 2)
        if block is None:
            return ()
        self._done.add(place)
        plot.acts["usurped round"] += 1
        plot.blocks[block.header.hash] = block
        lies: list[Message] = [
            plot.proposal(traitor.index, message.round, block, excuse)
            for excuse in self.excuses(traitor, block, *place)
        ]
        lies += [
            plot.vote(index, phase, *place, block.header.hash)
            for index in plot.seeds
            for phase in (Phase.PREPARE, Phase.COMMIT)
        ]
        return [Send(lie) for lie in lies]

    def excuses(
        self, traitor: Traitor, block: ProposedBlock, height: int, round: int
    ) -> Sequence[Sequence[RoundChange]]:
        """Round changes that could be said to allow it."""
        plot, me = traitor.plot, traitor.index
        own = plot.roundChange(me, height, round)
        heard = [c for c in plot.changes.get((height, round), {}).values() if c.sender != me]
        allies = [plot.roundChange(index, height, round) for index in plot.seeds if index != me]
        free = [c for c in heard if c.prepared is None and c.sender not in plot.seeds]
        digest, last = block.header.hash, round - 1
        bound = [
            plot.roundChange(
                me,
                height,
                round,
                PreparedCertificate(round=last, digest=digest, signatures=signatures),
                block,
            )
            for signatures in (plot.padded(Phase.PREPARE, me, height, last, digest), ())
        ]
        return [
            [own, *allies, *free],
            ([own, *allies, *free] * plot.quorum)[: plot.quorum],
            [replace(own, sender=index) for index in range(plot.quorum)],
            *([lie, *heard] for lie in bound),
            (),
        ]


class Forger(_Vice):
    """It hands out blocks that nobody decided, and messages of others that these never sent."""

    def heard(self, traitor: Traitor, message: Message) -> Sequence[Effect]:
        plot = traitor.plot
        if plot.random.random() > 0.15:
            return ()
        effects: list[Effect] = []
        if isinstance(message, Vote):
            plot.acts["forged message"] += 1
            forged = replace(message, digest=bytes(32), round=message.round + 1)
            effects += [Send(forged), Send(replace(forged, sender=traitor.index))]
        block = traitor.another(traitor.round, 3)
        if block is not None:
            plot.acts["forged block"] += 1
            plot.blocks[block.header.hash] = block
            for certificate in plot.certificates(traitor.index, block, traitor.round):
                fake = DecidedBlock(
                    sender=traitor.index, header=block.header, certificate=certificate
                )
                effects.append(Send(fake, plot.random.choice(traitor.others)))
        return effects


class Replayer(_Vice):
    """It says again, much later, what it and others have said."""

    def __init__(self) -> None:
        self._known: list[Message] = []

    def heard(self, traitor: Traitor, message: Message) -> Sequence[Effect]:
        plot = traitor.plot
        self._known.append(message)
        if len(self._known) < 20 or plot.random.random() > 0.1:
            return ()
        plot.acts["replayed message"] += 1
        replayed = plot.random.choice(self._known)
        del self._known[:-100]
        return [Send(replayed), Send(replace(replayed, sender=traitor.index))]

    def twist(self, traitor: Traitor, effects: Sequence[Effect]) -> Sequence[Effect]:
        self._known += [effect.message for effect in effects if isinstance(effect, Send)]
        return effects


class Flooder(_Vice):
    """It votes in all rounds and heights, near and far."""

    def waited(self, traitor: Traitor) -> Sequence[Effect]:
        plot, me, height = traitor.plot, traitor.index, traitor.height
        plot.acts["flood"] += 1
        digest = plot.random.randbytes(32)
        first = plot.random.randrange(0, 60)
        said: list[Message] = [
            plot.vote(me, phase, height + ahead, round, digest)
            for phase in (Phase.PREPARE, Phase.COMMIT)
            for ahead in (0, 1)
            for round in range(first, first + 12)
        ]
        said += [plot.vote(me, Phase.COMMIT, height + n, 0, digest) for n in (5, 20, 2**62)]
        said += [
            plot.roundChange(me, height, round)
            for round in (traitor.round + 1, traitor.round + 30, 2**40, 2**63)
        ]
        return [Send(message) for message in said]


class Strategist(_Vice):
    """
    It is honest in the first round but for telling one node only of its commits; afterwards it
    helps no honest block, and is never bound to anything.
    """

    def _one(self, traitor: Traitor, effect: Effect) -> Sequence[Effect]:
        if not isinstance(effect, Send):
            return [effect]
        plot, said = traitor.plot, effect.message
        if isinstance(said, RoundChange):
            plot.acts["denied being bound"] += 1
            return [replace(effect, message=plot.roundChange(said.sender, said.height, said.round))]
        if not isinstance(said, Vote):
            return [effect]
        if said.round == 0 and said.phase is Phase.COMMIT:
            return [replace(effect, target=traitor.others[said.height % len(traitor.others)])]
        block = plot.blocks.get(said.digest)
        if said.round and block is not None and block.header.proposer not in plot.seeds:
            plot.acts["withheld vote"] += 1
            return ()
        return [effect]


class Ghost(_Vice):
    """It takes part in two heights, and is gone for two."""

    def twist(self, traitor: Traitor, effects: Sequence[Effect]) -> Sequence[Effect]:
        if traitor.height % 4 < 2:
            return effects
        traitor.plot.acts["silence"] += 1
        return [effect for effect in effects if not isinstance(effect, Send)]


VICES: Sequence[tuple[type[_Vice], int]] = (
    (SilentLeader, 1),
    (WrongRoot, 1),
    (Inventor, 1),
    (Equivocator, 2),
    (DoubleVoter, 3),
    (Liar, 3),
    (Usurper, 3),
    (Forger, 2),
    (Replayer, 1),
    (Flooder, 1),
    (Strategist, 3),
    (Ghost, 1),
)
"""All of them, with how often they are chosen."""


def corrupted(base: type[Replica], plot: Plot, vices: Sequence[Vice]) -> Callable[..., Any]:
    """
    A class of replicas like C{base}, with vices.
    """

    class Corrupted(base, Traitor):  # type: ignore[misc, valid-type]
        def receive(self, message: Message, isLast: bool = True) -> Sequence[Effect]:
            plot.overhear(message)
            effects = list(super().receive(message, isLast))
            for vice in vices:
                effects += vice.heard(self, message)
            return effects

        def timeOut(self, timer: Timer) -> Sequence[Effect]:
            effects = list(super().timeOut(timer))
            for vice in vices:
                effects += vice.waited(self)
            return effects

        def _finish(self, mayVote: bool = True) -> Sequence[Effect]:
            effects = super()._finish(mayVote)
            for effect in effects:
                if isinstance(effect, Send):
                    plot.overhear(effect.message)
            for vice in vices:
                effects = vice.twist(self, effects)
            return effects

    Corrupted.plot = plot

    def make(signer: Any, *args: Any) -> Any:
        replica = Corrupted(signer, *args)
        replica.others = [index for index in range(plot.nodes) if index != signer.index]
        return replica

    return make


MASTERMINDS: Sequence[Sequence[type[_Vice]]] = (
    (Strategist, Usurper),
    (Strategist, Usurper, Liar),
    (Strategist, DoubleVoter, Equivocator),
    (DoubleVoter, Usurper, Liar),
)
"""Vices that serve one purpose together."""


def someVices(plot: Plot) -> Sequence[Vice]:
    """What a traitor is like."""
    random = plot.random
    if random.random() < 0.4:
        return [kind() for kind in random.choice(MASTERMINDS)]
    kinds, weights = zip(*VICES, strict=True)
    chosen = random.choices(kinds, weights, k=random.choice((1, 2, 3)))
    return [kind() for kind in dict.fromkeys(chosen)]
