"""
Tests for managing webhooks: list, pause, resume, retry, skip.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import ANYBODY, Principal
from svcbroker.model import EventId, WebhookStatus

from ...access.support import FakeAuthenticator, account
from .support import PUBLIC, URL, Harness

ID = "00000000-0000-4000-8000-00000000000a"
OTHER = "00000000-0000-4000-8000-00000000000b"


class ManagingTests(SynchronousTestCase):
    """
    One webhook and who manages it.
    """

    def setUp(self) -> None:
        self.harness = Harness(self)
        self.harness.open("a", "b")
        self.webhooks = self.harness.webhooks

    def subscribe(self, *args: str, subscriptionId: str = ID, **options: Any) -> None:
        self.successResultOf(
            self.harness.subscribe(*args, subscriptionId=subscriptionId, **options)
        )

    def restart(self) -> None:
        self.harness.kill()
        self.harness.start()
        self.harness.settle()
        self.webhooks = self.harness.webhooks

    def done(self, answer: Deferred[bool]) -> None:
        """The call was carried out."""
        self.harness.settle()
        self.assertIs(self.successResultOf(answer), True)

    def status(self, principal: Principal = ANYBODY, id: str | None = ID) -> WebhookStatus:
        [status] = self.successResultOf(self.webhooks.listWebhooks(principal, "1", id)).items
        return status

    @property
    def contents(self) -> list[str]:
        return self.harness.poster.contents

    # Listing.

    def test_listShowsWhatWasAskedForWithoutSecrets(self) -> None:
        self.subscribe(
            f"{URL}?key=do-not-tell",
            "a",
            "b",
            tag="x",
            headers={"Authorization": "do-not-tell"},
            batch=5,
            maxAttempts=3,
        )
        status = self.status()
        self.assertNotIn("do-not-tell", repr(status))
        self.assertEqual(
            (status.filters, status.tag, status.remote), (("a", "b"), "x", f"{PUBLIC}:80")
        )
        self.assertEqual((status.batch, status.batchSeconds, status.maxAttempts), (5, 1, 3))
        self.assertEqual(status.deadLetter, f"$svc/dead/{ID}")
        self.assertEqual((status.failures, status.lastError, status.oldest), (0, "", None))
        self.assertNotIn("do-not-tell", repr(self.webhooks._webhooks[ID].record))

    def test_failingWebhookShowsErrorAndOldestEvent(self) -> None:
        self.subscribe()
        self.harness.poster.judge = lambda post: False
        self.harness.publish("1", "2")
        self.harness.settle(5.0)
        status = self.status()
        oldest = self.harness.poster.posts[0].events[0].eventId
        self.assertEqual((status.lastError, status.oldest), ("no", oldest))
        self.assertGreater(status.failures, 1)
        assert status.oldestAt is not None and status.lastErrorAt is not None
        self.assertGreaterEqual(status.readAt - status.oldestAt, 5000)
        self.assertLess(status.oldestAt, status.lastErrorAt)
        self.assertEqual({each.error for each in status.answers}, {"no"})
        assert status.nextAttemptAt is not None
        self.assertGreater(status.nextAttemptAt, status.readAt)
        self.harness.poster.judge = lambda post: True
        self.harness.clock.pump([1.0] * 60)
        status = self.status()
        self.assertEqual((status.failures, status.lastError, status.oldest), (0, "no", None))
        self.assertEqual((status.answers[-1].error, status.nextAttemptAt), ("", None))

    def test_eventUnderWayIsTheOldest(self) -> None:
        self.subscribe()
        self.harness.poster.judge = lambda post: None
        self.harness.publish("1", "2")
        self.assertEqual(self.status().oldest, self.harness.poster.posts[0].events[0].eventId)

    def test_pagesGoThroughAll(self) -> None:
        ids = [self.successResultOf(self.harness.subscribe()) for _ in range(5)]
        found, after = [], None
        while True:
            page = self.successResultOf(
                self.webhooks.listWebhooks(ANYBODY, "1", None, after, limit=2)
            )
            found += [each.subscriptionId for each in page.items]
            after = page.next
            if after is None:
                break
        self.assertEqual(found, sorted(ids))

    # Pausing.

    def test_pausedWebhookSendsNothing(self) -> None:
        """Also after a restart."""
        self.subscribe()
        self.done(self.webhooks.pauseWebhook(ANYBODY, ID))
        self.harness.publish("1", "2")
        self.restart()
        self.harness.publish("3")
        self.harness.clock.pump([1.0] * 60)
        self.assertEqual(self.contents, [])
        status = self.status()
        self.assertTrue(status.isPaused)
        self.assertIsNotNone(status.oldest)
        self.done(self.webhooks.resumeWebhook(ANYBODY, ID))
        self.assertEqual(self.contents, ["1", "2", "3"])
        self.assertFalse(self.status().isPaused)

    def test_pauseLetsTheRequestUnderWayEnd(self) -> None:
        self.subscribe()
        self.harness.poster.judge = lambda post: None
        self.harness.publish("1", "2")
        self.done(self.webhooks.pauseWebhook(ANYBODY, ID))
        self.harness.poster.open[0].answer.callback(None)
        self.harness.poster.judge = lambda post: True
        self.harness.settle(10.0)
        self.assertEqual(self.contents, ["1"])
        self.assertEqual(self.harness.slots.busy, 0)
        self.done(self.webhooks.resumeWebhook(ANYBODY, ID))
        self.assertEqual(self.contents, ["1", "2"])

    def test_subscribingAgainLeavesItPaused(self) -> None:
        self.subscribe()
        self.done(self.webhooks.pauseWebhook(ANYBODY, ID))
        self.subscribe()
        self.assertTrue(self.status().isPaused)

    def test_pausedWebhookCanBeEndedAndStopped(self) -> None:
        for isPublished in (False, True):
            self.subscribe()
            self.done(self.webhooks.pauseWebhook(ANYBODY, ID))
            if isPublished:
                self.harness.publish("1")
            self.restart()
            self.done(self.webhooks.unSubscribe(ANYBODY, ID))
            self.assertEqual(self.harness.disk.kept, {})

    # Retrying and skipping.

    def test_retryMakesTheAttemptNow(self) -> None:
        self.subscribe()
        self.harness.poster.judge = lambda post: False
        self.harness.publish("1")
        self.harness.clock.pump([1.0] * 60)
        count = len(self.contents)
        self.harness.settle()
        self.assertEqual(len(self.contents), count)
        self.done(self.webhooks.retryWebhook(ANYBODY, ID))
        self.assertEqual(len(self.contents), count + 1)
        self.harness.poster.judge = lambda post: True
        self.done(self.webhooks.retryWebhook(ANYBODY, ID))
        self.done(self.webhooks.retryWebhook(ANYBODY, ID))
        self.assertEqual(len(self.contents), count + 2)

    def test_skippedEventIsNotSentAgain(self) -> None:
        """The next one goes out at once, and a restart does not bring it back."""
        self.subscribe()
        self.harness.poster.judge = lambda post: post.content != "1"
        self.harness.publish("1", "2", "3")
        oldest = self.status().oldest
        assert oldest is not None
        self.done(self.webhooks.skipEvent(ANYBODY, ID, oldest))
        self.assertEqual(self.contents, ["1", "2", "3"])
        self.assertIsNone(self.status().oldest)
        self.restart()
        self.harness.settle(5.0)
        self.assertEqual(self.contents, [])

    def test_onlyEventCanBeSkipped(self) -> None:
        """The slot is free, and the next event is sent at once."""
        self.subscribe()
        self.harness.poster.judge = lambda post: post.content != "1"
        self.harness.publish("1")
        oldest = self.status().oldest
        assert oldest is not None
        self.done(self.webhooks.skipEvent(ANYBODY, ID, oldest))
        self.assertEqual(self.harness.slots.busy, 0)
        self.harness.publish("2")
        self.assertEqual(self.contents, ["1", "2"])

    def test_eventsOfPausedWebhookCanBeSkipped(self) -> None:
        """One after the other. It stays paused."""
        self.subscribe()
        self.done(self.webhooks.pauseWebhook(ANYBODY, ID))
        self.harness.publish("1", "2", "3")
        for number in (1, 2):
            oldest = self.status().oldest
            assert oldest is not None
            self.assertEqual(oldest.sequence, number)
            self.done(self.webhooks.skipEvent(ANYBODY, ID, oldest))
        self.harness.settle(2.0)
        self.assertEqual(self.contents, [])
        self.done(self.webhooks.resumeWebhook(ANYBODY, ID))
        self.assertEqual(self.contents, ["3"])

    def test_eventUnderWayCanBeSkipped(self) -> None:
        """No further attempt is made."""
        self.subscribe()
        self.harness.poster.judge = lambda post: None
        self.harness.publish("1", "2")
        oldest = self.status().oldest
        assert oldest is not None
        self.done(self.webhooks.skipEvent(ANYBODY, ID, oldest))
        self.harness.poster.judge = lambda post: True
        self.harness.poster.fail(self.harness.poster.open[0])
        self.harness.settle()
        self.assertEqual(self.contents, ["1", "2"])

    def test_otherEventIsNotSkipped(self) -> None:
        self.subscribe()
        unknown = EventId("00000000", 1, 1)
        for _ in range(2):
            answer = self.webhooks.skipEvent(ANYBODY, ID, unknown)
            self.failureResultOf(answer, errors.EventNotFound)
            self.harness.poster.judge = lambda post: False
            self.harness.publish("1")

    # Who may.

    def test_ownerAndOperatorManageIt(self) -> None:
        """For others there is no such webhook."""
        self.harness.authenticators.append(
            FakeAuthenticator(
                account("ann", "subscribe 1 a"),
                account("bob", "subscribe 1 a"),
                account("op", "operate *"),
            )
        )
        self.restart()
        self.subscribe(account="ann")
        self.subscribe(account="bob", subscriptionId=OTHER)
        ann, bob, op = (self.harness.access.find(name) for name in ("ann", "bob", "op"))
        assert ann is not None and bob is not None and op is not None
        listed = {}
        for principal in (ann, bob, op):
            page = self.successResultOf(self.webhooks.listWebhooks(principal, "1"))
            listed[principal.name] = [each.subscriptionId for each in page.items]
        self.assertEqual(listed, {"ann": [ID], "bob": [OTHER], "op": [ID, OTHER]})
        for call in (
            self.webhooks.pauseWebhook,
            self.webhooks.resumeWebhook,
            self.webhooks.retryWebhook,
        ):
            self.done(call(ann, ID))
            self.done(call(op, ID))
            self.failureResultOf(call(bob, ID), errors.SubscriptionNotFound)
        unknown = EventId("00000000", 1, 1)
        self.failureResultOf(self.webhooks.skipEvent(bob, ID, unknown), errors.SubscriptionNotFound)
        self.failureResultOf(self.webhooks.skipEvent(op, ID, unknown), errors.EventNotFound)
