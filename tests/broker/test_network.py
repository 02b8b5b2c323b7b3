"""
Tests of publishes and of changes of topics at a node of a network: the chain decides, not what this
node knows of a topic.
"""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase
from zope.interface import alsoProvides

from svcbroker import errors
from svcbroker.access import ANYBODY, Principal
from svcbroker.broker import Publication, PublishPolicy, SendResult, SendStatus
from svcbroker.interfaces import INetworkLedger
from svcbroker.model import AuthorSet, Topic

from ..access.support import principalOf
from .support import Fixture, makeFixture, publishOne
from .test_authors import ANN, BOB, EVE, AuthorsTests, keys

ANSWERING = PublishPolicy()
OPENING = PublishPolicy(carrier="mqtt", opensTopics=True, wantsResults=False)


def becomeNode(test: Any, fixture: Fixture) -> None:
    """The ledger is that of a network, and this node knows of no topic."""
    alsoProvides(fixture.ledger, INetworkLedger)
    test.patch(fixture.ledger, "takesRequests", True)
    test.patch(fixture.ledger, "topicState", lambda name: None)


class NetworkTests(SynchronousTestCase):
    """
    A topic was opened at another node.
    """

    def setUp(self) -> None:
        self.fixture = makeFixture()
        self.broker = self.fixture.broker
        self.successResultOf(self.broker.open(ANYBODY, None, "t"))
        self.fixture.ledger.takesRequests = False
        becomeNode(self, self.fixture)

    def publish(
        self, *topics: str, policy: PublishPolicy = ANSWERING, principal: Principal = ANYBODY
    ) -> Any:
        """The answers to events, published together."""
        events = [Publication(topic=topic, content=b"x") for topic in topics]
        return self.successResultOf(self.broker.publish(principal, events, policy))

    def test_topicThatTheChainKnowsIsPublishedTo(self) -> None:
        one = publishOne(self.broker, ANYBODY, None, "t", b"x", {})
        self.assertIs(self.successResultOf(one).status, SendStatus.SUCCESS)
        keyed = publishOne(self.broker, ANYBODY, None, "t", b"x", {}, idempotencyKey="k")
        self.assertIs(self.successResultOf(keyed).status, SendStatus.SUCCESS)
        for answer in self.publish("t", "t"):
            self.assertIs(answer.status, SendStatus.SUCCESS)

    def test_topicThatTheChainDoesNotKnowIsNotFound(self) -> None:
        """As at a ledger that decides at once. The status ERROR is for what closed meanwhile."""
        one = publishOne(self.broker, ANYBODY, None, "u", b"x", {})
        self.failureResultOf(one, errors.TopicNotFound)
        first, second, third = self.publish("t", "u", "t")
        self.assertIsInstance(second, errors.TopicNotFound)
        self.assertEqual([type(first), type(third)], [SendResult] * 2)
        self.assertEqual(self.fixture.ledger.submitted[-2].topic, "u")

    def test_carrierThatOpensTopicsOpensThem(self) -> None:
        """Where the client may; otherwise the topic may be open all the same."""
        self.assertEqual(self.publish("t", "u", policy=OPENING), [None, None])
        ann = principalOf("publish 1 #")
        known, unknown = self.publish("t", "new", policy=OPENING, principal=ann)
        self.assertIsNone(known)
        self.assertIsInstance(unknown, errors.TopicNotFound)

    def test_topicsAreClosedAndOpenedByTheChain(self) -> None:
        self.successResultOf(self.broker.close(ANYBODY, None, "t"))
        self.failureResultOf(self.broker.close(ANYBODY, None, "t"), errors.TopicNotFound)
        opened = Topic(
            name="t", address=b"", sender=b"", created=0, sequence=0, height=0, isOpen=True
        )
        self.patch(self.fixture.ledger, "topicState", lambda name: opened)
        self.successResultOf(self.broker.open(ANYBODY, None, "t"))
        one = publishOne(self.broker, ANYBODY, None, "t", b"x", {})
        self.assertIs(self.successResultOf(one).status, SendStatus.SUCCESS)

    def test_copyRefusesForItself(self) -> None:
        """It submits nothing."""
        self.fixture.ledger.takesRequests = False
        one = publishOne(self.broker, ANYBODY, None, "u", b"x", {})
        self.failureResultOf(one, errors.TopicNotFound)
        self.failureResultOf(self.broker.close(ANYBODY, None, "u"), errors.TopicNotFound)
        self.assertEqual(len(self.fixture.ledger.submitted), 1)


class AuthorsOfANetworkTests(AuthorsTests):
    """
    The authors of a topic, of which this node knows what was before.
    """

    def setUp(self) -> None:
        super().setUp()
        self.opened(ANN, admins=[BOB])
        ledger = self.ledger
        before = ledger.topicState("t")
        self.successResultOf(self.change(EVE))
        alsoProvides(ledger, INetworkLedger)
        ledger.takesRequests = True
        self.states = [before]
        self.patch(ledger, "topicState", lambda name: self.states[0])

    def catchUp(self) -> None:
        """This node knows what the others know."""
        self.states[0] = self.ledger._ledger.topicState("t")

    def test_chainKnowsTheAuthors(self) -> None:
        self.assertIsNone(self.publish(EVE))
        self.assertIsInstance(self.publish(ANN), errors.AuthorRefused)
        self.failureResultOf(self.open([ANN], [BOB]), errors.AuthorRefused)
        self.assertIs(self.successResultOf(self.open([EVE], [BOB])), True)

    def test_laterChangeIsNotRefused(self) -> None:
        self.assertIs(self.successResultOf(self.change(ANN, generation=2)), True)
        self.catchUp()
        following = AuthorSet(generation=2, authors=keys(ANN), admins=keys(BOB))
        self.assertEqual(self.authors(), following)

    def test_refusalOfTheChainIsExplained(self) -> None:
        """By what this node knows once it has executed the refused change."""
        self.catchUp()
        self.assertIs(self.successResultOf(self.change(EVE)), True)
        self.failureResultOf(self.change(ANN), errors.ParameterInvalid)
        self.failureResultOf(self.change(ANN, generation=2, admin=ANN), errors.AuthorRefused)
