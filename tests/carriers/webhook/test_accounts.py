"""
Tests for webhooks of accounts: they send what the account that made them may read.
"""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svcbroker import errors
from svcbroker.access import Principal, Usage
from svcbroker.broker import WebhookRequest
from svcbroker.interfaces import Quotas
from svcbroker.model import InterfaceType, PublishEvent

from ...access.support import FakeAuthenticator, account
from .support import URL, Harness

ID = "00000000-0000-4000-8000-00000000000a"


class AccountTests(SynchronousTestCase):
    """Webhooks of accounts."""

    def setUp(self) -> None:
        self.harness = Harness(self)
        self.accounts = FakeAuthenticator(
            account("ann", "subscribe 1 a"),
            account("bob", "subscribe 1 #"),
            account("op", "operate *"),
        )
        self.harness.authenticators.append(self.accounts)
        self.restart()
        self.harness.open("a", "b")

    def restart(self) -> None:
        self.harness.kill()
        self.harness.start()

    def taken(self) -> list[bytes]:
        """The contents that were sent since the last call."""
        self.harness.settle()
        contents = [post.events[0].content for post in self.harness.poster.posts]
        self.harness.poster.posts.clear()
        return contents

    def test_sendsWhatItsAccountMayRead(self) -> None:
        self.successResultOf(self.harness.subscribe(URL, "#", account="ann"))
        self.harness.publish("1", topic="a")
        self.harness.publish("2", topic="b")
        self.assertEqual(self.taken(), [b"1"])

    def test_needsAGrant(self) -> None:
        self.failureResultOf(self.harness.subscribe(URL, "b", account="ann"), errors.NotAuthorized)

    def test_stopsWhenItsAccountGoesAndResumesWhenItComesBack(self) -> None:
        self.successResultOf(self.harness.subscribe(URL, "a", account="ann"))
        ann = self.accounts.identities.pop("ann")
        self.successResultOf(self.harness.access.reload())
        self.harness.publish("1")
        self.assertEqual(self.taken(), [])
        self.restart()
        self.assertEqual(self.taken(), [])
        self.accounts.identities["ann"] = ann
        self.harness.clock.pump([1.0] * 100)
        self.assertEqual(self.taken(), [b"1"])

    def test_followsTheGrantsOfItsAccountAfterARestart(self) -> None:
        self.successResultOf(self.harness.subscribe(URL, "#", account="bob"))
        self.accounts.identities["bob"] = account("bob", "subscribe 1 b")
        self.restart()
        self.harness.publish("1", topic="a")
        self.harness.publish("2", topic="b")
        self.assertEqual(self.taken(), [b"2"])

    def test_eventsThatWaitForTheReceiverAreDroppedWhenGrantsGo(self) -> None:
        self.successResultOf(self.harness.subscribe(URL, "#", account="bob"))
        self.harness.poster.judge = lambda post: None
        self.publishTogether("a", "b", "b", "a")
        [post] = self.harness.poster.open
        self.accounts.identities["bob"] = account("bob", "subscribe 1 a")
        self.successResultOf(self.harness.access.reload())
        self.harness.poster.judge = lambda post: True
        post.answer.callback(None)
        self.assertEqual(self.taken(), [b"0", b"3"])

    def test_eventsThatWaitForTheReceiverStayWhenTheAccountGoes(self) -> None:
        self.successResultOf(self.harness.subscribe(URL, "a", account="ann"))
        self.harness.poster.judge = lambda post: None
        self.publishTogether("a", "a", "a")
        [post] = self.harness.poster.open
        ann = self.accounts.identities.pop("ann")
        self.successResultOf(self.harness.access.reload())
        self.harness.poster.judge = lambda post: True
        post.answer.callback(None)
        self.assertEqual(self.taken(), [b"0"])
        self.accounts.identities["ann"] = ann
        self.harness.clock.pump([1.0] * 100)
        self.assertEqual(self.taken(), [b"1", b"2"])

    def publishTogether(self, *topics: str) -> None:
        """Publish an event to each of these topics in one block; their contents are numbers."""
        self.harness.ledger.submitMany(
            [
                PublishEvent(topic=topic, content=b"%d" % number)
                for number, topic in enumerate(topics)
            ]
        )
        self.harness.settle()

    def test_othersMayNotEndIt(self) -> None:
        id = self.successResultOf(self.harness.subscribe(URL, "a", account="ann"))
        for name, error in (("bob", errors.SubscriptionNotFound), ("op", None)):
            principal = self.harness.access.find(name)
            assert principal is not None
            answer = self.harness.webhooks.unSubscribe(principal, id)
            self.harness.settle()
            if error is None:
                self.assertIs(self.successResultOf(answer), True)
            else:
                self.failureResultOf(answer, error)

    def test_othersMayNotTakeItsId(self) -> None:
        self.successResultOf(self.harness.subscribe(URL, "a", subscriptionId=ID, account="ann"))
        again = self.harness.subscribe(URL, "a", subscriptionId=ID, account="bob")
        self.failureResultOf(again, errors.SubscriptionExists)

    def test_needsAnAccountThatIsKnownWithoutItsCredentials(self) -> None:
        identity = account("token", "subscribe 1 a", expiresAt=1e12)
        principal = Principal(identity, Usage(Quotas(), self.harness.clock.seconds))
        request = WebhookRequest(
            interfaceType=InterfaceType.RESTFUL, topic=("a",), groupId="1", url=URL
        )
        answer = self.harness.webhooks.subscribe(principal, request)
        self.failureResultOf(answer, errors.NotAuthorized)
