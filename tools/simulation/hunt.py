"""
Whether the simulator finds what is broken on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator

from .cluster import Cluster
from .directed import play
from .embedded import Embedded
from .mutations import MUTATIONS, Mutation
from .report import Finding


def hunt(name: str, seeds: int, isFocused: bool) -> Finding:
    """
    Look for one mutation, by its directed schedule and by random seeds.

    @param seeds: how many random seeds are tried at most.
    @param isFocused: whether random schedules are about what the mutation is about.
    """
    mutation = MUTATIONS[name]
    directed = play(mutation.schedule, mutation.parts) if mutation.schedule else None
    random, tried = _randomly(mutation, seeds, isFocused)
    return Finding(
        name=name,
        schedule=mutation.schedule,
        directed=directed.invariant if directed else "",
        random=random,
        seeds=tried,
    )


def _randomly(mutation: Mutation, seeds: int, isFocused: bool) -> tuple[str, int]:
    focus = mutation.focus if isFocused else None
    for seed in range(seeds):
        world = (
            Embedded(seed, 4, mutation.replica)
            if mutation.isEmbedded
            else Cluster(seed, 4, mutation.parts, focus=focus)
        )
        violation = world.run().violation
        if violation is not None:
            return violation.invariant, seed
    return "", seeds


def huntAll(seeds: int, isFocused: bool) -> Iterator[Finding]:
    """Look for all of them."""
    for name in MUTATIONS:
        yield hunt(name, seeds, isFocused)
