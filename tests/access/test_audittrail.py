"""
The audit trail: what is recorded, and how a storm is counted.
"""

from __future__ import annotations

from typing import Any

import msgspec
from twisted.cred.credentials import UsernamePassword
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker.access import Access, AuditTrail
from svcbroker.access._audittrail import LOGIN_MEMORY, MAX_LOGINS, MAX_PENDING, MAX_SINGLE, PERIOD
from svcbroker.errors import (
    LedgerUnavailable,
    NotAuthenticated,
    NotAuthorized,
    Overloaded,
    QuotaExceeded,
)
from svcbroker.interfaces import Action, BearerToken, Quotas
from svcbroker.model import CloseTopic, PublishEvent
from svcbroker.testing._fixtures import ScriptedLedger, memoryLedger

from .support import FakeAuthenticator, account

TOPIC = "$svc/audit"
START = 1_700_000_000


class AuditTestCase(SynchronousTestCase):
    """A trail over the logs of two groups."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.ledger, self.second = (
            ScriptedLedger(memoryLedger(self.clock, group)) for group in ("1", "2")
        )
        ledgers = {"1": self.ledger, "2": self.second}
        self.trail = AuditTrail(TOPIC, ledgers, self.clock, lambda: START + self.clock.seconds())
        self.addCleanup(self.trail.stop)

    def records(self, ledger: ScriptedLedger | None = None) -> list[dict[str, Any]]:
        """The records of a log, the first group's by default, without their times."""
        records = []
        for request in (self.ledger if ledger is None else ledger).submitted:
            if isinstance(request, PublishEvent):
                self.assertEqual(request.topic, TOPIC)
                record = msgspec.json.decode(request.content)
                self.assertEqual(request.extensions, {"svc-tag": record["what"]})
                del record["time"]
                records.append(record)
        return records


class RecordTests(AuditTestCase):
    """
    The contents of records.
    """

    def test_recordsAreCompactJson(self) -> None:
        self.clock.advance(0.25)
        self.trail.loggedIn("ann", "10.0.0.1", "mqtt")
        [_, event] = self.ledger.submitted
        assert isinstance(event, PublishEvent)
        self.assertEqual(
            event.content,
            b'{"time":1700000000250,"what":"login","outcome":"success","account":"ann",'
            b'"address":"10.0.0.1","carrier":"mqtt"}',
        )

    def test_eachKindHasItsMembers(self) -> None:
        self.trail.loginFailed("", "10.0.0.1", "http", NotAuthenticated())
        self.trail.refused("ann", Action.PUBLISH, "1", "news")
        self.trail.exceeded("ann", "publishes")
        self.trail.operatorCalled("bob", "1", "faults/stop", None)
        self.trail.operatorCalled("", "", "faults/heal", NotAuthorized("no"))
        self.trail.reloaded(True)
        self.assertEqual(
            self.records(),
            [
                {
                    "what": "login",
                    "outcome": "failure",
                    "address": "10.0.0.1",
                    "carrier": "http",
                    "error": 101015,
                },
                {
                    "what": "refusal",
                    "account": "ann",
                    "group": "1",
                    "action": "publish",
                    "topic": "news",
                },
                {"what": "quota", "account": "ann", "quota": "publishes"},
                {
                    "what": "operator",
                    "outcome": "success",
                    "account": "bob",
                    "group": "1",
                    "call": "faults/stop",
                },
                {
                    "what": "operator",
                    "outcome": "failure",
                    "call": "faults/heal",
                    "error": 101016,
                },
                {"what": "reload", "outcome": "success"},
            ],
        )

    def test_recordsOfAGroupAreInItsLog(self) -> None:
        self.trail.refused("ann", Action.PUBLISH, "2", "news")
        self.assertEqual(self.records(), [])
        self.assertEqual([each["group"] for each in self.records(self.second)], ["2"])

    def test_recordsOfUnknownGroupsAreInTheFirstLog(self) -> None:
        self.trail.refused("ann", Action.ADMIN, "nosuch", "")
        self.assertEqual([each["group"] for each in self.records()], ["nosuch"])

    def test_aClosedTopicIsOpenedAgain(self) -> None:
        self.trail.reloaded(True)
        self.ledger.submitMany([CloseTopic(topic=TOPIC)])
        self.trail.reloaded(True)
        state = self.ledger.topicState(TOPIC)
        assert state is not None
        self.assertTrue(state.isOpen)
        kinds = [type(each).__name__ for each in self.ledger.submitted]
        self.assertEqual(
            kinds, ["OpenTopic", "PublishEvent", "CloseTopic", "OpenTopic", "PublishEvent"]
        )


