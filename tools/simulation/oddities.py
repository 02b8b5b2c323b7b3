"""
Odd values of constants: tiny windows, short timeouts, blocks of one transaction.

Rare branches are rare because the constants of the code keep away from them. In half of all runs
each place listed here has an odd value with a probability of a quarter. The protocol must be safe
and live with all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from random import Random
from typing import Any

from attrs import frozen

SHARE = 0.25
"""The probability that a place has an odd value in a run that has some."""


@frozen
class Place:
    """
    A constant of a module.

    @ivar name: its full name.
    @ivar values: odd values.
    @ivar importers: the modules that have imported it by its name.
    """

    name: str
    values: Sequence[Any]
    importers: Sequence[str] = ()


_PBFT = "svcbroker.ledgers.pbft"

PLACES: Sequence[Place] = (
    # What replicas keep.
    Place(
        f"{_PBFT}._votes.ROUNDS_AHEAD",
        (1, 2, 5),
        (f"{_PBFT}._replica", "tools.simulation.judge"),
    ),
    Place(f"{_PBFT}._votes.HEIGHTS_AHEAD", (0, 1)),
    Place(f"{_PBFT}._votes.MESSAGES_KEPT", (1, 2), ("tools.simulation.judge",)),
    Place(f"{_PBFT}._keys._CACHE_SIZE", (1, 3)),
    # Blocks.
    Place(f"{_PBFT}._producer.MAX_TRANSACTIONS", (1, 2)),
    Place("tools.simulation.chain.MAX_TRANSACTIONS", (1, 2)),
    Place("tools.simulation.chain.MAX_BYTES", (1, 300)),
    Place(f"{_PBFT}._producer.MAX_BATCH_WAIT", (0.0, 0.1)),
    Place(f"{_PBFT}._producer.MAX_ANSWER_TIME", (0.0, 0.5)),
    # Disks.
    Place(f"{_PBFT}._producer.ROUNDS_RESERVED", (1, 2)),
    Place(f"{_PBFT}._producer.RETRY", (0.01, 5.0)),
    Place(f"{_PBFT}._producer.STOP_TIMEOUT", (0.01, 0.2)),
    Place("svcbroker.storage._files._FOLD_PAGES", (1, 10)),
    # Readers.
    Place("svcbroker.broker.subscriptions._follower.CACHED_BYTES", (0, 2000)),
    Place("svcbroker.broker.subscriptions._follower.BLOCKS_A_TURN", (1, 2)),
    Place("svcbroker.broker.subscriptions._follower.MERGE_DISTANCE", (0, 1)),
    Place("svcbroker.broker.subscriptions._follower.MAX_BATCH_EVENTS", (1, 2)),
    Place("svcbroker.broker.subscriptions._logsubscription.STEPS_A_TURN", (1,)),
    # Timeouts.
    Place("tools.simulation.cluster.TIMEOUT", ((0.02, 0.05), (0.1, 3.0))),
    Place("tools.simulation.cluster.RESEND", (0.05, 2.0)),
    Place("tools.simulation.embedded.TIMEOUT", ((0.02, 0.05), (0.1, 3.0))),
)
"""All places."""


def drawOddities(random: Random) -> Mapping[str, Any]:
    """
    Draw the odd values of a run.

    @return: values by the full names of constants.
    """
    if random.random() < 0.5:
        return {}
    return {place.name: random.choice(place.values) for place in PLACES if random.random() < SHARE}


@contextmanager
def withConstants(values: Mapping[str, Any]) -> Iterator[None]:
    """
    Give constants other values for a while.

    @param values: values by the full names of constants. Those of L{PLACES} are changed in the
        modules that have imported them, too.
    """
    importers = {place.name: place.importers for place in PLACES}
    before: list[tuple[Any, str, Any]] = []
    try:
        for name, value in values.items():
            home, _, constant = name.rpartition(".")
            for module in map(import_module, (home, *importers.get(name, ()))):
                before.append((module, constant, getattr(module, constant)))
                setattr(module, constant, value)
        yield
    finally:
        for module, constant, value in reversed(before):
            setattr(module, constant, value)
