"""
What accounts may not do: publish to reserved topics, or more than may wait for an answer, and
reload.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import ANYBODY, Grants, Principal, Usage
from svcbroker.access._grants import EVERYTHING
from svcbroker.broker import REFUSAL_DELAY, Publication, PublishPolicy, SendResult, SendStatus
from svcbroker.errors import NotAuthorized, QuotaExceeded
from svcbroker.interfaces import Identity, Quotas, submit
from svcbroker.model import OpenTopic

from .support import TIMEOUT, idOf, makeFixture, publishOne

RESERVED = "$svc/audit"


def principal(grants: Grants = EVERYTHING, **quotas: Any) -> Principal:
    usage = Usage(Quotas(**quotas), lambda: 0.0)
    return Principal(Identity(name="ann", grants=grants), usage)


def events(*topics: str) -> list[Publication]:
    return [Publication(topic=topic, content=b"x", extensions={}) for topic in topics]


class ReservedTopicTests(SynchronousTestCase):
    """
    Only the broker writes to a reserved topic, whatever is granted.
    """

    def setUp(self) -> None:
        self.fixture = makeFixture(reservedTopics=[RESERVED])
        self.broker = self.fixture.broker
        self.addCleanup(self.broker.stop)
        self.successResultOf(submit(self.fixture.ledger, OpenTopic(topic=RESERVED)))
        self.successResultOf(submit(self.fixture.ledger, OpenTopic(topic="t")))
        granted = Grants.parse(["* * #", "* * $svc/#"], "ann")
        self.principals = (ANYBODY, principal(), principal(granted), principal(publishes=9))
        self.before = list(self.fixture.ledger.submitted)

    def test_publishIsRefused(self) -> None:
        for each in self.principals:
            answer = publishOne(self.broker, each, None, RESERVED, b"x", {})
            self.failureResultOf(answer, NotAuthorized)
        self.assertEqual(self.fixture.ledger.submitted, self.before)

    def test_onlyItsEventsOfABatchAreRefused(self) -> None:
        batch = events("t", RESERVED, RESERVED, "t")
        for each in self.principals:
            answers = self.successResultOf(self.broker.publish(each, batch))
            self.assertEqual(
                [type(answer).__name__ for answer in answers],
                ["SendResult", "NotAuthorized", "NotAuthorized", "SendResult"],
            )

    def test_publishOpensNoReservedTopic(self) -> None:
        policy = PublishPolicy(opensTopics=True)
        [answer] = self.successResultOf(
            self.broker.publish(
                ANYBODY, [Publication(groupId="2", topic=RESERVED, content=b"x")], policy
            )
        )
        self.assertIsInstance(answer, NotAuthorized)
        self.assertEqual(self.fixture.second.submitted, [])

    def test_openAndCloseAreRefused(self) -> None:
        for each in self.principals:
            self.failureResultOf(self.broker.open(each, None, RESERVED), NotAuthorized)
            self.failureResultOf(self.broker.close(each, None, RESERVED), NotAuthorized)
        self.assertEqual(self.fixture.ledger.submitted, self.before)

    def test_topicsBelowItAreNotReserved(self) -> None:
        for topic in (f"{RESERVED}/x", "$svc", "svc/audit"):
            self.assertTrue(self.successResultOf(self.broker.open(ANYBODY, None, topic)))


class InflightTests(SynchronousTestCase):
    """
    Publishes that wait for their answer are counted, for accounts with that quota.
    """

    def setUp(self) -> None:
        fixture = makeFixture()
        self.clock, self.ledger, self.broker = fixture.clock, fixture.ledger, fixture.broker
        self.addCleanup(self.broker.stop)
        self.successResultOf(submit(self.ledger, OpenTopic(topic="t")))
        self.ledger.isHolding = True
        self.ann = principal(inflight=2)

    def publish(self) -> Deferred[Any]:
        return publishOne(self.broker, self.ann, None, "t", b"x", {})

    def test_tooManyAreRefusedLate(self) -> None:
        waiting = [self.publish(), self.publish()]
        one, many = self.publish(), self.broker.publish(self.ann, events("t", "t"))
        self.assertNoResult(one)
        self.assertNoResult(many)
        self.clock.advance(REFUSAL_DELAY)
        self.assertGreater(self.failureResultOf(one, QuotaExceeded).value.retryAfter, 0)
        self.assertGreater(self.ann.usage.delay(), 0)
        answers = self.successResultOf(many)
        self.assertEqual([type(each) for each in answers], [QuotaExceeded] * 2)
        self.ledger.release()
        for each in waiting:
            self.assertIs(self.successResultOf(each).status, SendStatus.SUCCESS)
        self.assertEqual(self.ann.usage.delay(), 0)
        self.assertNoResult(self.publish())

    def test_theyAreGivenBackAtATimeOut(self) -> None:
        waiting = [self.publish(), self.broker.publish(self.ann, events("t"))]
        self.clock.advance(TIMEOUT)
        for each in waiting:
            self.successResultOf(each)
        self.assertEqual(self.ann.usage.used("inflight"), 0)

    def test_theyAreGivenBackWhenTheClientLeaves(self) -> None:
        waiting = self.publish()
        waiting.cancel()
        self.failureResultOf(waiting)
        self.assertEqual(self.ann.usage.used("inflight"), 0)

    def test_refusedPublishesAreGivenBack(self) -> None:
        self.failureResultOf(publishOne(self.broker, self.ann, None, "never", b"x", {}))
        self.successResultOf(self.broker.publish(self.ann, events("never", "never")))
        self.assertEqual(self.ann.usage.used("inflight"), 0)

    def test_theQuotaHoldsWithinACall(self) -> None:
        batch = self.broker.publish(self.ann, events(*"ttttt"))
        self.assertEqual(self.ann.usage.used("inflight"), 2)
        self.ledger.release()
        self.clock.advance(REFUSAL_DELAY)
        answers = self.successResultOf(batch)
        self.assertEqual([type(each) for each in answers], [SendResult] * 2 + [QuotaExceeded] * 3)
        self.assertEqual(self.ann.usage.used("inflight"), 0)


class RateTests(SynchronousTestCase):
    """
    An account that may publish 20 events a second.
    """

    def setUp(self) -> None:
        fixture = makeFixture()
        self.clock, self.ledger, self.broker = fixture.clock, fixture.ledger, fixture.broker
        self.addCleanup(self.broker.stop)
        self.successResultOf(submit(self.ledger, OpenTopic(topic="t")))
        self.ann = principal(publishes=20)

    def published(self) -> int:
        state = self.ledger.topicState("t")
        assert state is not None
        return state.sequence

    def test_theFirstOfABatchAreTaken(self) -> None:
        """The answers come late, and in the order of the events."""
        batch: Deferred[Any] = self.broker.publish(self.ann, events(*"t" * 500))
        self.assertEqual(self.published(), 20)
        self.assertNoResult(batch)
        self.clock.advance(REFUSAL_DELAY)
        answers = self.successResultOf(batch)
        self.assertEqual([idOf(each).sequence for each in answers[:20]], [*range(1, 21)])
        self.assertEqual([type(each) for each in answers[20:]], [QuotaExceeded] * 480)
        self.assertAlmostEqual(answers[-1].retryAfter, 1.0)

    def test_pacedCarriersAreAnsweredAtOnce(self) -> None:
        policy = PublishPolicy(isPaced=True, wantsResults=False)
        known: list[Any] = []
        done = self.broker.publish(self.ann, events(*"t" * 22), policy, known.extend)
        self.assertEqual([type(each) for each in known[20:]], [QuotaExceeded] * 2)
        answers = self.successResultOf(done)
        self.assertEqual([each is None for each in answers], [True] * 20 + [False] * 2)

    def test_wholesAreRefusedWhole(self) -> None:
        policy = PublishPolicy(isWhole=True)
        batch = self.broker.publish(self.ann, events(*"t" * 21), policy)
        self.clock.advance(REFUSAL_DELAY)
        answers = self.successResultOf(batch)
        self.assertEqual([type(each) for each in answers], [QuotaExceeded] * 21)
        self.assertEqual(self.published(), 0)
        self.successResultOf(self.broker.publish(self.ann, events(*"t" * 20), policy))
        self.assertEqual(self.published(), 20)


class ReloadTests(SynchronousTestCase):
    """
    Reading accounts again, by an operator call.
    """

    def test_operatorsOfAnyGroupMayReload(self) -> None:
        calls: list[str] = []

        def reload() -> Deferred[Sequence[str]]:
            calls.append("reload")
            return succeed(["a problem"])

        fixture = makeFixture(reload=reload)
        self.addCleanup(fixture.broker.stop)
        operator = fixture.calls.operator
        for lines in ([], ["admin 1", "publish * #"]):
            answer = operator.reload(principal(Grants.parse(lines)))
            self.failureResultOf(answer, NotAuthorized)
        self.assertEqual(calls, [])
        answer = operator.reload(principal(Grants.parse(["operate 2"])))
        self.assertEqual(self.successResultOf(answer), ["a problem"])
