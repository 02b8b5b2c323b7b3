"""
What is shown of many runs, as lines of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from .outcome import Outcome
from .runs import Tally

LAST_LINES = 40
"""How much of a trace is shown where all of it was not asked for."""


def summary(tally: Tally, seconds: float) -> Iterator[str]:
    """
    What came of some runs.

    @param seconds: how long they took.
    """
    total = tally.schedules.total()
    yield f"{total} schedules in {seconds:.1f} s, {total / max(seconds, 0.001):.1f} a second"
    yield ""
    rows = [("world", "nodes", "schedules", "blocks decided")]
    for world, nodes in sorted(tally.schedules):
        count, blocks = tally.schedules[world, nodes], tally.blocks[world, nodes]
        rows.append((world, str(nodes), str(count), str(blocks)))
    rows.append(("all", "", str(total), str(tally.blocks.total())))
    yield from table(rows)
    yield ""
    yield (
        f"{tally.answered} transactions answered, {tally.messages} messages carried, "
        f"{tally.seconds / 3600:.1f} hours of virtual time"
    )
    yield ""
    faults = [(kind, str(count)) for kind, count in tally.faults.most_common()]
    yield from table([("faults and treason", "times"), *faults])
    yield ""
    yield f"{len(tally.violations)} violations"


def failure(outcome: Outcome, lines: Sequence[str]) -> Iterator[str]:
    """
    One run that went wrong.

    @param lines: its trace.
    """
    yield f"VIOLATION of {outcome.violation}"
    yield f"run it again: {outcome.replay}"
    if len(lines) > LAST_LINES:
        yield f"... {len(lines) - LAST_LINES} lines before"
    yield from lines[-LAST_LINES:]


@frozen(kw_only=True)
class Finding:
    """
    How a mutation was found.

    @ivar name: what is wrong with it.
    @ivar schedule: the directed schedule that was played, if any.
    @ivar directed: the invariant that did not hold in it; empty where all did.
    @ivar random: the invariant that did not hold with random seeds; empty where all did.
    @ivar seeds: how many seeds that took, or how many were tried.
    """

    name: str
    schedule: str
    directed: str
    random: str
    seeds: int

    @property
    def isFound(self) -> bool:
        """Whether it was found at all."""
        return bool(self.directed or self.random)


def findings(found: Sequence[Finding]) -> Iterator[str]:
    """Which mutations were found, and how."""
    rows = [("mutation", "random seeds", "by", "directed schedule", "by")]
    for one in found:
        seeds = f"seed {one.seeds}" if one.random else f"not in {one.seeds}"
        rows.append((one.name, seeds, one.random, one.schedule, one.directed))
    yield from table(rows)
    yield ""
    yield f"{sum(one.isFound for one in found)} of {len(found)} mutations were found"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows in columns, with a line below the first."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if cell.isdigit() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()
        if number == 0:
            yield "  ".join("-" * width for width in widths)
