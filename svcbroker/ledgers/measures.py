"""
Measures of ledgers: metrics of their blocks, of what waits for one, and of their replicas; and the
memory that they take, as each kind tells it, with that of all chains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

from ..chain import _authorship, _encoding, _validators
from ..errors import BrokerError
from ..histogram import Histogram
from ..interfaces import (
    IBlockObserver,
    IBoundedLedgerFactory,
    ILedger,
    ILedgerFactory,
    IMeasuredLedger,
    InvalidDescription,
)
from ..model import MAX_HELD_EVENTS, MAX_HOLD_PATTERNS, MAX_HOLDS, Block, LedgerMeasures, _topics
from ..net.bounds import CHECKED, Bound, cacheBound, within
from ..net.budgets import ENTRY_BYTES
from ..net.deferreds import asDeferred
from ..net.descriptions import readDescription
from ..net.metrics import Metric, counter, gauge, histogram
from ._description import findLedgerFactories
from ._storedledger import PENDING

INTERVAL_BOUNDS: Final = (
    *(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 600.0, 3600.0),
)
"""The ranges of the time from one block to the next, in seconds."""

SIZE_BOUNDS: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 5000.0)
"""The ranges of the events of a block."""

HEALTH_TIMEOUT: Final = 1.0
"""Seconds that a ledger may take to tell whether it is ready. Then it is not."""

_GROUP: Final = ("group",)

_MEASURES: Final[Sequence[tuple[Any, str, str, Callable[[LedgerMeasures], float | None]]]] = (
    (
        gauge,
        "svcbroker_ledger_waiting_transactions",
        "Transactions of this broker that wait to become final.",
        lambda each: each.waiting,
    ),
    (
        gauge,
        "svcbroker_ledger_waiting_bytes",
        "The size of the transactions that wait to become final.",
        lambda each: each.waitingBytes,
    ),
    (
        gauge,
        "svcbroker_ledger_oldest_waiting_seconds",
        "How long the first transaction has waited to become final.",
        lambda each: each.oldest,
    ),
    (
        gauge,
        "svcbroker_ledger_replicas",
        "The replicas of the embedded ledger.",
        lambda each: each.replicas,
    ),
    (
        gauge,
        "svcbroker_ledger_replicas_running",
        "The replicas of the embedded ledger that run.",
        lambda each: each.running,
    ),
    (
        counter,
        "svcbroker_ledger_view_changes",
        "How often a leader was replaced since the chain began.",
        lambda each: each.viewChanges,
    ),
    (
        gauge,
        "svcbroker_ledger_age_seconds",
        "How long ago this node had, for all it knows, what the network has decided.",
        lambda each: each.age,
    ),
    (
        gauge,
        "svcbroker_copy_behind_blocks",
        "How many blocks a copy is behind what the original had when it last answered.",
        lambda each: each.behind,
    ),
    (
        gauge,
        "svcbroker_copy_silence_seconds",
        "How long ago the original of a copy has last answered.",
        lambda each: each.silence,
    ),
    (
        gauge,
        "svcbroker_chain_height",
        "The last final block of the chain that orders the ledger's batches.",
        lambda each: each.chain.height if each.chain else None,
    ),
    (
        gauge,
        "svcbroker_chain_behind_blocks",
        "How many final blocks of that chain were not read yet.",
        lambda each: each.chain.behind if each.chain else None,
    ),
    (
        gauge,
        "svcbroker_chain_transactions",
        "Transactions of this broker that are in no final block of that chain.",
        lambda each: each.chain.underWay if each.chain else None,
    ),
    (
        gauge,
        "svcbroker_chain_balance_wei",
        "What this broker's account on that chain has for gas.",
        lambda each: each.chain.balance if each.chain else None,
    ),
    (
        gauge,
        "svcbroker_chain_gas_price_wei",
        "What this broker offers for gas.",
        lambda each: each.chain.gasPrice if each.chain else None,
    ),
    (
        gauge,
        "svcbroker_chain_attested_height",
        "The newest block that the brokers have attested on that chain as it is here.",
        lambda each: each.chain.attested if each.chain else None,
    ),
)
"""The measures of ledgers that are one number: what makes the metric, its name and its help."""


@implementer(IBlockObserver)
class BlockMeter:
    """
    Measures the blocks of a ledger since the daemon has started: two observations for each block.

    @ivar intervals: the time from one block to the next.
    @ivar sizes: how many events each has.
    @ivar height: the height of the last one.
    @ivar lastAt: its time in milliseconds since the epoch; 0 before the first one.
    """

    def __init__(self, ledger: ILedger, clock: IReactorTime) -> None:
        self.intervals = Histogram(INTERVAL_BOUNDS)
        self.sizes = Histogram(SIZE_BOUNDS)
        self.height = self.lastAt = 0
        self._ledger = ledger
        self._seconds = clock.seconds
        self._last: float | None = None

    @asDeferred
    async def start(self) -> None:
        """Measure the blocks that come now."""
        self._ledger.addObserver(self)
        height = (await self._ledger.getStatistics()).height
        if height > self.height:
            self.height = height
            for record in (await self._ledger.listBlocks(0, 1, height=height)).items:
                self.lastAt = record.timestamp

    def stop(self) -> None:
        """Measure no more."""
        self._ledger.removeObserver(self)

    def blockCommitted(self, block: Block) -> None:
        """See L{IBlockObserver}."""
        now = self._seconds()
        if self._last is not None:
            self.intervals.observe(now - self._last)
        self._last = now
        self.sizes.observe(len(block.events))
        self.height, self.lastAt = block.height, block.timestamp


class LedgerMetrics:
    """
    The metrics of all ledgers, by the id of their group. What a ledger does not tell is left out.
    """

    def __init__(self, ledgers: Mapping[str, ILedger], clock: IReactorTime) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self._meters = {group: BlockMeter(each, clock) for group, each in ledgers.items()}

    @asDeferred
    async def start(self) -> None:
        """Measure the blocks that come now. The ledgers have started."""
        for meter in self._meters.values():
            await meter.start()

    def stop(self) -> None:
        """Measure no more blocks."""
        for meter in self._meters.values():
            meter.stop()

    @asDeferred
    async def collect(self) -> Iterable[Metric]:
        """The families. See L{Source<svcbroker.net.metrics.Source>}."""
        asked = [(group, self._isReady(each)) for group, each in self._ledgers.items()]
        ready = [((group,), float(await answer)) for group, answer in asked]
        meters = [((group,), meter) for group, meter in self._meters.items()]
        return [
            gauge(
                "svcbroker_ledger_ready",
                "Whether work that is submitted now can be expected to become final.",
                _GROUP,
                ready,
            ),
            gauge(
                "svcbroker_ledger_height",
                "The height of the latest block.",
                _GROUP,
                [(group, meter.height) for group, meter in meters],
            ),
            gauge(
                "svcbroker_ledger_last_block_timestamp_seconds",
                "The time of the latest block, since the epoch.",
                _GROUP,
                [(group, meter.lastAt / 1000) for group, meter in meters if meter.lastAt],
            ),
            histogram(
                "svcbroker_ledger_block_interval_seconds",
                "The time from one block to the next.",
                _GROUP,
                [(group, meter.intervals) for group, meter in meters],
            ),
            histogram(
                "svcbroker_ledger_block_events",
                "The events of a block.",
                _GROUP,
                [(group, meter.sizes) for group, meter in meters],
            ),
            *self._measured(),
        ]

    def _isReady(self, ledger: ILedger) -> Deferred[bool]:
        def notReady(failure: Failure) -> bool:
            failure.trap(BrokerError, TimeoutError)
            return False

        asked = ledger.getHealth().addTimeout(HEALTH_TIMEOUT, self._clock)
        return asked.addCallbacks(lambda health: health.isReady, notReady)

    def _measured(self) -> Iterable[Metric]:
        """The measures of ledgers."""
        measures = {
            group: ledger.measure()
            for group, ledger in self._ledgers.items()
            if IMeasuredLedger.providedBy(ledger)
        }

        for make, name, text, read in _MEASURES:
            found = [((group,), read(each)) for group, each in measures.items()]
            known = [(labels, value) for labels, value in found if value is not None]
            yield make(name, text, _GROUP, known)
        yield histogram(
            "svcbroker_ledger_latency_seconds",
            "The time from a transaction's submission until it was final and on disk.",
            _GROUP,
            [((g,), each.latency) for g, each in measures.items() if each.latency is not None],
        )
        yield histogram(
            "svcbroker_ledger_sync_seconds",
            "How long storing and syncing a block took.",
            _GROUP,
            [((group,), each.sync) for group, each in measures.items() if each.sync is not None],
        )


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
            *(_encoding._encodeShort, _validators._isVote),
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
