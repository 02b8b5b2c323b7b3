"""
The outcome of a run.
"""

from __future__ import annotations

from collections import Counter

from attrs import field, frozen

from .judge import Violation


@frozen(kw_only=True)
class Outcome:
    """
    The outcome of a run.

    @ivar violation: the violation found, or C{None}.
    @ivar blocks: how many blocks became final.
    @ivar answered: how many transactions were answered.
    @ivar messages: how many messages arrived.
    @ivar seconds: the virtual time of the run.
    @ivar faults: how often each kind of fault and of Byzantine action occurred.
    @ivar probes: how often each L{probe<svcbroker.probes.probe>} was reached.
    @ivar digest: the digest of the trace.
    @ivar broken: the name of the mutation that was run, or empty.
    """

    system: str
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
    probes: Counter[str] = field(factory=Counter)

    @property
    def replay(self) -> str:
        """The command that repeats the run and shows its trace."""
        broken = f"--break {self.broken!r} " if self.broken else ""
        return (
            f"python -m tools.simulate {broken}--system {self.system} --nodes {self.nodes} "
            f"--seed {self.seed} --trace"
        )
