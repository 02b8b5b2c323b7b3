"""
The results of many runs as lines of text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .outcome import Outcome
from .runs import Finding, Totals

LAST_LINES = 40
"""How many lines of a trace are shown by default."""


def summary(totals: Totals, seconds: float) -> Iterator[str]:
    """
    Summarize runs.

    @param seconds: how long they took.
    """
    total = totals.schedules.total()
    yield f"{total} schedules in {seconds:.1f} s, {total / max(seconds, 0.001):.1f} a second"
    yield ""
    rows = [("system", "nodes", "schedules", "blocks decided")]
    for system, nodes in sorted(totals.schedules):
        count, blocks = totals.schedules[system, nodes], totals.blocks[system, nodes]
        rows.append((system, str(nodes), str(count), str(blocks)))
    rows.append(("all", "", str(total), str(totals.blocks.total())))
    yield from table(rows)
    yield ""
    yield (
        f"{totals.answered} transactions answered, {totals.messages} messages carried, "
        f"{totals.seconds / 3600:.1f} hours of virtual time"
    )
    yield ""
    faults = [(kind, str(count)) for kind, count in totals.faults.most_common()]
    yield from table([("faults and Byzantine actions", "times"), *faults])
    yield ""
    probes = [(name, str(count)) for name, count in totals.probes.most_common()]
    yield from table([("probes of rare branches", "times"), *probes])
    yield ""
    yield f"{len(totals.violations)} violations"


def failure(outcome: Outcome, lines: Sequence[str]) -> Iterator[str]:
    """
    Describe a run with a violation.

    @param lines: its trace.
    """
    yield f"VIOLATION of {outcome.violation}"
    yield f"run it again: {outcome.replay}"
    if len(lines) > LAST_LINES:
        yield f"... {len(lines) - LAST_LINES} lines before"
    yield from lines[-LAST_LINES:]


def findings(found: Sequence[Finding]) -> Iterator[str]:
    """A table of the mutations and how they were found."""
    rows = [("mutation", "random seeds", "by", "directed schedule", "by")]
    for one in found:
        seeds = f"seed {one.seeds}" if one.random else f"not in {one.seeds}"
        rows.append((one.name, seeds, one.random, one.schedule, one.directed))
    yield from table(rows)
    yield ""
    yield f"{sum(one.isFound for one in found)} of {len(found)} mutations were found"


def table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Format rows as columns, with a line below the header."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if cell.isdigit() else cell.ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        yield "  ".join(cells).rstrip()
        if number == 0:
            yield "  ".join("-" * width for width in widths)
