"""
Tests of publishing many events together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, fail
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.broker import (
    Broker,
    Limits,
    Publication,
    SendResult,
    SendStatus,
    submitTogether,
)
from svcbroker.interfaces import IBulkLedger, ILedger
from svcbroker.model import CloseTopic, Execution, OpenTopic, PublishEvent, Receipt
from svcbroker.testing.doubles import memoryLedger
from svcbroker.version import VersionRecord
from tests.ledgers.pbft.rig import LedgerRig

from .support import MAX_CONTENT, TIMEOUT, makeWorld

WISHES: Sequence[dict[str, Any]] = (
    {},
    {"content": b"second", "extensions": {"svc-a": "b"}},
    {"content": b""},
    {"content": b"", "mayBeEmpty": True},
    {"content": bytes(MAX_CONTENT + 1)},
    {"topic": ""},
    {"topic": "a+b"},
    {"topic": "never"},
    {"topic": "closed"},
    {"topic": "never", "content": b""},
    {"topic": "u"},
    {"extensions": {"a": "b"}},
    {"extensions": {"svc-a": "b" * 9000}},
    {"groupId": "1"},
    {"groupId": "2"},
    {"groupId": "2", "topic": "never"},
    {"groupId": "9", "topic": ""},
    {},
)


def publication(
    groupId: str | None = None,
    topic: str = "t",
    content: bytes = b"x",
    extensions: dict[str, str] | None = None,
    mayBeEmpty: bool = False,
) -> Publication:
    return Publication(
        groupId=groupId,
        topic=topic,
        content=content,
        extensions=extensions or {},
        mayBeEmpty=mayBeEmpty,
    )


class TogetherTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.world = makeWorld()
        self.ledger, self.broker = self.world.ledger, self.world.broker
        for group, topic in (("1", "t"), ("1", "u"), ("1", "closed"), ("2", "t")):
            self.successResultOf(self.broker.open(group, topic))
        self.successResultOf(self.broker.close("1", "closed"))

    def together(self, *wishes: dict[str, Any]) -> Deferred[Any]:
        return self.broker.publishTogether([publication(**wish) for wish in wishes])

    def oneByOne(self, *wishes: dict[str, Any]) -> list[Any]:
        world = makeWorld()
        for group, topic in (("1", "t"), ("1", "u"), ("1", "closed"), ("2", "t")):
            self.successResultOf(world.broker.open(group, topic))
        self.successResultOf(world.broker.close("1", "closed"))
        answers: list[Any] = []
        for wish in wishes:
            each = publication(**wish)
            world.broker.publish(
                each.groupId,
                each.topic,
                each.content,
                each.extensions,
                mayBeEmpty=each.mayBeEmpty,
            ).addCallbacks(answers.append, lambda failure: answers.append(failure.value))
        return answers

    def test_likeOneByOne(self) -> None:
        """What is answered is what each would have been answered alone, and so is the log."""
        expected = self.oneByOne(*WISHES)
        answers = self.successResultOf(self.together(*WISHES))
        self.assertEqual(len(answers), len(WISHES))
        for answer, alone, wish in zip(answers, expected, WISHES, strict=True):
            if isinstance(alone, SendResult):
                self.assertEqual(answer, alone, wish)
            else:
                self.assertIs(type(answer), type(alone), wish)
        contents = [each.content for each in self.ledger.submitted if type(each) is PublishEvent]
        self.assertEqual(contents, [b"x", b"second", b"", b"x", b"x", b"x"])

    def test_nothing(self) -> None:
        """No publish, or none that can be, submits nothing."""
        self.assertEqual(self.successResultOf(self.together()), [])
        before = list(self.ledger.submitted)
        [answer] = self.successResultOf(self.together({"topic": "never"}))
        self.assertIsInstance(answer, errors.TopicNotFound)
        self.assertEqual(self.ledger.submitted, before)

    def test_timesOut(self) -> None:
        """Those that are known by then say what they are, the others that they are not."""
        self.ledger.isHolding = True
        sent = self.together({}, {"groupId": "2"}, {"topic": "never"})
        self.assertNoResult(sent)
        self.world.clock.advance(TIMEOUT)
        first, second, third = self.successResultOf(sent)
        self.assertEqual((first.status, first.eventId), (SendStatus.TIMEOUT, None))
        self.assertEqual(second.status, SendStatus.SUCCESS)
        self.assertIsInstance(third, errors.TopicNotFound)
        self.ledger.release()
        self.assertEqual(self.successResultOf(self.broker.state(None, "t")).sequence, 1)

    def test_allTimeOutAtOnce(self) -> None:
        """However many groups there are, the time is over for all of them together."""
        self.ledger.isHolding = self.world.second.isHolding = True
        sent = self.together({}, {"groupId": "2"})
        self.world.clock.advance(TIMEOUT)
        statuses = [answer.status for answer in self.successResultOf(sent)]
        self.assertEqual(statuses, [SendStatus.TIMEOUT] * 2)

    def test_cancelled(self) -> None:
        """They are carried out all the same."""
        self.ledger.isHolding = True
        sent = self.together({}, {})
        sent.cancel()
        self.failureResultOf(sent, CancelledError)
        self.ledger.release()
        self.assertEqual(self.successResultOf(self.broker.state(None, "t")).sequence, 2)

    def test_refused(self) -> None:
        for execution, expected in (
            (Execution.TOPIC_NOT_FOUND, SendResult("t", SendStatus.ERROR)),
            (Execution.REPEATED, errors.TransactionFailed),
        ):
            self.ledger.receipt = Receipt(execution=execution, transactionHash=bytes(32), height=1)
            [answer] = self.successResultOf(self.together({}))
            if isinstance(expected, SendResult):
                self.assertEqual(answer, expected)
            else:
                self.assertIsInstance(answer, expected)

    def test_ledgerFails(self) -> None:
        """Its errors are answers."""
        for error in (errors.Overloaded(), errors.LedgerUnavailable()):
            self.ledger.error = error
            answers = self.successResultOf(self.together({}, {"topic": ""}))
            self.assertIs(answers[0], error)
            self.assertIsInstance(answers[1], errors.TopicBlank)

    def test_notKnownYet(self) -> None:
        """Where a ledger takes its time to tell of a topic, it is waited for, in order."""
        asked: list[Deferred[Any]] = []

        def getTopic(name: str) -> Deferred[Any]:
            asked.append(Deferred())
            return asked[-1]

        known = self.successResultOf(self.ledger.getTopic("t"))
        self.patch(self.ledger, "getTopic", getTopic)
        sent = self.together({}, {"content": b"second"}, {"topic": ""})
        self.assertNoResult(sent)
        for each in asked:
            each.callback(known)
        first, second, third = self.successResultOf(sent)
        self.assertEqual((first.eventId.sequence, second.eventId.sequence), (1, 2))
        self.assertIsInstance(third, errors.TopicBlank)


class SubmitTests(SynchronousTestCase):
    """L{submitTogether} with a ledger that takes one request after the other."""

    def setUp(self) -> None:
        self.ledger = memoryLedger(Clock())
        self.assertFalse(IBulkLedger.providedBy(self.ledger))
        self.requests = (OpenTopic(topic="t"), CloseTopic(topic="t"), CloseTopic(topic="t"))

    def test_order(self) -> None:
        submission = submitTogether(self.ledger, self.requests)
        done = self.successResultOf(submission.done)
        self.assertIs(done, submission)
        executions = [each.execution for each in submission.outcomes if isinstance(each, Receipt)]
        self.assertEqual(executions, [Execution.DONE, Execution.DONE, Execution.TOPIC_NOT_FOUND])

    def test_stopped(self) -> None:
        self.ledger.stop()
        submission = submitTogether(self.ledger, self.requests)
        for outcome in self.successResultOf(submission.done).outcomes:
            self.assertIsInstance(outcome, errors.LedgerUnavailable)

    def test_bug(self) -> None:
        """A ledger that fails as none may holds nobody up, and is told of in the log."""
        self.patch(self.ledger, "submit", lambda request: fail(ZeroDivisionError()))
        ledger: ILedger = self.ledger
        submission = submitTogether(ledger, self.requests[:1])
        [outcome] = self.successResultOf(submission.done).outcomes
        self.assertIsInstance(outcome, errors.LedgerUnavailable)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class GatheringTests(SynchronousTestCase):
    """Publishes one by one, to a ledger that takes many at once."""

    def setUp(self) -> None:
        self.rig = LedgerRig(self, {"interval": "0"}).start().open()
        self.broker = Broker(
            {"1": self.rig.ledger},
            self.rig.clock,
            Limits(maxContent=MAX_CONTENT, chainTimeout=TIMEOUT),
            nodeAddress="a:1",
            version=VersionRecord(version="1"),
        )
        self.addCleanup(self.broker.stop)

    def publish(self, content: bytes = b"x", topic: str = "t") -> Deferred[Any]:
        return self.broker.publish(None, topic, content, {})

    def test_oneBlock(self) -> None:
        """What comes in one turn of the reactor is in one block, in its order."""
        sent = [self.publish(b"%d" % number) for number in range(5)]
        bad = self.publish(b"")
        self.failureResultOf(bad, errors.ContentBlank)
        self.failureResultOf(self.publish(topic="never"), errors.TopicNotFound)
        self.failureResultOf(self.publish(topic="a+b"), errors.TopicInvalid)
        self.assertNoResult(sent[0])
        self.rig.clock.advance(0)
        answers = [self.successResultOf(each) for each in sent]
        self.assertEqual([each.eventId.sequence for each in answers], [1, 2, 3, 4, 5])
        self.assertEqual(len({each.eventId.height for each in answers}), 1)
        for number, answer in enumerate(answers):
            event = self.successResultOf(self.broker.getEvent(None, answer.eventId))
            self.assertEqual(event.content, b"%d" % number)

    def test_order(self) -> None:
        """Whatever is asked for in one turn of the reactor enters the log in that order."""
        first = self.publish(b"1")
        together = self.broker.publishTogether([publication(content=b"2")])
        third = self.publish(b"3")
        closed = self.broker.close(None, "t")
        late = self.publish(b"4")
        opened = self.broker.open(None, "u")
        self.rig.clock.advance(0)
        [second] = self.successResultOf(together)
        answers: list[Any] = [self.successResultOf(first), second, self.successResultOf(third)]
        ids = [answer.eventId for answer in answers]
        self.assertEqual([each.sequence for each in ids], [1, 2, 3])
        self.assertTrue(self.successResultOf(closed))
        self.assertEqual(self.successResultOf(late).status, SendStatus.ERROR)
        self.assertTrue(self.successResultOf(opened))
        contents = [self.successResultOf(self.broker.getEvent(None, each)).content for each in ids]
        self.assertEqual(contents, [b"1", b"2", b"3"])

    def test_cancelled(self) -> None:
        """It is carried out all the same, and nobody else notices."""
        first, second = self.publish(), self.publish()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.rig.clock.advance(0)
        self.assertEqual(self.successResultOf(second).eventId.sequence, 2)

    def test_timesOut(self) -> None:
        """The answer says so, and the event appears all the same when the disk goes on."""
        self.rig.disk.isHeld = True
        sent = self.publish()
        self.rig.clock.advance(0)
        self.rig.clock.advance(TIMEOUT)
        answer = self.successResultOf(sent)
        self.assertEqual((answer.status, answer.eventId), (SendStatus.TIMEOUT, None))
        self.rig.disk.release()
        self.assertEqual(self.successResultOf(self.broker.state(None, "t")).sequence, 1)

    def test_closedMeanwhile(self) -> None:
        """A topic that is closed by the time that it is executed is an answer."""
        self.rig.ledger.submit(CloseTopic(topic="t"))
        sent = self.publish()
        self.rig.clock.advance(0)
        self.assertEqual(self.successResultOf(sent), SendResult("t", SendStatus.ERROR))
        self.failureResultOf(self.publish(), errors.TopicNotFound)

    def test_stopped(self) -> None:
        """Those that were not submitted before the ledger stopped are told so."""
        sent = self.publish()
        self.successResultOf(self.rig.ledger.stop())
        self.broker.stop()
        self.failureResultOf(sent, errors.LedgerUnavailable)
        late = self.publish()
        self.rig.clock.advance(0)
        self.failureResultOf(late, errors.LedgerUnavailable)
