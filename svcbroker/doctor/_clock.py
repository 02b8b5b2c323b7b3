"""
The clock: against the chain, the file system, the kernel's synchronisation and other brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from ._findings import Finding, date, good, problem, span, warning

_CLOCK = "clock"

TOLERANCE = 5.0
"""Seconds that two clocks may differ before it is worth a warning."""

_EARLIEST = 1_700_000_000.0  # November 2023: before any release of the broker


@frozen(kw_only=True)
class ClockFacts:
    """
    What is known of the clock. All times are seconds since the epoch.

    @ivar now: what it says.
    @ivar lastBlocks: the time of each group's last block.
    @ivar lastChange: the newest modification time of a file in the data directory.
    @ivar isSynchronised: whether the kernel says that it is kept in step; C{None} where unknown.
    @ivar maxError: how many seconds it may be wrong by, as the kernel says.
    @ivar peers: how many seconds the clocks of other brokers are ahead, by their names.
    """

    now: float
    lastBlocks: Mapping[str, float] = {}
    lastChange: float | None = None
    isSynchronised: bool | None = None
    maxError: float = 0.0
    peers: Mapping[str, float] = {}


_SYNCHRONISE = "timedatectl set-ntp true (or install chrony), then look at: timedatectl status"


def checkClock(facts: ClockFacts) -> Iterator[Finding]:
    """Whether the clock can be trusted. Blocks, tokens and certificates depend on it."""
    isGood = True
    if facts.now < _EARLIEST:
        isGood = False
        yield problem(
            _CLOCK,
            f"it says {date(facts.now)}",
            "events get this time, and certificates are not valid yet",
            _SYNCHRONISE,
        )
    for group, time in facts.lastBlocks.items():
        if time - facts.now > TOLERANCE:
            isGood = False
            yield problem(
                _CLOCK,
                f"the last block of group {group} is of {date(time)}, {span(time - facts.now)} "
                "ahead of the clock",
                "the clock was ahead before, or is behind now; new blocks get that time until the "
                "clock has reached it, and retention waits as long",
                _SYNCHRONISE,
            )
    if facts.lastChange is not None and facts.lastChange - facts.now > TOLERANCE:
        isGood = False
        yield warning(
            _CLOCK,
            f"a file in the data directory was written at {date(facts.lastChange)}, "
            f"{span(facts.lastChange - facts.now)} ahead of the clock",
            "the clock was set back, or the file system has a clock of its own",
            _SYNCHRONISE,
        )
    for name, ahead in facts.peers.items():
        if abs(ahead) > TOLERANCE:
            isGood = False
            yield warning(
                _CLOCK,
                f"the broker {name} is {span(abs(ahead))} {'ahead' if ahead > 0 else 'behind'}",
                "one of the two clocks is wrong: tokens and times differ between the brokers",
                f"{_SYNCHRONISE}, on both machines",
            )
    if facts.isSynchronised is False:
        isGood = False
        yield warning(
            _CLOCK,
            "the kernel says that nothing keeps it in step",
            "it drifts by seconds a week",
            _SYNCHRONISE,
        )
    if isGood:
        state = (
            f"kept in step, {facts.maxError:.1g} seconds at most from true time"
            if facts.isSynchronised
            else "it agrees with what it was compared with; the kernel does not say whether it is "
            "kept in step"
        )
        yield good(_CLOCK, state)
