"""
Publishers on a network, and what must hold after whatever was done to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, gatherResults
from twisted.trial.unittest import TestCase

from svcbroker.interfaces import submit
from svcbroker.model import Event, Execution, OpenTopic, PublishEvent, Receipt

from .network import TIMEOUT, Network, Node, reactor

TOPIC = "load"


@define(eq=False)
class Load:
    """
    Publishers at all nodes, each with some events at a time.

    @ivar submitted: what was published through each node, in order.
    @ivar answered: the receipts, by what was published.
    @ivar counts: how many of them each node gave.
    """

    network: Network
    submitted: list[list[bytes]] = field(init=False)
    answered: dict[bytes, Receipt] = field(factory=dict)
    counts: Counter[int] = field(factory=Counter)
    _isOver: bool = False
    _running: list[Deferred[None]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.submitted = [[] for _ in self.network.nodes]

    async def start(self, clients: int, burst: int = 1) -> None:
        """
        Open the topic and publish.

        @param clients: how many at each node.
        @param burst: how many events each publishes at a time.
        """
        await submit(self.network.nodes[0].ledger, OpenTopic(topic=TOPIC))
        for number in range(len(self.network.nodes)):
            for client in range(clients):
                running = Deferred.fromCoroutine(self._publish(number, client, burst))
                self._running.append(running)

    async def _publish(self, number: int, client: int, burst: int) -> None:
        node, turn = self.network.nodes[number], 0
        while not self._isOver:
            turn += 1
            contents = [b"%d-%d-%d-%d" % (number, client, turn, each) for each in range(burst)]
            self.submitted[number] += contents
            answers = [publish(node, content) for content in contents]
            for content, answer in zip(contents, answers, strict=True):
                self.answered[content] = await answer
                self.counts[number] += 1

    def total(self, *numbers: int) -> int:
        """The number of events that some nodes have answered."""
        return sum(self.counts[number] for number in numbers)

    async def end(self) -> None:
        """Publish no more, and wait for the answers."""
        self._isOver = True
        await gatherResults(self._running, consumeErrors=True).addTimeout(TIMEOUT, reactor)

    async def check(self, test: TestCase) -> None:
        """
        Make sure of what L{checkSame} does, and that what was published through one node is in
        the order in which it was.
        """
        await checkSame(test, self.network, self.answered)
        for contents in self.submitted:
            ids = [self.answered[content].eventId for content in contents]
            sequences = [eventId.sequence for eventId in ids if eventId is not None]
            test.assertEqual(sequences, sorted(sequences))


def publish(node: Node, content: bytes) -> Deferred[Receipt]:
    """Publish through a node."""
    return submit(node.ledger, PublishEvent(topic=TOPIC, content=content))


async def eventsOf(node: Node) -> Sequence[Event]:
    """All events that a node has, in order."""
    events: list[Event] = []
    for height in range(1, await node.height() + 1):
        events += (await node.ledger.readBlock(height)).events
    return events


async def checkSame(test: TestCase, network: Network, answered: dict[bytes, Receipt]) -> None:
    """
    Make sure that all nodes have the same chain, and in it every event once that was answered.
    """
    await network.level()
    first, *others = network.nodes
    height = await first.height()
    blocks = await first.ledger.listBlocks(0, height)
    events = await eventsOf(first)
    for node in others:
        test.assertEqual(await node.ledger.listBlocks(0, height), blocks)
        test.assertEqual(await eventsOf(node), events)
    test.assertEqual([event.eventId.sequence for event in events], list(range(1, len(events) + 1)))
    contents: Any = Counter(event.content for event in events)
    test.assertEqual(contents.total(), len(contents), "an event is there twice")
    places = {event.content: event.eventId for event in events}
    for content, receipt in answered.items():
        test.assertIs(receipt.execution, Execution.DONE)
        test.assertEqual(places[content], receipt.eventId)
