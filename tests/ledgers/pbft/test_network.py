"""
Tests for the simulated network.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.ledgers.pbft import _protocol
from svcbroker.ledgers.pbft._protocol import BlockRequest, Conditions, Message, SimulatedNetwork


class NetworkTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.clock = Clock()
        self.arrived: list[tuple[int, int, int]] = []

    def network(self, conditions: Conditions | None = None) -> SimulatedNetwork:
        """A network that records arrivals."""
        return SimulatedNetwork(self.clock, Random(1), self.deliver, conditions)

    def deliver(self, target: int, messages: Sequence[Message]) -> None:
        self.arrived += [(message.sender, target, message.height) for message in messages]

    def sendMany(self, network: SimulatedNetwork, count: int) -> None:
        """Send numbered messages from 0 to 1."""
        for number in range(count):
            network.send(0, [1], BlockRequest(sender=0, height=number))
        network.flush()

    @property
    def numbers(self) -> list[int]:
        """The numbers of the messages that have arrived."""
        return [number for _, _, number in self.arrived]

    def test_perfectNetworkDeliversInOrder(self) -> None:
        """Everything arrives once, with the flush."""
        network = self.network()
        network.send(2, [3], BlockRequest(sender=2, height=7))
        self.assertEqual(self.arrived, [])
        network.flush()
        self.assertEqual(self.arrived, [(2, 3, 7)])
        self.sendMany(network, 5)
        self.assertEqual(self.numbers[1:], [0, 1, 2, 3, 4])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_messagesArriveTogether(self) -> None:
        """
        In order of arrival, first those of the replica with the oldest message.
        """
        network = self.network()
        deliveries: list[int] = []

        def deliver(target: int, messages: Sequence[Message]) -> None:
            self.deliver(target, messages)
            deliveries.append(target)

        self.patch(network, "_deliver", deliver)
        for number, (sender, target) in enumerate([(0, 2), (0, 1), (1, 2), (2, 1), (0, 2)]):
            network.send(sender, [target], BlockRequest(sender=sender, height=number))
        network.send(1, [0, 2], BlockRequest(sender=1, height=5))
        network.flush()
        self.assertEqual(deliveries, [2, 1, 0])
        expected = [(0, 2, 0), (1, 2, 2), (0, 2, 4), (1, 2, 5), (0, 1, 1), (2, 1, 3), (1, 0, 5)]
        self.assertEqual(self.arrived, expected)

    def test_sendingDuringDelivery(self) -> None:
        """Messages sent during a delivery wait for their target's turn."""
        network = self.network()

        def deliver(target: int, messages: Sequence[Message]) -> None:
            self.deliver(target, messages)
            if target < 3:
                network.send(1, [3], BlockRequest(sender=1, height=target + 10))
                network.send(1, [target], BlockRequest(sender=1, height=9))
                network.flush()
                self.patch(network, "_deliver", self.deliver)

        self.patch(network, "_deliver", deliver)
        network.send(0, [2], BlockRequest(sender=0, height=1))
        self.sendMany(network, 2)
        self.assertEqual(self.arrived, [(0, 2, 1), (0, 1, 0), (0, 1, 1), (1, 3, 12), (1, 2, 9)])

    def test_messageInAnotherNameIsNotSent(self) -> None:
        for conditions in (Conditions(), Conditions(delay=(0.1, 0.2))):
            network = self.network(conditions)
            network.send(2, [0, 1, 3], BlockRequest(sender=1, height=7))
            network.flush()
            self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertEqual(self.arrived, [])

    def test_failingDeliveryDoesNotStopOthers(self) -> None:
        network = self.network()
        real = network._deliver

        def deliver(target: int, messages: Sequence[Message]) -> None:
            self.patch(network, "_deliver", real)
            raise ZeroDivisionError

        self.patch(network, "_deliver", deliver)
        network.send(0, [2], BlockRequest(sender=0, height=7))
        self.assertRaises(ZeroDivisionError, self.sendMany, network, 3)
        network.flush()
        self.assertEqual(self.numbers, [0, 1, 2])

    def test_longDeliveriesYieldToReactor(self) -> None:
        self.patch(_protocol, "DELIVERIES_PER_TURN", 3)
        network = self.network()
        self.sendMany(network, 5)
        self.assertEqual(self.numbers, [0, 1, 2])
        network.flush()
        self.assertEqual(self.numbers, [0, 1, 2])
        self.clock.advance(0)
        self.assertEqual(self.numbers, [0, 1, 2, 3, 4])
        self.sendMany(network, 4)
        network.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.sendMany(network, 1)
        self.assertEqual(self.numbers[5:], [0, 1, 2, 0])

    def test_someMessagesAreLost(self) -> None:
        self.sendMany(self.network(Conditions(loss=0.5)), 200)
        self.assertTrue(60 < len(self.arrived) < 140)
        self.arrived.clear()
        self.sendMany(self.network(Conditions(loss=1.0)), 200)
        self.assertEqual(self.arrived, [])

    def test_someMessagesArriveTwice(self) -> None:
        self.sendMany(self.network(Conditions(duplication=1.0)), 3)
        self.assertEqual(self.numbers, [0, 0, 1, 1, 2, 2])

    def test_delayedMessagesOvertake(self) -> None:
        network = self.network(Conditions(delay=(0.1, 0.2)))
        self.sendMany(network, 50)
        self.clock.advance(0.0999)
        self.assertEqual(self.arrived, [])
        self.clock.pump([0.001] * 101)
        self.assertEqual(sorted(self.numbers), list(range(50)))
        self.assertNotEqual(self.numbers, list(range(50)))

    def test_cutBlocksOneDirection(self) -> None:
        """Messages in flight when it begins are lost, too."""
        network = self.network(Conditions(cut=frozenset({(0, 1)})))
        self.sendMany(network, 2)
        network.send(1, [0], BlockRequest(sender=1, height=9))
        network.flush()
        self.assertEqual(self.arrived, [(1, 0, 9)])
        network.conditions = Conditions(delay=(1.0, 1.0))
        self.sendMany(network, 2)
        network.conditions = Conditions(cut=frozenset({(0, 1)}))
        self.clock.advance(2)
        self.assertEqual(self.arrived, [(1, 0, 9)])

    def test_partitionSeparatesIslands(self) -> None:
        """A replica on no island hears all."""
        conditions = Conditions(loss=0.1).partition({0, 1}, {2}).partition({0}, {1})
        self.assertEqual(conditions.cut, {(0, 2), (1, 2), (2, 0), (2, 1), (0, 1), (1, 0)})
        self.assertEqual(conditions.loss, 0.1)

    def test_stopDropsMessagesInFlight(self) -> None:
        """Nothing is left with the reactor."""
        network = self.network(Conditions(delay=(0.1, 0.2)))
        self.sendMany(network, 5)
        network.stop()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.clock.advance(1)
        self.assertEqual(self.arrived, [])

    def test_messagesInFlightAreBounded(self) -> None:
        self.patch(_protocol, "MAX_IN_FLIGHT", 10)
        for conditions in (Conditions(), Conditions(delay=(1.0, 1.0))):
            self.arrived.clear()
            self.sendMany(self.network(conditions), 50)
            self.clock.advance(1)
            self.assertEqual(len(self.arrived), 10)
