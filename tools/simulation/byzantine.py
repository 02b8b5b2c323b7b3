"""
Byzantine replicas: correct replicas whose messages are altered by behaviours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from svcbroker.ledgers.pbft._protocol import Effect, Message, Send, Timer
from svcbroker.ledgers.pbft._replica import Replica

from .adversary import Adversary
from .behaviours import (
    BaseBehaviour,
    Behaviour,
    ByzantineReplica,
    CertificateThief,
    DoubleVoter,
    Equivocator,
    FalseRoundChanges,
    Flooder,
    Forger,
    Intermittent,
    Replayer,
    SilentLeader,
    Strategist,
    TransactionInventor,
    UnjustifiedProposer,
    ViewChooser,
    WrongRoot,
    WrongSigner,
)

BEHAVIOURS: Sequence[tuple[type[BaseBehaviour], int]] = (
    (SilentLeader, 1),
    (WrongRoot, 1),
    (TransactionInventor, 1),
    (WrongSigner, 1),
    (Equivocator, 2),
    (DoubleVoter, 3),
    (FalseRoundChanges, 3),
    (UnjustifiedProposer, 3),
    (Forger, 2),
    (Replayer, 1),
    (Flooder, 1),
    (Strategist, 3),
    (Intermittent, 1),
    (CertificateThief, 2),
    (ViewChooser, 1),
)
"""All behaviours, with their weights."""


def makeByzantine(
    base: type[Replica], adversary: Adversary, behaviours: Sequence[Behaviour]
) -> Callable[..., Any]:
    """
    Make a factory of replicas like C{base}, with behaviours.
    """

    class Byzantine(base, ByzantineReplica):  # type: ignore[misc, valid-type]
        def receive(self, messages: Sequence[Message]) -> Sequence[Effect]:
            for message in messages:
                adversary.observe(message)
            effects = list(super().receive(messages))
            for message in messages:
                for behaviour in behaviours:
                    effects += behaviour.onReceive(self, message)
            return effects

        def timeOut(self, timer: Timer) -> Sequence[Effect]:
            effects = list(super().timeOut(timer))
            for behaviour in behaviours:
                effects += behaviour.onTimeOut(self)
            return effects

        def _finish(self) -> Sequence[Effect]:
            effects = super()._finish()
            for effect in effects:
                if isinstance(effect, Send):
                    adversary.observe(effect.message)
            for behaviour in behaviours:
                effects = behaviour.alter(self, effects)
            return effects

    Byzantine.adversary = adversary

    def make(signer: Any, *args: Any) -> Any:
        replica = Byzantine(signer, *args)
        replica.others = [index for index in range(adversary.nodes) if index != signer.index]
        return replica

    return make


COLLUDING: Sequence[Sequence[type[BaseBehaviour]]] = (
    (Strategist, UnjustifiedProposer),
    (Strategist, UnjustifiedProposer, FalseRoundChanges),
    (Strategist, DoubleVoter, Equivocator),
    (DoubleVoter, UnjustifiedProposer, FalseRoundChanges),
    (Strategist, UnjustifiedProposer, CertificateThief),
)
"""Behaviours that work together."""


def drawBehaviours(adversary: Adversary) -> Sequence[Behaviour]:
    """Draw the behaviours of one Byzantine replica."""
    random = adversary.random
    if random.random() < 0.4:
        return [kind() for kind in random.choice(COLLUDING)]
    kinds, weights = zip(*BEHAVIOURS, strict=True)
    chosen = random.choices(kinds, weights, k=random.choice((1, 2, 3)))
    return [kind() for kind in dict.fromkeys(chosen)]
