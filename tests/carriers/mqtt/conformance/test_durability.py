"""
What MQTT clients find after a restart, over the same memory for a disk.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted.trial.unittest import SkipTest

from .brokers import IBroker, MemoryBroker
from .durability import DurabilityTestCase


class OrderlyStopTests(DurabilityTestCase):
    """
    A broker that stops in order.
    """

    def makeBroker(self) -> IBroker:
        """The broker under test, which can be restarted."""
        broker = super().makeBroker()
        if not isinstance(broker, MemoryBroker):
            raise SkipTest("this broker cannot be restarted")
        self.memory = broker
        return broker

    def runScenario(self, scenario: Iterator[None]) -> None:
        """Restart the broker wherever the scenario yields."""
        for _ in scenario:
            self.memory.restart(isCrash=self.isCrash)

    def test_sessionGoesOn(self) -> None:
        self.runScenario(self.session())

    def test_unacknowledgedIsSentAgain(self) -> None:
        self.runScenario(self.unacknowledged())

    def test_retainedStays(self) -> None:
        self.runScenario(self.retained())

    def test_qos2FromClientIsPublishedOnce(self) -> None:
        self.runScenario(self.onceFromClient())

    def test_qos2ToClientIsDeliveredOnce(self) -> None:
        self.runScenario(self.onceToClient())

    def test_completedQos2IsNotRepeated(self) -> None:
        self.runScenario(self.completedBeforeRelease())

    def test_endedSessionStaysEnded(self) -> None:
        self.runScenario(self.ended())

    def test_unsubscribedStaysUnsubscribed(self) -> None:
        self.runScenario(self.unsubscribed())

    def test_willIsPublished(self) -> None:
        self.runScenario(self.will())

    def test_sharedSubscriptionGoesOn(self) -> None:
        self.runScenario(self.shared())

    def test_acknowledgedPublishIsThere(self) -> None:
        self.runScenario(self.acknowledged())


class CrashTests(OrderlyStopTests):
    """
    The same after a crash, which loses what was not written.
    """

    isCrash = True