class StormTests(AuditTestCase):
    """
    Repetitions are counted.
    """

    def fail(self, address: str, times: int = 1) -> None:  # type: ignore[override]
        for _ in range(times):
            self.trail.loginFailed("", address, "mqtt", NotAuthenticated())

    def test_theFirstIsWrittenAndTheRestIsCounted(self) -> None:
        self.fail("10.0.0.1", 1000)
        self.assertEqual(len(self.records()), 1)
        self.clock.advance(PERIOD)
        self.assertEqual(len(self.records()), 2)
        self.assertEqual(
            self.records()[1],
            {
                "what": "login",
                "outcome": "failure",
                "address": "10.0.0.1",
                "carrier": "mqtt",
                "count": 999,
            },
        )

    def test_aStormThatGoesOnIsCountedOnly(self) -> None:
        for _ in range(3):
            self.fail("10.0.0.1", 10)
            self.clock.advance(PERIOD)
        counts = [each.get("count") for each in self.records()]
        self.assertEqual(counts, [None, 9, 10, 10])

    def test_afterAQuietPeriodTheFirstIsWrittenAgain(self) -> None:
        self.fail("10.0.0.1", 2)
        self.clock.advance(PERIOD)
        self.clock.advance(PERIOD)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.fail("10.0.0.1")
        self.assertEqual([each.get("count") for each in self.records()], [None, 1, None])

    def test_addressesAreCountedApart(self) -> None:
        self.fail("10.0.0.1", 3)
        self.fail("10.0.0.2", 5)
        self.clock.advance(PERIOD)
        counts = {each["address"]: each["count"] for each in self.records() if "count" in each}
        self.assertEqual(counts, {"10.0.0.1": 2, "10.0.0.2": 4})

    def test_manyAddressesAddAFewRecords(self) -> None:
        """Those over the bound are one count, and other kinds are not affected."""
        for number in range(MAX_SINGLE + 500):
            self.fail(f"10.0.{number // 256}.{number % 256}", 2)
        self.trail.reloaded(True)
        self.trail.loggedIn("ann", "10.0.0.1", "mqtt")
        self.assertEqual(len(self.records()), MAX_SINGLE + 2)
        self.clock.advance(PERIOD)
        others = self.records()[-1]
        self.assertEqual(
            others, {"what": "login", "outcome": "failure", "count": 1000, "others": True}
        )
        self.assertEqual(len(self.records()), 2 * MAX_SINGLE + 3)

    def test_operatorCallsAreWrittenEach(self) -> None:
        for _ in range(3):
            self.trail.operatorCalled("bob", "1", "faults/stop", None)
        self.assertEqual(len(self.records()), 3)

    def test_anAccountUsesHttpOnceAnHour(self) -> None:
        for _ in range(100):
            self.trail.loggedIn("ann", "10.0.0.1", "http")
            self.clock.advance(LOGIN_MEMORY / 60)
        self.trail.loggedIn("ann", "10.0.0.2", "http")
        self.assertEqual(
            [each["address"] for each in self.records()], ["10.0.0.1", "10.0.0.1", "10.0.0.2"]
        )

    def test_clockThatIsSetBackHidesNoLogin(self) -> None:
        self.clock.advance(9000)
        self.trail.loggedIn("ann", "10.0.0.1", "http")
        self.clock.advance(PERIOD)
        self.clock.advance(-5000)
        self.trail.loggedIn("ann", "10.0.0.1", "http")
        self.assertEqual(len(self.records()), 2)

    def test_rememberedLoginsAreBounded(self) -> None:
        for number in range(MAX_LOGINS + 10):
            self.trail.loggedIn("ann", str(number), "http")
        self.assertEqual(len(self.trail._logins), MAX_LOGINS)

    def test_stopWritesTheCounts(self) -> None:
        self.fail("10.0.0.1", 7)
        self.trail.stop()
        self.fail("10.0.0.1", 7)
        self.assertEqual(self.records()[-1]["count"], 6)
        self.assertEqual(self.clock.getDelayedCalls(), [])


