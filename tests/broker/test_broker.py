"""
Tests of L{svcbroker.broker.Broker}: the use cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY, Grants, Principal, Usage
from svcbroker.broker import Broker, Publication, SendStatus, checkTopic, checkTopicFilter
from svcbroker.errors import TopicInvalid
from svcbroker.interfaces import Identity, Quotas
from svcbroker.model import EventId, Execution, OpenTopic, Receipt, TopicRule
from svcbroker.testing._fixtures import memoryLedger

from .support import MAX_CONTENT, TIMEOUT, idOf, makeFixture, publishOne


def refused(execution: Execution) -> Receipt:
    return Receipt(execution=execution, transactionHash=bytes(32), height=1)


class NameTests(SynchronousTestCase):
    """
    Names of topics by the rule of their group.
    """

    def setUp(self) -> None:
        self.ledger = memoryLedger(Clock())

    def error(self, name: str, error: type[errors.BrokerError]) -> str:
        """The text of the error with which a name is refused, as a topic's and as a filter."""
        text: str = self.assertRaises(error, checkTopic, self.ledger, name).message
        found = self.assertRaises(error, checkTopicFilter, self.ledger, name)
        self.assertEqual(found.message, text)
        return text

    def test_otherGroupsRefuseThem(self) -> None:
        """By the error that they have always had."""
        for name in ("donn\u00e9es", "e\u0301", "\u00e9\ud800"):
            self.assertIn("allowed are the characters 32 to 128", self.error(name, TopicInvalid))
        self.assertRaises(TopicInvalid, checkTopicFilter, self.ledger, "\u00e9/+")
        self.error("\u00e9" * 257, errors.TopicTooLong)

    def test_groupWithTheSettingTakesThem(self) -> None:
        """Up to 256 bytes, and those of the published interface too."""
        self.ledger.topicRule = TopicRule.UTF8
        for name in (
            "donn\u00e9es/\u00e9t\u00e9",
            "\u7269\u6d41/\u7bb1",
            "\u00e9" * 128,
            "a\x80",
            "x" * 256,
        ):
            checkTopic(self.ledger, name)
            checkTopicFilter(self.ledger, name)
        for filter in ("\u00e9/+", "\u7269\u6d41/#"):
            checkTopicFilter(self.ledger, filter)
        self.error("\u00e9" * 129, errors.TopicTooLong)
        for bad in ("\x07", "\x85", "\u200b", "\u202e", "\ufeff", "\ufffe", "\U0010ffff", "\ud800"):
            self.assertIn(ascii(bad), self.error(f"\u00e9{bad}", TopicInvalid))

    def test_otherFormsAreNotOpened(self) -> None:
        """The error names the characters, and what is allowed. A topic of the chain is known."""
        self.ledger.topicRule = TopicRule.UTF8
        for name, wrong, good in (
            ("une/e\u0301t\u00e9", "e\u0301", "\u00e9"),
            ("\u212b", "\u212b", "\u00c5"),
            ("\u1100\u1161", "\u1100", "\uac00"),
            ("\u0958", "\u0958", "\u0915"),
        ):
            text = self.error(name, TopicInvalid)
            self.assertIn(f"{wrong!a}, which is not in normalization form C", text)
            self.assertIn(ascii(good), text)
            self.assertRaises(TopicInvalid, checkTopicFilter, self.ledger, f"{name}/#")
            submission = self.ledger.submitMany([OpenTopic(topic=name)])
            self.successResultOf(submission.done)
            checkTopic(self.ledger, name)


class BrokerTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = makeFixture()
        self.ledger, self.broker = self.fixture.ledger, self.fixture.broker

    def fails(self, answer: Deferred[Any], error: type[Exception]) -> None:
        self.failureResultOf(answer, error)

    def publish(self, content: bytes = b"x") -> Deferred[Any]:
        return publishOne(self.broker, ANYBODY, None, "t", content, {})

    def opened(self, topic: str = "t") -> None:
        self.assertIs(self.successResultOf(self.broker.open(ANYBODY, None, topic)), True)

    def test_publishAndRead(self) -> None:
        self.opened()
        sent = self.successResultOf(
            publishOne(self.broker, ANYBODY, "1", "t", b"\xff\0", {"svc-a": "b"})
        )
        self.assertIs(sent.status, SendStatus.SUCCESS)
        assert sent.eventId is not None
        event = self.successResultOf(
            self.broker.getEvent(ANYBODY, None, EventId.parse(sent.eventId))
        )
        self.assertEqual(event.content, b"\xff\0")
        self.assertEqual(event.extensions, {"svc-a": "b"})
        state = self.successResultOf(self.broker.state(ANYBODY, " ", "t"))
        self.assertEqual((state.sequence, state.height), (1, 2))

    def test_restrictedListLooksAtAFewTopicsATurn(self) -> None:
        """And its pages are those of the topics that the principal may know of."""
        for number in range(600):
            self.opened(f"{'ab'[number % 2]}/{number}")
        usage = Usage(Quotas(), self.fixture.clock.seconds)
        grants = Grants.parse(["subscribe 1 a/#", "deny subscribe 1 a/0"])
        principal = Principal(Identity(name="ann", grants=grants), usage)
        listing = self.broker.list(principal, 1, 3, None)
        self.assertNoResult(listing)
        self.fixture.clock.advance(0)
        page = self.successResultOf(listing).page
        self.assertEqual([topic.name for topic in page.items], ["a/8", "a/10", "a/12"])
        self.assertEqual(page.total, 299)

    def test_openTwiceSubmitsOnce(self) -> None:
        self.opened()
        self.opened()
        self.assertEqual(len(self.ledger.submitted), 1)

    def test_closeAndReopen(self) -> None:
        self.opened()
        first = self.successResultOf(self.publish())
        self.assertIs(self.successResultOf(self.broker.close(ANYBODY, None, "t")), True)
        self.assertIs(self.successResultOf(self.broker.exist(ANYBODY, None, "t")), False)
        self.assertEqual(self.successResultOf(self.broker.list(ANYBODY, 0, 10, None)).page.total, 0)
        submitted = len(self.ledger.submitted)
        for answer in (
            self.broker.state(ANYBODY, None, "t"),
            self.publish(),
            self.broker.close(ANYBODY, None, "t"),
        ):
            self.fails(answer, errors.TopicNotFound)
        self.assertEqual(len(self.ledger.submitted), submitted)
        self.assertEqual(
            self.successResultOf(self.broker.getEvent(ANYBODY, None, idOf(first))).content, b"x"
        )
        self.opened()
        self.assertEqual(idOf(self.successResultOf(self.publish())).sequence, 2)

    def test_groupsAreApart(self) -> None:
        self.opened()
        self.assertIs(self.successResultOf(self.broker.exist(ANYBODY, "2", "t")), False)

    def test_groupComesFirst(self) -> None:
        calls: list[Deferred[Any]] = [
            self.broker.open(ANYBODY, "9", ""),
            self.broker.close(ANYBODY, "9", ""),
            self.broker.exist(ANYBODY, "9", ""),
            publishOne(self.broker, ANYBODY, "9", "", b"", {}),
            self.broker.state(ANYBODY, "9", ""),
            self.broker.getEvent(ANYBODY, "9", EventId("00000000", 1, 1)),
        ]
        for call in calls:
            self.fails(call, errors.GroupUnknown)

    def test_pagingComesFirstInList(self) -> None:
        self.fails(self.broker.list(ANYBODY, -1, 10, "9"), errors.PageIndexInvalid)
        self.fails(self.broker.list(ANYBODY, 0, 10, "9"), errors.GroupUnknown)

    def test_topicComesBeforeContent(self) -> None:
        self.fails(publishOne(self.broker, ANYBODY, None, " ", b"", {}), errors.TopicBlank)

    def test_invalidTopicNamesAreRefused(self) -> None:
        for name, error in (
            ("", errors.TopicBlank),
            ("x" * 257, errors.TopicTooLong),
            ("a/+", errors.TopicInvalid),
        ):
            for method in (self.broker.open, self.broker.close, self.broker.exist):
                self.fails(method(ANYBODY, None, name), error)

    def test_contentIsBounded(self) -> None:
        self.opened()
        self.fails(self.publish(b""), errors.ContentBlank)
        self.fails(self.publish(bytes(MAX_CONTENT + 1)), errors.ContentTooLarge)
        self.assertIs(
            self.successResultOf(self.publish(bytes(MAX_CONTENT))).status, SendStatus.SUCCESS
        )

    def test_invalidExtensionsAreRefused(self) -> None:
        self.opened()
        for extensions, error in (
            ({"a": ""}, errors.ExtensionKeyInvalid),
            ({"svc-a": "x" * 8192}, errors.ExtensionsTooLarge),
        ):
            self.fails(publishOne(self.broker, ANYBODY, None, "t", b"x", extensions), error)

    def test_topicPagesAreNumberedFromZero(self) -> None:
        names = [f"t{number}" for number in range(12)]
        for name in names:
            self.opened(name)

        def page(index: int, size: int) -> tuple[int, int, int, list[str]]:
            answer = self.successResultOf(self.broker.list(ANYBODY, index, size, None))
            return (
                answer.page.total,
                answer.index,
                answer.size,
                [topic.name for topic in answer.page.items],
            )

        self.assertEqual(page(0, 5), (12, 0, 5, names[:5]))
        self.assertEqual(page(2, 5), (12, 2, 5, names[10:]))
        self.assertEqual(page(0, 100), (12, 0, 10, names[:10]))
        self.assertEqual(page(1, 0), (12, 1, 10, names[10:]))
        self.assertEqual(page(10**15, 99), (12, 10**15, 99, []))
        self.fails(self.broker.list(ANYBODY, 10**15 + 1, 10, None), errors.PageIndexInvalid)

    def test_publishTimesOut(self) -> None:
        """The answer says so, and the event appears all the same when the chain goes on."""
        self.opened()
        self.ledger.isHolding = True
        sent = self.publish()
        self.fixture.clock.advance(TIMEOUT)
        answer = self.successResultOf(sent)
        self.assertEqual((answer.status, answer.eventId), (SendStatus.TIMEOUT, None))
        self.ledger.release()
        self.assertEqual(self.successResultOf(self.broker.state(ANYBODY, None, "t")).sequence, 1)

    def test_othersTimeOut(self) -> None:
        self.opened("b")
        self.ledger.isHolding = True
        calls = [self.broker.open(ANYBODY, None, "a"), self.broker.close(ANYBODY, None, "b")]
        self.fixture.clock.advance(TIMEOUT)
        for call in calls:
            self.fails(call, errors.TransactionTimeout)

    def test_cancelledPublishIsStillCarriedOut(self) -> None:
        self.opened()
        self.ledger.isHolding = True
        sent = self.publish(b"kept")
        sent.cancel()
        self.fails(sent, CancelledError)
        self.ledger.release()
        event = self.successResultOf(self.broker.getEvent(ANYBODY, None, EventId("e3b98a4d", 1, 2)))
        self.assertEqual(event.content, b"kept")

    def test_refusedReceiptsAreErrors(self) -> None:
        """What a receipt says is what is answered."""
        self.opened()
        table: list[tuple[Execution, Callable[[Broker], Deferred[Any]], type[Exception]]] = [
            (Execution.REPEATED, lambda b: b.open(ANYBODY, None, "n"), errors.TransactionFailed),
            (
                Execution.TOPIC_NOT_FOUND,
                lambda b: b.open(ANYBODY, None, "n"),
                errors.TransactionFailed,
            ),
            (Execution.REPEATED, lambda b: b.close(ANYBODY, None, "t"), errors.TransactionFailed),
            (
                Execution.TOPIC_NOT_FOUND,
                lambda b: b.close(ANYBODY, None, "t"),
                errors.TopicNotFound,
            ),
            (
                Execution.REPEATED,
                lambda b: publishOne(b, ANYBODY, None, "t", b"x", {}),
                errors.TransactionFailed,
            ),
        ]
        for execution, call, error in table:
            self.ledger.receipt = refused(execution)
            self.fails(call(self.broker), error)

    def test_publishLosesAgainstClose(self) -> None:
        self.opened()
        self.ledger.receipt = refused(Execution.TOPIC_NOT_FOUND)
        answer = self.successResultOf(self.publish())
        self.assertEqual((answer.status, answer.eventId), (SendStatus.ERROR, None))

    def test_ledgersErrorsPass(self) -> None:
        self.opened()
        for error in (errors.Overloaded(), errors.LedgerUnavailable()):
            self.ledger.error = error
            self.fails(self.publish(), type(error))

    def test_eventErrors(self) -> None:
        self.opened()
        self.fails(
            self.broker.getEvent(ANYBODY, None, EventId("00000000", 1, 1)), errors.EventNotFound
        )
        self.fails(
            self.broker.getEvent(ANYBODY, None, EventId("00000000", 1, 2)), errors.HeightUnknown
        )

    def test_submitsWhatWasAsked(self) -> None:
        self.opened()
        self.successResultOf(publishOne(self.broker, ANYBODY, None, "t", b"c", {"svc-a": "b"}))
        self.assertEqual(
            self.ledger.submitted[-1],
            Publication(topic="t", content=b"c", extensions={"svc-a": "b"}),
        )

    def test_stoppedBrokerLeavesNoTimer(self) -> None:
        self.opened()
        self.ledger.isHolding = True
        sent = self.publish()
        self.ledger.release()
        self.successResultOf(sent)
        self.broker.stop()
        self.assertEqual(self.fixture.clock.getDelayedCalls(), [])
