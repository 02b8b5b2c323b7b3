"""
Receipts that are expected: how old the oldest event is for which a recipient has signed none.

The log is read when metrics are: of all topics, only those of receipts and of expected recipients,
each event once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from ..errors import BrokerError
from ..interfaces import ILedger
from ..model import Block, Event, EventId, filterMatches, topicPrefix
from ..net.bounds import Bound, Sizing
from ..net.deferreds import asDeferred
from ..net.metrics import Metric, gauge
from ..net.settings import NoSettings
from ..net.turns import Lock
from ..proofs import (
    EXPECTED,
    RECEIPTS,
    ProofInvalid,
    RecipientReceipt,
    checkOrder,
    readExpected,
    readReceipt,
)
from .features import Feature, RunningFeature, Services

MAX_TOPICS: Final = 1_000
"""The most topics of receipts, and of expected recipients, of a group that are read."""
MAX_RECEIPTS: Final = 16
"""The most topics and patterns of a recipient whose receipts count."""
MAX_ROWS: Final = 200
"""The most recipients of all topics of a group that are told of."""
TURN: Final = 0.005
"""After how many seconds of reading others get their turn."""

_PAGE: Final = 1_000
_BLOCKS: Final = 200
"""The most blocks of a group that are read each time."""

_Receipts = dict[tuple[str, str], RecipientReceipt]


class ExpectedReceipts:
    """
    The receipts that are expected in a group.

    @ivar expected: the names of recipients, by the topics whose receipts they sign.
    """

    def __init__(self, ledger: ILedger, reactor: IReactorTime, now: Callable[[], float]) -> None:
        """
        @param now: the wall clock: seconds since the epoch.
        """
        self.expected: dict[str, Sequence[str]] = {}
        self._ledger = ledger
        self._reactor = reactor
        self._now = now
        self._lock = Lock()
        self._began = 0.0
        # By the names of topics, the height up to which they were read.
        self._topics: dict[str, int] = {}
        self._listed = 0
        self._receipts: dict[str, _Receipts] = {}
        # The oldest events without a receipt: what they follow from, and the times.
        self._oldest: dict[tuple[str, str], tuple[Sequence[EventId], int]] = {}

    async def update(self) -> Sequence[tuple[str, str, float]]:
        """
        Read what is new.

        @return: topics, recipients, and the age in seconds of the oldest event without a receipt; 0
            where there is none.
        @raise BrokerError: the log cannot be read now.
        """
        async with self._lock:
            self._began = self._reactor.seconds()
            await self._list()
            await self._read()
            rows: list[tuple[str, str, float]] = []
            for topic, names in [*self.expected.items()]:
                for name in names[: MAX_ROWS - len(rows)]:
                    rows.append((topic, name, await self._age(topic, name)))
                    await self._letOthers()
            return rows

    async def _letOthers(self) -> None:
        if self._reactor.seconds() - self._began > TURN:
            await deferLater(self._reactor, 0)
            self._began = self._reactor.seconds()

    async def _list(self) -> None:
        """Find new topics of receipts and of expected recipients."""
        while True:
            page = await self._ledger.listTopics(self._listed, _PAGE)
            self._listed += len(page.items)
            for topic in page.items:
                if topic.name.startswith((RECEIPTS, EXPECTED)) and len(self._topics) < MAX_TOPICS:
                    self._topics[topic.name] = 0
            await self._letOthers()
            if len(page.items) < _PAGE:
                return

    async def _read(self) -> None:
        """Read the new events of these topics, as many as one update reads."""
        left = _BLOCKS
        for name, height in [*self._topics.items()]:
            topic = self._ledger.topicState(name)
            if topic is None or topic.height <= height or not left:
                continue
            heights = await self._ledger.findBlocks([name], height + 1, left)
            for each in heights:
                self._take(name, await self._ledger.readBlock(each))
                self._topics[name] = each
                await self._letOthers()
            left -= len(heights)

    def _take(self, name: str, block: Block) -> None:
        chain = self._ledger.chain
        for event in block.events:
            if event.topic != name or event.isErased:
                continue
            try:
                if name.startswith(EXPECTED):
                    topic = name.removeprefix(EXPECTED)
                    self.expected[topic] = readExpected(event.content, chain, topic)
                elif event.author is not None:
                    self._add(event, event.author.key.hex(), readReceipt(event.content, chain))
            except ProofInvalid:
                # Who reads receipts is told of it. What came before counts.
                continue

    def _add(self, event: Event, author: str, receipt: RecipientReceipt) -> None:
        """
        Take a receipt.

        @raise ProofInvalid: it is not believed.
        """
        name = event.topic.removeprefix(RECEIPTS)
        receipts = self._receipts.setdefault(name, {})
        before = receipts.get((author, receipt.topic))
        checkOrder(receipt, event.eventId, before)
        if before is not None or len(receipts) < MAX_RECEIPTS:
            receipts[author, receipt.topic] = receipt

    async def _age(self, topic: str, name: str) -> float:
        """The age of the oldest event of a topic for which a recipient has signed nothing."""
        state = self._ledger.topicState(topic)
        if state is None or not state.sequence:
            return 0.0
        receipts = [
            each
            for each in self._receipts.get(name, {}).values()
            if filterMatches(each.topic, topic)
        ]
        newest = EventId(topicPrefix(topic), state.sequence, state.height)
        if any(each.covers(topic, newest) for each in receipts):
            return 0.0
        reasons = [each.last for each in receipts]
        known = self._oldest.get((topic, name))
        if known is None or known[0] != reasons:
            known = reasons, await self._find(topic, receipts)
            self._oldest[topic, name] = known
        return max(0.0, self._now() - known[1] / 1000)

    async def _find(self, topic: str, receipts: Sequence[RecipientReceipt]) -> int:
        """The time of the first event of a topic that no receipt covers."""
        # All before the block of the last one are covered, and it may be the last of its block.
        first = max((each.last.height for each in receipts), default=1)
        for height in await self._ledger.findBlocks([topic], first, 2):
            block = await self._ledger.readBlock(height)
            for event in block.events:
                if event.topic == topic and not any(
                    each.covers(topic, event.eventId) for each in receipts
                ):
                    return block.timestamp
        return int(self._now() * 1000)


class ReceiptsFeature(RunningFeature):
    """The metric of all groups."""

    def __init__(self, settings: NoSettings, services: Services) -> None:
        self._groups = {
            group: ExpectedReceipts(ledger, services.reactor, services.now)
            for group, ledger in services.ledgers.items()
        }

    @asDeferred
    async def metrics(self) -> Iterable[Metric]:
        """See L{RunningFeature}."""
        rows = []
        for group, each in self._groups.items():
            try:
                rows += [((group, *labels), age) for *labels, age in await each.update()]
            except BrokerError:
                continue  # the ledger's own metrics tell of it
        return [
            gauge(
                "svcbroker_receipt_oldest_seconds",
                "The age of the oldest event for which an expected recipient has no receipt.",
                ["group", "topic", "recipient"],
                rows,
            )
        ]


def receiptBounds(settings: NoSettings, sizing: Sizing) -> Iterator[Bound]:
    """The memory of receipts that are expected."""
    yield Bound(
        name="expected receipts",
        bytes=MAX_TOPICS * MAX_RECEIPTS * 512,
        how=f"at the most {MAX_RECEIPTS} topics of {MAX_TOPICS:,} recipients, in each group",
        holders=[
            "svcbroker.broker.receipts.ExpectedReceipts._oldest",
            "svcbroker.broker.receipts.ExpectedReceipts._receipts",
            "svcbroker.broker.receipts.ExpectedReceipts._topics",
            "svcbroker.broker.receipts.ExpectedReceipts.expected",
        ],
    )


FEATURE: Final = Feature(name="receipts", make=ReceiptsFeature, bounds=receiptBounds)
