"""
What came of a run.
"""

from __future__ import annotations

from collections import Counter

from attrs import frozen

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
    @ivar broken: the name of the mutation that its nodes were of.
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
    broken: str = ""

    @property
    def replay(self) -> str:
        """The command that runs it again and shows what happens."""
        broken = f"--break {self.broken!r} " if self.broken else ""
        return (
            f"python -m tools.simulate {broken}--world {self.world} --nodes {self.nodes} "
            f"--seed {self.seed} --trace"
        )
