"""
Tests for dead letters: events that a receiver does not take are published, and the next goes out.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY
from svcbroker.carriers.webhook.feature import webhookAlarms
from svcbroker.carriers.webhook.posting import NotAcknowledged
from svcbroker.carriers.webhook.webhookservice import MAX_REASON, MAX_WEBHOOKS, makeDeadLetter
from svcbroker.interfaces import Quotas, submit
from svcbroker.model import MAX_EXTENSIONS_SIZE, CloseTopic, Edge, Event, EventId, checkExtensions
from svcbroker.net.alarms import RecentCount

from ...access.support import FakeAuthenticator, account
from .support import URL, Harness, Post

ID = "00000000-0000-4000-8000-00000000000a"
TOPIC = f"$svc/dead/{ID}"


class DeadLetterTests(SynchronousTestCase):
    """
    Webhooks with a greatest number of attempts.
    """

    def setUp(self) -> None:
        self.harness = Harness(self)
        self.harness.open("a", "b")
        self.harness.poster.judge = self.judge

    def judge(self, post: Post) -> bool | None:
        """Take everything but what begins with C{poison}."""
        return not any(content.startswith("poison") for content in post.contents)

    def subscribe(self, maxAttempts: int = 3, **options: Any) -> None:
        """A webhook with an id of ours."""
        self.successResultOf(
            self.harness.subscribe(subscriptionId=ID, maxAttempts=maxAttempts, **options)
        )

    def published(self, topic: str = TOPIC) -> list[Event]:
        """What was published to a topic."""
        found = []
        for height in range(1, self.harness.subscriptions._followers["1"].committed + 1):
            block = self.successResultOf(self.harness.ledger.readBlock(height))
            found += [event for event in block.events if event.topic == topic]
        return found

    def test_poisonEventIsPublishedAndNextGoesOut(self) -> None:
        self.subscribe()
        self.harness.publish("1", "poison", "2", kind="x")
        self.harness.clock.pump([0.5] * 10)
        self.assertEqual(self.harness.poster.contents, ["1", *["poison"] * 3, "2"])
        [event] = self.published()
        poison = self.harness.poster.posts[1].events[0]
        self.assertEqual(event.content, b"poison")
        self.assertEqual(
            event.extensions,
            {
                "svc-kind": "x",
                "svc-reason": "no",
                "svc-attempts": "3",
                "svc-original-id": str(poison.eventId),
                "svc-original-topic": "a",
                "svc-subscription-id": ID,
                "svc-given-up-by": ID,
            },
        )

    def test_failuresOfWhatIsGivenUpCount(self) -> None:
        """Also where each event is tried once: a receiver that takes nothing is failing."""
        self.subscribe(maxAttempts=1)
        webhook = self.harness.webhooks._webhooks[ID]
        self.harness.publish("poison", "poison")
        self.assertEqual((webhook.state, webhook.status.failures), ("failing", 2))
        self.harness.publish("1")
        self.assertEqual((webhook.state, webhook.status.failures), ("delivering", 0))

    def test_failingReceiversAndDeadLettersAreAlarms(self) -> None:
        """One failure is none; a receiver that takes an event ends the first, an hour the other."""
        recent = RecentCount(self.harness.clock, 3600)

        def alarms() -> list[tuple[str, str, str]]:
            found = webhookAlarms(self.harness.webhooks, recent)
            return [(each.condition.name, each.group, each.text) for each in found]

        self.assertEqual(alarms(), [])
        self.subscribe(maxAttempts=1)
        self.harness.publish("poison", "poison")
        self.assertEqual(alarms(), [("events-given-up", "", "2 events in the last hour")])
        self.harness.publish("poison")
        failing, _ = alarms()
        self.assertEqual(failing, ("webhooks-fail", "1", f"{ID}: no"))
        self.harness.publish("1")
        self.harness.clock.advance(3600)
        alarms()
        self.harness.clock.advance(3600)
        self.assertEqual(alarms(), [])

    def test_webhooksThatFeedEachOtherComeToAnEnd(self) -> None:
        """An event that comes back is skipped: each of them publishes one dead letter."""
        other = ID[:-1] + "b"
        self.subscribe(maxAttempts=1, deadLetter="b")
        self.successResultOf(
            self.harness.subscribe(URL, "b", subscriptionId=other, maxAttempts=1, deadLetter="a")
        )
        self.harness.publish("poison")
        self.harness.settle(60.0)
        self.harness.publish("1")
        self.assertEqual(self.harness.poster.contents, [*["poison"] * 3, "1"])
        [first], [original, second, _] = self.published("b"), self.published("a")
        self.assertEqual(first.extensions["svc-original-id"], str(original.eventId))
        self.assertEqual(first.extensions["svc-given-up-by"], ID)
        self.assertEqual(second.extensions["svc-original-id"], str(first.eventId))
        self.assertEqual(second.extensions["svc-given-up-by"], f"{ID},{other}")

    def test_longChainsOfWebhooksComeToAnEnd(self) -> None:
        others = [f"00000000-0000-4000-9000-{number:012x}" for number in range(MAX_WEBHOOKS)]
        for count in (MAX_WEBHOOKS - 1, MAX_WEBHOOKS):
            self.harness.publish("poison", **{"given-up-by": ",".join(others[:count])})
        self.subscribe(maxAttempts=1, offset=Edge.FIRST)
        self.harness.settle(60.0)
        [event] = self.published()
        self.assertEqual(event.extensions["svc-given-up-by"], ",".join([*others[:-1], ID]))

    def test_deadLetterIsSentAgain(self) -> None:
        """Once for each call, to its own webhook, as the event that it is of."""
        self.subscribe(maxAttempts=1)
        self.harness.publish("poison", "1")
        [dead] = self.published()

        def replay(eventId: EventId) -> Deferred[bool]:
            answer = self.harness.webhooks.replayDeadLetter(ANYBODY, ID, eventId)
            self.harness.settle()
            return answer

        self.assertIs(self.successResultOf(replay(dead.eventId)), False)
        self.harness.poster.judge = lambda post: True
        self.assertIs(self.successResultOf(replay(dead.eventId)), True)
        self.assertEqual(self.harness.poster.contents, ["poison", "1", "poison", "poison"])
        first, *_, last = self.harness.poster.posts
        self.assertEqual((last.events, last.payload), (first.events, first.payload))
        [status] = self.successResultOf(self.harness.webhooks.listWebhooks(ANYBODY, "1")).items
        self.assertEqual([each.error for each in status.answers], ["no", "", "no", ""])
        for eventId in (first.events[0].eventId, EventId.parse("01234567-1-1")):
            self.failureResultOf(replay(eventId), errors.EventNotFound)

    def test_withoutMaxAttemptsNothingIsGivenUp(self) -> None:
        self.successResultOf(self.harness.subscribe(subscriptionId=ID))
        self.harness.publish("poison", "2")
        self.harness.clock.pump([1.0] * 600)
        self.assertEqual(set(self.harness.poster.contents), {"poison"})
        self.assertEqual(self.published(), [])

    def test_attemptsSurviveRestarts(self) -> None:
        self.subscribe()
        self.harness.publish("poison", "2")
        self.harness.settle(0.5)
        self.assertEqual(self.harness.poster.contents, ["poison"] * 2)
        self.harness.kill()
        self.harness.start()
        self.harness.settle(5.0)
        self.assertEqual(self.harness.poster.contents, ["poison", "2"])
        [event] = self.published()
        self.assertEqual(event.extensions["svc-attempts"], "3")

    def test_endedWebhookLeavesNothing(self) -> None:
        """Also where its last attempt fails because it is ended."""
        self.harness.poster.judge = lambda post: None
        self.subscribe(maxAttempts=1)
        self.harness.publish("1")
        self.harness.webhooks.unSubscribe(ANYBODY, ID)
        self.harness.settle(5.0)
        self.assertTrue(self.harness.poster.posts[0].isCancelled)
        self.assertEqual(self.harness.disk.kept, {})
        self.assertEqual(self.published(), [])

    def test_onlyAnswersAndConnectionsAreAttempts(self) -> None:
        """What is wrong here does not make a dead letter."""
        self.subscribe()
        isLocal = True

        def judge(post: Post) -> bool | None:
            post.answer.errback(NotAcknowledged("no secret", isAttempt=not isLocal))
            return None

        self.harness.poster.judge = judge
        self.harness.publish("1")
        self.harness.clock.pump([1.0] * 120)
        self.assertGreater(len(self.harness.poster.posts), 3)
        self.assertEqual(self.published(), [])
        isLocal = False
        self.harness.clock.pump([1.0] * 120)
        self.assertEqual(len(self.published()), 1)

    def test_poisonInBatchIsFound(self) -> None:
        """Only it is given up, after attempts of its own."""
        self.subscribe(batch=8, batchSeconds=1)
        self.harness.publish(*"1234", "poison", *"567")
        self.harness.clock.pump([0.5] * 120)
        taken = [post.contents for post in self.harness.poster.posts if self.judge(post)]
        self.assertEqual([each for some in taken for each in some], list("1234567"))
        alone = [post for post in self.harness.poster.posts if post.contents == ["poison"]]
        self.assertEqual(len(alone), 3)
        self.assertEqual([each.content for each in self.published()], [b"poison"])

    def test_topicOfItsOwnIsTheAccounts(self) -> None:
        """It is published to with the rights of the account, and opened where that may."""
        self.harness.open("dead")
        self.subscribe(maxAttempts=1, deadLetter="dead")
        self.harness.publish("poison", "2")
        self.harness.settle(2.0)
        self.assertEqual(len(self.published("dead")), 1)
        self.assertEqual(self.published(), [])
        submit(self.harness.ledger, CloseTopic(topic="dead"))
        self.harness.publish("poison2", "3")
        self.harness.settle(2.0)
        self.assertEqual(len(self.published("dead")), 2)
        self.assertEqual(self.harness.poster.contents[-1], "3")

    def test_unpublishedDeadLetterHoldsTheNextBack(self) -> None:
        """The receiver is not asked again; nothing is lost when the chain takes it."""
        self.subscribe(maxAttempts=1)
        publish = self.harness.broker.publish
        refused = errors.LedgerUnavailable("full")
        self.patch(self.harness.broker, "publish", lambda *args: succeed([refused]))
        self.harness.publish("poison", "2")
        self.harness.clock.pump([1.0] * 20)
        self.assertEqual(self.harness.poster.contents, ["poison"])
        page = self.harness.webhooks.listWebhooks(ANYBODY, "1")
        [status] = self.successResultOf(page).items
        self.assertEqual(status.lastError, "its dead letter cannot be published: full")
        assert status.oldest is not None
        self.patch(self.harness.broker, "publish", publish)
        self.harness.clock.pump([1.0] * 70)
        self.assertEqual(self.harness.poster.contents, ["poison", "2"])
        [event] = self.published()
        self.assertEqual(event.extensions["svc-reason"], "no")

    def test_webhookMayNotSendItsOwnDeadLetters(self) -> None:
        for options in (
            {"maxAttempts": 1, "deadLetter": "a"},
            {"deadLetter": "b"},
        ):
            self.failureResultOf(self.harness.subscribe(**options), errors.ParameterInvalid)
        for filter in ("$svc/#", "$svc/dead/+"):
            self.failureResultOf(
                self.harness.subscribe(URL, filter, maxAttempts=1), errors.ParameterInvalid
            )
        self.successResultOf(self.harness.subscribe(URL, "#", maxAttempts=1))

    def test_accountNeedsRightToPublish(self) -> None:
        accounts = FakeAuthenticator(
            account("ann", "subscribe 1 a", "publish 1 dead"), account("bob", "subscribe 1 a")
        )
        self.harness.authenticators.append(accounts)
        self.harness.kill()
        self.harness.start()
        self.harness.open("dead")
        options: dict[str, Any] = {"maxAttempts": 1, "deadLetter": "dead"}
        self.failureResultOf(self.harness.subscribe(account="bob", **options), errors.NotAuthorized)
        self.successResultOf(self.harness.subscribe(account="ann", **options))
        self.successResultOf(self.harness.subscribe(account="bob", maxAttempts=1))
        self.harness.publish("poison")
        self.harness.settle(2.0)
        self.assertEqual(len(self.published("dead")), 1)
        # It is taken away later.
        accounts.identities["ann"] = account("ann", "subscribe 1 a")
        self.successResultOf(self.harness.access.reload())
        self.harness.publish("poison")
        self.harness.settle(2.0)
        self.assertEqual(len(self.published("dead")), 1)

    def test_deadLettersCountAgainstQuotaOfAccount(self) -> None:
        """Also those that the broker publishes, since they are an account's doing."""
        self.harness.authenticators.append(
            FakeAuthenticator(account("ann", "subscribe 1 a", quotas=Quotas(publishes=1)))
        )
        self.harness.kill()
        self.harness.start()
        self.subscribe(maxAttempts=1, account="ann")
        self.harness.publish(*(f"poison{number}" for number in range(20)))
        self.harness.settle(1.0)
        few = len(self.published())
        self.assertLess(few, 20)
        self.harness.clock.pump([1.0] * 300)
        self.assertGreater(len(self.published()), few)

    def test_deadLettersInTheLogWaitForNoAnswer(self) -> None:
        """They count against the quota of publishes that wait for theirs until they are there."""
        self.harness.authenticators.append(
            FakeAuthenticator(account("ann", "subscribe 1 a", quotas=Quotas(inflight=1)))
        )
        self.harness.kill()
        self.harness.start()
        self.subscribe(maxAttempts=1, account="ann")
        self.harness.publish("poison1", "poison2", "poison3")
        self.harness.clock.pump([1.0] * 30)
        self.assertEqual(len(self.published()), 3)

    def test_reservedNamesAreLeftOut(self) -> None:
        """An earlier release has let them in."""
        extensions = {"svc-author": "x", "svc-a": "b"}
        event = Event(
            topic="a", content=b"x", extensions=extensions, eventId=EventId("0123abcd", 1, 1)
        )
        made = makeDeadLetter(event, "1", "d", ID, 3, "why").extensions
        checkExtensions(made)
        self.assertEqual((made.get("svc-author"), made["svc-a"]), (None, "b"))

    def test_anyEventFitsIntoDeadLetter(self) -> None:
        """Where extensions are too large, the tag is kept, if it fits."""
        name = "t" * 256
        for tag, hasTag in (("x", True), ("x" * (MAX_EXTENSIONS_SIZE - 7), False)):
            rest = MAX_EXTENSIONS_SIZE - len("svc-tag") - len(tag) - len("svc-a")
            event = Event(
                topic=name,
                content=b"",
                extensions={"svc-tag": tag, **({"svc-a": "x" * rest} if rest > 0 else {})},
                eventId=EventId("0123abcd", 3, 7),
            )
            made = makeDeadLetter(event, "1", "d", ID, 3, "x" * 999).extensions
            checkExtensions(made)
            self.assertEqual(made.get("svc-tag"), tag if hasTag else None)
            self.assertNotIn("svc-a", made)
            self.assertEqual(made["svc-reason"], "x" * MAX_REASON)

    def test_emptyEventIsGivenUpToo(self) -> None:
        """Publishers of MQTT make such events."""
        self.subscribe(maxAttempts=1)
        self.harness.poster.judge = lambda post: post.content != ""
        self.harness.publish("", "2")
        self.harness.settle(2.0)
        self.assertEqual(self.harness.poster.contents, ["", "2"])
        self.assertEqual([each.content for each in self.published()], [b""])
