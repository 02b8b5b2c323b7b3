"""
The settings of the embedded ledger.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from ...interfaces import InvalidDescription
from ...model import MAX_DELAY, TopicRule
from ...net.descriptions import Readers, readValues
from .._description import TOPICS, TOPICS_READER, integer, number
from ._protocol import Conditions

DEFAULT_NODES = 4
MAX_NODES = 64

SUMMARY = "PBFT replicas in this process, blocks in SQLite on this disk. The default."

SETTINGS: Mapping[str, str] = {
    "nodes": f"number of replicas of a new chain, 1 to {MAX_NODES}; 3f+1 tolerate f faults "
    f"(default {DEFAULT_NODES}; an existing chain keeps its own number)",
    "topics": TOPICS,
    "interval": "minimum seconds from one block to the next (default 0: no waiting)",
    "empty": "seconds after which an empty block is made if nothing waits (default: never)",
    "timeout": "seconds before the replicas replace a leader, in addition to interval (default 1)",
    "mempool": "maximum bytes of transactions waiting for a block (default 67108864)",
    "block": "maximum bytes of transactions in a block; a single one may be larger "
    "(default 4194304)",
    "delay": "seconds that messages between replicas take, as MAXIMUM or MINIMUM-MAXIMUM "
    "(default 0)",
    "loss": "share of messages between replicas that are lost, 0 to 1 (default 0)",
    "duplication": "share of messages between replicas that arrive twice, 0 to 1 (default 0)",
    "accept-loss": "height of the last block that is left of a chain whose end is lost: go on "
    "without the rest, with new keys for all replicas (default: such a chain is refused)",
    "resume-at": "height of the last block of a promoted copy that has all of the original: "
    "continue after it, with new keys for all replicas",
    "seed": "seed of the simulated network's faults (default: random)",
}


@frozen(kw_only=True)
class PbftSettings:
    """
    The settings of the embedded ledger; L{SETTINGS} explains them.

    @ivar empty: C{None} if no empty blocks are made.
    @ivar acceptLoss: the last block, as C{accept-loss} or C{resume-at} names it; C{None} if a chain
        that has lost its end is refused.
    @ivar seed: C{None} for a random seed.
    """

    nodes: int = DEFAULT_NODES
    topics: TopicRule = TopicRule.PUBLISHED
    interval: float = 0
    empty: float | None = None
    timeout: float = 1.0
    mempool: int = 64 * 1024 * 1024
    block: int = 4 * 1024 * 1024
    acceptLoss: int | None = None
    conditions: Conditions = Conditions()
    seed: int | None = None


def _delay(text: str) -> tuple[float, float]:
    shortest, dash, longest = text.rpartition("-")
    high = number(longest, 0, MAX_DELAY)
    return (number(shortest, 0, high) if dash else 0.0, high)


_READERS: Readers = {
    "nodes": (lambda text: integer(text, 1, MAX_NODES), f"a number from 1 to {MAX_NODES}"),
    "topics": TOPICS_READER,
    "interval": (lambda text: number(text, 0, 3600), "seconds from 0 to 3600"),
    "empty": (lambda text: number(text, 0.01, 86400), "seconds from 0.01 to 86400"),
    "timeout": (lambda text: number(text, 0.01, 60), "seconds from 0.01 to 60"),
    "mempool": (lambda text: integer(text, 1024, 2**40), "bytes from 1024"),
    "block": (lambda text: integer(text, 1024, 2**30), "bytes from 1024 to 1073741824"),
    "delay": (_delay, "seconds from 0 to 60, or two of them with - between"),
    "loss": (lambda text: number(text, 0, 1), "a number from 0 to 1"),
    "duplication": (lambda text: number(text, 0, 1), "a number from 0 to 1"),
    "accept-loss": (lambda text: integer(text, 0, 2**63 - 1), "the height of a block"),
    "resume-at": (lambda text: integer(text, 0, 2**63 - 1), "the height of a block"),
    "seed": (lambda text: integer(text, 0, 2**63 - 1), "a whole number from 0"),
}

_OF_THE_NETWORK = ("delay", "loss", "duplication")
_LAST_BLOCK = ("accept-loss", "resume-at")
"""Two names of one number: nothing is lost where a copy has all of its original."""


def readSettings(settings: Mapping[str, str]) -> PbftSettings:
    """
    Read the settings of a ledger description.

    @raise InvalidDescription: one is unknown or has an invalid value.
    """
    values = readValues("the pbft ledger", settings, _READERS)
    network = {key: values.pop(key) for key in _OF_THE_NETWORK if key in values}
    if len(ends := [name for name in _LAST_BLOCK if name in values]) > 1:
        raise InvalidDescription(f"the pbft ledger takes {' or '.join(ends)}, not both")
    for name in ends:
        values["acceptLoss"] = values.pop(name)
    return PbftSettings(conditions=Conditions(**network), **values)