class LedgerTests(AuditTestCase):
    """
    Ledgers that take no records.
    """

    def test_lostRecordsAreCounted(self) -> None:
        for error in (LedgerUnavailable(), Overloaded()):
            self.ledger.error = error
            self.trail.reloaded(True)
            self.trail.reloaded(True)
        self.clock.advance(PERIOD)
        self.ledger.error = None
        self.clock.advance(PERIOD)
        self.assertEqual(self.records(), [{"what": "lost", "count": 4}])
        self.clock.advance(PERIOD)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_unforeseenErrorsAreLogged(self) -> None:
        self.ledger.error = ZeroDivisionError()
        self.trail.reloaded(True)
        self.ledger.error = None
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_refusedRequestsAreCounted(self) -> None:
        """A ledger that fails later than at the call."""
        self.ledger.isHolding = True
        self.trail.reloaded(True)
        self.ledger.receipt = None
        for _, submission, index in self.ledger._held:
            submission.settle(index, [LedgerUnavailable()])
        self.ledger._held.clear()
        self.ledger.isHolding = False
        self.clock.advance(PERIOD)
        self.assertEqual(self.records()[-1], {"what": "lost", "count": 1})

    def test_pendingRecordsAreBounded(self) -> None:
        self.ledger.isHolding = True
        periods = 0
        while self.trail._pending < MAX_PENDING:
            periods += 1
            for _ in range(MAX_SINGLE):
                self.trail.reloaded(True)
            self.clock.advance(PERIOD)
        before = len(self.ledger.submitted)
        for _ in range(MAX_SINGLE):
            self.trail.reloaded(True)
        self.assertEqual(len(self.ledger.submitted), before)
        self.ledger.isHolding = False
        self.ledger.release()
        self.clock.advance(PERIOD)
        self.assertEqual(self.records()[-1]["what"], "lost")


class AccessAuditTests(AuditTestCase):
    """
    The records of log-ins and principals.
    """

    def setUp(self) -> None:
        super().setUp()
        accounts = FakeAuthenticator(
            account("ann", "publish 1 a", quotas=Quotas(connections=1, publishes=1))
        )
        self.access = Access([accounts], self.clock, self.clock.seconds, audit=self.trail)
        self.addCleanup(self.access.stop)

    def login(self, name: bytes, password: bytes) -> Any:
        return self.access.login(UsernamePassword(name, password), "10.0.0.1", carrier="stomp")

    def test_loginsAreRecorded(self) -> None:
        self.successResultOf(self.login(b"ann", b"ann"))
        self.assertEqual(
            self.records(),
            [
                {
                    "what": "login",
                    "outcome": "success",
                    "account": "ann",
                    "address": "10.0.0.1",
                    "carrier": "stomp",
                }
            ],
        )

    def test_failedLoginsNameAccountsThatExist(self) -> None:
        self.failureResultOf(self.login(b"ann", b"wrong"), NotAuthenticated)
        [record] = self.records()
        self.assertEqual((record["account"], record["outcome"]), ("ann", "failure"))

    def test_unknownNamesAreNotWritten(self) -> None:
        """They may be passwords."""
        self.failureResultOf(self.login(b"hunter2", b"hunter2"), NotAuthenticated)
        self.failureResultOf(
            self.access.loginHttp(b"Basic aHVudGVyMjpodW50ZXIy", "10.0.0.2"), NotAuthenticated
        )
        self.failureResultOf(
            self.access.login(BearerToken("hunter2"), "10.0.0.3"), NotAuthenticated
        )
        self.assertEqual(len(self.records()), 3)
        for request in self.ledger.submitted:
            self.assertNotIn(b"hunter2", getattr(request, "content", b""))

    def test_missingCredentialsAreRecorded(self) -> None:
        answer = self.access.admit(None, "10.0.0.1", lambda: None, carrier="mqtt")
        self.failureResultOf(answer, NotAuthenticated)
        [record] = self.records()
        self.assertEqual((record["outcome"], record["carrier"]), ("failure", "mqtt"))

    def test_refusalsAreRecorded(self) -> None:
        ann = self.successResultOf(self.login(b"ann", b"ann"))
        self.assertRaises(NotAuthorized, ann.require, Action.PUBLISH, "1", "b")
        self.assertEqual(self.records()[-1]["topic"], "b")
        self.assertRaises(NotAuthorized, ann.requireGroup, "2")
        self.assertEqual(self.records()[-1], {"what": "refusal", "account": "ann"})

    def test_quotasAreRecorded(self) -> None:
        credentials = UsernamePassword(b"ann", b"ann")
        for _ in range(2):
            answer = self.access.admit(credentials, "", lambda: None, carrier="mqtt")
        self.failureResultOf(answer, QuotaExceeded)
        self.assertEqual(
            self.records()[-1], {"what": "quota", "account": "ann", "quota": "connections"}
        )
        ann = self.successResultOf(self.login(b"ann", b"ann"))
        ann.usage.spendOne(1)
        self.assertRaises(QuotaExceeded, ann.usage.spendOne, 1)
        self.assertEqual(self.records()[-1]["quota"], "publishes")
