"""
The memory that ledgers take, as each kind tells it, and that of all chains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ..chain import _authorship, _encoding
from ..interfaces import IBoundedLedgerFactory, ILedgerFactory, InvalidDescription
from ..model import MAX_HELD_EVENTS, MAX_HOLD_PATTERNS, MAX_HOLDS, _topics
from ..net.bounds import CHECKED, Bound, cacheBound, within
from ..net.budgets import ENTRY_BYTES
from ..net.descriptions import readDescription
from ._description import findLedgerFactories

PENDING: Final = "pending transactions"
"""The bound of transactions that wait for a block."""

_TOPIC_BYTES: Final = 800
_HOLD_BYTES: Final = 512 * 1024


def ledgerBounds(descriptions: Mapping[str, str]) -> Iterator[Bound]:
    """
    The memory of ledgers, and of what all chains have.

    @param descriptions: those of the ledgers, by the ids of their groups.
    """
    for group, description in descriptions.items():
        kind, factory, told = _boundsOf(description)
        if told is None:
            how = f"not told by {kind}"
            yield Bound(name=f"the ledger of group {group}", how=how)
            continue
        holders = getattr(factory, "holders", {})
        for name, size in told.items():
            how = f"the ledger {kind} of group {group}"
            if name == PENDING:
                how += "; mempool, which counts them as they are in a block"
            yield Bound(name=name, bytes=size, how=how, holders=holders.get(name, ()))
    yield cacheBound(
        "the chain",
        [
            *(_topics.checkTopicName, _topics.topicPrefix),
            *(_encoding.topicAddress, _encoding.accountAddress, _encoding.keyAddress),
            _encoding._encodeShort,
        ],
    )
    yield Bound(
        name=CHECKED,
        bytes=_authorship._REMEMBERED * ENTRY_BYTES,
        how=f"{_authorship._REMEMBERED:,} signatures of authors",
        holders=["svcbroker.chain._authorship._verified"],
    )
    yield Bound(
        name="a topic",
        bytes=_TOPIC_BYTES,
        how="about, as long as the chain is",
        each="each",
        holders=(
            *within("svcbroker.chain._state.ChainState", "_open", "_topicIndexes", "_topics"),
            *within("svcbroker.chain._state.ChainState", "_addresses"),
            *within("svcbroker.chain._state.ChainState", "_senders", "_senderIndexes"),
            "svcbroker.chain._merkle.MerkleTree._levels",
            *within("svcbroker.ledgers._storedledger.TopicBytes", "_heights", "_counts"),
        ),
    )
    yield Bound(
        name="a hold",
        bytes=_HOLD_BYTES,
        how=f"at most, with {MAX_HOLD_PATTERNS} patterns or {MAX_HELD_EVENTS:,} events; up to "
        f"{MAX_HOLDS:,} in a group",
        each="each",
        holders=(
            *within("svcbroker.chain._claims.Holds", "_byCase", "_events"),
            *within("svcbroker.chain._claims._Level", "below", "cases", "rest"),
        ),
    )


def _boundsOf(
    description: str,
) -> tuple[str, ILedgerFactory | None, Mapping[str, int] | None]:
    """The kind of a ledger, its factory, and its bounds; C{None} where they are not known."""
    try:
        read = readDescription(description)
        for factory in findLedgerFactories():
            bounded = IBoundedLedgerFactory(factory, None)
            if factory.name == read.name and bounded is not None:
                return read.name, factory, bounded.memory(read.settings)
    except InvalidDescription:
        # The plan of the groups tells it.
        return description, None, None
    return read.name, None, None
