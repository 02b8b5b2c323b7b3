"""
Tests of what is counted of publishes.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY, Principal, Usage
from svcbroker.broker import Publication, PublishPolicy
from svcbroker.errors import LedgerUnavailable, Overloaded
from svcbroker.interfaces import Quotas, submit
from svcbroker.model import CloseTopic

from .support import MAX_CONTENT, TIMEOUT, makeFixture, publishOne

MQTT = PublishPolicy(carrier="mqtt", hasTimeout=False, opensTopics=True, wantsResults=False)
STOMP = PublishPolicy(carrier="stomp")


def publication(topic: str = "t", content: bytes = b"x") -> Publication:
    return Publication(topic=topic, content=content)


class MeterTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = makeFixture()
        self.broker, self.ledger = self.fixture.broker, self.fixture.ledger
        self.successResultOf(self.broker.open(ANYBODY, None, "t"))

    def counts(self) -> dict[tuple[str, str], int]:
        """The counts that are not 0."""
        meter = self.broker.meter
        carriers = ("http", "mqtt", "stomp", "webhook")
        counts = [each for carrier in carriers for each in meter.counts(carrier)]
        return {key: count for key, count in counts if count}

    def publishOne(self, topic: str = "t", content: bytes = b"x", principal: Any = ANYBODY) -> Any:
        """Publish as REST does, and consume a failure."""
        return publishOne(self.broker, principal, None, topic, content, {}).addErrback(lambda _: 0)

    def test_publishOfHttpIsCountedByStatus(self) -> None:
        self.publishOne()
        self.publishOne(topic="never")
        self.publishOne(content=bytes(MAX_CONTENT + 1))
        self.ledger.error = Overloaded()
        self.publishOne()
        self.ledger.error = LedgerUnavailable()
        self.publishOne()
        self.ledger.error = ValueError()
        self.publishOne()
        self.flushLoggedErrors()
        self.assertEqual(
            self.counts(),
            {
                ("http", "success"): 1,
                ("http", "refused"): 2,
                ("http", "overloaded"): 1,
                ("http", "unavailable"): 1,
                ("http", "failed"): 1,
            },
        )

    def test_unansweredPublishIsTimeoutOrCancelled(self) -> None:
        self.ledger.isHolding = True
        self.publishOne()
        self.publishOne().cancel()
        self.fixture.clock.advance(TIMEOUT)
        self.assertEqual(self.counts(), {("http", "timeout"): 1, ("http", "cancelled"): 1})

    def test_batchesAreCountedByCarrier(self) -> None:
        """Requests that open topics are not counted."""
        self.broker.publish(ANYBODY, [publication()] * 3, STOMP)
        self.broker.publish(ANYBODY, [publication(), publication("new"), publication("a+")], MQTT)
        self.assertEqual(
            self.counts(), {("stomp", "success"): 3, ("mqtt", "success"): 2, ("mqtt", "refused"): 1}
        )

    def test_refusedBatchCountsEachEvent(self) -> None:
        policy = PublishPolicy(carrier="mqtt", stopsAtRefusal=True)
        self.broker.publish(ANYBODY, [publication(), publication("never"), publication()], policy)
        self.assertEqual(self.counts(), {("mqtt", "success"): 1, ("mqtt", "refused"): 2})
        self.ledger.error = LedgerUnavailable()
        self.broker.publish(ANYBODY, [publication()] * 2, STOMP)
        self.assertEqual(self.counts()["stomp", "unavailable"], 2)

    def test_eventThatReopensTopicIsCountedOnce(self) -> None:
        self.ledger.isHolding = True
        submit(self.ledger, CloseTopic(topic="t"))  # as another node may do
        self.broker.publish(ANYBODY, [publication()], MQTT)
        self.ledger.release()
        self.assertEqual(self.counts(), {})
        self.ledger.release()
        self.assertEqual(self.counts(), {("mqtt", "success"): 1})

    def test_exceededQuotaIsCounted(self) -> None:
        clock = self.fixture.clock
        principal = Principal(ANYBODY.identity, Usage(Quotas(publishes=1), clock.seconds))
        self.publishOne(principal=principal)
        self.publishOne(principal=principal)
        self.broker.publish(principal, [publication()] * 2, STOMP)
        self.assertEqual(
            self.counts(), {("http", "success"): 1, ("http", "quota"): 1, ("stomp", "quota"): 2}
        )
        clock.advance(1)
        self.broker.publish(principal, [publication()] * 3, STOMP)
        self.assertEqual(self.counts()["stomp", "success"], 1)
        self.assertEqual(self.counts()["stomp", "quota"], 4)
