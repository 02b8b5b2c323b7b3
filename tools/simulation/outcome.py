"""
What came of a run.
"""

from __future__ import annotations

from collections import Counter

from attrs import evolve, frozen

from .judge import Violation


@frozen(kw_only=True)
class Outcome:
    """
    What came of a run.

    @ivar violation: what did not hold; C{None} where all did.
    @ivar blocks: how many blocks became final.
    @ivar answered: how many transactions clients were told of.
    @ivar messages: how many messages arrived.
    @ivar seconds: how much virtual time has passed.
    @ivar faults: how often which fault was injected, and what traitors did.
    @ivar digest: what stands for the whole trace.
    """

    world: str
    nodes: int
    seed: int
    violation: Violation | None
    blocks: int
    answered: int
    messages: int
    seconds: float
    faults: Counter[str]
    digest: str

    def judged(self, violation: Violation) -> Outcome:
        """The same, with something that did not hold."""
        return evolve(self, violation=violation)

    @property
    def replay(self) -> str:
        """The command that runs it again and shows what happens."""
        return (
            f"python -m tools.simulate --world {self.world} --nodes {self.nodes} "
            f"--seed {self.seed} --trace"
        )
