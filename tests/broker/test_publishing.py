"""
Tests of publishing many events together.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY, Principal, Usage
from svcbroker.access._grants import EVERYTHING
from svcbroker.broker import (
    REFUSAL_DELAY,
    Broker,
    Limits,
    Publication,
    PublishPolicy,
    SendResult,
    SendStatus,
)
from svcbroker.broker._pipeline import MAX_TOGETHER, MAX_TOGETHER_BYTES
from svcbroker.interfaces import Identity, Quotas, submit
from svcbroker.model import CloseTopic, Execution, PublishEvent, Receipt
from tests.ledgers.pbft.rig import LedgerRig

from ..access.support import principalOf
from .support import MAX_CONTENT, TIMEOUT, FakeDirectory, idOf, makeFixture, publishOne

WISHES: Sequence[dict[str, Any]] = (
    {},
    {"content": b"second", "extensions": {"svc-a": "b"}},
    {"content": b""},
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
) -> Publication:
    return Publication(
        groupId=groupId,
        topic=topic,
        content=content,
        extensions=extensions or {},
    )


class BatchTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.fixture = makeFixture()
        self.ledger, self.broker = self.fixture.ledger, self.fixture.broker
        for group, topic in (("1", "t"), ("1", "u"), ("1", "closed"), ("2", "t")):
            self.successResultOf(self.broker.open(ANYBODY, group, topic))
        self.successResultOf(self.broker.close(ANYBODY, "1", "closed"))

    def publishAll(self, *wishes: dict[str, Any]) -> Deferred[Any]:
        return self.broker.publish(ANYBODY, [publication(**wish) for wish in wishes])

    def oneByOne(self, *wishes: dict[str, Any]) -> list[Any]:
        fixture = makeFixture()
        for group, topic in (("1", "t"), ("1", "u"), ("1", "closed"), ("2", "t")):
            self.successResultOf(fixture.broker.open(ANYBODY, group, topic))
        self.successResultOf(fixture.broker.close(ANYBODY, "1", "closed"))
        answers: list[Any] = []
        for wish in wishes:
            each = publication(**wish)
            publishOne(
                fixture.broker, ANYBODY, each.groupId, each.topic, each.content, each.extensions
            ).addCallbacks(answers.append, lambda failure: answers.append(failure.value))
        return answers

    def test_answersEqualThoseOfSinglePublishes(self) -> None:
        """What is answered is what each would have been answered alone, and so is the log."""
        expected = self.oneByOne(*WISHES)
        answers = self.successResultOf(self.publishAll(*WISHES))
        self.assertEqual(len(answers), len(WISHES))
        for answer, alone, wish in zip(answers, expected, WISHES, strict=True):
            if isinstance(alone, SendResult):
                self.assertEqual(answer, alone, wish)
            else:
                self.assertIs(type(answer), type(alone), wish)
        contents = [
            each.content for each in self.ledger.submitted if isinstance(each, PublishEvent)
        ]
        self.assertEqual(contents, [b"x", b"second", b"x", b"x", b"x"])

    def test_refusedEventsSubmitNothing(self) -> None:
        """No publish, or none that can be, submits nothing."""
        self.assertEqual(self.successResultOf(self.publishAll()), [])
        before = list(self.ledger.submitted)
        [answer] = self.successResultOf(self.publishAll({"topic": "never"}))
        self.assertIsInstance(answer, errors.TopicNotFound)
        self.assertEqual(self.ledger.submitted, before)

    def test_timeoutAnswersWhatIsKnown(self) -> None:
        """Those that are known by then say what they are, the others that they are not."""
        self.ledger.isHolding = True
        sent = self.publishAll({}, {"groupId": "2"}, {"topic": "never"})
        self.assertNoResult(sent)
        self.fixture.clock.advance(TIMEOUT)
        first, second, third = self.successResultOf(sent)
        self.assertEqual((first.status, first.eventId), (SendStatus.TIMEOUT, None))
        self.assertEqual(second.status, SendStatus.SUCCESS)
        self.assertIsInstance(third, errors.TopicNotFound)
        self.ledger.release()
        self.assertEqual(self.successResultOf(self.broker.state(ANYBODY, None, "t")).sequence, 1)

    def test_allGroupsTimeOutAtOnce(self) -> None:
        """However many groups there are, the time is over for all of them together."""
        self.ledger.isHolding = self.fixture.second.isHolding = True
        sent = self.publishAll({}, {"groupId": "2"})
        self.fixture.clock.advance(TIMEOUT)
        statuses = [answer.status for answer in self.successResultOf(sent)]
        self.assertEqual(statuses, [SendStatus.TIMEOUT] * 2)

    def test_cancelledEventsAreStillPublished(self) -> None:
        """They are carried out all the same."""
        self.ledger.isHolding = True
        sent = self.publishAll({}, {})
        sent.cancel()
        self.failureResultOf(sent, CancelledError)
        self.ledger.release()
        self.assertEqual(self.successResultOf(self.broker.state(ANYBODY, None, "t")).sequence, 2)

    def test_refusedReceiptsAreAnswers(self) -> None:
        for execution, expected in (
            (Execution.TOPIC_NOT_FOUND, SendResult("t", None, SendStatus.ERROR)),
            (Execution.REPEATED, errors.TransactionFailed),
        ):
            self.ledger.receipt = Receipt(execution=execution, transactionHash=bytes(32), height=1)
            [answer] = self.successResultOf(self.publishAll({}))
            if isinstance(expected, SendResult):
                self.assertEqual(answer, expected)
            else:
                self.assertIsInstance(answer, expected)

    def test_ledgerErrorsAreAnswers(self) -> None:
        """Its errors are answers."""
        for error in (errors.Overloaded(), errors.LedgerUnavailable()):
            self.ledger.error = error
            answers = self.successResultOf(self.publishAll({}, {"topic": ""}))
            self.assertIs(answers[0], error)
            self.assertIsInstance(answers[1], errors.TopicBlank)

    def test_raisedLedgerErrorIsLogged(self) -> None:
        """An error that the contract does not allow is logged, and the publish is refused."""
        self.ledger.error = ZeroDivisionError()
        self.patch(self.ledger, "topicState", self.ledger._ledger.topicState)
        [answer] = self.successResultOf(self.publishAll({}))
        self.assertIsInstance(answer, errors.LedgerUnavailable)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_raisedTopicStateErrorFailsTheCall(self) -> None:
        """The caller is told of it."""
        self.ledger.error = ZeroDivisionError()
        self.failureResultOf(self.publishAll({}), ZeroDivisionError)
        self.failureResultOf(
            publishOne(self.broker, ANYBODY, None, "t", b"x", {}), ZeroDivisionError
        )


class PolicyTests(SynchronousTestCase):
    """What a carrier may want of publishing."""

    def setUp(self) -> None:
        self.fixture = makeFixture()
        self.ledger, self.broker = self.fixture.ledger, self.fixture.broker
        self.successResultOf(self.broker.open(ANYBODY, None, "t"))

    def publish(self, policy: PublishPolicy, *wishes: dict[str, Any]) -> Deferred[Any]:
        return self.broker.publish(ANYBODY, [publication(**wish) for wish in wishes], policy)

    def submitted(self) -> list[tuple[str, str]]:
        return [(type(each).__name__, each.topic) for each in self.ledger.submitted[1:]]

    def test_withoutTimeoutAnswersComeLate(self) -> None:
        self.ledger.isHolding = True
        sent = self.publish(PublishPolicy(hasTimeout=False), {})
        self.fixture.clock.advance(10 * TIMEOUT)
        self.assertNoResult(sent)
        self.ledger.release()
        [answer] = self.successResultOf(sent)
        self.assertIs(answer.status, SendStatus.SUCCESS)

    def test_topicsAreOpenedByTheWay(self) -> None:
        """Once each, before the first event; a bad name is refused all the same."""
        policy = PublishPolicy(opensTopics=True)
        wishes: Sequence[dict[str, Any]] = (
            {"topic": "a"},
            {},
            {"topic": "b"},
            {"topic": "a"},
            {"topic": "+"},
        )
        answers = self.successResultOf(self.publish(policy, *wishes))
        self.assertEqual(
            self.submitted(),
            [
                ("OpenTopic", "a"),
                ("Publication", "a"),
                ("Publication", "t"),
                ("OpenTopic", "b"),
                ("Publication", "b"),
                ("Publication", "a"),
            ],
        )
        self.assertEqual([answer.topic for answer in answers[:4]], ["a", "t", "b", "a"])
        self.assertEqual([idOf(answer).sequence for answer in answers[:4]], [1, 1, 1, 2])
        self.assertIsInstance(answers[4], errors.TopicInvalid)

    def test_topicsClosedMeanwhileAreOpenedAgain(self) -> None:
        """The events are published after all that was submitted with them."""
        policy = PublishPolicy(opensTopics=True)
        self.successResultOf(self.broker.open(ANYBODY, None, "u"))
        self.ledger.isHolding = True
        submit(self.ledger, CloseTopic(topic="t"))  # as another node may do
        sent = self.publish(policy, {"content": b"1"}, {"topic": "u"}, {"content": b"2"})
        self.ledger.isHolding = False
        self.ledger.release()
        answers = self.successResultOf(sent)
        self.assertEqual([answer.status for answer in answers], [SendStatus.SUCCESS] * 3)
        self.assertEqual([idOf(answer).sequence for answer in answers], [1, 1, 2])
        self.assertEqual(
            self.submitted()[-3:], [("OpenTopic", "t"), ("Publication", "t"), ("Publication", "t")]
        )

    def test_topicsClosedMeanwhileStayClosedWithoutAGrant(self) -> None:
        principal = principalOf("publish 1 t")
        self.ledger.isHolding = True
        submit(self.ledger, CloseTopic(topic="t"))
        sent = self.broker.publish(principal, [publication()], PublishPolicy(opensTopics=True))
        self.ledger.isHolding = False
        self.ledger.release()
        [answer] = self.successResultOf(sent)
        self.assertEqual(answer, SendResult("t", None, SendStatus.ERROR))
        self.assertFalse(self.successResultOf(self.broker.exist(ANYBODY, None, "t")))

    def test_topicsAreOpenedAgainOnce(self) -> None:
        """A topic that is closed again and again is an answer."""
        receipt = Receipt(execution=Execution.TOPIC_NOT_FOUND, transactionHash=bytes(32), height=1)
        self.ledger.receipt = receipt
        [answer] = self.successResultOf(self.publish(PublishPolicy(opensTopics=True), {}))
        self.assertEqual(answer, SendResult("t", None, SendStatus.ERROR))

    def test_eventsMayBeEmpty(self) -> None:
        wishes: Sequence[dict[str, Any]] = ({"content": b""}, {"content": bytes(MAX_CONTENT + 1)})
        empty, large = self.successResultOf(self.publish(PublishPolicy(mayBeEmpty=True), *wishes))
        self.assertIs(empty.status, SendStatus.SUCCESS)
        self.assertIsInstance(large, errors.ContentTooLarge)

    def test_stopsAtRefusal(self) -> None:
        """What follows a refused event is refused with its error, and not submitted."""
        policy = PublishPolicy(stopsAtRefusal=True)
        wishes: Sequence[dict[str, Any]] = ({}, {"topic": ""}, {}, {"topic": "never"})
        answers = self.successResultOf(self.publish(policy, *wishes))
        self.assertIs(answers[0].status, SendStatus.SUCCESS)
        self.assertIsInstance(answers[1], errors.TopicBlank)
        self.assertEqual(answers[1:], [answers[1]] * 3)
        self.assertEqual(self.submitted(), [("Publication", "t")])


class TurnTests(SynchronousTestCase):
    """Calls of one turn of the reactor, to a ledger that makes blocks."""

    def setUp(self) -> None:
        self.rig = LedgerRig(self, {"interval": "0"}).start().open()
        self.broker = Broker(
            {"1": self.rig.ledger},
            self.rig.clock,
            Limits(maxContent=MAX_CONTENT, chainTimeout=TIMEOUT),
            FakeDirectory(),
        )
        self.addCleanup(self.broker.stop)

    def publish(self, content: bytes = b"x", topic: str = "t") -> Deferred[Any]:
        return publishOne(self.broker, ANYBODY, None, topic, content, {})

    def test_publishesOfOneTurnShareABlock(self) -> None:
        """What comes in one turn of the reactor is in one block, in its order."""
        sent = [self.publish(b"%d" % number) for number in range(5)]
        bad = self.publish(b"")
        self.failureResultOf(bad, errors.ContentBlank)
        self.failureResultOf(self.publish(topic="never"), errors.TopicNotFound)
        refused = self.failureResultOf(self.publish(topic="a+b"), errors.TopicInvalid).value
        self.assertIn("topic 'a+b' has the character '+': allowed are", refused.message)
        self.assertNoResult(sent[0])
        self.rig.clock.advance(0)
        answers = [self.successResultOf(each) for each in sent]
        self.assertEqual([idOf(each).sequence for each in answers], [1, 2, 3, 4, 5])
        self.assertEqual(len({idOf(each).height for each in answers}), 1)
        for number, answer in enumerate(answers):
            event = self.successResultOf(self.broker.getEvent(ANYBODY, None, idOf(answer)))
            self.assertEqual(event.content, b"%d" % number)

    def test_callsOfOneTurnKeepTheirOrder(self) -> None:
        """Whatever is asked for in one turn of the reactor enters the log in that order."""
        first = self.publish(b"1")
        together = self.broker.publish(ANYBODY, [publication(content=b"2")])
        third = self.publish(b"3")
        closed = self.broker.close(ANYBODY, None, "t")
        late = self.publish(b"4")
        opened = self.broker.open(ANYBODY, None, "u")
        self.rig.clock.advance(0)
        [second] = self.successResultOf(together)
        answers: list[Any] = [self.successResultOf(first), second, self.successResultOf(third)]
        ids = [idOf(answer) for answer in answers]
        self.assertEqual([each.sequence for each in ids], [1, 2, 3])
        self.assertTrue(self.successResultOf(closed))
        self.failureResultOf(late, errors.TopicNotFound)
        self.assertTrue(self.successResultOf(opened))
        contents = [
            self.successResultOf(self.broker.getEvent(ANYBODY, None, each)).content for each in ids
        ]
        self.assertEqual(contents, [b"1", b"2", b"3"])

    def test_topicsAreOpenedAndPublishedToInOneBlock(self) -> None:
        """What depends on a topic that is being opened or closed is decided by the chain."""
        opened = self.broker.open(ANYBODY, None, "new")
        first = self.publish(topic="new")
        closed = self.broker.close(ANYBODY, None, "new")
        refused = [self.publish(topic="new"), self.broker.close(ANYBODY, None, "new")]
        again = self.broker.open(ANYBODY, None, "new")
        second = self.publish(topic="new")
        self.rig.clock.advance(0)
        for each in (opened, closed, again):
            self.assertTrue(self.successResultOf(each))
        for each in refused:
            self.failureResultOf(each, errors.TopicNotFound)
        ids = [idOf(self.successResultOf(each)) for each in (first, second)]
        self.assertEqual([each.sequence for each in ids], [1, 2])
        self.assertEqual(ids[0].height, ids[1].height)
        # Nothing is under way, so that this node knows: an open topic needs no block.
        self.assertTrue(self.successResultOf(self.broker.open(ANYBODY, None, "new")))

    def test_authorsOfTopicThatIsBeingOpenedAreChecked(self) -> None:
        """By the chain, since this node does not know them yet."""
        key = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key().public_bytes_raw()
        opened = self.broker.open(ANYBODY, None, "new", authors=[key])
        refused = self.publish(topic="new")
        other = self.broker.open(ANYBODY, None, "new", authors=[key], admins=[key])
        self.rig.clock.advance(0)
        self.assertTrue(self.successResultOf(opened))
        self.failureResultOf(refused, errors.AuthorRefused)
        self.failureResultOf(other, errors.AuthorRefused)

    def test_cancelledPublishAffectsNoOther(self) -> None:
        """It is carried out all the same, and nobody else notices."""
        first, second = self.publish(), self.publish()
        first.cancel()
        self.failureResultOf(first, CancelledError)
        self.rig.clock.advance(0)
        self.assertEqual(idOf(self.successResultOf(second)).sequence, 2)

    def test_timedOutEventAppearsLater(self) -> None:
        """The answer says so, and the event appears all the same when the disk goes on."""
        self.rig.disk.isHeld = True
        sent = self.publish()
        self.rig.clock.advance(0)
        self.rig.clock.advance(TIMEOUT)
        answer = self.successResultOf(sent)
        self.assertEqual((answer.status, answer.eventId), (SendStatus.TIMEOUT, None))
        self.rig.disk.release()
        self.assertEqual(self.successResultOf(self.broker.state(ANYBODY, None, "t")).sequence, 1)

    def test_topicClosedMeanwhileIsAnswered(self) -> None:
        """A topic that is closed by the time that it is executed is an answer."""
        submit(self.rig.ledger, CloseTopic(topic="t"))
        sent = self.publish()
        self.rig.clock.advance(0)
        self.assertEqual(self.successResultOf(sent), SendResult("t", None, SendStatus.ERROR))
        self.failureResultOf(self.publish(), errors.TopicNotFound)

    def test_publishesAfterStopAreRefused(self) -> None:
        """What was published before the ledger stops is answered; what comes later is refused."""
        sent = self.publish()
        stopped = self.rig.ledger.stop()
        self.rig.clock.advance(0)
        self.successResultOf(stopped)
        self.broker.stop()
        self.assertIs(self.successResultOf(sent).status, SendStatus.SUCCESS)
        late = self.publish()
        self.rig.clock.advance(0)
        self.failureResultOf(late, errors.LedgerUnavailable)


MQTT = PublishPolicy(
    carrier="mqtt", hasTimeout=False, opensTopics=True, wantsResults=False, stopsAtRefusal=True
)
STOMP = PublishPolicy(carrier="stomp", mayBeEmpty=True)


class TurnTestCase(SynchronousTestCase):
    """
    A broker whose reactor makes calls after all reads, as the daemon's does.

    @ivar submitted: how many requests each call of the ledger has submitted.
    """

    def setUp(self) -> None:
        self.ends: list[Any] = []
        self.fixture = fixture = makeFixture(
            maxContent=MAX_TOGETHER_BYTES, callAfterReads=self.ends.append
        )
        self.ledger, self.broker, self.clock = fixture.ledger, fixture.broker, fixture.clock
        self.open("t")
        self.submitted: list[int] = []
        for ledger in (fixture.ledger, fixture.second):
            self.patch(ledger, "submitMany", partial(self.note, ledger.submitMany))

    def note(self, submitMany: Any, requests: Sequence[Any]) -> Any:
        self.submitted.append(len(requests))
        return submitMany(requests)

    def open(self, topic: str, groupId: str | None = None) -> None:
        opened = self.broker.open(ANYBODY, groupId, topic)
        self.endTurn()
        self.assertTrue(self.successResultOf(opened))

    def endTurn(self) -> None:
        ends, self.ends[:] = list(self.ends), []
        for end in ends:
            end()

    def publish(self, *wishes: dict[str, Any], policy: PublishPolicy = STOMP) -> Deferred[Any]:
        return self.broker.publish(ANYBODY, [publication(**wish) for wish in wishes], policy)


class SharedSubmissionTests(TurnTestCase):
    """
    Calls of one turn.
    """

    def test_publishesOfAllCarriersAreOneSubmission(self) -> None:
        """Each call gets its own outcomes, of the form that its policy asks for."""
        mqtt = self.publish({"content": b"1"}, {"topic": "new"}, policy=MQTT)
        stomp = self.publish({"content": b""}, {"topic": "a+"}, {"content": b"3"})
        rest = self.broker.publish(principalOf("publish 1 t"), [publication(content=b"4")])
        self.assertNoResult(rest)
        self.assertEqual(self.submitted, [])
        self.endTurn()
        self.assertEqual(self.submitted, [6])
        self.assertEqual(self.successResultOf(mqtt), [None, None])
        first, second, third = self.successResultOf(stomp)
        self.assertIsInstance(second, errors.TopicInvalid)
        found = [idOf(each).sequence for each in (first, third, *self.successResultOf(rest))]
        self.assertEqual(found, [2, 3, 4])
        contents = [
            each.content for each in self.ledger.submitted if isinstance(each, PublishEvent)
        ]
        self.assertEqual(contents, [b"1", b"x", b"", b"3", b"4"])

    def test_refusalIsToldAtOnce(self) -> None:
        """What a check has refused is told before the event is submitted, and nothing behind it."""
        known: list[Any] = []
        publications = [publication(), publication(content=bytes(MAX_TOGETHER_BYTES + 1))] * 2
        done = self.broker.publish(ANYBODY, publications, MQTT, known.extend)
        self.assertIsNone(known[0])
        self.assertEqual([type(each) for each in known[1:]], [errors.ContentTooLarge] * 3)
        self.assertEqual(self.submitted, [])
        self.endTurn()
        self.assertEqual(self.submitted, [1])
        self.assertEqual(self.successResultOf(done), known)

    def test_acceptedEventsTellNothingAtOnce(self) -> None:
        self.broker.publish(ANYBODY, [publication()], MQTT, self.fail)
        self.endTurn()

    def test_openAndCloseKeepTheirPlaces(self) -> None:
        """They are submitted with the events of their turn."""
        first = self.publish({})
        closed = self.broker.close(ANYBODY, None, "t")
        late, mqtt = self.publish({}), self.publish({}, policy=MQTT)
        opened = self.broker.open(ANYBODY, None, "u")
        self.assertEqual(self.submitted, [])
        self.endTurn()
        self.assertEqual(self.submitted, [6])
        [outcome] = self.successResultOf(first)
        self.assertIs(outcome.status, SendStatus.SUCCESS)
        self.assertTrue(self.successResultOf(closed))
        [outcome] = self.successResultOf(late)
        self.assertIsInstance(outcome, errors.TopicNotFound)
        self.assertEqual(self.successResultOf(mqtt), [None])
        self.assertTrue(self.successResultOf(opened))

    def test_topicThatIsBeingOpenedIsLeftToTheChain(self) -> None:
        """Until the outcome is known, even if nobody waits for it any more."""
        self.ledger.isHolding = True
        opened = self.broker.open(ANYBODY, None, "new")
        self.endTurn()
        opened.cancel()
        self.failureResultOf(opened, CancelledError)
        first = self.publish({"topic": "new"})
        self.endTurn()
        self.ledger.release()
        [outcome] = self.successResultOf(first)
        self.assertEqual(idOf(outcome).sequence, 1)
        self.submitted.clear()
        self.assertTrue(self.successResultOf(self.broker.open(ANYBODY, None, "new")))
        self.assertEqual(self.submitted, [])

    def test_topicThatCouldNotBeOpenedIsUnknownAgain(self) -> None:
        self.ledger.error = errors.Overloaded()
        opened, sent = self.broker.open(ANYBODY, None, "new"), self.publish({"topic": "new"})
        self.endTurn()
        self.failureResultOf(opened, errors.Overloaded)
        self.assertIsInstance(self.successResultOf(sent)[0], errors.Overloaded)
        self.ledger.error = None
        [outcome] = self.successResultOf(self.publish({"topic": "new"}))
        self.assertIsInstance(outcome, errors.TopicNotFound)

    def test_timeoutIsOfThoseThatWantIt(self) -> None:
        self.ledger.isHolding = True
        mqtt, stomp = self.publish({}, policy=MQTT), self.publish({})
        self.endTurn()
        self.clock.advance(TIMEOUT)
        self.assertEqual(self.successResultOf(stomp), [SendResult("t", None, SendStatus.TIMEOUT)])
        self.assertNoResult(mqtt)
        self.ledger.release()
        self.assertEqual(self.successResultOf(mqtt), [None])

    def test_leavingClientConcernsNoOther(self) -> None:
        """An event of a call that is cancelled is submitted all the same."""
        calls = [self.publish({"content": b"%d" % number}) for number in range(3)]
        calls[0].cancel()
        self.ledger.isHolding = True
        self.endTurn()
        calls[1].cancel()
        self.ledger.release()
        for each in calls[:2]:
            self.failureResultOf(each, CancelledError)
        [last] = self.successResultOf(calls[2])
        self.assertEqual(idOf(last).sequence, 3)
        self.assertEqual(self.broker.budgets.work.pending, 0)

    def test_submissionsAreBounded(self) -> None:
        """By the events and by the bytes of several calls; one call is never cut."""
        most: list[dict[str, Any]] = [{}] * (MAX_TOGETHER - 1)
        large: dict[str, Any] = {"content": bytes(MAX_TOGETHER_BYTES - 1)}
        self.publish(*most)
        for wish in ({}, {}, large, large, {}):
            self.publish(wish)
        self.publish(*most, {}, {})
        self.endTurn()
        self.assertEqual(self.submitted, [MAX_TOGETHER, 2, 2, MAX_TOGETHER + 1])

    def test_groupsAreSubmittedApart(self) -> None:
        self.open("t", "2")
        self.submitted.clear()
        both = self.publish({}, {"groupId": "2"})
        self.publish({"groupId": "2"})
        self.publish({})
        self.endTurn()
        self.assertEqual(self.submitted, [2, 2])
        self.assertEqual([idOf(each).sequence for each in self.successResultOf(both)], [1, 1])

    def test_errorOfTheLedgerIsToldToEach(self) -> None:
        calls = [self.publish({}), self.publish({}, {})]
        self.ledger.error = ZeroDivisionError()
        self.endTurn()
        found = [outcome for each in calls for outcome in self.successResultOf(each)]
        self.assertEqual([type(each) for each in found], [errors.LedgerUnavailable] * 3)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_stopSubmitsWhatWaits(self) -> None:
        """Nothing is left unanswered."""
        waiting = self.publish({})
        self.broker.stop()
        self.assertEqual(len(self.successResultOf(waiting)), 1)


class SharedCallTests(TurnTestCase):
    """
    Calls of one turn that publish one event each.
    """

    def join(
        self,
        policy: PublishPolicy = STOMP,
        refused: Any = None,
        principal: Principal = ANYBODY,
        **wish: Any,
    ) -> list[Any]:
        """Publish an event, and return a list that gets its outcome."""
        found: list[Any] = []
        self.broker.publishInTurn(
            principal, [publication(**wish)], policy, lambda each: found.extend(each), refused
        )
        return found

    def contents(self) -> list[bytes]:
        return [each.content for each in self.ledger.submitted if isinstance(each, PublishEvent)]

    def test_eachIsToldItsOwnOutcome(self) -> None:
        before = self.broker.meter.successes["stomp"]
        calls = [self.join(content=b"%d" % number) for number in range(20)]
        self.assertEqual(self.broker.budgets.work.pending, 20)
        self.assertEqual(calls, [[]] * 20)
        self.endTurn()
        self.assertEqual(self.submitted, [20])
        self.assertEqual([idOf(each).sequence for [each] in calls], list(range(1, 21)))
        self.assertEqual(self.broker.meter.successes["stomp"] - before, 20)
        self.assertEqual(self.broker.budgets.work.pending, 0)

    def test_refusalIsToldAtOnceAndConcernsNoOther(self) -> None:
        known: list[Any] = []
        first, second = self.join(MQTT), self.join(MQTT, known.extend, content=bytes(300_000))
        third = self.join(MQTT)
        self.assertIsInstance(second[0], errors.ContentTooLarge)
        self.assertEqual(known, second)
        self.endTurn()
        self.assertEqual([first, third], [[None], [None]])
        self.assertEqual(self.broker.meter.others["mqtt", "refused"], 1)

    def test_faultOfACheckIsToldAsFailure(self) -> None:
        found: list[Any] = []
        self.patch(self.ledger, "topicState", lambda topic: 1 / 0)
        self.broker.publishInTurn(ANYBODY, [publication()], STOMP, found.append)
        self.assertIs(found[0].check(ZeroDivisionError), ZeroDivisionError)
        self.endTurn()
        self.assertEqual(self.submitted, [])

    def test_eventsKeepTheirPlacesAmongCallsOfMany(self) -> None:
        """One that comes after a call of several events does not join those before it."""
        self.join(content=b"1")
        self.publish({"content": b"2"}, {"content": b"3"})
        self.join(content=b"4")
        self.join(content=b"5")
        opened = self.broker.open(ANYBODY, None, "u")
        self.join(content=b"6")
        self.endTurn()
        self.assertTrue(self.successResultOf(opened))
        self.assertEqual(self.contents(), [b"1", b"2", b"3", b"4", b"5", b"6"])
        self.assertEqual(self.submitted, [7])

    def test_accountsAndPoliciesAreApart(self) -> None:
        """Each is checked and answered by its own rules, in one submission."""
        other = principalOf("publish 1 v")
        stomp, mqtt = self.join(), self.join(MQTT)
        denied, rest = self.join(principal=other), self.join()
        self.endTurn()
        self.assertEqual(self.submitted, [3])
        self.assertEqual([idOf(each[0]).sequence for each in (stomp, rest)], [1, 2])
        self.assertEqual(mqtt, [None])
        self.assertIsInstance(denied[0], errors.NotAuthorized)

    def test_topicIsOpenedOnceForAll(self) -> None:
        calls = [self.join(MQTT, topic=topic) for topic in ("new", "t", "new", "newer")]
        self.endTurn()
        self.assertEqual(calls, [[None]] * 4)
        self.assertEqual(self.submitted, [6])

    def test_groupsAreAnsweredApart(self) -> None:
        self.open("t", "2")
        self.submitted.clear()
        self.ledger.isHolding = True
        first, second, third = self.join(), self.join(groupId="2"), self.join(groupId="1")
        self.endTurn()
        self.assertEqual(self.submitted, [2, 1])
        self.assertEqual((first, len(second), third), ([], 1, []))
        self.ledger.release()
        self.assertEqual([idOf(each[0]).sequence for each in (first, third)], [1, 2])

    def test_closedTopicIsOpenedAgainForAll(self) -> None:
        """It was closed between the checks and the block."""
        calls = [self.join(MQTT), self.join(MQTT)]
        self.ledger.submitMany([CloseTopic(topic="t")])
        self.endTurn()
        self.assertEqual(calls, [[], []])
        self.endTurn()
        self.assertEqual(calls, [[None], [None]])
        self.assertEqual(self.submitted, [1, 2, 3])

    def test_timeoutIsToldToEach(self) -> None:
        self.ledger.isHolding = True
        calls = [self.join(), self.join()]
        self.endTurn()
        self.clock.advance(TIMEOUT)
        self.assertEqual(calls, [[SendResult("t", None, SendStatus.TIMEOUT)]] * 2)
        self.ledger.release()

    def test_failureOfOneCarrierConcernsNoOther(self) -> None:
        first = self.join()
        self.broker.publishInTurn(ANYBODY, [publication()], STOMP, lambda _: 1 / 0)
        last = self.join()
        self.endTurn()
        self.assertEqual([idOf(each[0]).sequence for each in (first, last)], [1, 3])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_callIsBounded(self) -> None:
        """By the events and by the bytes that are submitted together."""
        half = bytes(MAX_TOGETHER_BYTES // 2 + 1)
        calls = [self.join() for _ in range(MAX_TOGETHER + 1)]
        calls += [self.join(content=half) for _ in range(3)]
        self.endTurn()
        self.assertEqual(self.submitted, [MAX_TOGETHER, 3, 1])
        self.assertEqual([len(each) for each in calls], [1] * (MAX_TOGETHER + 4))

    def test_accountWithQuotasPublishesAlone(self) -> None:
        """Quotas are for each call."""
        usage = Usage(Quotas(publishes=2), lambda: 0.0)
        limited = Principal(Identity(name="ann", grants=EVERYTHING), usage)
        calls = [self.join(principal=limited) for _ in range(3)]
        self.endTurn()
        self.clock.advance(REFUSAL_DELAY)
        self.assertEqual([idOf(each[0]).sequence for each in calls[:2]], [1, 2])
        self.assertIsInstance(calls[2][0], errors.QuotaExceeded)
